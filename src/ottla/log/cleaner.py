"""Chooses which log to compact next, compacts it in a thread, and puts the result in place on the event loop.

The dirty part of a log begins where the last run ended (`cleaner-offset-checkpoint` of its directory) and ends before
the active segment, before the last stable offset, and before the first segment that is younger than
`min.compaction.lag.ms`. The log with the highest dirty ratio comes first, if the ratio is above
`min.cleanable.dirty.ratio` or the log has a dirty record older than `max.compaction.lag.ms`.

The thread does not touch the log object: it reads closed segments, which never change, and writes files that nothing
else uses. Meanwhile retention, truncation or deletion may change the log; `swap` notices this and discards the work. A
log that cannot be compacted (a bad checksum, a full disk) is skipped for a while, longer after each failure, so that it
does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ottla.clock import steady_ms
from ottla.log.checkpoints import COMPACTED, RECOVERY_POINTS
from ottla.log.segment import CLEANED, DELETED, LOG_SUFFIX, SUFFIXES, SWAP, Segment, stem_of
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.log.compaction import Cleaned
    from ottla.log.log import Log
    from ottla.log.store import LogStore

WATCH_S = 1.0  # how often the thread count is re-read
REST_MS = 15_000  # pause after the first failure; doubled with each further one
REST_MAX_MS = 3_600_000

T = TypeVar("T")

logger = logging.getLogger("ottla.log")


class Candidate(NamedTuple):
    """A log, its part that may be compacted, and how urgent that is."""

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


class Backoff(NamedTuple):
    """A log whose compaction failed is skipped until `until_ms` on the steady clock."""

    until_ms: int
    length_ms: int


class Cleaner:
    """The compaction of all logs of a store."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._steps = Steps("ottla.log")
        self._stop = Event()
        self.compactions = self.failures = self.removed_size = 0
        self._busy: set[Log] = set()
        self._resting: WeakKeyDictionary[Log, Backoff] = WeakKeyDictionary()

    async def run(self) -> None:
        """Compact until cancelled, `log.cleaner.threads` logs at a time. The option may change while it runs."""
        if not self._store.config.log_cleaner_enable:
            return
        workers: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                workers = {number: worker for number, worker in workers.items() if not worker.done()}
                for number in range(self._store.config.log_cleaner_threads):
                    if number not in workers:
                        workers[number] = asyncio.get_running_loop().create_task(self._work(number))
                await asyncio.sleep(WATCH_S)
        finally:
            for worker in workers.values():
                worker.cancel()
            await asyncio.gather(*workers.values(), return_exceptions=True)

    async def _work(self, number: int) -> None:
        """Compact one log after the other, until the thread count drops to this worker's number or below."""
        while number < self._store.config.log_cleaner_threads:
            cleaned = False
            with self._steps.attempt("compaction"):
                cleaned = await self.clean_filthiest()
            if not cleaned:
                await asyncio.sleep(self._store.config.log_cleaner_backoff_ms / 1000)

    async def clean_filthiest(self) -> bool:
        """Compact the log that needs it most. False when there is none, or when its compaction failed."""
        candidate = self.choose(self._store.clock.now_ms())
        if candidate is None:
            return False
        from ottla.log.compaction import StoppedError  # a broker that never compacts starts faster without it

        log = candidate.log
        self._busy.add(log)
        attempt = self._steps.attempt("compaction", log)
        try:
            with attempt:
                try:
                    return await self._clean(candidate)
                except OSError as error:
                    log.directory.note_failure(error)
                    raise log.directory.storage_error(error) from error
                except StoppedError:
                    return False
        finally:
            self._busy.discard(log)
            self._rest(log, attempt.failed)
        return False

    def _rest(self, log: Log, failed: bool) -> None:
        before = self._resting.pop(log, None)
        if failed:
            self.failures += 1
            length_ms = REST_MS if before is None else min(2 * before.length_ms, REST_MAX_MS)
            self._resting[log] = Backoff(steady_ms(self._store.clock) + length_ms, length_ms)

    def _is_resting(self, log: Log) -> bool:
        rest = self._resting.get(log)
        return rest is not None and steady_ms(self._store.clock) < rest.until_ms

    def choose(self, now_ms: int) -> Candidate | None:
        """The log with the highest dirty ratio that is due."""
        found: list[Candidate] = []
        logs = [
            log
            for log in self._store.logs.values()
            if log.config.compacts and log.fault is None and log not in self._busy and not self._is_resting(log)
        ]
        self._steps.each("survey for compaction", logs, lambda log: found.append(survey(log, log.compacted, now_ms)))
        return max((candidate for candidate in found if candidate.due), key=lambda found: found.ratio, default=None)

    async def _clean(self, candidate: Candidate) -> bool:
        from ottla.log.compaction import Compaction, ReadThrottle, plan

        log, store = candidate.log, self._store
        segments = log.segments[:-1]
        throttle = ReadThrottle(store.config, store.clock, self._stop)
        compaction = Compaction(plan(*candidate[:3], store.config, store.clock.now_ms()), store.disk, throttle)
        await self._in_thread(compaction.map_keys)
        if store.replicated:
            await self._force(log)
        size, size_before = 0, 0
        for group in compaction.groups:
            cleaned = await self._in_thread(partial(compaction.clean, group))
            if not swap(log, segments, cleaned):
                return False
            await self._in_thread(partial(store.disk.sync_folder, log.folder))
            size, size_before = size + cleaned.size, size_before + cleaned.size_before
        log.compacted = compaction.end
        await self._write(COMPACTED, log)
        self.compactions += 1
        self.removed_size += size_before - size
        extra = {"log": repr(log), "end": compaction.end, "bytes_before": size_before, "bytes": size}
        logger.info("log compacted", extra=extra)
        return True

    async def _force(self, log: Log) -> None:
        """Move the recovery point past the closed segments, on disk, too, before compaction leaves gaps there.

        Recovery of a replica takes a gap above the recovery point for the work of a power cut: it removes what follows.
        """
        plan = log.durability.plan_flush(closed_only=True)
        if plan is not None:
            await self._store.flusher.flush(log, plan)
        await self._write(RECOVERY_POINTS, log)

    async def _write(self, name: str, log: Log) -> None:
        """Bring a checkpoint of the log's directory up to date."""
        write = log.directory.ledger.plan(name, log.directory.logs)
        if write is not None:
            await self._in_thread(write.carry_out)
            write.page.confirm(write)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run in a worker thread; when cancelled, stop the thread's work and wait for it."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([future])
            raise

    def note_truncation(self, log: Log) -> None:
        """The log was truncated: new records at its end have not been compacted."""
        if log.compacted is not None and log.compacted > log.end:
            log.compacted = log.end
            log.directory.ledger.write(COMPACTED, log.directory.logs)


