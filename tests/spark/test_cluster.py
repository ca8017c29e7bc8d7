"""Spark on a cluster whose brokers are killed while it works: batch and stream, each row once.

A leader and the controller die while rows are written and copied, a leader just before they are read. No query has to
be started again.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spark.topics import committed
from waiting import wait_until

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 3000
OPTIONS = {
    "zookeeper.session.timeout.ms": 6000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "replica.lag.time.max.ms": 3000,
}
pytestmark = pytest.mark.timeout(900)


@contextmanager
def killing(cluster: Cluster, number: Callable[[], int | None], when: Callable[[], bool]) -> Iterator[None]:
    """Kill a broker in the middle of the block, and start it again when it counts as dead."""
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            wait_until(when, "the work has begun", seconds=300)
            victim = wait_until(number, "there is somebody to kill")
            assert victim is not None
            cluster.kill(victim, expire=True)
            wait_until(lambda: number() not in (None, victim), f"another one does the work of broker {victim}")
            cluster.start(victim)
        except BaseException as trouble:
            troubles.append(trouble)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    assert not troubles, troubles


def ends(cluster: Cluster, topic: str) -> int:
    """The bytes of a topic's first partition on any broker: a sign that somebody writes to it."""
    return sum(path.stat().st_size for path in cluster.folder.glob(f"broker-*/{topic}-0/*.log"))


def values(cluster: Cluster, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in committed(cluster.bootstrap, topic))


def test_each_row_once_while_brokers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    with Cluster(3, options=OPTIONS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wishes = [NewTopic(name, 3, 3, config={"min.insync.replicas": "2"}) for name in ("a", "b")]
        for created in admin.create_topics(wishes).values():
            created.result(60)
        write_batch(spark, cluster)
        assert values(cluster, "a") == list(range(ROWS))
        stream(spark, cluster, tmp_path)
        assert values(cluster, "b") == list(range(ROWS))
        read_batch(spark, cluster)


def write_batch(spark: SparkSession, cluster: Cluster) -> None:
    """Eight tasks write, and the leader of a partition dies."""
    rows = spark.range(0, ROWS, 1, 8).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "a", "exactly.once": "true"}
    with killing(cluster, lambda: cluster.leader("a", 0), lambda: ends(cluster, "a") > 0):
        rows.write.format("ottla").options(**options).mode("append").save()


def stream(spark: SparkSession, cluster: Cluster, folder: Path) -> None:
    """A query copies, a few hundred rows at a time; a leader dies, later the controller."""
    reading = {"kafka.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", "subscribe": "a"}
    rows = spark.readStream.format("ottla").options(**reading, maxOffsetsPerTrigger="500").load()
    writing = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "b", "exactly.once": "true"}
    writer = rows.select("key", "value").writeStream.format("ottla").options(**writing).queryName("copy")
    query: Any = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        for number in (lambda: cluster.leader("b", 0), cluster.controller):
            done = len(query.recentProgress)
            with killing(cluster, number, lambda done=done: len(query.recentProgress) > done):
                wait_until(lambda done=done: len(query.recentProgress) > done + 2 or not query.isActive, seconds=300)
        query.processAllAvailable()
    finally:
        query.stop()


def read_batch(spark: SparkSession, cluster: Cluster) -> None:
    """A job reads what the stream has written when the leader of a partition has just died."""
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "b",
        "kafka.isolation.level": "read_committed",
    }
    rows = spark.read.format("ottla").options(**options).load()
    cluster.kill(wait_until(lambda: cluster.leader("b", 1)) or 0, expire=True)
    found = sorted(int(row.value) for row in rows.selectExpr("cast(value as string) as value").collect())
    assert found == list(range(ROWS))
