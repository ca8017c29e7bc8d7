"""Chooses which log to compact next, has it done in a thread, and puts the result in place on the loop.

The dirty part of a log begins where the last run ended (`cleaner-offset-checkpoint` of its directory) and ends before
the active segment, before the last stable offset, and before the first segment that is younger than
`min.compaction.lag.ms`. The log with the largest dirty part of its bytes comes first, if that part is above
`min.cleanable.dirty.ratio`; a log with a dirty record older than `max.compaction.lag.ms` need not be above it.

Nothing that runs in the thread touches a log: it reads closed segments, which never change, and writes files that
nobody else knows of. In between the log may have changed by retention, truncation or deletion; `swap` notices and the
work is thrown away. A log that cannot be compacted (a bad checksum, say) is left alone until the next start, so that
it cannot keep the others waiting.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.log.checkpoints import CorruptCheckpointError, read_offsets, write_offsets
from ottla.log.segment import CLEANED, DELETED, SWAP, Segment, stem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.log.checkpoints import Offsets
    from ottla.log.compaction import Cleaned
    from ottla.log.directory import Directory
    from ottla.log.log import Log
    from ottla.log.store import Store

CHECKPOINT = "cleaner-offset-checkpoint"

T = TypeVar("T")

logger = logging.getLogger("ottla.log")


class Candidate(NamedTuple):
    """A log, the part of it that may be compacted, and how urgent that is."""

    log: Log
    first_dirty: int
    first_uncleanable: int
    clean_size: int
    dirty_size: int
    overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_size + self.dirty_size
        return self.dirty_size / total if total else 0.0

    @property
    def due(self) -> bool:
        return self.dirty_size > 0 and (self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio)


class Cleaner:
    """The compaction of all logs of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = Event()
        self._busy: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self._checkpoints: dict[Directory, Offsets] = {}

    async def run(self) -> None:
        """Compact until cancelled, `log.cleaner.threads` logs at a time."""
        config = self._store.config
        if config.log_cleaner_enable:
            await asyncio.gather(*(self._work() for _ in range(config.log_cleaner_threads)))

    async def _work(self) -> None:
        while True:
            if not await self.clean_filthiest():
                await asyncio.sleep(self._store.config.log_cleaner_backoff_ms / 1000)

    async def clean_filthiest(self) -> bool:
        """Compact the log that needs it most. False when there is none, or its compaction did not work out."""
        candidate = self.choose(self._store.clock.now_ms())
        if candidate is None:
            return False
        from ottla.log.compaction import StoppedError  # a broker that never compacts starts faster without it

        log = candidate.log
        self._busy.add(log)
        try:
            return await self._clean(candidate)
        except StoppedError:
            return False
        except OSError as error:
            # Segments may have gone meanwhile, the disk may be full or broken: the next try will see.
            logger.warning("compaction failed", extra={"log": repr(log), "reason": str(error)})
            log.directory.refusal(error)
            return False
        except Exception as error:
            logger.exception("log cannot be compacted", extra={"log": repr(log), "reason": str(error)})
            self._uncleanable.add(log)
            return False
        finally:
            self._busy.discard(log)

    def choose(self, now_ms: int) -> Candidate | None:
        """The filthiest log that is due."""
        logs = self._store.logs.values()
        self._uncleanable.intersection_update(logs)
        found = [
            self.survey(log, now_ms)
            for log in logs
            if log.config.compacts and log.fault is None and log not in self._busy and log not in self._uncleanable
        ]
        return max((candidate for candidate in found if candidate.due), key=lambda found: found.ratio, default=None)

    def survey(self, log: Log, now_ms: int) -> Candidate:
        return survey(log, self._offsets(log.directory).get((log.topic, log.index)), now_ms)

    async def _clean(self, candidate: Candidate) -> bool:
        from ottla.log.compaction import Compaction, Throttle, plan

        log, store = candidate.log, self._store
        segments = log.segments[:-1]
        throttle = Throttle(store.config, store.clock, self._stop)
        compaction = Compaction(plan(*candidate[:3], store.config, store.clock.now_ms()), store.disk, throttle)
        await self._in_thread(compaction.map_keys)
        size, size_before = 0, 0
        for group in compaction.groups:
            cleaned = await self._in_thread(partial(compaction.clean, group))
            if not swap(log, segments, cleaned, now_ms=store.clock.now_ms()):
                return False
            await self._in_thread(partial(store.disk.sync_folder, log.folder))
            size, size_before = size + cleaned.size, size_before + cleaned.size_before
        self._mark(log, compaction.end)
        extra = {"log": repr(log), "end": compaction.end, "bytes_before": size_before, "bytes": size}
        logger.info("log compacted", extra=extra)
        return True

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run in a worker thread; when cancelled, tell it to stop and wait until it has."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([future])
            raise

    # Checkpoints.

    def truncated(self, log: Log, offset: int) -> None:
        """The log was cut off at `offset`: what comes there now has not been compacted."""
        if self._offsets(log.directory).get((log.topic, log.index), -1) > offset:
            self._mark(log, offset)

    def _offsets(self, directory: Directory) -> Offsets:
        if directory not in self._checkpoints:
            try:
                self._checkpoints[directory] = read_offsets(directory.disk, os.path.join(directory.path, CHECKPOINT))
            except CorruptCheckpointError as error:
                logger.warning("checkpoint ignored", extra={"reason": str(error)})
                self._checkpoints[directory] = {}
        return self._checkpoints[directory]

    def _mark(self, log: Log, offset: int) -> None:
        """Write down how far a log is compacted, and forget the logs that are gone from its directory."""
        directory = log.directory
        here = {(other.topic, other.index) for other in directory.logs}
        offsets = {key: found for key, found in self._offsets(directory).items() if key in here}
        offsets[log.topic, log.index] = offset
        self._checkpoints[directory] = offsets
        write_offsets(directory.disk, os.path.join(directory.path, CHECKPOINT), offsets, sync=True)


