"""The rows of the Spark benchmark: what our side, Spark's own connector and the ceiling of the path each do in one run.

A side is a function of a World and a load (which topic, how many records of which size). It returns when the work is
done. It returns a function that counts the handled rows and cleans up, outside the measured time; a run that did not
handle all rows has no number.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bench import ceilings, fill
from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.spark.pipelines.export import pipeline as export
from ottla.spark.pipelines.mirror import pipeline as mirror
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench.brokers import Broker
    from bench.spark import Meter
    from ottla.spark.runner import Pipeline

PARTITIONS = 4
OURS, DEFAULT, BEST, CEILING = "ours", "connector", "connector at its best", "ceiling"
# For each, the settings that `python bench/spark.py --tune` found fastest on two cores.
BEST_READ = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.bytes": "33554432",
    "kafka.receive.buffer.bytes": "1048576",
}
BEST_WRITE = {
    "kafka.batch.size": "262144",
    "kafka.linger.ms": "50",
    "kafka.buffer.memory": "134217728",
    "kafka.send.buffer.bytes": "1048576",
}
# Reads every column, and every byte of every value. Numbers only: the maximum of strings would make Spark sort.
TOUCH = (
    "count(1)", "sum(length(key))", "bit_xor(xxhash64(value))", "sum(length(topic))", "max(partition)", "max(offset)",
    "max(timestamp)", "max(timestampType)",
)  # fmt: skip


class Load(NamedTuple):
    topic: str
    records: int
    size: int


@dataclass
class World:
    """What a side may use: two brokers of ours (the second for copies), Spark, a folder, two more processes."""

    spark: SparkSession
    broker: Broker
    other: Broker
    folder: Path
    processes: ceilings.Processes
    meter: Meter
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def fresh(self, name: str) -> str:
        return f"{name}-{next(self._names)}"

    def place(self, name: str) -> Path:
        path = self.folder / self.fresh(name)
        path.mkdir()
        return path

    def create(self, broker: Broker, name: str) -> str:
        with Cluster(broker.bootstrap) as cluster:
            cluster.create(topic := self.fresh(name), PARTITIONS, configs=fill.KEEP)
        return topic

    def drop(self, broker: Broker, topic: str) -> int:
        """Delete a topic that was written to; return how many records it had."""
        with Cluster(broker.bootstrap) as cluster:
            ends = offsets.latest(cluster, [TopicPartition(topic, index) for index in range(PARTITIONS)])
        with broker.connect() as connection:
            connection.delete_topic(topic)
        return sum(ends.values())

    def table(self, form: str, topic: str, options: dict[str, str]) -> DataFrame:
        reader = self.spark.read.format(form).option("kafka.bootstrap.servers", self.broker.bootstrap)
        return reader.options(subscribe=topic, **options).load()


Count = Callable[[], int]
Side = Callable[[World, Load], Count]


class Goal(NamedTuple):
    """Our side must be this many times as fast as that side."""

    side: str
    times: float


@dataclass(frozen=True)
class SparkRow:
    name: str
    records: int
    size: int
    sides: dict[str, Side]
    goals: tuple[Goal, ...]
    ceiling: str = ""  # what the ceiling is


# Reading.


def touched(frame: DataFrame) -> Count:
    from pyspark.sql.functions import expr

    rows = int(frame.agg(*map(expr, TOUCH)).collect()[0][0])
    return lambda: rows


def reading(form: str, options: dict[str, str] | None = None) -> Side:
    return lambda world, load: touched(world.table(form, load.topic, options or {}))


def constant(world: World, load: Load) -> DataFrame:
    options = {"rows": str(load.records), "size": str(load.size), "tasks": str(PARTITIONS)}
    return world.spark.read.format("constant").options(**options).load()


# To Parquet.


def streaming(form: str, options: dict[str, str] | None = None) -> Side:
    def side(world: World, load: Load) -> Count:
        folder = world.place("stream")
        reader = world.spark.readStream.format(form).option("kafka.bootstrap.servers", world.broker.bootstrap)
        stream = reader.options(subscribe=load.topic, startingOffsets="earliest", **(options or {})).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(folder / "table"))
        query.awaitTermination()
        return lambda: counted(world, folder, "table")

    return side


def exported(form: str, options: dict[str, str] | None = None) -> Side:
    """Topic to Parquet as a batch job, which is faster for the connector."""
    return lambda world, load: parquet(world, world.table(form, load.topic, options or {}))


def parquet(world: World, frame: DataFrame) -> Count:
    folder = world.place("table")
    frame.write.mode("append").parquet(str(folder / "table"))
    return lambda: counted(world, folder, "table")


def counted(world: World, folder: Path, table: str) -> int:
    """Count the rows of a table from the footers of its files, and delete it."""
    rows = world.spark.read.parquet(str(folder / table)).count()
    shutil.rmtree(folder)
    return rows


def pipeline(world: World, which: Pipeline, folder: Path, options: dict[str, str]) -> None:
    """Run a pipeline as `ottla pipeline run --once` does, in an existing session."""
    bootstrap = world.broker.bootstrap
    run = Run(pipeline=which, bootstrap=bootstrap, folder=folder, options=options, once=True, session=world.spark)
    which.run(run)
    run.wait()


def exporting(world: World, load: Load) -> Count:
    folder = world.place("export")
    named = {"topics": load.topic, "path": str(folder / "table"), "name": world.fresh("export"), "headers": "false"}
    pipeline(world, export.PIPELINE, folder, named)
    return lambda: counted(world, folder, "table")


# Writing and copying.


def source(world: World, load: Load) -> DataFrame:
    """Rows that cost the JVM next to nothing."""
    rest = "x" * (load.size - 20)
    numbers = world.spark.range(0, load.records, 1, PARTITIONS)
    return numbers.selectExpr(
        "CAST(lpad(id, 10, '0') AS binary) AS key", f"CAST(concat(lpad(id, 20, '0'), '{rest}') AS binary) AS value"
    )


def writing(form: str, options: dict[str, str] | None = None) -> Side:
    def side(world: World, load: Load) -> Count:
        topic = world.create(world.broker, "written")
        writer = source(world, load).write.format(form).mode("append").options(**(options or {}))
        writer.option("kafka.bootstrap.servers", world.broker.bootstrap).option("topic", topic).save()
        return lambda: world.drop(world.broker, topic)

    return side


def swallowed(world: World, load: Load) -> Count:
    source(world, load).write.format("swallow").mode("append").save()
    return lambda: load.records


def copying(form: str, reading: dict[str, str] | None = None, writing: dict[str, str] | None = None) -> Side:
    def side(world: World, load: Load) -> Count:
        topic = world.create(world.other, "copied")
        frame = world.table(form, load.topic, reading or {}).select("key", "value", "partition")
        writer = frame.write.format(form).mode("append").options(**(writing or {}))
        writer.option("kafka.bootstrap.servers", world.other.bootstrap).option("topic", topic).save()
        return lambda: world.drop(world.other, topic)

    return side


def mirroring(world: World, load: Load) -> Count:
    folder, prefix = world.place("mirror"), f"{world.fresh('mirrored')}."
    named = {"to": world.other.bootstrap, "topics": load.topic, "prefix": prefix, "name": world.fresh("mirror")}
    pipeline(world, mirror.PIPELINE, folder, {**named, "groups": ""})
    return lambda: min(load.records, world.drop(world.other, prefix + load.topic))  # markers of transactions count, too


# Ceilings outside Spark.


def alone(function: Callable[[ceilings.Work], int]) -> Side:
    def side(world: World, load: Load) -> Count:
        rows = world.processes(function, world.broker.bootstrap, load.topic, load.records, load.size)
        return lambda: rows

    return side


def sent(world: World, load: Load) -> Count:
    topic = world.create(world.broker, "sent")
    world.processes(ceilings.sent, world.broker.bootstrap, topic, load.records, load.size)
    return lambda: world.drop(world.broker, topic)


def rows(factor: float = 1.0) -> list[SparkRow]:
    """All rows; `factor` scales the topics."""
    found = []
    for count, size, label in ((10_000_000, 100, "100 B"), (1_000_000, 1000, "1 kB")):
        records = max(1000, int(count * factor))

        def row(name: str, sides: dict[str, Side], goals: tuple[Goal, ...], ceiling: str) -> None:
            found.append(SparkRow(f"{name}, {label}", records, size, sides, goals, ceiling))  # noqa: B023

        row(
            "read",
            {
                OURS: reading("ottla"),
                DEFAULT: reading("kafka"),
                BEST: reading("kafka", BEST_READ),
                CEILING: lambda world, load: touched(constant(world, load)),
                "decode alone": alone(ceilings.decoded),
                "fetch alone": alone(ceilings.fetched),
            },
            (Goal(DEFAULT, 2.5), Goal(BEST, 1.6)),
            "a Python source of one prebuilt batch",
        )
        row(
            "stream to Parquet",
            {
                OURS: streaming("ottla"),
                DEFAULT: streaming("kafka"),
                BEST: streaming("kafka", BEST_READ),
                CEILING: lambda world, load: parquet(world, constant(world, load)),
            },
            (Goal(DEFAULT, 1.5), Goal(BEST, 1.5)),
            "that source to Parquet",
        )
        row(
            "write",
            {
                OURS: writing("ottla"),
                DEFAULT: writing("kafka"),
                BEST: writing("kafka", BEST_WRITE),
                CEILING: swallowed,
                "produce alone": sent,
            },
            (Goal(BEST, 2.0 if size == 100 else 1.3),),
            "a Python sink that drops its rows",
        )
        row(
            "export",
            {
                OURS: exporting,
                DEFAULT: exported("kafka"),
                BEST: exported("kafka", BEST_READ),
                CEILING: alone(ceilings.parqueted),
            },
            (Goal(DEFAULT, 5.0),),
            "pyarrow's Parquet writer in two processes",
        )
        row(
            "mirror",
            {
                OURS: mirroring,
                DEFAULT: copying("kafka"),
                BEST: copying("kafka", BEST_READ, BEST_WRITE),
                CEILING: sent,
            },
            (Goal(DEFAULT, 8.0),),
            "prebuilt batches produced by two processes",
        )
    return found
