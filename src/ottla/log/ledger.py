"""The four checkpoint files of a log directory, each with one line per partition.

    recovery-point-offset-checkpoint    everything below it is forced to disk
    log-start-offset-checkpoint         the log start offset, if it is above the base of the first segment
    replication-offset-checkpoint       the high watermark
    cleaner-offset-checkpoint           the end of the compacted part

The format is Apache Kafka's. Lines name partitions, and a name may be reused for another log. Invariant: before a log
is created in a directory, no file there has a stale line for its name. So a ledger remembers which names each file may
hold on disk, and `make_way` rewrites the files without the stale line.

For a log that could not be opened the files keep their lines: it may be repaired and opened later.

Every write is synced, as Kafka's are: otherwise a power cut could bring back an older file with removed lines.
Threads may write; `number` keeps older content from replacing newer content.
"""

from __future__ import annotations

import logging
import os
from threading import Lock
from typing import TYPE_CHECKING

from ottla.log.checkpoints import (
    COMPACTED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ottla.disk import Disk
    from ottla.log.checkpoints import Offsets
    from ottla.log.log import Log

    Key = tuple[str, int]

logger = logging.getLogger("ottla.log")


def _start(log: Log) -> int | None:
    return log.start if log.start > log.segments[0].base else None


SAYS: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.durability.recovery_point,
    LOG_STARTS: _start,
    HIGH_WATERMARKS: lambda log: log.high,
    COMPACTED: lambda log: log.compacted,
}


class CheckpointWrite:
    """New content for one of the files. Any thread may write it."""

    def __init__(self, page: CheckpointFile, number: int, offsets: Offsets) -> None:
        self.page = page
        self.number = number
        self.offsets = offsets

    def carry_out(self) -> None:
        self.page.carry_out(self)


class CheckpointFile:
    """One file. `held` are the names that it may hold on disk, whichever pending write was the last to finish."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.held: set[Key] = set()
        self._path = path
        self._disk = disk
        self._lock = Lock()
        self.planned = 0  # how many writes were planned
        self._carried_out = 0
        self._said: Offsets | None = None  # the known content of the file
        self.lost = False  # whether there was something that could not be parsed

    def read(self) -> Offsets:
        """The content of the file; empty when it cannot be parsed: offset 0 is safe, and only costs more reading."""
        try:
            said = read_offsets(self._disk, self._path)
        except CorruptCheckpointError as error:
            logger.warning("checkpoint ignored", extra={"reason": str(error)})
            self.lost = True
            return {}
        self.held = set(said)
        self._said = said
        return said

    def plan(self, offsets: Offsets) -> CheckpointWrite | None:
        """The write that gives the file this content; None if it already has it."""
        if offsets == self._said:
            return None
        self._said = None
        self.held.update(offsets)
        self.planned += 1
        return CheckpointWrite(self, self.planned, offsets)

    def carry_out(self, write: CheckpointWrite) -> None:
        with self._lock:
            if write.number > self._carried_out:
                write_offsets(self._disk, self._path, write.offsets, sync=True)
                self._carried_out = write.number

    def confirm(self, write: CheckpointWrite) -> None:
        """The write was carried out. Call it on the loop, like `plan`."""
        if write.number == self.planned:
            self.held = set(write.offsets)
            self._said = write.offsets


class Ledger:
    """The files of one directory."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._pages = {name: CheckpointFile(os.path.join(path, name), disk) for name in SAYS}
        self._unopened: dict[Key, dict[str, int]] = {}  # the lines of logs that could not be opened, by file

    def read(self) -> dict[str, Offsets]:
        """The content of each file."""
        return {name: page.read() for name, page in self._pages.items()}

    def has_lost(self, name: str) -> bool:
        """Whether one of the files could not be parsed when it was read."""
        return self._pages[name].lost

    def keep(self, key: Key, said: Mapping[str, Offsets]) -> None:
        """This log could not be opened: keep its lines."""
        self._unopened[key] = {name: offsets[key] for name, offsets in said.items() if key in offsets}

    def let_go(self, key: Key) -> None:
        """The log is open now, or gone: no longer keep its old lines."""
        self._unopened.pop(key, None)

    def plan(self, name: str, logs: Iterable[Log]) -> CheckpointWrite | None:
        """The write that brings one of the files up to date with these logs."""
        return self.plan_lines(name, self.lines(name, logs))

    def lines(self, name: str, logs: Iterable[Log]) -> Offsets:
        """What one of the files should say of these logs."""
        says = SAYS[name]
        return {(log.topic, log.index): offset for log in logs if (offset := says(log)) is not None}

    def count_plans(self, name: str) -> int:
        """How many writes of one of the files were planned so far."""
        return self._pages[name].planned

    def plan_lines(self, name: str, lines: Offsets) -> CheckpointWrite | None:
        """The write that gives one of the files these lines, which are those of all logs."""
        return self._pages[name].plan(self._kept(name) | lines)

    def write(self, name: str, logs: Iterable[Log]) -> None:
        _write_now(self.plan(name, logs))

    def plan_way(self, keys: Collection[Key], logs: Iterable[Log]) -> list[CheckpointWrite]:
        """The writes needed before logs of these names may be created."""
        for key in keys:
            self.let_go(key)
        stale = [name for name, page in self._pages.items() if not page.held.isdisjoint(keys)]
        if not stale:
            return []
        others = [log for log in logs if (log.topic, log.index) not in keys]
        found = (self._pages[name].plan(self._offsets(name, others)) for name in stale)
        return [write for write in found if write is not None]

    def make_way(self, key: Key, logs: Iterable[Log], said: Mapping[str, int] | None = None) -> None:
        """Remove the lines of this name from every file, or write `said` there. OSError: do not create the log."""
        said = said or {}
        self.let_go(key)
        stale = [name for name, page in self._pages.items() if key in page.held or name in said]
        if not stale:
            return
        others = [log for log in logs if (log.topic, log.index) != key]
        for name in stale:
            own = {key: said[name]} if name in said else {}
            _write_now(self._pages[name].plan(self._offsets(name, others) | own))

    def _offsets(self, name: str, logs: Iterable[Log]) -> Offsets:
        return self._kept(name) | self.lines(name, logs)

    def _kept(self, name: str) -> Offsets:
        return {key: said[name] for key, said in self._unopened.items() if name in said}


def _write_now(write: CheckpointWrite | None) -> None:
    if write is not None:
        write.carry_out()
        write.page.confirm(write)
