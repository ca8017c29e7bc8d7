"""The upper limit of each path, measured in the same turns as what uses it.

    Constant      a Python source whose tasks return one prebuilt Arrow batch again and again: no Python source can
                  pass rows to the JVM faster. Values are those of `fill`, so that they compress alike
    Swallow       a Python sink that takes Arrow batches and drops them: the same in the other direction
    fetched       batches of a topic, fetched and not decoded, by two processes
    decoded       the same, decoded into columns
    sent          prebuilt batches, produced by two processes
    parqueted     one prebuilt table, written to Parquet by two processes

The functions run in separate processes, which import this file; Spark's Python workers import it, too.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from bench.wire import text
from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.producing import Sender
from ottla.records.native import decode_columns
from ottla.spark.pipelines.export.exporting import TableShape, parquet_writer
from ottla.spark.source.data_source import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROCESSES = 2
ROWS = 60_000  # in a prebuilt batch: about as many as our own source returns at once
DECODED_MAX = 8 << 20
FILE_BYTES = 128 << 20


class Slice(InputPartition):
    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size


class Constant(DataSource):
    """Options: rows, size (of values), tasks."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> Any:
        return columns(headers=False)

    def reader(self, schema: Any) -> DataSourceReader:
        return ConstantReader(*(int(self.options[name]) for name in ("rows", "size", "tasks")))


class ConstantReader(DataSourceReader):
    def __init__(self, rows: int, size: int, tasks: int) -> None:
        self.rows, self.size, self.tasks = rows, size, tasks

    def partitions(self) -> list[Slice]:
        return [Slice(self.rows // self.tasks, self.size) for _ in range(self.tasks)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        batch, left = constant_batch(partition.size), partition.rows
        while left > 0:
            yield batch if left >= batch.num_rows else batch.slice(0, left)
            left -= batch.num_rows


@cache
def constant_batch(size: int) -> pa.RecordBatch:
    rows = max(1, min(ROWS, 8_000_000 // size))
    schema = to_arrow_schema(columns(headers=False), timezone="UTC")
    made = {
        "key": pa.array([b"%010d" % number for number in range(rows)], pa.binary()),
        "value": pa.array([text(size, number) for number in range(rows)], pa.binary()),
        "topic": pa.repeat("constant", rows),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array(range(rows), pa.int64()).cast(schema.field("timestamp").type),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


class Swallow(DataSource):
    @classmethod
    def name(cls) -> str:
        return "swallow"

    def schema(self) -> str:
        return "key binary, value binary"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return SwallowWriter()


class SwallowWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _batch in iterator:
            pass
        return WriterCommitMessage()


class Work(NamedTuple):
    """One process's share: the partitions whose index is `index` modulo the number of processes."""

    bootstrap: str
    topic: str
    index: int
    rows: int
    size: int

    def mine(self, cluster: Cluster) -> list[TopicPartition]:
        count = cluster.topics([self.topic])[self.topic].partitions
        return [TopicPartition(self.topic, number) for number in range(self.index, count, PROCESSES)]


def fetched(work: Work) -> int:
    with Cluster(work.bootstrap) as cluster:
        ends = offsets.latest(cluster, work.mine(cluster))
        for where, end in ends.items():
            for _piece in fetch(cluster, where, start=0, stop=end):
                pass
        return sum(ends.values())


def decoded(work: Work) -> int:
    rows = 0
    with Cluster(work.bootstrap) as cluster:
        for where, end in offsets.latest(cluster, work.mine(cluster)).items():
            for piece in fetch(cluster, where, start=0, stop=end):
                start, data = piece.start, piece.data
                while start < piece.end:
                    found = decode_columns(
                        data, start=start, stop=piece.end, headers=False, aborted=None, size_max=DECODED_MAX
                    )
                    rows += found.batch.num_rows
                    start, data = found.next_offset, data[found.bytes_read :]
    return rows


def sent(work: Work) -> int:
    """Send to topic `work.topic` what `fill` would write there."""
    from bench.fill import prebuilt

    rows = 0
    with Cluster(work.bootstrap) as cluster:
        wheres = work.mine(cluster)
        batches, each = prebuilt(work.size)
        sender = Sender(cluster)
        for where in itertools.cycle(wheres):
            if rows * PROCESSES >= work.rows:
                break
            sender.send(where, batches)
            rows += each
        sender.flush()
        sender.close()
    return rows


def parqueted(work: Work) -> int:
    """Write files of 128 MB, as export does; each is deleted when the next one begins."""
    table, rows = pa.Table.from_batches([constant_batch(work.size)] * 8), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        while rows * PROCESSES < work.rows:
            with path.open("wb") as file, parquet_writer(file, table.schema, TableShape()) as writer:
                while rows * PROCESSES < work.rows and file.tell() < FILE_BYTES:
                    writer.write_table(table)
                    rows += table.num_rows
    return rows


class Processes:
    """Two processes that have imported what they need before the clock starts."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))
        list(self._pool.map(time.sleep, [0.2] * PROCESSES))

    def __call__(self, function: Callable[[Work], int], bootstrap: str, topic: str, rows: int, size: int) -> int:
        works = [Work(bootstrap, topic, index, rows, size) for index in range(PROCESSES)]
        return sum(self._pool.map(function, works))

    def close(self) -> None:
        self._pool.shutdown()
