"""Spark on a cluster whose brokers are killed while it works: our source and sink, and Spark's own connector.

Leaders, the coordinator of transactions and the controller die while rows are written and copied, a leader just before
they are read. No job fails, and no query has to be started again. No row is lost; with `exactly.once` none is doubled,
which the connector does not promise.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spark.comparing import OURS, THEIRS
from spark.interrupting import STOPS, padded
from spark.topics import committed
from waiting import wait_until

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Victim = Callable[[], int | None]

ROWS = 3000
BATCH = 100  # rows in a task at a time
OPTIONS = {
    "zookeeper.session.timeout.ms": 6000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "replica.lag.time.max.ms": 3000,
}
ONCE = {"exactly.once": "true"}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, options=OPTIONS) as running:
        yield running


@contextmanager
def killing(cluster: Cluster, *kills: tuple[Callable[[], bool], Victim, Callable[[], None]]) -> Iterator[None]:
    """While the block runs: wait for a condition, kill a broker, restart it when another has taken over."""
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            for when, number, tell in kills:
                wait_until(when, "the work has come so far", seconds=300)
                kill(cluster, number)
                tell()
        except BaseException as trouble:
            troubles.append(trouble)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not troubles, troubles


def kill(cluster: Cluster, number: Victim) -> None:
    victim = wait_until(number, "there is somebody to kill")
    assert victim is not None
    cluster.kill(victim, expire=True)
    wait_until(lambda: number() not in (None, victim), f"another one does the work of broker {victim}")
    cluster.start(victim)


@pytest.mark.parametrize("form", [OURS, THEIRS])
def test_no_row_is_lost_while_brokers_are_killed(
    spark: SparkSession, cluster: Cluster, form: str, tmp_path: Path
) -> None:
    source, target = f"{form}-source", f"{form}-target"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wishes = [NewTopic(name, 3, 3, config={"min.insync.replicas": "2"}) for name in (source, target)]
    for created in admin.create_topics(wishes).values():
        created.result(60)
    write_batch(spark, cluster, form, source, tmp_path / "signs")
    check(form, values(cluster, source))
    stream(spark, cluster, form, source, target, tmp_path)
    check(form, values(cluster, target))
    check(form, read_batch(spark, cluster, form, target))


def check(form: str, found: list[int]) -> None:
    assert (found if form == OURS else sorted(set(found))) == list(range(ROWS))


def values(cluster: Cluster, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in committed(cluster.bootstrap, topic))


def write_batch(spark: SparkSession, cluster: Cluster, form: str, topic: str, signs: Path) -> None:
    """Two tasks write. Twice they wait in the middle: a leader dies, then the coordinator of their transactions."""
    signs.mkdir()
    second = "__transaction_state" if form == OURS else topic
    kills = [
        ((signs / f"reached-{stop}").exists, partial(cluster.leader, name, 0), (signs / f"go-{stop}").touch)
        for stop, name in zip(STOPS, (topic, second), strict=True)
    ]
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    try:
        function = partial(padded, folder=signs)
        writer = spark.range(0, ROWS, 1, 2).mapInArrow(function, "key string, value string").write.format(form)
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, **(ONCE if form == OURS else {})}
        with killing(cluster, *kills):
            writer.options(**options).mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def stream(spark: SparkSession, cluster: Cluster, form: str, source: str, target: str, folder: Path) -> None:
    """A query copies, a few hundred rows at a time; a leader dies, later the controller."""
    reading = {"kafka.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", "subscribe": source}
    rows = spark.readStream.format(form).options(**reading, maxOffsetsPerTrigger="400").load()
    writing = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": target, **(ONCE if form == OURS else {})}
    writer = rows.select("key", "value").writeStream.format(form).options(**writing).queryName(f"copy-{form}")
    query: Any = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def has_done(batches: int) -> bool:
        assert query.isActive, query.exception()
        return query.lastProgress is not None and query.lastProgress["batchId"] >= batches

    try:
        leader = (partial(has_done, 1), partial(cluster.leader, target, 0), lambda: None)
        controller = (partial(has_done, 3), cluster.controller, lambda: None)
        with killing(cluster, leader, controller):
            query.processAllAvailable()
    finally:
        query.stop()


def read_batch(spark: SparkSession, cluster: Cluster, form: str, topic: str) -> list[int]:
    """A job reads what the stream has written when the leader of a partition has just died."""
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
    }
    rows = spark.read.format(form).options(**options).load()
    victim = wait_until(partial(cluster.leader, topic, 1), "somebody leads")
    assert victim is not None
    cluster.kill(victim, expire=True)
    found = rows.selectExpr("cast(cast(value as string) as long) as value").collect()
    cluster.start(victim)
    return sorted(row.value for row in found)
