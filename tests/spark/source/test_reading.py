"""Splits of real logs as Arrow columns: every kind of content, any way of cutting, and failures."""

from __future__ import annotations

import logging
import random
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from compat.clients import CODECS, Record
from compat.confluent import Confluent
from confluent_kafka import Producer
from process import Ottla
from pyspark.sql.pandas.types import to_arrow_schema
from spark import filling
from waiting import wait_until

from ottla.client import cluster, fetching, offsets
from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.client.fetching import OutOfRange
from ottla.errors import ErrorCode
from ottla.records import native
from ottla.spark.source import reading
from ottla.spark.source.data_source import columns
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.planning import Split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judge import Kafka

    from ottla.client.fetching import Piece
    from ottla.records.columns import Columns

    Broker = Ottla | Kafka

WAIT_S: Final = 60.0


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Ottla]:
    """A broker that a test may stop."""
    with Ottla(tmp_path) as running:
        yield running


def options(broker: Broker, **given: str) -> SourceOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SourceOptions.load({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "any", **named})


def whole(broker: Broker, topic: str, partition: int = 0, *, committed: bool = False) -> Split:
    with Cluster(broker.bootstrap) as cluster:
        split = Split(topic, partition, 0, 0, cluster.topic(topic).id)
        first = offsets.earliest(cluster, [split.where])[split.where]
        last = offsets.latest(cluster, [split.where], committed=committed)[split.where]
        return Split(topic, partition, first, last, split.topic_id)


def rows(split: Split, given: SourceOptions) -> list[dict[str, Any]]:
    schema = to_arrow_schema(columns(headers=given.include_headers), timezone="UTC")
    batches = list(reading.batches(split, given))
    assert all(batch.schema.equals(schema) and batch.num_rows for batch in batches)
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema).to_pylist()
    return found


