"""The export pipeline on real Spark: tables read by Spark, pandas, DuckDB and Delta, against what is in the topic."""

from __future__ import annotations

import datetime
import random
import threading
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from compat.clients import Record
from compat.confluent import Confluent
from deltalake import DeltaTable
from process import Ottla
from spark import copies, filling
from spark.launching import OTTLA, Launched, finished

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.client.groups import read_offsets
from ottla.client.offsets import latest
from ottla.spark.pipelines.export.pipeline import PIPELINE
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judge import Kafka
    from pyspark.sql import SparkSession

    Broker = Ottla | Kafka

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


class Exports:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.path = folder / "table"

    def run(self, source: Broker, topics: str, **options: str) -> int:
        """How many rows were written."""
        given = {name.replace("_", "."): value for name, value in options.items()}
        run = Run(
            pipeline=PIPELINE,
            bootstrap=source.bootstrap,
            folder=self.folder,
            once=True,
            options={"topics": topics, "path": str(self.path), **given},
            session=self.spark,
        )
        PIPELINE.run(run)
        return sum(one["numInputRows"] for one in run.queries[0].recentProgress)


@pytest.fixture
def exports(spark: SparkSession, tmp_path: Path) -> Exports:
    return Exports(spark, tmp_path)


@pytest.mark.parametrize("by", ["ottla", "kafka"])
def test_a_table_has_every_record_once(
    exports: Exports, request: pytest.FixtureRequest, by: str, fresh: Callable[[str], str]
) -> None:
    """All codecs, nulls, headers; gaps of compaction; aborted transactions. By four readers."""
    broker: Broker = request.getfixturevalue(by)
    topics = [fresh(f"table-{kind}") for kind in ("plain", "thin", "transactions")]
    filling.plain(broker, topics[0])
    filling.compacted(broker, topics[1])
    filling.transactional(broker, topics[2])
    expected = rows(broker, topics)
    assert exports.run(broker, ",".join(topics), partition="day", file_bytes="300000") == len(expected)
    frame = exports.spark.read.parquet(str(exports.path))
    assert frame.columns == [*COLUMNS, "day"]
    found = frame.selectExpr("topic", "partition", "offset", "unix_millis(timestamp)", "key", "value", "headers", "day")
    assert sorted(map(spark_row, found.collect()), key=lambda row: row[:3]) == expected
    pandas = pd.read_parquet(exports.path)
    assert len(pandas) == len(expected)
    assert sorted(zip(pandas["topic"], pandas["partition"], pandas["offset"], strict=True)) == [
        row[:3] for row in expected
    ]
    ((count, values),) = duckdb.sql(
        f"SELECT count(*), count(DISTINCT (topic, partition, \"offset\")) FROM '{exports.path}/**/*.parquet'"
    ).fetchall()
    assert count == values == len(expected)
    assert exports.run(broker, ",".join(topics), partition="day") == 0, "nothing is new"
    Confluent(broker.bootstrap).produce(topics[0], [Record(filling.NOW_MS, b"k", b"one more")], partition=1)
    assert exports.run(broker, ",".join(topics), partition="day") == 1
    assert exports.spark.read.parquet(str(exports.path)).count() == len(expected) + 1
    lag(broker, topics[0])


def lag(broker: Broker, topic: str) -> None:
    """The group's committed offset is at the end, for lag monitoring."""
    with Cluster(broker.bootstrap) as cluster:
        wheres = [TopicPartition(topic, index) for index in range(filling.PARTITIONS)]
        ends = latest(cluster, wheres)
        assert read_offsets(cluster, "export") == {}, "a group of that name may be a consumer's"
        found = read_offsets(cluster, "ottla-export-export")
        assert {where: found[where].offset for where in wheres} == ends


@pytest.mark.parametrize("partition", ["none", "day"])
def test_a_delta_table(exports: Exports, ottla: Ottla, fresh: Callable[[str], str], partition: str) -> None:
    topic = fresh("delta")
    filling.plain(ottla, topic)
    expected = rows(ottla, [topic])
    options = {"format": "delta", "partition": partition, "compression": "zstd", "name": topic}
    assert exports.run(ottla, topic, **options) == len(expected)
    assert exports.run(ottla, topic, **options) == 0
    Confluent(ottla.bootstrap).produce(topic, [Record(filling.NOW_MS, b"k", b"one more")])
    assert exports.run(ottla, topic, **options) == 1
    table = DeltaTable(exports.path).to_pyarrow_table()
    assert table.column_names[: len(COLUMNS)] == COLUMNS
    assert sorted(map(arrow_row, table.to_pylist()), key=lambda row: row[:3]) == rows(ottla, [topic])


def test_keys_and_values_as_text(exports: Exports, ottla: Ottla, fresh: Callable[[str], str]) -> None:
    topic = fresh("text")
    filling.create(ottla, topic, 1)
    client = Confluent(ottla.bootstrap)
    client.produce(topic, [Record(filling.NOW_MS, b"k", "größer".encode()), Record(filling.NOW_MS, None, None)])
    exports.run(ottla, topic, key="string", value="string", headers="false")
    frame = exports.spark.read.parquet(str(exports.path))
    assert frame.columns == COLUMNS[:-1]
    assert sorted(map(tuple, frame.select("key", "value").collect()), key=str) == [("k", "größer"), (None, None)]
    client.produce(topic, [Record(filling.NOW_MS, b"k", b"\xff\xfe")])
    with pytest.raises(Failed, match=r"a value between offsets 2 and 2 is not text in UTF-8: set value=binary"):
        exports.run(ottla, topic, key="string", value="string", headers="false")
    assert frame.count() == 2
    dead = fresh("dead")
    for _ in range(2):
        exports.run(ottla, topic, key="string", value="string", headers="false", dead_letter=dead)
    assert [value for _, _, value, _ in copies.content(ottla, dead)[0]] == [b"\xff\xfe"]


