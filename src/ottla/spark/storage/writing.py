"""Rows of a DataFrame as Parquet files, written by the tasks with pyarrow; the driver gets their names.

    write_files(frame, location, by=("day", "host"), order=("offset",))

All rows with the same values of `by` go to one file, in `order`; without `by` each task writes one file. File names are
unique, so a task that runs twice leaves a file that is not used. The caller decides what happens to the files: they are
moved to their places (`Store.move_all`), or committed to a Delta table (`delta.commit`).
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from ottla.client.failure import Failed
from ottla.spark.storage.store import TROUBLE, Store, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from ottla.spark.storage.location import Location

ESCAPED: Final = frozenset("\"#%'*/:=?\\{}[]^\x7f") | frozenset(map(chr, range(32)))  # in names of folders, as in Spark
NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"
GROUP_BYTES: Final = 32 << 20
OUTPUT: Final = "name string, keys array<string>, rows long, size long"


@dataclass(frozen=True)
class WrittenFile:
    """A file that a task has written."""

    name: str
    by: tuple[tuple[str, str | None], ...]  # columns and their values, which are not in the file
    rows: int
    size: int

    @property
    def folder(self) -> str:
        """Its folder in a table, in the layout of Spark, pyarrow and pandas: day=2026-01-31/host=web-1."""
        return "/".join(f"{column}={escape(value)}" for column, value in self.by)


def escape(value: str | None) -> str:
    if not value:
        return NOTHING
    return "".join(f"%{ord(letter):02X}" if letter in ESCAPED else letter for letter in value)


def write_files(
    frame: DataFrame,
    location: Location,
    *,
    by: Sequence[str] = (),
    order: Sequence[str] = (),
    suffix: str = ".part",
    prefix: str = "part-",
    int96: bool = True,
) -> list[WrittenFile]:
    """Write the rows below a location. `int96`: timestamps as Spark writes them; Delta needs plain ones."""
    rows = frame.repartition(*by).sortWithinPartitions(*by, *order) if by else frame
    task = partial(write, location=location, by=tuple(by), suffix=suffix, prefix=prefix, int96=int96)
    found = rows.mapInArrow(task, OUTPUT).collect()
    return sorted(
        (WrittenFile(one.name, tuple(zip(by, one["keys"], strict=True)), one.rows, one.size) for one in found),
        key=lambda part: (part.folder, part.name),
    )


def write(
    batches: Iterator[pa.RecordBatch], *, location: Location, by: tuple[str, ...], suffix: str, prefix: str, int96: bool
) -> Iterator[pa.RecordBatch]:
    """In a task: batches in the order of `by` become files, one after another."""
    store = Store(location)
    open_file: RowFile | None = None
    try:
        for batch in batches:
            for keys, rows in runs(batch, by):
                if open_file is not None and open_file.keys != keys:
                    yield open_file.close()
                    open_file = None
                if open_file is None:
                    open_file = RowFile(store, f"{prefix}{uuid.uuid4().hex}{suffix}", keys, rows.schema, int96=int96)
                open_file.add(rows)
        if open_file is not None:
            yield open_file.close()
            open_file = None
    except TROUBLE as error:
        raise Failed(unwritable(location, error)) from None
    finally:
        if open_file is not None:
            open_file.abandon()


def runs(batch: pa.RecordBatch, by: tuple[str, ...]) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Consecutive rows with the same values of `by`, without these columns."""
    rest = batch.drop_columns(list(by)) if by else batch
    if not batch.num_rows:
        return
    if not by:
        yield (), rest
        return
    columns = [batch.column(name).cast(pa.string()) for name in by]
    changed = None
    for column in columns:
        codes = column.dictionary_encode().indices.fill_null(-1)
        differs = pc.not_equal(codes.slice(1), codes.slice(0, len(codes) - 1))
        changed = differs if changed is None else pc.or_(changed, differs)
    cuts = [0, *(index + 1 for index in pc.indices_nonzero(changed).to_pylist()), batch.num_rows]
    for start, stop in pairwise(cuts):
        yield tuple(column[start].as_py() for column in columns), rest.slice(start, stop - start)


def write_empty(location: Location, name: str, schema: pa.Schema) -> WrittenFile:
    """A file without rows, so that an empty table has columns."""
    RowFile(Store(location), name, (), schema, int96=True).close()
    return WrittenFile(name, (), 0, 0)


class RowFile:
    def __init__(
        self, store: Store, name: str, keys: tuple[str | None, ...], schema: pa.Schema, *, int96: bool
    ) -> None:
        self.keys = keys
        self._store = store
        self._name = name
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sink: Any = store.output(name)
        self._writer = pq.ParquetWriter(
            self._sink, schema, use_deprecated_int96_timestamps=int96, store_schema=False, compression="snappy"
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows are collected until they fill a row group: Spark's batches are small."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        if self._waiting_bytes >= GROUP_BYTES:
            self._group()

    def _group(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> pa.RecordBatch:
        """The row that reports the file to the driver."""
        if self._waiting:
            self._group()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        columns = [
            pa.array([self._name]),
            pa.array([list(self.keys)], pa.list_(pa.string())),
            pa.array([self._rows], pa.int64()),
            pa.array([size], pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, ["name", "keys", "rows", "size"])

    def abandon(self) -> None:
        with suppress(*TROUBLE, Failed):
            self._sink.close()
            self._store.remove(self._name)