def milliseconds(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def test_every_codec_and_every_kind_of_record_comes_back(broker: Broker) -> None:
    filling.plain(broker, "read-plain")
    given = options(broker, includeHeaders="true")
    for partition in range(filling.PARTITIONS):
        found = rows(whole(broker, "read-plain", partition), given)
        expected = filling.mixed(125) * len(CODECS)
        assert [row["offset"] for row in found] == list(range(len(expected)))
        assert {(row["topic"], row["partition"], row["timestampType"]) for row in found} == {
            ("read-plain", partition, 0)
        }
        for row, record in zip(found, expected, strict=True):
            headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
            got = Record(milliseconds(row), row["key"], row["value"], tuple(headers))
            assert got == record
            assert (row["headers"] is None) == (not record.headers)


def test_a_worker_without_the_native_part_says_so_once(ottla: Ottla, caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    producer.produce("read-by-the-twin", b"a")
    assert producer.flush(30) == 0
    split = whole(ottla, "read-by-the-twin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_crate", lambda: None)
        native.warn_if_missing.cache_clear()
        for _ in range(2):
            assert [row["value"] for row in rows(split, options(ottla))] == [b"a"]
    assert [record.getMessage() for record in caplog.records] == [native.MISSING]


def test_the_time_of_the_broker_is_marked_as_such(broker: Broker) -> None:
    filling.create(broker, "read-append-time", 1, message_timestamp_type="LogAppendTime")
    client = Confluent(broker.bootstrap)
    client.produce("read-append-time", [Record(filling.NOW_MS, None, b"x")])
    client.close()
    (row,) = rows(whole(broker, "read-append-time"), options(broker))
    assert row["timestampType"] == 1
    assert milliseconds(row) > filling.NOW_MS


def test_gaps_of_compaction_give_no_rows(broker: Broker) -> None:
    filling.compacted(broker, "read-compacted")
    split = whole(broker, "read-compacted")
    found = [row["offset"] for row in rows(split, options(broker))]
    assert found == filling.offsets(broker, "read-compacted")
    assert len(found) < split.stop - split.start


def test_aborted_transactions_are_left_out_when_asked_for(broker: Broker) -> None:
    total, committed = filling.transactional(broker, "read-transactions")
    for level, expected in (("read_uncommitted", total), ("read_committed", committed)):
        given = options(broker, kafka_isolation_level=level)
        found = [
            row
            for index in range(2)
            for row in rows(whole(broker, "read-transactions", index, committed=given.committed), given)
        ]
        assert len(found) == expected
        assert (sum(row["value"] == b"no transaction" for row in found)) == 50


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", ["read-plain", "read-compacted", "read-transactions"])
def test_wherever_a_log_is_cut_every_row_is_in_exactly_one_split(
    broker: Broker, topic: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pieces and Arrow batches so small that every border is met, inside of batches and between them."""
    given = options(broker, kafka_isolation_level=level, includeHeaders="true", kafka_max_partition_fetch_bytes="2000")
    split = whole(broker, topic, committed=given.committed)
    expected = rows(split, given)
    monkeypatch.setattr(reading, "COLUMNS_BYTES", 300)
    chance = random.Random(len(expected))
    for _ in range(3):
        inner = sorted(chance.sample(range(split.start + 1, split.stop), 12))
        bounds = [split.start, *inner, split.stop]
        parts = [rows(Split(topic, 0, start, stop, split.topic_id), given) for start, stop in pairwise(bounds)]
        assert [row for part in parts for row in part] == expected


def test_messages_of_the_old_formats_are_read(alone: Ottla) -> None:
    filling.legacy(alone, "old")
    given = options(alone, includeHeaders="true")
    for magic in (0, 1):
        found = rows(whole(alone, "old", magic), given)
        assert [row["offset"] for row in found] == list(range(100))
        assert [row["key"] for row in found] == [filling.KEYS[n % 5] for n in range(100)]
        assert [row["value"] for row in found] == [filling.VALUES[n // 5 % 5] for n in range(100)]
        assert {row["timestampType"] for row in found} == {0 if magic else -1}
        times = [row["timestamp"] and milliseconds(row) for row in found]
        assert times == [filling.NOW_MS + n if magic else None for n in range(100)]


def test_a_batch_that_inflates_to_more_than_we_put_together_is_read(ottla: Ottla) -> None:
    filling.create(ottla, "inflated", 1)
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "compression.type": "zstd", "linger.ms": 200,
                         "message.max.bytes": 20_000_000, "batch.size": 20_000_000, "log_level": 2})  # fmt: skip
    for _ in range(3):
        producer.produce("inflated", bytes(3 * reading.COLUMNS_BYTES), partition=0)
    assert producer.flush(WAIT_S) == 0
    assert [len(row["value"]) for row in rows(whole(ottla, "inflated"), options(ottla))] == [
        3 * reading.COLUMNS_BYTES
    ] * 3


@pytest.mark.parametrize("crate", [True, False])
def test_arrow_batches_are_bounded_whatever_a_record_batch_inflates_to(
    alone: Ottla, crate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones that compress well, among small ones; the JVM takes several times the size of an Arrow batch."""
    filling.create(alone, "well-packed", 1, max_message_bytes="100000000")
    if not crate:
        monkeypatch.setattr(native, "_crate", lambda: None)
    monkeypatch.setattr(reading, "COLUMNS_BYTES", 100_000)
    client = Producer({"bootstrap.servers": alone.bootstrap, "compression.type": "zstd", "linger.ms": 60_000,
                       "message.max.bytes": 90_000_000, "batch.size": 90_000_000, "log_level": 2})  # fmt: skip
    expected: list[bytes] = []
    for size, count in ((10, 3), (1_000, 3_000), (10, 3), (10, 4), (50, 20_000), (150_000, 6), (700_000, 2), (10, 1)):
        for number in range(count):
            value = b"%d" % number
            expected.append(value.ljust(size))
            client.produce("well-packed", expected[-1], partition=0)
        assert client.flush(WAIT_S) == 0
    split, given = whole(alone, "well-packed"), options(alone)
    made = list(reading.batches(split, given))
    assert pa.Table.from_batches(made).column("value").to_pylist() == expected
    sizes = [(batch.column("value").nbytes, batch.num_rows) for batch in made]
    assert max(size for size, rows in sizes if rows > 1) <= 2 * reading.COLUMNS_BYTES
    assert [rows for size, rows in sizes if size > 2 * reading.COLUMNS_BYTES] == [1, 1], "a record is not cut"
    assert len(sizes) < 3 * sum(size for size, _ in sizes) / reading.COLUMNS_BYTES, "nor are there many small ones"


def test_a_record_without_a_timestamp_has_null_for_it(broker: Broker) -> None:
    filling.timeless(broker, "read-timeless")
    found = rows(whole(broker, "read-timeless"), options(broker))
    times = [row["timestamp"] and milliseconds(row) for row in found]
    assert times == [None, 1, None, None, 7, None]
    assert {row["timestampType"] for row in found} == {0}


def numbered(broker: Broker, topic: str, count: int) -> None:
    filling.create(broker, topic, 1)
    client = Confluent(broker.bootstrap)
    for start in range(0, count, 10):
        client.produce(topic, [Record(filling.NOW_MS, None, b"%d" % n) for n in range(start, start + 10)])
    client.close()


def test_what_was_decoded_is_not_decoded_again(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with aborted transactions, of which some end behind the place where it goes on."""
    filling.transactional(ottla, "once")
    given, split = options(ottla, kafka_isolation_level="read_committed"), whole(ottla, "once", committed=True)
    decode, read = reading.decode_columns, []

    def counted(data: memoryview, **more: Any) -> Columns:
        found = decode(data, **more)
        read.append(found.bytes_read)
        return found

    monkeypatch.setattr(reading, "decode_columns", counted)
    expected = rows(split, given)
    (whole_size,) = read
    read.clear()
    monkeypatch.setattr(reading, "COLUMNS_BYTES", whole_size // 20)
    assert rows(split, given) == expected
    assert len(read) > 5
    assert sum(read) == whole_size


def test_who_wants_no_more_leaves_the_worker_as_it_was(ottla: Ottla) -> None:
    numbered(ottla, "left", 200)
    given, split = options(ottla, kafka_max_partition_fetch_bytes="100"), whole(ottla, "left")
    for _ in range(3):
        batches = reading.batches(split, given)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert len(rows(split, given)) == 200
    assert len(rows(split, given)) == 200, "the second time by the connection of the first"


def test_a_damaged_batch_is_one_sentence_that_says_where(alone: Ottla) -> None:
    numbered(alone, "damaged", 30)
    split, given = whole(alone, "damaged"), options(alone)
    alone.stop()
    (segment,) = (alone.log_dir / "damaged-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 80] ^= 1  # inside the records of the second batch
    segment.write_bytes(data)
    alone.start()
    with pytest.raises(Failed) as caught:
        rows(split, given)
    sentence = str(caught.value)
    assert sentence.startswith("damaged partition 0 at offset ")
    assert "the batch at offset 10" in sentence
    assert "checksum" in sentence
    assert "read around it with startingOffsets and endingOffsets" in sentence
    around = [Split("damaged", 0, 0, 10, split.topic_id), Split("damaged", 0, 20, 30, split.topic_id)]
    assert [len(rows(part, given)) for part in around] == [10, 10]
    with pytest.raises(Failed, match="damaged"):
        rows(split, options(alone, failOnDataLoss="false"))


def test_records_that_retention_took_are_said_or_passed_over(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    numbered(broker, "retained", 60)
    split = whole(broker, "retained")
    client = Confluent(broker.bootstrap)
    client.trim("retained", 35)
    client.close()
    with pytest.raises(Failed) as caught:
        rows(split, options(broker))
    assert str(caught.value) == (
        "retained partition 0 at offset 0: records up to offset 35 were removed by retention before they were read; "
        "set failOnDataLoss to false to read what is left"
    )
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        found = rows(split, options(broker, failOnDataLoss="false"))
    assert [row["offset"] for row in found] == list(range(35, 60))
    assert "records up to offset 35 were removed" in caplog.text
    early = Split("retained", 0, 0, 20, split.topic_id)
    assert rows(early, options(broker, failOnDataLoss="false")) == []


def test_a_topic_that_was_deleted_is_said_or_passed_over(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "MISSING_S", 0.3)
    numbered(broker, "deleted", 20)
    split = whole(broker, "deleted")
    client = Confluent(broker.bootstrap)
    client.delete("deleted")

    def gone() -> bool:
        with Cluster(broker.bootstrap) as cluster:
            return not cluster.topics(["deleted"])

    wait_until(gone, "the topic to be gone")
    with pytest.raises(Failed, match="deleted partition 0 at offset 0: the topic was deleted; set failOnDataLoss to"):
        rows(split, options(broker))
    assert rows(split, options(broker, failOnDataLoss="false")) == []
    filling.create(broker, "deleted", 1)
    client.produce("deleted", [Record(filling.NOW_MS, None, b"another")] * 20)
    client.close()
    with pytest.raises(Failed, match="deleted and recreated, so these records are gone"):
        rows(split, options(broker))
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        assert rows(split, options(broker, failOnDataLoss="false")) == [], "the new records are others"
    assert "recreated" in caplog.text


def test_a_log_that_lost_its_end_is_said_or_passed_over(ottla: Ottla) -> None:
    numbered(ottla, "short", 20)
    split = whole(ottla, "short")
    beyond = Split("short", 0, 30, 40, split.topic_id)
    with pytest.raises(Failed, match="short partition 0 at offset 30: the log ends at offset 20"):
        rows(beyond, options(ottla))
    assert rows(beyond, options(ottla, failOnDataLoss="false")) == []
    across = Split("short", 0, 10, 40, split.topic_id)
    impatient = {"kafka_request_timeout_ms": "300", "kafkaConsumer_pollTimeoutMs": "300"}
    with pytest.raises(Failed, match=r"offset 20: the log ends before offset 40, records were lost.*failOnDataLoss"):
        rows(across, options(ottla, **impatient))
    found = rows(across, options(ottla, failOnDataLoss="false", **impatient))
    assert [row["offset"] for row in found] == list(range(10, 20))


def test_an_offset_that_is_there_after_all_is_read(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is no longer or not yet the leader may have a shorter log: no record is lost or skipped."""
    numbered(ottla, "moved", 20)
    split, asked = whole(ottla, "moved"), []

    def fetch(*given: Any, start: int, **more: Any) -> Iterator[Piece]:
        asked.append(start)
        if len(asked) < 3:
            raise OutOfRange("moved partition 0", ErrorCode.OFFSET_OUT_OF_RANGE)
        yield from fetching.fetch(*given, start=start, **more)

    monkeypatch.setattr(reading, "fetch", fetch)
    for loss in ("true", "false"):
        asked.clear()
        found = rows(split, options(ottla, failOnDataLoss=loss))
        assert [row["offset"] for row in found] == list(range(20))
        assert asked == [0, 0, 0]


def test_an_offset_that_is_there_and_never_comes_is_said(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*given: Any, **more: Any) -> Iterator[Piece]:
        raise OutOfRange("stuck partition 0", ErrorCode.OFFSET_OUT_OF_RANGE)

    numbered(ottla, "stuck", 20)
    monkeypatch.setattr(reading, "fetch", fetch)
    impatient = options(ottla, kafka_request_timeout_ms="300", kafkaConsumer_pollTimeoutMs="300")
    with pytest.raises(Failed, match=r"stuck partition 0 at offset 0: .*failOnDataLoss"):
        rows(whole(ottla, "stuck"), impatient)


def test_a_topic_made_anew_while_it_is_read_is_said_or_passed_over(ottla: Ottla) -> None:
    client = Confluent(ottla.bootstrap)
    for loss in ("true", "false"):
        topic = f"swapped-{loss}"
        numbered(ottla, topic, 200)
        given = options(ottla, failOnDataLoss=loss, kafka_max_partition_fetch_bytes="100")
        reader = reading._batches(whole(ottla, topic), given)
        assert next(reader).num_rows
        client.delete(topic)
        filling.create(ottla, topic, 1)
        client.produce(topic, [Record(filling.NOW_MS, None, b"another")] * 200)
        if loss == "true":
            with pytest.raises(Failed, match="recreated while it was read; set failOnDataLoss to false"):
                list(reader)
        else:
            assert b"another" not in pa.Table.from_batches(list(reader)).column("value").to_pylist()
    client.close()


def test_one_answer_does_not_tell_that_a_topic_is_gone(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(ottla, "hidden", 20)
    split, topics = whole(ottla, "hidden"), Cluster.topics
    monkeypatch.setattr(Cluster, "topics", lambda self, names=None: {})
    assert len(rows(split, options(ottla))) == 20
    monkeypatch.setattr(Cluster, "topics", topics)


def test_a_broker_that_is_away_is_waited_for_and_then_said(alone: Ottla) -> None:
    numbered(alone, "away", 20)
    split = whole(alone, "away")
    alone.stop()
    given = options(alone, kafka_request_timeout_ms="300", kafkaConsumer_pollTimeoutMs="300")
    with pytest.raises(Failed) as caught:
        rows(split, given)
    assert str(caught.value).startswith(f"away partition 0 at offset 0: nothing answers at {alone.bootstrap}")
    assert "is a broker running there?" in str(caught.value)
    coming = Thread(target=alone.start)
    coming.start()
    assert len(rows(split, options(alone))) == 20
    coming.join()


def test_a_time_beyond_sparks_calendar_is_one_sentence(ottla: Ottla) -> None:
    far = 2**62
    filling.create(ottla, "far", 1, message_timestamp_after_max_ms=f"{2**63 - 1}")
    client = Confluent(ottla.bootstrap)
    client.produce("far", [Record(filling.NOW_MS, None, b"x"), Record(far, None, b"x")])
    client.close()
    with pytest.raises(Failed, match="far partition 0: a record between offsets 0 and 1 has a timestamp beyond"):
        rows(whole(ottla, "far"), options(ottla))
