"""Writes one range of a partition to Parquet files. Runs in the Python workers of a Spark job.

    reading.batches (fetch and decode, in a thread)  →  Arrow columns  →  row groups  →  a file under a staged name

Rows never enter the JVM, and nothing is done per row in Python. Files are in the ledger's staging folder, with names
that readers do not recognise as Parquet. (Files of a Delta table in a store without rename are written to their places,
where only the table's log makes them known.) They become part of the table by the ledger's commit, later, in the
driver. A task that runs twice, or dies, leaves staged files that nobody reads.

What the writer does, with its price for rows of 100 bytes on one core (M rows/s of writing alone; random bytes / JSON):

    snappy, dictionary and statistics for every column    5.1 / 4.1
    no dictionary for key, value, offset, timestamp       7.8 / 4.8    values differ: it is built and found useless
    and no statistics for key and value                   8.7 / 5.0    their least and greatest bytes help no reader
    and offset, timestamp as differences                  8.8 / 5.5    also 5 % smaller files
    the same with zstd                                    4.0 / 3.8    half the size of snappy for JSON
    the same without compression                         11.4 / 10.0
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from ottla.client.failure import Failed
from ottla.spark.pipelines.export.letters import AsideFile
from ottla.spark.source import reading
from ottla.spark.storage.store import TROUBLE, Store, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.client.cluster import TopicPartition
    from ottla.spark.source.options import SourceOptions
    from ottla.spark.source.planning import Split
    from ottla.spark.storage.location import Location

REPEATED: Final = ["topic", "partition", "timestampType"]  # the same for many rows: a dictionary helps
ORDERED: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
SKIPPED_BY: Final = ["partition", "offset", "timestamp"]  # what readers filter by: with minimum and maximum
DAYS_OPEN_MAX: Final = 16  # open files in one task
SUFFIX: Final = ".part"
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # the folder of records without a timestamp, as Hive and Spark name it
TIME_MAX: Final = 253_402_300_799_999_999  # the last microsecond of 9999: Python and many readers know no later day


@dataclass(frozen=True)
class TableShape:
    """The layout of the files."""

    key: str = "binary"  # or string
    value: str = "binary"
    headers: bool = True
    by_day: bool = False
    compression: str = "snappy"
    level: int | None = None
    file_bytes: int = 128 << 20
    group_bytes: int = 32 << 20  # of a row group, before encoding
    synced: bool = False

    def options(self) -> dict[str, str]:
        """The options that every run that writes to one table must share, or readers would find two kinds of files."""
        return {
            "key": self.key,
            "value": self.value,
            "headers": str(self.headers).lower(),
            "partition": "day" if self.by_day else "none",
        }

    def check(self, there: Mapping[str, str], place: object) -> None:
        """Raise Failed unless the table at this place was written with the same options."""
        for name, own in self.options().items():
            if (other := there.get(name, own)) != own:
                raise Failed(f"the table at {place} was written with {name}={other}: set that, or choose another path")

    def schema(self) -> pa.Schema:
        """The schema for readers; `day` is in the name of the folder instead."""
        kinds = {"binary": pa.binary(), "string": pa.string()}
        fields = [
            pa.field("key", kinds[self.key]),
            pa.field("value", kinds[self.value]),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32()),
        ]
        if self.headers:
            pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
            fields.append(pa.field("headers", pa.list_(pa.field("element", pair))))
        return pa.schema(fields)


@dataclass(frozen=True)
class ExportFile:
    staged: str  # its name in the staging folder, or in the table if there is none
    name: str  # its place in the table, once it is committed
    day: str | None
    rows: int
    size: int
    first: int  # smallest and largest offset
    last: int


@dataclass(frozen=True)
class ExportedRange:
    where: TopicPartition
    start: int
    stop: int
    rows: int = 0
    files: tuple[ExportFile, ...] = ()
    aside: str = ""  # name of the file of dead letters, if there are any
    error: str = ""  # a sentence; a value, so that it arrives unchanged


def write(
    split: Split,
    options: SourceOptions,
    shape: TableShape,
    folder: Location,
    *,
    staged: bool = True,
    aside: Location | None = None,
) -> ExportedRange:
    """Write the records of a split. When this returns, the files are complete, and synced to disk if requested.

    Records that do not fit into the table go to a file in `aside`; without that, they are an error."""
    try:
        unfit = AsideFile(aside) if aside is not None else None
        with TaskTable(split, shape, Store(folder), staged=staged, unfit=unfit) as table:
            for batch in reading.batches(split, options, unfit.sift if unfit else None):
                table.add(batch)
            files = table.finish()
        put_aside = unfit.close() if unfit else ""
    except Failed as error:
        return ExportedRange(split.where, split.start, split.stop, error=str(error))
    except TROUBLE as error:
        return ExportedRange(split.where, split.start, split.stop, error=unwritable(folder, error))
    rows = sum(file.rows for file in files)
    return ExportedRange(split.where, split.start, split.stop, rows, tuple(files), put_aside)


class UnfitRecord(Failed):
    """A record that the table cannot hold."""


class TaskTable:
    """The files of one task: a single one, or one for each day."""

    def __init__(
        self, split: Split, shape: TableShape, store: Store, *, staged: bool, unfit: AsideFile | None = None
    ) -> None:
        self._split = split
        self._shape = shape
        self._store = store
        self._staged = staged
        self._unfit = unfit
        self._schema = shape.schema()
        self._open: dict[str | None, TableFile] = {}
        self._files: list[ExportFile] = []
        self._topics = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([split.topic]))

    def __enter__(self) -> TaskTable:
        return self

    def __exit__(self, *error: object) -> None:
        for output in self._open.values():
            output.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        try:
            rows = self._columns(batch)
        except UnfitRecord:
            if self._unfit is None:
                raise
            left = self._unfit.sift(pa.Table.from_batches([batch]), faults(batch, self._shape))
            if not left.num_rows:
                return
            rows = self._columns(left.combine_chunks().to_batches()[0])
        for day, some in self._days(rows) if self._shape.by_day else [(None, rows)]:
            output = self._open.pop(day, None) or self._new(day)
            output.add(some)
            if output.size >= self._shape.file_bytes:
                self._files.append(output.close())
                continue
            self._open[day] = output  # the most recently used is closed last
            if len(self._open) > DAYS_OPEN_MAX:
                self._files.append(self._open.pop(next(iter(self._open))).close())

    def finish(self) -> list[ExportFile]:
        while self._open:
            _, output = self._open.popitem()
            self._files.append(output.close())
        return self._files

    def _new(self, day: str | None) -> TableFile:
        name = f"{self._split.topic}-{self._split.partition:05}-{self._split.start:020}-{uuid.uuid4().hex[:12]}"
        place = f"{name}.parquet" if day is None else f"day={day}/{name}.parquet"
        return TableFile(
            self._store, f"{name}{SUFFIX}" if self._staged else place, place, day, self._shape, self._schema
        )

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        if rows > len(self._topics):
            zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
            self._topics = pa.DictionaryArray.from_arrays(zeros, self._topics.dictionary)
        arrays = [*batch.columns[:2], self._topics.slice(0, rows), *batch.columns[3:]]
        for index, name in enumerate(("key", "value")):
            if getattr(self._shape, name) == "string":
                arrays[index] = self._text(arrays[index], name, batch)
        if self._shape.by_day:
            self._check_days(batch)
        names = self._schema.names
        return pa.RecordBatch.from_arrays(arrays[: len(names)], names=names)

    def _text(self, column: pa.Array, name: str, batch: pa.RecordBatch) -> pa.Array:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            raise UnfitRecord(
                f"{self._what(name, batch)} is not text in UTF-8: set {name}=binary, or dead.letter"
            ) from None

    def _check_days(self, batch: pa.RecordBatch) -> None:
        bounds = pc.min_max(batch.column("timestamp"))
        if any(bounds[side].is_valid and not -TIME_MAX <= bounds[side].value <= TIME_MAX for side in ("min", "max")):
            raise UnfitRecord(
                f"{self._what('timestamp', batch)} is beyond the year 9999, so there is no folder for its day: set "
                "partition=none, or dead.letter"
            )

    def _what(self, name: str, batch: pa.RecordBatch) -> str:
        at = batch.column("offset")
        return f"{self._split.topic} partition {self._split.partition}: a {name} between offsets {at[0]} and {at[-1]}"

    def _days(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Usually all rows are of one day; checking that takes the minimum and maximum time."""
        times = rows.column("timestamp")
        bounds = pc.min_max(times)
        first, last = (bounds[side].cast(pa.date32()).as_py() for side in ("min", "max"))
        if first == last and not times.null_count:
            yield first.isoformat(), rows
            return
        days = times.cast(pa.date32())
        for day in pc.unique(days):
            if day.is_valid:
                yield day.as_py().isoformat(), rows.filter(pc.equal(days, day))
            else:
                yield NO_DAY, rows.filter(pc.is_null(days))


