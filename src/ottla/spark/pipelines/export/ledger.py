"""What makes staged files a table: a commit that lists them together with the offsets they reach.

    table/
      orders-00000-….parquet            committed files, alone or in folders day=2026-11-15/
      _ottla/                           hidden from Spark, pyarrow and pandas
        lock                            held by the one run that writes
        id                              of the table, if it has dead letters
        staging/<run>/….part            files of tasks, not yet or never committed
        commits/00000000000000000007.json
            {"cluster": id, "ids": {topic: id}, "offsets": {topic: {partition: next offset}},
             "staging": run, "files": [[staged, name], …], "options": {name: value}}

The decision is one file: a commit is created under its number, which fails if the number is taken, so that only one of
two drivers gets it (a link on a disk, a conditional put in a store). Before it the files are invisible. After it they
belong to the table: they are moved to their places, and the next start completes that after a crash. So no row is lost
or doubled, and no reader ever sees a file that is not committed. (Between the first and the last move a reader may see
only some files of a commit.)

A staging folder is removed when all its commits have their files in place. As long as it exists, a file that is neither
in it nor in its place was lost, which is an error. After that, files may be removed by others.

The ledger needs storage that all tasks share. On a file system with locks a second driver is refused at once. Elsewhere
the first commit decides between two, and staged files of others are kept for some days, since their run may be alive.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.lock import InUse, Lock
from ottla.spark.storage.store import HIDDEN, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.spark.pipelines.export.exporting import ExportFile, TableShape
    from ottla.spark.storage.location import Location

COMMITS: Final = f"{HIDDEN}/commits"
STAGING: Final = f"{HIDDEN}/staging"
TABLE_ID: Final = f"{HIDDEN}/id"
BEGUN: Final = "begun"  # a file in a staging folder: stores have no empty folders
LEFT_S: Final = 7 * 86400.0  # without locks, staged files older than this are abandoned
KEPT: Final = 1000  # commits; only the last is needed, the others are a history


@dataclass(frozen=True)
class TableProgress:
    """The offsets that a table has reached."""

    cluster: str | None = None  # None: nothing was committed yet
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)  # of the topics


class TableLedger(Protocol):
    """What a table must support, whatever its format."""

    staging: Location | None  # where tasks put their files; None: in their places, which only a commit makes known

    def read_progress(self, partitions: Mapping[TopicPartition, str]) -> TableProgress: ...

    def commit(self, files: Sequence[ExportFile], reached: TableProgress) -> None: ...

    def table_id(self) -> str:
        """Unique to the table, and constant for its lifetime."""
        ...

    def close(self) -> None: ...


class FolderLedger:
    """A folder of Parquet files."""

    def __init__(self, location: Location, shape: TableShape) -> None:
        self._store = Store(location)
        self._shape = shape
        self._unfinished = False  # the files of the last commit may not be in their places
        self._lock, self._run = prepare_staging(self._store, self._begin)
        self.staging: Location | None = location / STAGING / self._run

    def _begin(self) -> None:
        self._number, self._last = self._read()
        self._shape.check(self._last.get("options", {}), self._store)
        if self._number >= 0 and self._store.exists(f"{STAGING}/{self._last['staging']}"):
            self._finish()

    def read_progress(self, partitions: Mapping[TopicPartition, str]) -> TableProgress:
        if self._number < 0:
            return TableProgress()
        offsets = {
            TopicPartition(topic, int(index)): offset
            for topic, some in self._last["offsets"].items()
            for index, offset in some.items()
        }
        return TableProgress(self._last["cluster"], offsets, self._last["ids"])

    def commit(self, files: Sequence[ExportFile], reached: TableProgress) -> None:
        """Make the files part of the table. The next start continues from `reached`."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(reached.offsets.items()):
            offsets.setdefault(topic, {})[str(index)] = offset
        document = {
            "cluster": reached.cluster,
            "offsets": offsets,
            "ids": dict(reached.ids),
            "staging": self._run,
            "files": [[file.staged, file.name] for file in files],
            "options": self._shape.options(),
        }
        check_staged(self._store, self._run, files)
        if self._shape.synced:
            _sync(self._store, f"{STAGING}/{self._run}")
        self._unfinished = True
        if not self._store.create(_commit(self._number + 1), json.dumps(document).encode()):
            raise Failed(f"another run writes to the table at {self._store}: stop one of them; this one added nothing")
        _sync(self._store, COMMITS)
        self._number, self._last = self._number + 1, document
        self._finish()
        self._unfinished = False
        if self._number >= KEPT:
            self._store.remove(_commit(self._number - KEPT))

    def table_id(self) -> str:
        self._store.create(TABLE_ID, uuid.uuid4().hex.encode())
        return (self._store.read(TABLE_ID) or b"").decode()

    def close(self) -> None:
        if not self._unfinished:  # otherwise the next start needs the staged files
            self._store.remove_folder(f"{STAGING}/{self._run}")
        release(self._lock)

    def _read(self) -> tuple[int, dict[str, Any]]:
        names = [one.name for one in self._store.files(COMMITS) if one.name.endswith(".json")]
        if not names:
            return -1, {}
        try:
            return int(names[-1].removeprefix(f"{COMMITS}/")[:-5]), json.loads(self._store.read(names[-1]) or b"")
        except ValueError:
            where = self._store.location / names[-1]
            raise Failed(f"{where} is damaged: restore it, or export to another path") from None

    def _finish(self) -> None:
        """Move the files of the last commit to their places, unless they are there."""
        staging = f"{STAGING}/{self._last['staging']}"
        try:
            self._store.move_all([(f"{staging}/{staged}", name) for staged, name in self._last["files"]])
        except FileNotFoundError:
            self._finish_slowly(staging)
        if self._shape.synced:
            for folder in {name.rpartition("/")[0] for _, name in self._last["files"]}:
                _sync(self._store, folder)

    def _finish_slowly(self, staging: str) -> None:
        """After a kill some are already in their places."""
        for staged, name in self._last["files"]:
            try:
                self._store.move(f"{staging}/{staged}", name)
            except FileNotFoundError:
                if not self._store.exists(name):
                    at = self._store.location
                    raise Failed(
                        f"{at / name} belongs to the table by {at / _commit(self._number)}, but is neither there nor "
                        f"in {at / staging}: restore it, or remove {at / staging} to continue without it"
                    ) from None