def survey(log: Log, checkpoint: int | None, now_ms: int) -> Candidate:
    """Where the dirty part of a log begins and ends; it ends at a segment boundary."""
    first_dirty = log.start if checkpoint is None else checkpoint
    if not log.start <= first_dirty <= log.end:
        first_dirty = log.start  # the log was truncated, or its start has moved past the checkpoint
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
        dirty_size=sum(segment.size for segment in dirty if segment.end <= first_uncleanable),
        overdue=oldest_allowed > 0 and any(0 < _first_timestamp(segment) < oldest_allowed for segment in dirty),
    )


def _first_timestamp(segment: Segment) -> int:
    first = next(segment.spans(), None)
    return -1 if first is None else first.span.max_timestamp


def swap(log: Log, planned: Sequence[Segment], cleaned: Cleaned) -> bool:
    """Replace segments by the compacted one made from them. False if they have changed since.

    A failure in between is undone; if that fails too, this log is not served until the next start.
    """
    stem = stem_of(log.path, cleaned.base)
    old = [segment for segment in planned if segment.base in cleaned.replaced]
    at = next((at for at, segment in enumerate(log.segments) if segment is old[0]), -1)
    current = log.segments[at : at + len(old)] if at >= 0 else []
    whole = sum(segment.size for segment in current) == cleaned.size_before
    if log.fault is not None or current != old or old[-1] is log.active or not whole:
        if log.fault is None:
            for suffix in cleaned.suffixes:
                log.disk.remove(stem + suffix + CLEANED, missing_ok=True)
        return False
    names = [(stem + suffix + CLEANED, stem + suffix + SWAP) for suffix in cleaned.suffixes]
    names += [(one.stem + suffix, one.stem + suffix + DELETED) for one in old for suffix in SUFFIXES]
    names += [(stem + suffix + SWAP, stem + suffix) for suffix in cleaned.suffixes]
    _rename_all(log, names)
    for segment in old:
        segment.close()
    log.doom(old)
    new = Segment.open(
        log.path,
        cleaned.base,
        log.disk,
        log.config,
        size=cleaned.size,
        lengths=cleaned.index_sizes,
        end=old[-1].end,
        now_ms=old[0].created_ms,
    )
    new.adopt_transactions(cleaned.aborted)
    log.segments[at : at + len(old)] = [new]
    for segment in old[1:]:
        log.producers.remove(segment.base)
    return True


def _rename_all(log: Log, names: Sequence[tuple[str, str]]) -> None:
    """Rename in order, or raise with all renames undone. Recovery can handle every intermediate state.

    Missing index files are skipped.
    """
    done: list[tuple[str, str]] = []
    try:
        for before, after in names:
            if before.endswith(LOG_SUFFIX) or log.disk.exists(before):
                done.append((before, after))
                log.disk.rename(before, after)
    except BaseException:
        fault, log.fault = log.fault, f"{log!r}: compaction was interrupted; the next start finishes it"
        for before, after in reversed(done):
            if not log.disk.exists(before):  # else this is the rename that failed
                log.disk.rename(after, before)
        log.fault = fault
        raise
