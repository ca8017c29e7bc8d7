"""The sink's options: those of Kafka's producer, those without a meaning here, and contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ottla.client.failure import Failed
from ottla.records.compress import Codec
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source.options import table

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
BASE: Final = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


def load(**given: str) -> SinkOptions:
    return SinkOptions.load({**BASE, **{name.replace("_", "."): value for name, value in given.items()}})


def test_defaults() -> None:
    options = load()
    assert (options.acks, options.idempotent, options.codec, options.level) == (-1, True, Codec.NONE, None)
    assert not options.exactly_once


def test_a_level_belongs_to_its_codec() -> None:
    levels = {"kafka_compression_zstd_level": "7", "kafka_compression_gzip_level": "2"}
    assert load(kafka_compression_type="zstd", **levels).level == 7
    assert load(kafka_compression_type="GZIP", **levels).level == 2
    assert load(kafka_compression_type="snappy", **levels).level is None


def test_without_all_acknowledgements_there_is_no_idempotence() -> None:
    assert not load(kafka_acks="1").idempotent
    assert not load(kafka_enable_idempotence="false").idempotent
    assert load(kafka_acks="1", kafka_max_in_flight_requests_per_connection="6").in_flight == 6


CONTRADICTIONS: Final = [
    ({"kafka_acks": "1", "kafka_enable_idempotence": "true"}, "needs kafka.acks=all"),
    ({"kafka_max_in_flight_requests_per_connection": "6"}, "at most 5 with idempotence"),
    ({"exactly_once": "true", "kafka_enable_idempotence": "false"}, "exactly.once needs"),
    ({"exactly_once": "true", "kafka_acks": "0"}, "exactly.once needs"),
    ({"ottla_two_phase": "true"}, "set exactly.once to true"),
    ({"ottla_write_id": "a"}, "ottla.write.id needs exactly.once: set exactly.once to true"),
    ({"ottla_lost_batch": "1"}, "ottla.lost.batch needs exactly.once"),
    ({"ottla_write_epoch": "1"}, "set ottla.write.id too"),
    ({"ottla_write_id": "a/b"}, 'option ottla.write.id is "a/b", but should be a name without /'),
    ({"kafka_batch_size": "0"}, "between 1 and"),
    ({"kafka_compression_type": "brotli"}, "none or gzip or snappy or lz4 or zstd"),
]


@pytest.mark.parametrize(("given", "sentence"), CONTRADICTIONS)
def test_contradictions(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        load(**given)


def test_what_kafka_producers_know_and_cannot_matter_here_is_taken() -> None:
    assert SinkOptions.load({**BASE, **dict.fromkeys(SinkOptions.WITHOUT_EFFECT, "1")}) == load()


def test_the_page_has_the_table_as_it_is() -> None:
    """To renew it: print(table(SinkOptions)) of ottla.spark.source.options and ottla.spark.sink.options."""
    page = PAGE.read_text()
    assert table(SinkOptions) in page
    for name in SinkOptions.WITHOUT_EFFECT:
        assert not name.startswith("kafka.") or f"`{name}`" in page, f"{name} has no effect, and the page says nothing"
