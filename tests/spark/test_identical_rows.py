"""Our source and Spark's own connector give the same rows of the same topics, on Ottla and on Apache Kafka.

Every column is compared: row by row where topics are small, as sums over hashes where they are large. What is in the
topics is known from `filling`, so two readers with the same mistake are found too. OTTLA_SPARK_RECORDS=10000000
makes the large topic as large as you like.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import TYPE_CHECKING, Final

import pytest
from compat.clients import CODECS
from spark import filling
from spark.comparing import OURS, THEIRS, alike, compare, rows, sums, table
from spark.filling import NOW_MS

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.records.batch import entries, iterate

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from spark.filling import Broker

LARGE: Final = int(os.environ.get("OTTLA_SPARK_RECORDS", "200000"))
EACH: Final = 125 * len(CODECS)  # rows in a partition of a plain topic
PARTITIONS: Final = filling.PARTITIONS
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """A broker with every kind of topic. The restart that old messages need also ends running compactions."""
    broker: Broker = request.getfixturevalue(request.param)
    filling.compacted(broker, "compacted")
    filling.legacy(broker, "legacy")
    filling.plain(broker, "plain")
    filling.plain(broker, "appended", message_timestamp_type="LogAppendTime")
    filling.create(broker, "empty", 2)
    filling.transactional(broker, "transactions")
    return broker


def test_codecs_keys_values_and_headers(spark: SparkSession, broker: Broker) -> None:
    found = compare(spark, broker.bootstrap, {"subscribe": "plain"}, EACH * PARTITIONS)
    records = filling.mixed(125)
    for row in found:
        record = records[row.offset % 125]
        headers = tuple((name, None if value is None else bytes(value)) for name, value in row.headers or ())
        assert (row.key, row.value, row.micros, headers) == (
            record.key,
            record.value,
            record.timestamp * 1000,
            record.headers,
        )
    assert {row.timestampType for row in found} == {0}


def test_times_of_the_broker(spark: SparkSession, broker: Broker) -> None:
    found = compare(spark, broker.bootstrap, {"subscribe": "appended"}, EACH * PARTITIONS)
    assert {row.timestampType for row in found} == {1}
    assert min(row.micros for row in found) > NOW_MS * 1000 + 10**9


def test_holes_of_compaction(spark: SparkSession, broker: Broker) -> None:
    found = compare(spark, broker.bootstrap, {"subscribe": "compacted"}, len(filling.offsets(broker, "compacted")))
    places = [row.offset for row in found]
    assert sum(row.key.startswith(b"once") for row in found) == 20
    assert len([1 for before, after in itertools.pairwise(places) if after - before > 1]) > 10
    middle = json.dumps({"compacted": {"0": 55}})  # no such offset any more, or soon after one that is not there
    end = json.dumps({"compacted": {"0": 147}})
    some = compare(spark, broker.bootstrap, {"subscribe": "compacted", "startingOffsets": middle, "endingOffsets": end})
    assert some == [row for row in found if 55 <= row.offset < 147]


def test_transactions(spark: SparkSession, broker: Broker) -> None:
    """Control records are never rows; aborted ones are, unless only committed ones are asked for."""
    compare(spark, broker.bootstrap, {"subscribe": "transactions"}, 150)
    found = compare(spark, broker.bootstrap, {"subscribe": "transactions", **COMMITTED}, 115)
    assert any(row.key is not None for row in found)


def test_an_open_transaction(spark: SparkSession, broker: Broker) -> None:
    """Records after it are visible to read_uncommitted, and not yet to read_committed."""
    filling.create(broker, "open", 1)
    maker = filling.open_transaction(broker, "open")
    compare(spark, broker.bootstrap, {"subscribe": "open"}, 20)
    compare(spark, broker.bootstrap, {"subscribe": "open", **COMMITTED}, 0)
    maker.commit_transaction(filling.WAIT_S)
    compare(spark, broker.bootstrap, {"subscribe": "open", **COMMITTED}, 20)


def test_old_messages(spark: SparkSession, broker: Broker) -> None:
    found = compare(spark, broker.bootstrap, {"subscribe": "legacy"}, 200)
    assert {(row.partition, row.timestampType) for row in found} == {(0, -1), (1, 0)}
    assert {(row.partition, row.micros is None) for row in found} == {(0, True), (1, False)}


def test_no_time_is_null(spark: SparkSession, broker: Broker) -> None:
    """The only difference: Spark's source returns a millisecond before 1970."""
    filling.timeless(broker, "timeless")
    compare(spark, broker.bootstrap, {"subscribe": "timeless"}, 6)
    times = {
        form: [
            row.micros
            for row in table(spark, form, broker.bootstrap, {"subscribe": "timeless"})
            .selectExpr("unix_micros(timestamp) AS micros")
            .collect()
        ]
        for form in (OURS, THEIRS)
    }
    assert times[OURS] == [None, 1000, None, None, 7000, None]
    assert times[THEIRS] == [-1000, 1000, -1000, -1000, 7000, -1000]
    filling.create(broker, "timeless-copy", 1)
    copied = table(spark, OURS, broker.bootstrap, {"subscribe": "timeless"}).coalesce(1)
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "timeless-copy"}
    copied.write.format(OURS).options(**sink).mode("append").save()
    with Cluster(broker.bootstrap) as cluster:
        where = TopicPartition("timeless-copy", 0)
        pieces = list(fetch(cluster, where, start=0, stop=6, bytes_max=1 << 20, wait_ms=500))
    found = [(piece.data, entry) for piece in pieces for entry in entries(piece.data)]
    stored = [record.timestamp for data, entry in found for record in iterate(data, entry.position)]
    assert stored == [-1, 1, -1, -1, 7, -1], "a query that copies passes them on as they are"


