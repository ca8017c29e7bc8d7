"""Background work on the logs of a store: retention, flushes, checkpoints, delayed removals and moves.

Each is a task of its own, so that a slow disk or a large copy delays only work of the same kind. The event loop does
what is quick (renames, decisions). Everything that waits for a disk runs in threads, on values taken beforehand.

A log that fails does not stop the others: `Steps` logs the error once, and the next round tries again. Compaction is in
`cleaner.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from ottla.clock import steady_ms
from ottla.log.checkpoints import COMPACTED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from ottla.log.retention import retain
from ottla.log.segment import DELETED, LOG_SUFFIX
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.log.checkpoints import Offsets
    from ottla.log.directory import Directory
    from ottla.log.flush import Flush
    from ottla.log.ledger import CheckpointWrite
    from ottla.log.log import Log
    from ottla.log.store import LogStore

TICK_S = 1.0  # how often to check what is due; every interval is rounded up to it
LOGS_PER_TURN = 200  # each takes a few microseconds, or a few renames
LOGS_PER_LOOK = 2000  # each takes less than a microsecond

logger = logging.getLogger("ottla.log")


class Doomed:
    """Files to remove at `due_ms` on the steady clock: those of a segment that `log` retired, or a whole folder."""

    def __init__(
        self, due_ms: int, directory: Directory, path: str, log: Log | None, remove: Callable[[], None]
    ) -> None:
        self.due_ms = due_ms
        self.directory = directory
        self.path = path
        self.log = log
        self.remove = remove

    def __str__(self) -> str:
        return self.path


class Housekeeping:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._steps = Steps("ottla.log")
        self._due: dict[str, int] = {}
        self._doomed: list[Doomed] = []
        self._seen: dict[Log, int] = {}  # the end of each log at the last check that its folder exists

    async def run(self) -> None:
        """Until cancelled."""
        works = (self.retain, self.flush, self.checkpoint, self.remove, self.move, self.look)
        await asyncio.gather(*(self._steps.every(TICK_S, f"housekeeping: {work.__name__}", work) for work in works))

    def _is_due(self, work: str, interval_ms: int) -> bool:
        """Whether the interval since the last run is over. The first interval starts at the first call."""
        now_ms = steady_ms(self._store.clock)
        if now_ms < self._due.setdefault(work, now_ms + interval_ms):
            return False
        self._due[work] = now_ms + interval_ms
        return True

    # Retention.

    async def retain(self) -> None:
        """Apply retention by time and size, and forget idle producers."""
        if not self._is_due("retention", self._store.config.log_retention_check_interval_ms):
            return
        for directory in self._store.directories:
            directory.look_again()
        for some in batched(list(self._store.logs.values()), LOGS_PER_TURN):
            self._steps.each("retention", some, self._retain)
            await asyncio.sleep(0)

    def _retain(self, log: Log) -> None:
        now_ms = self._store.clock.now_ms()
        log.producers.expire(now_ms)
        retain(log, now_ms)
        if log.fault is None:
            log.active.free_idle()

    # Flushing.

    async def flush(self) -> None:
        """Force to disk what is due by `flush.ms` or after a roll. Skips logs where nothing can be due."""
        due: list[tuple[Log, Flush]] = []
        now_ms = steady_ms(self._store.clock)

        def look(log: Log) -> None:
            flush = log.durability.flush_due(now_ms)
            if flush is not None:
                due.append((log, flush))
            elif not log.durability.may_come_due:
                log.directory.unforced.pop(log, None)

        for directory in self._store.directories:
            self._steps.each("flush", list(directory.unforced), look)
        await asyncio.gather(*(self._flush(log, flush) for log, flush in due))

    async def _flush(self, log: Log, flush: Flush) -> None:
        with self._steps.attempt("flush", log):
            await self._store.flusher.flush(log, flush)

    # Checkpoints.

    async def checkpoint(self) -> None:
        """Write the checkpoints that are due."""
        config = self._store.config
        intervals = {
            RECOVERY_POINTS: config.log_flush_offset_checkpoint_interval_ms,
            LOG_STARTS: config.log_flush_start_offset_checkpoint_interval_ms,
            HIGH_WATERMARKS: config.replica_high_watermark_checkpoint_interval_ms,
            COMPACTED: config.log_flush_offset_checkpoint_interval_ms,
        }
        for name, interval_ms in intervals.items():
            if self._is_due(name, interval_ms):
                for directory in self._store.directories:
                    if directory.online:
                        with self._steps.attempt(f"writing {name}", directory):
                            await self._write(directory, await self._plan(directory, name))

    async def _plan(self, directory: Directory, name: str) -> CheckpointWrite | None:
        """The write of a checkpoint, planned in slices: with many logs even a look at each takes long."""
        ledger, logs = directory.ledger, set(directory.logs)
        lines: Offsets = {}
        planned = ledger.count_plans(name)
        for some in batched(list(logs), LOGS_PER_LOOK):
            lines |= ledger.lines(name, some)
            await asyncio.sleep(0)
        if ledger.count_plans(name) != planned:
            return None  # another write was planned meanwhile: what it says is newer
        # A log may be gone by now, and another one may have its name. Others may have moved here, or been opened.
        for log in logs - directory.logs:
            lines.pop((log.topic, log.index), None)
        if joined := directory.logs - logs:
            lines |= ledger.lines(name, joined)
        return ledger.plan_lines(name, lines)

    async def _write(self, directory: Directory, write: CheckpointWrite | None) -> None:
        if write is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, write.carry_out)
        except OSError as error:
            directory.note_failure(error)
            raise directory.storage_error(error) from error
        write.page.confirm(write)

    # Removing.

    def doom_folder(self, path: str, directory: Directory, delay_ms: int) -> None:
        """Schedule the removal of a folder."""
        remove = partial(directory.disk.remove_folder, path)
        self._doomed.append(Doomed(steady_ms(self._store.clock) + delay_ms, directory, path, None, remove))

    def is_doomed(self, path: str) -> bool:
        """Whether the removal of this folder is still pending."""
        return any(doomed.path == path for doomed in self._doomed)

    def _doom_segments(self, log: Log) -> None:
        gone, log.doomed = log.doomed, []
        due_ms = steady_ms(self._store.clock) + log.config.file_delete_delay_ms
        for segment in gone:
            remove = partial(segment.remove, DELETED)
            self._doomed.append(Doomed(due_ms, log.directory, segment.stem + LOG_SUFFIX + DELETED, log, remove))

    async def remove(self) -> None:
        """Remove the files whose delay is over, in a thread: they may be large. Failures are tried again."""
        for directory in self._store.directories:
            shrunk, directory.shrunk = directory.shrunk, {}
            for log in shrunk:
                self._doom_segments(log)
        now_ms = steady_ms(self._store.clock)
        for doomed in [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]:
            log_now = doomed.log and self._store.logs.get((doomed.log.topic, doomed.log.index))
            if log_now is doomed.log:  # else its whole folder is removed, and another log may have the name
                with self._steps.attempt("removal", doomed) as attempt:
                    await self._remove(doomed)
                if attempt.failed:
                    continue
            self._doomed.remove(doomed)

    async def _remove(self, doomed: Doomed) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, doomed.remove)
        except OSError as error:
            if doomed.log is None and not doomed.directory.disk.exists(doomed.path):
                return  # already removed
            doomed.directory.note_failure(error)
            raise doomed.directory.storage_error(error) from error

    # Moving.

    async def move(self) -> None:
        """Carry out the requested moves, one after the other."""
        for move in list(self._store.moves.values()):
            with self._steps.attempt("move", move.log):
                await self._store.carry_out(move)

    # Looking.

    async def look(self) -> None:
        """Check full disks for space, open logs that could not be opened before, and detect removed folders."""
        for directory in self._store.directories:
            if directory.full:
                for some in batched(list(directory.logs), LOGS_PER_LOOK):
                    self._steps.each("freeing reserved blocks", some, _free_reserved)
                    await asyncio.sleep(0)
                with self._steps.attempt("look for space", directory):
                    directory.look_for_space()
        with self._steps.attempt("opening logs again"):
            await self._store.open_again()
        if not self._is_due("folders", self._store.config.replica_high_watermark_checkpoint_interval_ms):
            return
        changed: list[tuple[Log, str]] = []
        seen: dict[Log, int] = {}
        for some in batched(list(self._store.logs.values()), LOGS_PER_LOOK):
            changed += [(log, log.path) for log in some if log.fault is None and self._seen.get(log) != log.end]
            seen.update((log, log.end) for log in some)
            await asyncio.sleep(0)
        self._seen = seen
        missing = await asyncio.get_running_loop().run_in_executor(None, _missing, changed)
        for log, folder in missing:
            if log.fault is None and log.path == folder:  # else it was deleted or moved just now
                log.fault = f"the folder {folder} is gone"
                logger.error("partition offline, its folder is gone", extra={"folder": folder})


def batched(logs: list[Log], size: int) -> Iterator[list[Log]]:
    """Slices of the list, each of `size` logs but the last."""
    return (logs[first : first + size] for first in range(0, len(logs), size))


def _free_reserved(log: Log) -> None:
    if log.fault is None:
        log.active.free_reserved()


def _missing(folders: list[tuple[Log, str]]) -> list[tuple[Log, str]]:
    """Logs whose folder was deleted. Writes to an open file still succeed, but acknowledged records would be lost."""
    return [
        (log, folder)
        for log, folder in folders
        if not log.disk.exists(folder) and log.disk.exists(os.path.dirname(folder))
    ]
