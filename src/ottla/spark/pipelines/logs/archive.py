"""Writes micro-batches to a table in folders by columns, each row once, and compacts its many small files.

    table/day=2026-01-31/host=web-1/batch-0000000016-all.parquet   batches up to this one
                                    batch-0000000017.parquet       what one batch brought for this folder

Parquet: a file is named after its batch, so a batch that is repeated after a crash writes the same file again. To
compact a folder, a new folder with all its rows is made beside the table; then the two folders are swapped atomically.
Readers see the one or the other, so no row is doubled or missing, wherever the process is killed. (A reader that listed
the files before the swap and opens them after it gets an error that a file is gone, and must read again.) Only batches
that Spark has committed are compacted: another may be repeated.

    table/_ottla/lock        held (flock) by the only writer; not on a file system without locks
                 query       the id of the query (in its checkpoint) whose batches these are
                 staging/, compacting/

Another query, or the same one started from the beginning, counts its batches from 0 and would replace files that have
other rows. So it is refused.

Tasks write files under hidden names, on any storage; they are renamed when all tasks have ended. Folders can be swapped
on a local disk only, so elsewhere Parquet files are not compacted.

Delta: the batch number is committed with the rows, so a repeated batch is recognised. Delta compacts files in a
separate atomic commit (in the driver's process).
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
NAME: Final = re.compile(r"batch-(\d+)(?:-all)?\.parquet")  # the order of names is the order of batches
ROWS: Final = 65_536  # in memory at once during compaction


@dataclass(frozen=True)
class ArchiveLayout:
    """Columns that make folders, columns that order the rows of a batch, and when a folder is compacted: when this many
    of its files are smaller than `small`."""

    by: tuple[str, ...]
    order: tuple[str, ...]
    files: int
    small_bytes: int


class Archive(Protocol):
    def add(self, rows: DataFrame, batch: int) -> None:
        """Add the rows of a batch, unless a repeated batch has already added them."""
        ...

    def compact(self, before: int | None = None) -> int:
        """Compact small files of batches before this one, or of all if no batch can be repeated. Returns how many."""
        ...

    def own(self, query: str) -> None:
        """Refuse a query that may not write here; `add` checks this by itself."""
        ...

    def close(self) -> None:
        """Let others write."""
        ...


def archive(place: Location, format: str, layout: ArchiveLayout) -> Archive:
    return DeltaArchive(place, layout) if format == "delta" else ParquetArchive(place, layout)


class ParquetArchive:
    def __init__(self, place: Location, layout: ArchiveLayout) -> None:
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
                f"{self._place} has the batches of another run, or of this one before a fresh start: continue in the "
                "folder of that run, remove the table to rewrite it, or choose another with --option path=..."
            )
        for left in (STAGING, f"{HIDDEN}/compacting"):  # left by a run that was killed
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
                log.warning("%s: small files are not compacted here; in a Delta table they are", self._place)
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
        runs = [list(run) for own, run in groupby(files, small.__contains__) if own]  # rows keep their order
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
        # The old folder stays until this folder is compacted again: a reader may be listing it.
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
            f"another run writes to {path}: stop it with `ottla pipeline stop`, or choose another table with "
            "--option path=..."
        ) from None
    except OSError as error:
        raise Failed(
            f"the table {path} cannot be written ({error.strerror}): choose another with --option path=..., "
            "or correct its permissions"
        ) from None


def query_of(rows: DataFrame) -> str:
    """The id of the query that these rows are a batch of."""
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query, "batches come from a streaming query"
    return query


def number(path: Path) -> int:
    """The batch, or the last batch, of a file."""
    found = NAME.fullmatch(path.name)
    assert found, "only our own files have a number"
    return int(found[1])


def merge_files(files: Sequence[Path], whole: Path) -> None:
    """One file with the rows of all, in their order, synced to disk before it is used."""
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
    def __init__(self, place: Location, layout: ArchiveLayout) -> None:
        delta.table_at(place)  # a missing location or library fails before the first batch
        self._place = place
        self._layout = layout

    def own(self, query: str) -> None:
        """Every query may write: Delta keeps the batch number of each, and its writers do not conflict."""

    def close(self) -> None:
        """There is no lock to release."""

    def add(self, rows: DataFrame, batch: int) -> None:
        name = f"ottla:{query_of(rows)}"  # of this checkpoint: another one counts from 0
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