def test_files_are_made_as_is_said(exports: Exports, ottla: Ottla, fresh: Callable[[str], str]) -> None:
    """Dictionaries and statistics where useful, codec, sizes; readers other than Arrow see plain types."""
    topic = fresh("files")
    filling.large(ottla, topic, 100_000, partitions=1)
    exports.run(ottla, topic, compression="zstd", level="3", file_bytes="2000000")
    files = sorted(exports.path.glob("*.parquet"))
    assert len(files) > 2
    about = pq.ParquetFile(files[0]).metadata
    columns = {
        about.row_group(0).column(i).path_in_schema: about.row_group(0).column(i) for i in range(about.num_columns)
    }
    assert {one.compression for one in columns.values()} == {"ZSTD"}
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert "DELTA_BINARY_PACKED" in columns["offset"].encodings
    assert "RLE_DICTIONARY" not in columns["value"].encodings
    assert columns["offset"].is_stats_set
    assert not columns["value"].is_stats_set
    assert pq.read_schema(files[0]).metadata is None
    assert sum(pq.read_metadata(file).num_rows for file in files) == 100_000


def test_what_cannot_be_is_said_in_a_sentence(
    exports: Exports, ottla: Ottla, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    with pytest.raises(Failed, match="topic nowhere does not exist: create it"):
        exports.run(ottla, "nowhere")
    topic = fresh("said")
    filling.create(ottla, topic, 1)
    client = Confluent(ottla.bootstrap)
    client.produce(topic, [Record(filling.NOW_MS, None, b"x")] * 5)
    exports.run(ottla, topic)
    client.produce(topic, [Record(filling.NOW_MS, None, b"y")] * 5)
    client.trim(topic, 7)
    with pytest.raises(Failed, match="now begins at offset 7, but was exported only up to 5; set failOnDataLoss"):
        exports.run(ottla, topic)
    assert exports.run(ottla, topic, failOnDataLoss="false") == 3
    with Ottla(tmp_path / "other") as other:
        filling.create(other, topic, 1)
        with pytest.raises(Failed, match=r"the table has records of cluster .* export to another path"):
            exports.run(other, topic)


@pytest.mark.timeout(600, func_only=True)
def test_killed_again_and_again(tmp_path: Path) -> None:
    """The driver and the broker are killed at moments nobody chose; a reader looks at the table all the while."""
    chance = random.Random(7)
    path = tmp_path / "my table: ü 100%"
    with Ottla(tmp_path / "broker") as broker:
        filling.create(broker, "readings", 2)
        command = [*OTTLA, "pipeline", "run", "export", "--option", "topics=readings", "--option", f"path={path}",
                   "--option", "interval=100 ms"]  # fmt: skip
        ended = threading.Event()
        sent: list[int] = []
        twice: list[int] = []

        def write() -> None:
            from confluent_kafka import Producer

            producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5,
                                 "message.timeout.ms": 300_000, "log_level": 0})  # fmt: skip
            while not ended.is_set():
                for _ in range(50):
                    producer.produce("readings", b"%d" % len(sent), partition=len(sent) % 2)
                    sent.append(len(sent))
                producer.poll(0)
                ended.wait(0.02)
            assert producer.flush(120) == 0

        def look() -> None:
            while not ended.is_set():
                values = [
                    value for file in path.glob("*.parquet") for value in pq.read_table(file)["value"].to_pylist()
                ]
                twice.append(len(values) - len(set(values)))
                ended.wait(0.2)

        threads = [threading.Thread(target=work) for work in (write, look)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                with Launched(command, folder=tmp_path / "run", bootstrap=broker.bootstrap) as running:
                    running.until_rows("export", 200)
                    broker.kill()
                    broker.start()
                    now = running.until(lambda now: True, "a look")
                    running.until_rows("export", max((one.rows for one in now.progress), default=0) + 200)
                    ended.wait(chance.random())
                    running.kill()
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        finished([*command, "--once"], folder=tmp_path / "run", bootstrap=broker.bootstrap)
        found = pd.concat(pd.read_parquet(file) for file in path.glob("*.parquet"))
        assert sorted(int(value) for value in found["value"]) == sent
        assert set(twice) == {0}


Row = tuple[Any, ...]


def rows(broker: Broker, topics: list[str]) -> list[Row]:
    """What another client finds, as rows of a table in the order of the log."""
    return sorted(
        (
            (topic, index, offset, moment, key, value, headers or None)
            for topic in topics
            for index, some in copies.placed(broker, topic).items()
            for offset, (moment, key, value, headers) in some
        ),
        key=lambda row: row[:3],
    )


def spark_row(row: Any) -> Row:
    topic, partition, offset, moment, key, value, headers, day = row
    utc = datetime.datetime.fromtimestamp(moment / 1000, datetime.UTC)
    assert day == utc.date(), "a row is in the folder of its day"
    pairs = tuple((one["key"], None if one["value"] is None else bytes(one["value"])) for one in headers or ())
    return (topic, partition, offset, moment, bytes_of(key), bytes_of(value), pairs or None)


def arrow_row(row: dict[str, Any]) -> Row:
    pairs = tuple((one["key"], one["value"]) for one in row["headers"] or ())
    moment = round(row["timestamp"].timestamp() * 1000)
    return (row["topic"], row["partition"], row["offset"], moment, row["key"], row["value"], pairs or None)


def bytes_of(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