def _commit(number: int) -> str:
    return f"{COMMITS}/{number:020}.json"


def prepare_staging(store: Store, begin: Callable[[], None] = lambda: None) -> tuple[Lock | None, str]:
    """Take the right to write to a table, and make a staging folder; `begin` is called before those of others are
    swept."""
    lock = None
    try:
        if store.local is not None:
            store.path(HIDDEN).mkdir(parents=True, exist_ok=True)
            try:
                lock = Lock(store.path(HIDDEN))
            except InUse:
                raise InUse(f"another run writes to the table at {store}: stop it, or choose another path") from None
        try:
            begin()
            sweep(store, locked=lock is not None and lock.real)
            run = uuid.uuid4().hex
            store.put(f"{STAGING}/{run}/{BEGUN}", b"")
        except BaseException:
            release(lock)
            raise
    except OSError as error:
        raise Failed(f"the table cannot be written at {store} ({error.strerror}): choose another path") from None
    return lock, run


def release(lock: Lock | None) -> None:
    if lock is not None:
        lock.release()


def sweep(store: Store, *, locked: bool) -> None:
    """Remove what others have staged: all of it under the lock, otherwise only what is old."""
    if locked:
        store.remove_folder(STAGING)
        return
    newest: dict[str, float] = {}
    for one in store.files(STAGING):
        run = one.name.split("/")[2]
        newest[run] = max(newest.get(run, 0.0), one.changed)
    for run, changed in newest.items():
        if time.time() - changed > LEFT_S:
            store.remove_folder(f"{STAGING}/{run}")


def check_staged(store: Store, run: str, files: Sequence[ExportFile]) -> None:
    """Files must exist before they are committed: the offsets would claim their rows."""
    there = {one.name for one in store.files(f"{STAGING}/{run}")} if files else set()
    if gone := [file.staged for file in files if f"{STAGING}/{run}/{file.staged}" not in there]:
        raise Failed(
            f"{store.location / STAGING / run / gone[0]} was written and is gone, so nothing was added to the "
            f"table at {store}: make sure that nobody removes files there, and start again"
        )


def _sync(store: Store, folder: str) -> None:
    """Sync a folder, so that its names survive a power cut. An object store has done so when it responds."""
    if store.local is None:
        return
    descriptor = os.open(store.path(folder), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
