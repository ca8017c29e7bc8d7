"""Flushing a log to disk: a plan, taken from the log, that a thread can carry out.

The log files come first, then indexes of closed segments (those of the active one are rebuilt after a crash) and the
leader epochs, then the folders, which hold the file names.

`Flusher` runs one flush of a log at a time; callers that arrive while it runs share the next one. So a slow disk delays
only its own producers.
"""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from ottla.clock import steady_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.log.recovery import checksum_ok
from ottla.log.spans import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clock import Clock
    from ottla.disk import Disk, File
    from ottla.log.log import Log

REWRITE_SIZE = 1 << 20


class Flush(NamedTuple):
    """What to force to disk so that a log's recovery point may move to `end`."""

    disk: Disk
    files: tuple[File, ...]
    indexes: tuple[str, ...]
    folders: tuple[str, ...]
    end: int
    cuts: int  # of the log when the plan was made
    sizes: tuple[int, ...] = ()  # of the files, if their content must be rewritten
    epochs_writes: int = 0  # how often the file of the leader epochs, one of `indexes`, had been written


def carry_out(flush: Flush) -> None:
    """Blocks until everything is on disk, or raises OSError. The plan keeps the files open."""
    for file, size in zip(flush.files, flush.sizes, strict=False):
        rewrite(flush.disk, file, size)
    for file in flush.files:
        flush.disk.sync(file.fd)
    for path in flush.indexes:
        try:
            index = flush.disk.open(path)
        except FileNotFoundError:
            continue  # deleted or replaced meanwhile, with its segment
        try:
            flush.disk.sync(index.fd)
        finally:
            index.close()
    sync_folders(flush.disk, flush.folders)


def rewrite(disk: Disk, file: File, size: int) -> None:
    """Write a file's content again, after a flush that failed because the disk was full.

    After such a failure the kernel considers the bytes written: another fsync would succeed without writing them. It
    may also have dropped them, so the content is checked first.
    """
    reached = 0
    for found in walk(disk, file, 0, size, whole=True, window=REWRITE_SIZE):
        if not checksum_ok(found):
            break
        reached = found.span.position + found.span.size
    if reached != size:
        raise OSError(errno.EIO, f"lost while the disk was full: what follows {reached}", file.path)
    for position in range(0, size, REWRITE_SIZE):
        data = disk.pread(file.fd, min(REWRITE_SIZE, size - position), position)
        if disk.writev(file.fd, [data], position) != len(data):
            raise OSError(errno.ENOSPC, "still full", file.path)


def sync_folders(disk: Disk, folders: Iterable[str]) -> None:
    for folder in folders:
        try:
            disk.sync_folder(folder)
        except FileNotFoundError:
            continue  # the partition was deleted meanwhile


class Flusher:
    """Runs the flushes of a store's logs in threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[Log, asyncio.Task[None]] = {}
        # With two concurrent fsyncs, one could report failure and the other success for the same bytes.
        self._turns: WeakKeyDictionary[Log, asyncio.Lock] = WeakKeyDictionary()

    async def wait_for(self, log: Log, offset: int) -> None:
        """Returns when everything below `offset` is on disk. BrokerError if that will not happen."""
        while log.durability.recovery_point < offset:
            if log.fault is not None:
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
            if offset > log.end:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log!r}: {offset} was cut off")
            # Cancelling one waiter does not cancel the flush for the others.
            await asyncio.shield(self._running.get(log) or self._begin(log))

    def begin(self, log: Log) -> None:
        """Start the flush that `flush.messages` requires, whether or not anybody waits for it."""
        if log not in self._running:
            self._begin(log)

    def _begin(self, log: Log) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await self.flush(log)
            finally:
                del self._running[log]  # before a waiter can look again

        task = self._running[log] = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(partial(self._go_on, log))
        return task

    def _go_on(self, log: Log, done: asyncio.Task[None]) -> None:
        """Flush what was appended meanwhile. After a failure housekeeping tries again."""
        if not done.cancelled() and done.exception() is None and log.fault is None and log.durability.owes_flush:
            self.begin(log)

    async def force_cut(self, log: Log) -> None:
        """Force a truncation to disk, in a thread."""
        plan = log.durability.plan_cut_flush()
        async with self._turns.setdefault(log, asyncio.Lock()):
            try:
                await asyncio.get_running_loop().run_in_executor(None, carry_out, plan)
            except OSError as error:
                raise log.durability.fail_sync(error) from error
        log.durability.finish_cut_flush(plan)

    async def flush(self, log: Log, plan: Flush | None = None) -> None:
        """Force a log to disk in a thread: all of it, or as planned."""
        try:
            plan = plan or log.durability.plan_flush()
        except OSError as error:
            log.directory.note_failure(error)
            raise log.directory.storage_error(error) from error
        if plan is None:
            return
        directory = log.directory
        async with self._turns.setdefault(log, asyncio.Lock()):
            try:
                await asyncio.get_running_loop().run_in_executor(None, carry_out, plan)
            except OSError as error:
                if log.directory is not directory:  # moved meanwhile: the error concerns the old disk
                    directory.note_failure(error)
                    return
                raise log.durability.fail_sync(error) from error
            log.durability.finish_flush(plan, steady_ms(self._clock))