def test_several_topics_and_an_empty_one(spark: SparkSession, broker: Broker) -> None:
    compare(spark, broker.bootstrap, {"subscribe": "plain, empty,appended"}, 2 * EACH * PARTITIONS)
    compare(spark, broker.bootstrap, {"subscribePattern": "^(plain|empty|lega)(cy)?$"}, EACH * PARTITIONS + 200)
    compare(spark, broker.bootstrap, {"assign": json.dumps({"plain": [0, 2], "legacy": [1]})}, 2 * EACH + 100)
    compare(spark, broker.bootstrap, {"subscribe": "empty"}, 0)


SOME: Final = NOW_MS + 50_000
OFFSETS: Final = {
    "from the last ones": {"startingOffsets": {"0": 600, "1": -2, "2": 0}},
    "to the first ones": {"endingOffsets": {"0": 20, "1": -1, "2": 0}},
    "both": {"startingOffsets": {"0": 100, "1": 100, "2": 624}, "endingOffsets": {"0": 101, "1": 400, "2": 625}},
    "from a time": {"startingTimestamp": SOME},
    "to a time": {"endingTimestamp": SOME},
    "between times": {"startingTimestamp": SOME, "endingTimestamp": NOW_MS + 90_000},
    "from times of partitions": {"startingOffsetsByTimestamp": {"0": SOME, "1": NOW_MS, "2": NOW_MS + 110_000}},
    "to times of partitions": {"endingOffsetsByTimestamp": {"0": SOME, "1": NOW_MS, "2": NOW_MS * 2}},
    "from a time that never was": {"startingTimestamp": NOW_MS * 2, "startingOffsetsByTimestampStrategy": "latest"},
    "in more pieces": {"minPartitions": 11},
    "in small pieces": {"maxRecordsPerPartition": 100},
    "in pieces of a part": {"minPartitions": 7, "startingOffsets": {"0": 100, "1": 0, "2": 624}},
}  # fmt: skip


@pytest.mark.parametrize("which", OFFSETS)
def test_offsets_and_times(spark: SparkSession, broker: Broker, which: str) -> None:
    given = {
        name: json.dumps({"plain": value}) if isinstance(value, dict) else str(value)
        for name, value in OFFSETS[which].items()
    }
    found = compare(spark, broker.bootstrap, {"subscribe": "plain", **given})
    assert len(found) < EACH * PARTITIONS or which.startswith("in ")
    assert found or which == "from a time that never was"


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_streams(spark: SparkSession, broker: Broker, isolation: str, tmp_path: Path) -> None:
    """Everything that there is, in many small batches, each row once, to files and back."""
    topics = "plain,compacted,transactions,legacy,empty"
    options = {"subscribe": topics, "kafka.isolation.level": isolation}
    found = []
    for form in (OURS, THEIRS):
        reader = spark.readStream.format(form).option("kafka.bootstrap.servers", broker.bootstrap).options(**options)
        stream = reader.options(includeHeaders="true", startingOffsets="earliest", maxOffsetsPerTrigger="700").load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{form}-checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / form))
        assert query.awaitTermination(120)
        assert len(query.recentProgress) > 3
        found.append(rows(spark.read.parquet(str(tmp_path / form))))
    alike(*found)
    alike(found[0], rows(table(spark, THEIRS, broker.bootstrap, options)))


@pytest.mark.parametrize("form", [OURS, THEIRS])
def test_what_one_writes_both_read(spark: SparkSession, broker: Broker, form: str) -> None:
    topic = f"written-by-{form}"
    filling.create(broker, topic)
    source = table(spark, THEIRS, broker.bootstrap, {"subscribe": "plain"})
    writer = source.select("key", "value", "headers", "partition").write.format(form).mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic).option(
        "includeHeaders", "true"
    ).save()
    written = compare(spark, broker.bootstrap, {"subscribe": topic}, EACH * PARTITIONS)
    given = rows(source)
    assert [(row[1:5], row.headers) for row in written] == [(row[1:5], row.headers) for row in given]


@pytest.mark.timeout(180 + LARGE // 5000, func_only=True)
def test_many_records(spark: SparkSession, broker: Broker) -> None:
    filling.large(broker, "large", LARGE)
    ours, theirs = (sums(table(spark, form, broker.bootstrap, {"subscribe": "large"})) for form in (OURS, THEIRS))
    assert ours == theirs
    assert sum(row[2] for row in ours) == LARGE
