"""What makes staged files a table: a commit that names them together with the offsets they reach to.

    table/
      orders-00000-….parquet            committed files, alone or in folders day=2026-11-15/
      _ottla/                           hidden from Spark, pyarrow and pandas
        lock                            held by the one run that writes
        staging/<run>/….part            files of tasks, not yet or never committed
        commits/00000000000000000007.json
            {"cluster": id, "ids": {topic: id}, "offsets": {topic: {partition: next offset}},
             "staging": run, "files": [[staged, name], …]}

The decision is one file: a commit appears under its number by a link, which fails if that number is taken, so that of
two drivers one gets it. Before it the files are invisible, after it they belong to the table whatever happens: they are
renamed to their places, and the next start does what was left of that. So no row is lost or doubled, and no reader ever
sees a file that is not committed. (Between the first and the last rename a reader may see some files of a commit and
not yet the others.)

A staging folder goes when all its commits have their files in place: as long as it is there, a file that is neither in
it nor in its place was lost, which is an error; once it is gone, what becomes of files is the business of others.

It needs a file system that all tasks share and that has rename and link. For others there is Delta (`delta_ledger`).
Where it has locks, a second driver is refused at once. Where it has none, what lies in the staging of others is left,
since they may live.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.lock import InUse, Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ottla.spark.export.exporting import File, Shape

HIDDEN: Final = "_ottla"
KEPT: Final = 1000  # commits; the last one is all that is needed, the others tell what happened


@dataclass(frozen=True)
class Reached:
    """How far a table goes."""

    cluster: str | None = None  # None: nothing was ever committed
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)  # of the topics


class Ledger(Protocol):
    """What a table must be able to do, whatever its format."""

    staging: Path

    def reached(self, partitions: Mapping[TopicPartition, str]) -> Reached: ...

    def commit(self, files: Sequence[File], reached: Reached) -> None: ...

    def close(self) -> None: ...


class FolderLedger:
    """A folder of Parquet files."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._path = path
        self._shape = shape
        self._commits = path / HIDDEN / "commits"
        self._all_staging = path / HIDDEN / "staging"
        self._unfinished = False  # a commit may be decided whose files are not in their places
        self._lock, self.staging = prepared(path, self._begin)

    def _begin(self) -> None:
        self._commits.mkdir(exist_ok=True)
        self._number, self._last = self._read()
        if self._number >= 0 and (self._all_staging / self._last["staging"]).exists():
            self._finish()

    def reached(self, partitions: Mapping[TopicPartition, str]) -> Reached:
        if self._number < 0:
            return Reached()
        offsets = {
            TopicPartition(topic, int(index)): offset
            for topic, some in self._last["offsets"].items()
            for index, offset in some.items()
        }
        return Reached(self._last["cluster"], offsets, self._last["ids"])

    def commit(self, files: Sequence[File], reached: Reached) -> None:
        """The files become part of the table, and `reached` what the next start goes on from."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(reached.offsets.items()):
            offsets.setdefault(topic, {})[str(index)] = offset
        document = {
            "cluster": reached.cluster,
            "offsets": offsets,
            "ids": dict(reached.ids),
            "staging": self.staging.name,
            "files": [[file.staged, file.name] for file in files],
        }
        check_staged(self._path, self.staging, files)
        draft = self.staging / "commit"
        with draft.open("w") as output:
            json.dump(document, output)
            output.flush()
            os.fsync(output.fileno())
        if self._shape.synced:
            _sync(self.staging)
        self._unfinished = True
        try:
            os.link(draft, self._commit(self._number + 1))
        except FileExistsError:
            raise Failed(
                f"another run writes to the table at {self._path}: stop one of them; nothing of this one was added"
            ) from None
        draft.unlink()
        _sync(self._commits)
        self._number, self._last = self._number + 1, document
        self._finish()
        self._unfinished = False
        self._commit(self._number - KEPT).unlink(missing_ok=True)

    def close(self) -> None:
        if not self._unfinished:  # else the next start needs what is there
            shutil.rmtree(self.staging, ignore_errors=True)
        self._lock.release()

    def _commit(self, number: int) -> Path:
        return self._commits / f"{number:020}.json"

    def _read(self) -> tuple[int, dict[str, Any]]:
        last = max(self._commits.glob("*.json"), default=None)
        if last is None:
            return -1, {}
        try:
            return int(last.stem), json.loads(last.read_text())
        except ValueError:
            raise Failed(f"{last} is damaged: restore it, or export to another path") from None

    def _finish(self) -> None:
        """Put the files of the last commit in their places; those that are there already are left."""
        staging = self._all_staging / self._last["staging"]
        folders = set()
        for staged, name in self._last["files"]:
            place = self._path / name
            place.parent.mkdir(exist_ok=True)
            try:
                (staging / staged).replace(place)
            except FileNotFoundError:
                if not place.exists():
                    raise Failed(
                        f"{place} belongs to the table by {self._commit(self._number)}, but is neither there nor in "
                        f"{staging}: restore it, or remove {staging} to go on without it"
                    ) from None
            folders.add(place.parent)
        if self._shape.synced:
            for folder in folders:
                _sync(folder)


def prepared(path: Path, begin: Callable[[], None] = lambda: None) -> tuple[Lock, Path]:
    """The right to write to a table, and a new staging folder; `begin` is called before those of others are swept."""
    hidden = path / HIDDEN
    try:
        hidden.mkdir(parents=True, exist_ok=True)
        try:
            lock = Lock(hidden)
        except InUse:
            raise InUse(f"another run writes to the table at {path}: stop it, or choose another path") from None
        try:
            begin()
            if lock.real:
                shutil.rmtree(hidden / "staging", ignore_errors=True)
            staging = hidden / "staging" / uuid.uuid4().hex
            staging.mkdir(parents=True)
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise Failed(f"the table cannot be written at {path} ({error.strerror}): choose another path") from None
    return lock, staging


def check_staged(path: Path, staging: Path, files: Sequence[File]) -> None:
    """What is committed must be there, or the offsets would say that it is."""
    if gone := [file.staged for file in files if not (staging / file.staged).exists()]:
        raise Failed(
            f"{staging / gone[0]} was written and is gone, so that nothing was added to the table at {path}: let "
            "nobody else remove files there, and start again"
        )


def _sync(folder: Path) -> None:
    """Make names in a folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
