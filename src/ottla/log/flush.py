"""Flushing a log to disk: a plan, taken from the log, that a thread can carry out.

Bytes of the log come first, then indexes of closed segments (those of the active one are rebuilt after a crash), then
the names of the files, which are bytes of their folders.

`Flusher` does it for whoever waits: one flush of a log at a time, and all who come while it runs share the next one.
So a slow disk makes its own producers wait, and nobody else.
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
    sizes: tuple[int, ...] = ()  # of the files, if they have to be written again


def carry_out(flush: Flush) -> None:
    """Returns when everything is on disk, else raises OSError. The plan holds the files open."""
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
    """Write a file over itself, for a disk that was full when it was last forced there.

    After such a failure the kernel takes the bytes for written: without this, another try would succeed and mean
    nothing. It may also have dropped them, so they are checked.
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
    """The flushes of a store's logs that somebody waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[Log, asyncio.Task[None]] = {}
        # Of two fsyncs at a time one could report a failure and the other success, for the same bytes.
        self._turns: WeakKeyDictionary[Log, asyncio.Lock] = WeakKeyDictionary()

    async def wait_for(self, log: Log, offset: int) -> None:
        """Returns when everything below `offset` is on disk. BrokerError says why it will not be."""
        while log.recovery_point < offset:
            if log.fault is not None:
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
            if offset > log.end:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log!r}: {offset} was cut off")
            # A waiter that is cancelled does not cancel the flush for the others.
            await asyncio.shield(self._running.get(log) or self._begin(log))

    def begin(self, log: Log) -> None:
        """Flush what `flush.messages` wants on disk, whether anybody waits for it or not."""
        if log not in self._running:
            self._begin(log)

    def _begin(self, log: Log) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await self.flush(log)
            finally:
                del self._running[log]  # before anybody who waits can look again

        task = self._running[log] = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(partial(self._go_on, log))
        return task

    def _go_on(self, log: Log, done: asyncio.Task[None]) -> None:
        """Force what has come meanwhile. After a failure housekeeping tries again."""
        if not done.cancelled() and done.exception() is None and log.fault is None and log.owed > log.recovery_point:
            self.begin(log)

    async def force_cut(self, log: Log) -> None:
        """Have what was cut off a log stay away, in a thread."""
        plan = log.unforced_cut()
        async with self._turns.setdefault(log, asyncio.Lock()):
            try:
                await asyncio.get_running_loop().run_in_executor(None, carry_out, plan)
            except OSError as error:
                raise log.fail_sync(error) from error
        log.note_cut(plan)

    async def flush(self, log: Log, plan: Flush | None = None) -> None:
        """Force a log to disk in a thread: all of it, or what was planned."""
        try:
            plan = plan or log.plan_flush()
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
                if log.directory is not directory:  # it was moved meanwhile: the trouble is that of the other disk
                    directory.note_failure(error)
                    return
                raise log.fail_sync(error) from error
            log.finish_flush(plan, steady_ms(self._clock))
