"""Streaming queries on real Spark: each row exactly once over restarts, kills and outages; lag that others can see."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from judge import until
from process import Ottla
from pyspark.errors import StreamingQueryException
from spark.source.test_planner import groups, lags, metadata
from spark.topics import Topics, numbers
from waiting import wait_until

from ottla.client.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


WAIT_S = 300


class Table:
    """A query from topics into a table of files, which Spark's own sink keeps exactly once; it may run many times."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, name: str, **options: str) -> None:
        self.spark, self.topics, self.folder, self.name = spark, topics, folder, name
        self.options = {"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10", **options}

    def load(self, form: str = "ottla") -> DataFrame:
        reader = self.spark.readStream.format(form).option("kafka.bootstrap.servers", self.topics.bootstrap)
        return reader.options(**self.options).load()

    def start(self, form: str = "ottla", **trigger: Any) -> StreamingQuery:
        writer = self.load(form).writeStream.format("parquet").queryName(self.name)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(str(self.folder / "rows"))

    def catch_up(self, form: str = "ottla") -> list[dict[str, Any]]:
        """Read all that is there now, in a run that ends by itself."""
        query = self.start(form, availableNow=True)
        assert query.awaitTermination(WAIT_S)
        return [dict(progress) for progress in query.recentProgress]

    def rows(self) -> list[tuple[int, int, str]]:
        """Partition, offset and value, in order."""
        found = self.spark.read.parquet(str(self.folder / "rows")).select("partition", "offset", "value").collect()
        return sorted((row.partition, row.offset, bytes(row.value).decode()) for row in found)

    def values(self) -> list[str]:
        return sorted((value for _, _, value in self.rows()), key=int)


