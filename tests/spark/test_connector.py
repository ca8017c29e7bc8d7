"""Spark's own connector on Ottla, and our source beside it: batch and streaming, while the broker goes away.

It stops in the middle: a task reports its position and waits, the broker is killed (then, later, asked to stop) and
started again on its folder and port, and the task continues. No row may be missing, and a read gives none twice. A
write may: neither connector guarantees more, and a broker remembers only the last batch of each producer when it
stops.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from compat.clients import Record
from compat.confluent import Confluent
from confluent_kafka import Producer
from process import Ottla
from spark import filling
from spark.comparing import OURS, THEIRS, rows, table
from spark.interrupting import VALUE, WAIT_S, Restarts, numbered, offsets
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.parametrize("form", [THEIRS, OURS])

PARTITIONS: Final = 2
# Far more than the consumer, two sockets and Spark hold back on the way from the broker to a task that waits.
ROWS: Final = 3000
BATCH: Final = 100


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Ottla]:
    with Ottla(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_all_columns_come_back_as_they_were_written(spark: SparkSession, ottla: Ottla, form: str) -> None:
    topic = f"columns-{form}"
    filling.create(ottla, topic, PARTITIONS)
    given = [
        (record.key, record.value, [*record.headers] or None, index % PARTITIONS)
        for index, record in enumerate(filling.mixed(125))
    ]
    schema = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int"
    write(spark.createDataFrame(given, schema), form, ottla.bootstrap, topic)
    found = rows(table(spark, form, ottla.bootstrap, {"subscribe": topic}))
    assert sorted(map(plain, given)) == sorted(plain((r.key, r.value, r.headers, r.partition)) for r in found)


def plain(row: tuple[Any, ...]) -> tuple[str, ...]:
    """A row as text, so that those with nulls can be sorted."""
    key, value, headers, partition = row
    pairs = None if headers is None else [(name, None if data is None else bytes(data)) for name, data in headers]
    return tuple(map(repr, (key and bytes(key), value and bytes(value), pairs, partition)))


@pytest.mark.usefixtures("small_batches")
def test_a_read_goes_on_after_its_broker_was_away(
    spark: SparkSession, broker: Ottla, form: str, tmp_path: Path
) -> None:
    filling.create(broker, "read", PARTITIONS)
    client = Confluent(broker.bootstrap)
    for partition in range(PARTITIONS):
        client.produce("read", [Record(None, None, VALUE)] * ROWS, partition=partition)
    client.close()
    small = {"kafka.max.partition.fetch.bytes": "65536", "kafka.fetch.max.bytes": "131072"}
    read = table(spark, form, broker.bootstrap, {"subscribe": "read", **small})
    with Restarts(broker, tmp_path / "signs") as restarts:
        function = partial(offsets, folder=restarts.folder)
        found = read.mapInArrow(function, "partition int, offset long").collect()
    assert restarts.done == ["kill", "stop"]
    assert sorted(found) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(ROWS)]


@pytest.mark.usefixtures("small_batches")
def test_a_write_goes_on_after_its_broker_was_away(
    spark: SparkSession, broker: Ottla, form: str, tmp_path: Path
) -> None:
    filling.create(broker, "written", PARTITIONS)
    with Restarts(broker, tmp_path / "signs") as restarts:
        function = partial(numbered, folder=restarts.folder)
        frame = spark.range(0, ROWS * PARTITIONS, 1, PARTITIONS).mapInArrow(function, "key string, value binary")
        write(frame, form, broker.bootstrap, "written")
    assert restarts.done == ["kill", "stop"]
    found = table(spark, form, broker.bootstrap, {"subscribe": "written"})
    keys = {int(row.key) for row in found.selectExpr("CAST(key AS string) AS key").collect()}
    assert keys == set(range(ROWS * PARTITIONS))
    assert found.where(found.value != VALUE).isEmpty()


def test_a_stream_goes_on_after_its_broker_was_away(
    spark: SparkSession, broker: Ottla, form: str, tmp_path: Path
) -> None:
    """A copy of a topic into another, while records come in and the broker is killed, then stopped."""
    filling.create(broker, "from", PARTITIONS)
    filling.create(broker, "to", PARTITIONS)
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", broker.bootstrap)
    stream = reader.options(subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger="400").load()
    writer = stream.select("key", "value").writeStream.format(form).queryName(f"copy-{form}")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "to")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        producing = Feed(broker)
        for how in ("kill", "stop"):
            producing.send(2000)
            until(lambda: written(broker, "to") > producing.sent - 1500, query, "half of the records")
            getattr(broker, how)()
            broker.start()
        producing.send(1000)
        producing.close()
        until(lambda: written(broker, "to") >= producing.sent, query, "all records")
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    found = table(spark, form, broker.bootstrap, {"subscribe": "to"})
    keys = {int(row.key) for row in found.selectExpr("CAST(key AS string) AS key").collect()}
    assert keys == set(range(producing.sent)), "at least once: all of them, perhaps some twice"


class Feed:
    """A producer that outlives its broker and numbers its records."""

    def __init__(self, broker: Ottla) -> None:
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce("from", b"value", str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(WAIT_S) == 0


def written(broker: Ottla, topic: str) -> int:
    client = Confluent(broker.bootstrap)
    ends = [client.offset(topic, -1, partition=partition) for partition in range(PARTITIONS)]
    client.close()
    return sum(end or 0 for end in ends)


def until(ready: Callable[[], bool], query: Any, what: str) -> None:
    def reached() -> bool:
        assert query.isActive, query.exception()
        return ready()

    wait_until(reached, lambda: f"{what}: {query.lastProgress}", WAIT_S)


def write(frame: DataFrame, form: str, bootstrap: str, topic: str) -> None:
    frame.write.format(form).mode("append").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