def faults(batch: pa.RecordBatch, shape: TableShape) -> Iterator[tuple[pa.Array, str]]:
    """Masks of records that the table cannot hold, each with its reason."""
    for name in ("key", "value"):
        if getattr(shape, name) == "string":
            mask = pa.array([not is_text(value) for value in batch.column(name).to_pylist()], pa.bool_())
            yield mask, f"its {name} is not text in UTF-8"
    if shape.by_day:
        times = batch.column("timestamp").cast(pa.int64())
        beyond = pc.or_(pc.greater(times, TIME_MAX), pc.less(times, -TIME_MAX))
        yield beyond, "its timestamp is beyond the year 9999, so there is no folder for its day"


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def parquet_writer(sink: Any, schema: pa.Schema, shape: TableShape) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression=shape.compression,
        compression_level=shape.level,
        use_dictionary=REPEATED,
        write_statistics=SKIPPED_BY,
        column_encoding=ORDERED,
        store_schema=False,  # Arrow's own types, such as dictionaries, would confuse readers
    )


class TableFile:
    """An unfinished file. Batches are collected until they fill a row group."""

    def __init__(
        self, store: Store, staged: str, name: str, day: str | None, shape: TableShape, schema: pa.Schema
    ) -> None:
        self._store = store
        self._staged = staged
        self._name = name
        self._day = day
        self._shape = shape
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._least: int | None = None
        self._greatest = -1
        self._stack = ExitStack()
        self._sink = self._stack.enter_context(store.output(staged))
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        return int(self._sink.tell()) + self._waiting_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        if self._least is None:
            self._least = offsets[0].as_py()
        self._greatest = offsets[-1].as_py()
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        if self._waiting_bytes >= self._shape.group_bytes:
            self._group()

    def _group(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._writer = parquet_writer(self._sink, table.schema, self._shape)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> ExportFile:
        if self._waiting:
            self._group()
        assert self._writer is not None, "a file is begun by its first rows"
        assert self._least is not None, "and they have offsets"
        self._writer.close()
        self._sink.flush()
        if self._shape.synced and self._store.local is not None:
            os.fsync(self._sink.fileno())
        size = self._sink.tell()
        self._stack.close()
        return ExportFile(self._staged, self._name, self._day, self._rows, size, self._least, self._greatest)

    def abandon(self) -> None:
        with suppress(*TROUBLE, Failed):
            self._stack.close()
            self._store.remove(self._staged)
