"""Micro-batches as a table in folders by columns, each row once, whose many small files are put together.

    table/day=2026-01-31/host=web-1/batch-0000000016-all.parquet   batches up to this one
                                    batch-0000000017.parquet       what one batch brought for this folder

Parquet: a file has the name of its batch, so a batch that comes again after a crash writes the same file again. Files
are put together beside the table, in a folder that has everything this folder is to have; then the two folders change
places, which the file system does at once. Whoever looks sees the one or the other, so no row is there twice or
missing, wherever we are killed. (A reader that has made its list of files before, and opens them after, is told that a
file is gone, and reads again.) Only batches that Spark has committed are put together: another may come again.

    table/_ottla/lock        held (flock) by who writes: nobody else does; not where a file system knows no locks
                 query       the id of the query (in its checkpoint) whose batches these are
                 staging/, compacting/

Another query, or the same begun from the beginning, counts its batches from 0 and would replace files that have other
rows: it is refused.

Files are written by the tasks under hidden names, on any storage, and get their own when all tasks have ended. Folders
change places on a local disk only, so elsewhere Parquet files are not put together.

Delta: the number of the batch is committed with its rows, so one that comes again is known; and Delta puts files
together in a commit of its own, which readers see or do not see (in the driver's process).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from ottla.client.failure import Failed
from ottla.spark.lock import InUse, Lock
from ottla.spark.storage import delta
from ottla.spark.storage.exchange import exchange
from ottla.spark.storage.reading import arrow
from ottla.spark.storage.store import HIDDEN, Store
from ottla.spark.storage.writing import write_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ottla.spark.storage.location import Location

log = logging.getLogger("ottla.spark")

QUERY: Final = f"{HIDDEN}/query"
STAGING: Final = f"{HIDDEN}/staging"
NAME: Final = re.compile(r"batch-(\d+)(?:-all)?\.parquet")  # in the order of names is in the order of batches
ROWS: Final = 65_536  # in memory at once, while files are put together


@dataclass(frozen=True)
class Layout:
    """Columns that make folders, columns that order the rows of a batch, and when files of a folder are put together:
    when so many of them are smaller than this."""

    by: tuple[str, ...]
    order: tuple[str, ...]
    files: int
    small_bytes: int


class Archive(Protocol):
    def add(self, rows: DataFrame, batch: int) -> None:
        """The rows of a batch; those of one that comes again are not added again."""
        ...

    def compact(self, before: int | None = None) -> int:
        """Put small files together, of batches before this one, or of all when no batch can come again; how many."""
        ...

    def own(self, query: str) -> None:
        """Refuse a query that may not write here; `add` asks by itself."""
        ...

    def close(self) -> None:
        """Let others write."""
        ...


def archive(place: Location, format: str, layout: Layout) -> Archive:
    return DeltaArchive(place, layout) if format == "delta" else ParquetArchive(place, layout)


class ParquetArchive:
    def __init__(self, place: Location, layout: Layout) -> None:
        self._place = place
        self._store = Store(place)
        self._layout = layout
        self._touched: set[str] | None = None  # folders with new files; None: any may have some
        self._owner = ""
        self._told = False
        self._lock = take_lock(place.local) if place.local else None

    def own(self, query: str) -> None:
        if self._owner == query:
            return
        owner = (self._store.read(QUERY) or b"").decode()
        if not owner and not self._store.create(QUERY, query.encode()):
            owner = "another that began at the same moment"
        if owner and owner != query:
            raise Failed(
                f"{self._place} has the batches of another run, or of this one before it began anew: go on in the "
                "folder of that run, remove the table to write it anew, or choose another by --option path=..."
            )
        for left in (STAGING, f"{HIDDEN}/compacting"):  # by a run that was killed
            self._store.remove_folder(left)
        self._owner = query

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def add(self, rows: DataFrame, batch: int) -> None:
        self.own(query_of(rows))
        staging = f"{STAGING}/{uuid.uuid4().hex}"
        parts = write_files(rows, self._place / staging, by=self._layout.by, order=self._layout.order)
        # One file for each folder: all rows of a folder are in one task.
        self._store.move_all([(f"{staging}/{part.name}", f"{part.folder}/batch-{batch:010}.parquet") for part in parts])
        if self._touched is not None:
            self._touched |= {part.folder for part in parts}
        self._store.remove_folder(staging)

    def compact(self, before: int | None = None) -> int:
        path = self._place.local
        if path is None:
            if not self._told:
                log.warning("%s: small files stay as they are; in a Delta table they are put together", self._place)
            self._told = True
            return 0
        every = self._touched is None or before is None
        levels = "/".join(["*=*"] * len(self._layout.by))
        folders = path.glob(levels) if every else [path / name for name in self._touched or ()]
        done = sum(self._compact(path, folder, before) for folder in sorted(folders))
        self._touched = set()
        return done

    def _compact(self, table: Path, folder: Path, before: int | None) -> int:
        files = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))
        small = {path for path in files if self._small(path) and (before is None or number(path) < before)}
        runs = [list(run) for own, run in groupby(files, small.__contains__) if own]  # rows stay in their order
        runs = [run for run in runs if len(run) > 1]
        if not runs or sum(map(len, runs)) < self._layout.files:
            return 0
        beside = table / HIDDEN / "compacting" / folder.relative_to(table)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for run in runs:
            merge_files(run, beside / f"batch-{number(run[-1]):010}-all.parquet")
        gone = {path for run in runs for path in run}
        for path in files:
            if path not in gone:
                os.link(path, beside / path.name)
        exchange(beside, folder)
        # What was exchanged stays until this folder's next time: a reader may be in the middle of listing it.
        return len(gone)

    def _small(self, path: Path) -> bool:
        return path.stat().st_size < self._layout.small_bytes


def take_lock(path: Path) -> Lock:
    """The lock of a table."""
    try:
        (path / HIDDEN).mkdir(parents=True, exist_ok=True)
        return Lock(path / HIDDEN)
    except InUse:
        raise Failed(
            f"another run writes to {path}: stop it by `ottla pipeline stop`, or choose another table by "
            "--option path=..."
        ) from None
    except OSError as error:
        raise Failed(
            f"the table {path} cannot be written ({error.strerror}): choose another by --option path=..., "
            "or correct the rights of it"
        ) from None


def query_of(rows: DataFrame) -> str:
    """The id of the query that these rows are a batch of."""
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query, "batches come from a streaming query"
    return query


def number(path: Path) -> int:
    """The batch, or the last batch, of a file."""
    found = NAME.fullmatch(path.name)
    assert found, "only our own files are asked"
    return int(found[1])


def merge_files(files: Sequence[Path], whole: Path) -> None:
    """One file with the rows of all, in their order, and on the disk before anybody relies on it."""
    schema = pa.unify_schemas([pq.read_schema(path) for path in files])
    with pq.ParquetWriter(whole, schema) as writer:
        for path in files:
            for batch in pq.ParquetFile(path).iter_batches(ROWS):
                writer.write_batch(batch.cast(schema) if batch.schema != schema else batch)
    descriptor = os.open(whole, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DeltaArchive:
    def __init__(self, place: Location, layout: Layout) -> None:
        delta.table_at(place)  # a place or a library that is not there is told before the first batch
        self._place = place
        self._layout = layout

    def own(self, query: str) -> None:
        """Every query may: Delta keeps the batch number of each, and its writers do not disturb each other."""

    def close(self) -> None:
        """There is no lock to release."""

    def add(self, rows: DataFrame, batch: int) -> None:
        name = f"ottla:{query_of(rows)}"  # of this checkpoint: in another, the numbers begin again
        table = delta.table_at(self._place)
        if table is not None and (last := table.transaction_version(name)) is not None and last >= batch:
            return
        by = self._layout.by
        parts = write_files(rows, self._place, by=by, order=self._layout.order, suffix=".parquet", int96=False)
        delta.commit(self._place, parts, arrow(rows.schema), by=by, mark=(name, batch))

    def compact(self, before: int | None = None) -> int:
        table = delta.table_at(self._place)
        if table is None:
            return 0
        actions = pa.table(table.get_add_actions(flatten=True))
        small = actions.filter(pa.compute.less(actions["size_bytes"], self._layout.small_bytes))
        counted = small.group_by([f"partition.{name}" for name in self._layout.by]).aggregate([([], "count_all")])
        if not counted.num_rows or max(counted["count_all"].to_pylist()) < max(2, self._layout.files):
            return 0
        done = table.optimize.compact(target_size=self._layout.small_bytes)
        table.vacuum(dry_run=False)  # files that nobody can be reading any more
        return int(done["numFilesRemoved"])
