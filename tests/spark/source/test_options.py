"""Options of the source: one sentence with the fix for every wrong one, and an up-to-date page in docs/."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source.options import Options, SourceOptions, table
from ottla.spark.source.parsing import EARLIEST, LATEST, Offsets, Time, Times

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "visits"}
WHERE = TopicPartition("visits", 0)


def load(**more: str) -> SourceOptions:
    return SourceOptions.load({**BASE, **{name.replace("_", "."): value for name, value in more.items()}})


def test_names_have_any_case_as_spark_hands_them_over_in_lower_case() -> None:
    options = SourceOptions.load(
        {"KAFKA.bootstrap.servers": "a:1", "subscribePattern": "v.*", "includeheaders": "true"}
    )
    assert (options.bootstrap, options.subscribe_pattern, options.include_headers) == ("a:1", "v.*", True)


def test_a_batch_reads_everything_and_a_stream_what_comes_next() -> None:
    batch, stream = load().for_batch(), load().for_stream()
    assert (batch.starting, batch.ending) == (EARLIEST, LATEST)
    assert (stream.starting, stream.ending) == (LATEST, LATEST)
    assert load(startingOffsets="earliest").for_stream().starting == EARLIEST
    assert load(startingTimestamp="5").for_stream().starting == Time(5)


def test_a_moment_for_all_wins_over_moments_and_those_over_offsets() -> None:
    offsets, times = '{"visits":{"0":7}}', '{"visits":{"0":1000}}'
    options = load(startingOffsets=offsets, endingOffsets=offsets)
    assert (options.starting, options.ending) == (Offsets({WHERE: 7}), Offsets({WHERE: 7}))
    options = load(
        startingOffsets=offsets,
        endingOffsets=offsets,
        startingOffsetsByTimestamp=times,
        endingOffsetsByTimestamp=times,
    )
    assert (options.starting, options.ending) == (Times({WHERE: 1000}), Times({WHERE: 1000}))
    options = load(
        startingOffsetsByTimestamp=times, startingTimestamp="0", endingOffsetsByTimestamp=times, endingTimestamp="0"
    )
    assert (options.starting, options.ending) == (Time(0), Time(0))


def test_options_travel_to_the_workers_as_they_are() -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";'
    options = load(kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism="PLAIN", kafka_sasl_jaas_config=login)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscrib": "a"}, "there is no option subscrib: did you mean subscribe?"),
        ({"kafka.bootstrap.server": "a"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.max.poll.record": "5"}, "did you mean kafka.max.poll.records?"),
        ({"zzz": "a"}, "there is no option zzz: docs/spark.md lists them all"),
        ({"topic": "a"}, "option topic is not supported: it is for writing; to read, set subscribe"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets to earliest or latest"),
        ({"kafka.key.deserializer": "x"}, "cast or parse the column key"),
        ({"kafka.value.deserializer": "x"}, "cast or parse the column value"),
        ({"kafka.enable.auto.commit": "true"}, "offsets are committed to ottla.group"),
        ({"kafka.interceptor.classes": "x"}, "there is no Java consumer here"),
        ({"assign": '{"visits":[0]}'}, "subscribe and assign are both set: keep one of them"),
        ({"minPartitions": "0"}, 'option minPartitions is "0", but should be a whole number, between 1 and'),
        ({"failOnDataLoss": "no"}, 'option failOnDataLoss is "no", but should be true or false'),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger is 9"),
        ({"ottla.group": "a", "kafka.group.id": "b"}, "keep one of them"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
    ],
)
def test_a_wrong_option_is_one_sentence_with_the_fix(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed) as caught:
        SourceOptions.load({**BASE, **given})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:1"}, "set option subscribe to a topic"),
        ({"kafka.bootstrap.servers": " ", "subscribe": "a"}, "not empty"),
    ],
)
def test_what_is_missing_is_asked_for(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed) as caught:
        SourceOptions.load(given)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": "latest"}, "a batch that starts at latest would be empty"),
        ({"endingOffsets": "earliest"}, "a batch that ends at earliest would be empty"),
        ({"startingOffsets": '{"visits":{"0":-1}}'}, "startingOffsets of visits partition 0 is latest (-1)"),
        ({"endingOffsets": '{"visits":{"0":-2}}'}, "endingOffsets of visits partition 0 is earliest (-2)"),
        (
            {"startingOffsets": '{"visits":{"0":5}}', "endingOffsets": '{"visits":{"0":4}}'},
            "visits partition 0 would start at 5 and end before that, at 4",
        ),
        (
            {"startingOffsets": '{"visits":{"0":5}}', "endingOffsets": '{"visits":{"0":5,"1":9}}'},
            "only one of start and end names visits partition 1",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"visits":{"0":5}}',
                "endingOffsetsByTimestamp": '{"visits":{"0":4}}',
            },
            "would start at 5 and end before that, at 4",
        ),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused(given: dict[str, str], sentence: str) -> None:
    options = SourceOptions.load({**BASE, **given})
    with pytest.raises(Failed) as caught:
        options.for_batch()
    assert sentence in str(caught.value)


def test_a_batch_warns_of_what_only_streams_heed(caplog: pytest.LogCaptureFixture) -> None:
    given = SourceOptions.load({**BASE, "maxOffsetsPerTrigger": "5", "ottla.group": "g"})
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        given.for_stream()
        assert not caplog.text
        given.for_batch()
    assert "option maxOffsetsPerTrigger has no effect on a batch" in caplog.text
    assert "option ottla.group has no effect on a batch" in caplog.text


def test_latest_ends_a_batch_and_earliest_begins_it_in_every_spelling() -> None:
    options = load(startingOffsets='{"visits":{"0":-2}}', endingOffsets='{"visits":{"0":-1}}')
    assert options.for_batch() is options


@pytest.mark.parametrize(
    "given",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "5"},
        {"endingOffsetsByTimestamp": '{"visits":{"0":4}}'},
    ],
)
def test_a_stream_has_no_end(given: dict[str, str]) -> None:
    with pytest.raises(Failed, match="a stream has no end"):
        SourceOptions.load({**BASE, **given}).for_stream()


def test_what_kafka_consumers_know_and_cannot_matter_here_is_taken() -> None:
    assert SourceOptions.load({**BASE, **dict.fromkeys(SourceOptions.WITHOUT_EFFECT, "1")}) == load()


def test_no_option_is_in_two_places() -> None:
    for kind in (SourceOptions, SinkOptions):
        names = [row.name.lower() for row in kind.rows().values()]
        assert len(names) == len(set(names))
        assert not set(names) & (kind.WITHOUT_EFFECT | kind.REFUSED.keys())
        assert not kind.WITHOUT_EFFECT & kind.REFUSED.keys()


@pytest.mark.parametrize("kind", [SourceOptions])
def test_the_page_has_the_table_as_it_is(kind: type[Options]) -> None:
    """To renew it: python -c 'from ottla.spark.source.options import *; print(table(SourceOptions))'."""
    page = PAGE.read_text()
    assert table(kind) in page
    for name in kind.WITHOUT_EFFECT:
        assert f"`{name}`" in page, f"{name} has no effect, and docs/spark.md does not say so"