def dealt(values: list[str], partitions: int) -> list[tuple[int, int, str]]:
    """Where `Topics.fill` puts which record in an empty topic."""
    return sorted((number % partitions, number // partitions, value) for number, value in enumerate(values))


@pytest.mark.parametrize("broker", ["ottla", "kafka"])
def test_stopped_and_started(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, broker: str) -> None:
    topics = Topics(request.getfixturevalue(broker).bootstrap)
    topic = topics.make("restarted-", 2)
    topics.fill(topic, numbers(0, 100))
    table = Table(spark, topics, tmp_path, f"q-{topic}", subscribe=topic)
    before = unnamed(topics)
    query = table.start()
    query.processAllAvailable()
    assert table.rows() == dealt(numbers(0, 100), 2)
    topics.grow(topic, 3)
    topics.fill(topic, numbers(100, 130))
    query.processAllAvailable()
    assert table.values() == numbers(0, 130)
    wait_until(lambda: {lag for _, lag in lags(topics, f"ottla-spark-{table.name}").values()} == {0})
    assert len(lags(topics, f"ottla-spark-{table.name}")) == 3
    query.stop()
    topics.fill(topic, numbers(130, 190))
    assert {lag for _, lag in lags(topics, f"ottla-spark-{table.name}").values()} == {20}
    table.options["maxOffsetsPerTrigger"] = "20"
    ran = table.catch_up()
    assert [progress["numInputRows"] for progress in ran if progress["numInputRows"]] == [18, 18, 18, 6]
    assert table.values() == numbers(0, 190)
    assert {lag for _, lag in lags(topics, f"ottla-spark-{table.name}").values()} == {0}, (
        "when a run has ended, its group says so"
    )
    assert unnamed(topics) == before, "those that only serve to find a query's name are gone"


def test_a_driver_is_killed_in_the_middle(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("killed-", 2)
    topics.fill(topic, numbers(0, 3000))
    for batches in (2, 4):
        with (tmp_path / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, Path(__file__).parents[1] / "driver.py", topics.bootstrap, topic, tmp_path],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            until(partial(committed, tmp_path, batches), driver, tmp_path / "driver.log", WAIT_S)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # Python, its JVM, the planner and the workers
            driver.wait()
    table = Table(spark, topics, tmp_path, "killed", subscribe=topic)
    table.catch_up()
    assert table.rows() == dealt(numbers(0, 3000), 2)
    assert {lag for _, lag in lags(topics, "ottla-spark-killed").values()} == {0}


def committed(folder: Path, batches: int) -> bool:
    return (folder / "checkpoint" / "commits" / str(batches - 1)).exists()


def test_a_broker_restarts_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    with Ottla(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.make("outage", 2)
        topics.fill(topic, numbers(0, 400))
        table = Table(spark, topics, tmp_path, "outage", subscribe=topic, maxOffsetsPerTrigger="50")
        query = table.start()
        try:
            wait_until(lambda: committed(tmp_path, 2), seconds=WAIT_S)
            broker.kill()
            broker.start()
            wait_until(lambda: committed(tmp_path, 5), seconds=WAIT_S)
            broker.stop()
            broker.start()
            query.processAllAvailable()
            assert table.rows() == dealt(numbers(0, 400), 2)
            wait_until(lambda: {lag for _, lag in lags(topics, "ottla-spark-outage").values()} == {0}, seconds=WAIT_S)
        finally:
            query.stop()


def test_a_query_of_sparks_own_source_moves_here_with_its_checkpoint(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("moved-", 2)
    topics.fill(topic, numbers(0, 10))
    table = Table(spark, topics, tmp_path, topic, subscribe=topic)
    table.catch_up("kafka")
    topics.fill(topic, numbers(10, 30))
    table.catch_up("ottla")
    topics.fill(topic, numbers(30, 40))
    table.catch_up("ottla")
    assert table.values() == numbers(0, 40)


def test_a_topic_made_anew_is_told_to_the_user_of_spark(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("anew-")
    topics.fill(topic, numbers(0, 10))
    table = Table(spark, topics, tmp_path, topic, subscribe=topic)
    table.catch_up()
    topics.delete(topic)
    topics.make(topic)
    topics.fill(topic, numbers(10, 15))
    with pytest.raises(StreamingQueryException) as failed:
        table.catch_up()
    assert f"topic {topic} was deleted and recreated since the last batch" in str(failed.value)
    assert "set failOnDataLoss to false to continue at the start of the new one" in str(failed.value)
    table.options["failOnDataLoss"] = "false"
    table.catch_up()
    assert table.values() == numbers(0, 15)


def test_three_groups_on_one_topic(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    """Real time, offline batch and a plain consumer: each at its own pace, one stopped and resumed."""
    topics = Topics(ottla.bootstrap)
    topic = topics.make("shared-", 2)
    live = Table(spark, topics, tmp_path / "live", f"live-{topic}", subscribe=topic)
    batch = Table(spark, topics, tmp_path / "batch", "batch", subscribe=topic, **{"ottla.group": f"batch-{topic}"})
    plain = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": f"plain-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "log_level": 0,
        }
    )
    plain.subscribe([topic])
    copied: list[str] = []

    def copy(until: int) -> None:
        def one() -> bool:
            copied.extend(message.value().decode() for message in plain.consume(1000, 0.1))
            return len(copied) >= until

        wait_until(one)
        plain.commit(asynchronous=False)

    def shown() -> dict[str, list[int]]:
        """Lag of each partition, by the kind of group."""
        named = {"live": f"ottla-spark-live-{topic}", "batch": f"batch-{topic}", "plain": f"plain-{topic}"}
        kinds = {kind: lags(topics, group) for kind, group in named.items()}
        return {kind: [lag for _, (_, lag) in sorted(found.items())] for kind, found in kinds.items()}

    query = live.start()
    topics.fill(topic, numbers(0, 100))
    query.processAllAvailable()
    batch.catch_up()
    copy(100)
    wait_until(lambda: shown() == {"live": [0, 0], "batch": [0, 0], "plain": [0, 0]})

    topics.fill(topic, numbers(100, 200))
    query.processAllAvailable()
    copy(200)
    wait_until(lambda: shown() == {"live": [0, 0], "batch": [50, 50], "plain": [0, 0]})

    query.stop()
    topics.fill(topic, numbers(200, 300))
    batch.catch_up()
    copy(300)
    assert shown() == {"live": [50, 50], "batch": [0, 0], "plain": [0, 0]}

    query = live.start()
    query.processAllAvailable()
    wait_until(lambda: shown() == {"live": [0, 0], "batch": [0, 0], "plain": [0, 0]})
    query.stop()
    plain.close()
    assert live.rows() == batch.rows()
    assert live.values() == batch.values() == sorted(copied, key=int) == numbers(0, 300)


def test_a_query_that_is_stopped_in_its_first_batch_leaves_no_group_behind(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("early-")
    topics.fill(topic, numbers(0, 10))
    table = Table(spark, topics, tmp_path, topic, subscribe=topic)
    started = tmp_path / "started"
    before = unnamed(topics)

    def hold(frame: DataFrame, number: int) -> None:
        frame.write.mode("append").parquet(str(tmp_path / "rows"))
        started.touch()
        wait_until((tmp_path / "go").exists, seconds=WAIT_S)

    writer = table.load().writeStream.queryName(topic).foreachBatch(hold)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(started.exists, seconds=WAIT_S)
    assert len(unnamed(topics) - before) == 1
    (tmp_path / "go").touch()
    query.stop()
    wait_until(lambda: unnamed(topics) == before)


def unnamed(topics: Topics) -> set[str]:
    """Groups of queries whose name is not known yet; one whose driver was killed then stays until it expires."""
    return {name for name in groups(topics) if re.fullmatch("ottla-spark-[0-9a-f]{12}", name)}


def test_a_slow_query_hears_that_retention_will_overtake_it(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("overtaken-", 1, {"retention.ms": "3600000"})
    old_ms = int(time.time() * 1000) - 3_000_000
    for number in numbers(0, 10):
        topics.producer.produce(topic, number.encode(), partition=0, timestamp=old_ms)
    assert topics.producer.flush(30) == 0
    table = Table(spark, topics, tmp_path, topic, subscribe=topic, **{"ottla.group": topic})
    where = TopicPartition(topic, 0)

    def hold(frame: DataFrame, number: int) -> None:
        """The slow query: its batch takes as long as the warning does."""
        frame.write.mode("append").parquet(str(tmp_path / "rows"))
        wait_until(lambda: 0 < metadata(topics, topic, where).get("loses_in_s", 0) < 900, seconds=WAIT_S)

    writer = table.load().writeStream.queryName(topic).foreachBatch(hold)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    wait_until(lambda: "loses_in_s" not in metadata(topics, topic, where), seconds=WAIT_S)
    assert metadata(topics, topic, where)["batch"] == 0
    query.stop()
    assert table.values() == numbers(0, 10)