def survey(log: Log, checkpoint: int | None, now_ms: int) -> Candidate:
    """Where the dirty part of a log begins and ends, in whole segments at the end."""
    first_dirty = log.start if checkpoint is None else checkpoint
    if not log.start <= first_dirty <= log.end:
        first_dirty = log.start  # records before the start are gone; behind the end the log was cut
    config, closed = log.config, log.segments[:-1]
    dirty = [segment for segment in closed if segment.end > first_dirty]
    bound = min(log.last_stable(log.high), log.active.base)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        bound = min([bound, *(segment.base for segment in dirty if segment.largest().timestamp > young)])
    first_uncleanable = next((segment.base for segment in closed if segment.end > bound), log.active.base)
    first_uncleanable = max(first_uncleanable, first_dirty)
    oldest_allowed = now_ms - config.max_compaction_lag_ms
    return Candidate(
        log,
        first_dirty,
        first_uncleanable,
        clean_size=sum(segment.size for segment in closed if segment.end <= first_dirty),
        dirty_size=sum(segment.size for segment in dirty if segment.base < first_uncleanable),
        overdue=oldest_allowed > 0 and any(0 < _first_timestamp(segment) < oldest_allowed for segment in dirty),
    )


def _first_timestamp(segment: Segment) -> int:
    first = next(segment.spans(), None)
    return -1 if first is None else first.span.max_timestamp


def swap(log: Log, planned: Sequence[Segment], cleaned: Cleaned, *, now_ms: int) -> bool:
    """Put a compacted segment in place of those it was made from. False if they are no longer what they were.

    Half-way the folder needs recovery's help, so a failure there takes the directory offline.
    """
    disk, folder = log.disk, str(log.folder)
    stem = stem_of(folder, cleaned.base)
    old = [segment for segment in planned if segment.base in cleaned.replaced]
    at = next((at for at, segment in enumerate(log.segments) if segment is old[0]), -1)
    current = log.segments[at : at + len(old)] if at >= 0 else []
    whole = sum(segment.size for segment in current) == cleaned.size_before
    if log.fault is not None or current != old or old[-1] is log.active or not whole:
        if log.fault is None:
            for suffix in cleaned.suffixes:
                disk.remove(stem + suffix + CLEANED, missing_ok=True)
        return False
    try:
        for suffix in cleaned.suffixes:
            disk.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
        for segment in old:
            segment.rename("", DELETED)
            segment.close()
        for suffix in cleaned.suffixes:
            disk.rename(stem + suffix + SWAP, stem + suffix)
    except OSError as error:
        log.directory.fail(error)
        raise
    for segment in old[1:]:
        log.producers.remove(segment.base)
    log.doomed += [(now_ms + log.config.file_delete_delay_ms, segment) for segment in old]
    new = Segment.open(
        folder,
        cleaned.base,
        disk,
        log.config,
        size=cleaned.size,
        lengths=cleaned.index_sizes,
        end=old[-1].end,
        now_ms=now_ms,
    )
    new.adopt_transactions(cleaned.aborted)
    log.segments[at : at + len(old)] = [new]
    return True
