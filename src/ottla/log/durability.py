"""How much of a log is on disk, and the flushes that move on what is.

    recovery_point ≤ end      everything below it is forced to disk; recovery reads nothing before it
    owed                      up to here `flush.messages` requires a flush before anything is acknowledged
    held                      records from here on are not readable until that flush is done, None if all are

A flush is a plan made here, carried out by a thread (see `flush`), and noted here when it is done. The log may change
in between, so a plan carries the count of its cuts: after a truncation or a move it does not count any more.

A truncation must be on disk before anything else is written (`owes_cut`). Otherwise a power cut could bring the removed
records back in place of newer ones, below a high watermark that is already stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.option import LONG_MAX
from ottla.log.directory import FULL, WANTING
from ottla.log.flush import Flush, carry_out
from ottla.log.index import OFFSET_SUFFIX
from ottla.log.segment import LOG_SUFFIX, SUFFIXES
from ottla.log.transactions import write_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.errors import BrokerError
    from ottla.log.log import Log
    from ottla.log.recovery import Loaded
    from ottla.log.segment import Segment


class Durability:
    __slots__ = (
        "_counts",
        "_doubtful",
        "_durable",
        "_epochs_forced",
        "_log",
        "_rolled",
        "cuts",
        "flush_messages",
        "flushed_ms",
        "held",
        "on_forced",
        "owed",
        "owes_cut",
        "recovery_point",
    )

    def __init__(self, log: Log, now_ms: int) -> None:
        self._log = log
        self.recovery_point: int = 0
        self.owed = 0
        self.held: int | None = None
        self.on_forced: Callable[[int], None] | None = None  # called with the offset from which more became readable
        self.owes_cut = False  # whether a truncation has not been forced to disk yet
        self.cuts = 0  # incremented by truncation and moves: copies and flush plans made before are invalid
        self.flushed_ms = now_ms
        self.flush_messages = log.config.flush_messages
        self._counts: dict[int, int] = {}  # aborted transactions by segment, as last written to their file
        self._doubtful = False  # whether the disk was full at the last flush
        self._durable = 0  # below it file names are on disk too, not only contents
        self._epochs_forced = 0  # how many of the writes of the leader epochs are on disk
        self._rolled: list[Segment] = []  # closed segments whose indexes are not on disk yet

    def settle_in(self, loaded: Loaded) -> None:
        """The log uses the files of a folder: at opening, and after a move from another directory."""
        segments, recovery_point = loaded.segments, loaded.recovery_point
        # The checkpoint may be older than the deletion of the oldest segments.
        self.recovery_point = max(recovery_point, segments[0].base)
        # The recovery point may be past the closed segments already, without their indexes.
        self._rolled = [segment for segment in segments[:-1] if segment.end > recovery_point]
        self._durable = recovery_point
        self._counts = loaded.aborts

    @property
    def owes_flush(self) -> bool:
        """Whether `flush.messages` requires a flush before what was appended last is acknowledged."""
        return self.owed > self.recovery_point

    @property
    def settled_end(self) -> int:
        """End of what may be read: records that `flush.messages` wants on disk are hidden until they are there.

        Apache Kafka forces a log to disk inside the append, so readers see no more there either.
        """
        if self.held is None or self.owed <= self.recovery_point:
            return self._log.end
        return min(self._log.end, max(self.held, self.recovery_point))

    # What happens to the log.

    def owe(self, base: int) -> None:
        """Require a flush before the records appended at `base` are acknowledged or read."""
        self.owed = self._log.end
        self._log.directory.unforced[self._log] = None
        if self.held is None:
            self.held = base

    def note_roll(self, closed: Segment) -> None:
        """A segment was closed: it and its indexes may be forced to disk now."""
        self._rolled.append(closed)
        self._log.directory.unforced[self._log] = None

    def note_deletion(self) -> None:
        """The oldest segments were deleted."""
        self.recovery_point = max(self.recovery_point, self._log.segments[0].base)

    def note_cut(self) -> None:
        """The end of the log was moved back."""
        end = self._log.end
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, end)
        self._durable = min(self._durable, end)
        self.owed = min(self.owed, end)
        if self.owed <= self.recovery_point:
            self.held = None

    def note_move(self) -> None:
        """The log was moved: nothing is forced to disk in the new directory yet, and the old copy is deleted soon."""
        self._epochs_forced = -1
        self.cuts += 1  # a flush begun in the old directory does not count for this one
        self.owed = self._log.end

    # Flushing.

    def plan_flush(self, *, closed_only: bool = False) -> Flush | None:
        """What must be forced to disk to advance the recovery point, None if it is at the end already."""
        log, closed_only = self._log, closed_only and not self._doubtful
        end = log.active.base if closed_only else log.end
        if self.recovery_point >= end:
            return None
        chosen = log.segments_from(self.recovery_point)[: -1 if closed_only else None]
        if not chosen:
            return None  # the log was restarted above its recovery point
        for segment in chosen:
            segment.write_transactions()  # recovery does not rebuild it below the recovery point
        log.epochs.flush()  # same reason
        indexes = [segment.stem + suffix for segment in self._rolled for suffix in SUFFIXES if suffix != LOG_SUFFIX]
        if log.epochs.writes > self._epochs_forced:
            indexes.append(log.epochs.path)
        folders: tuple[str, ...] = ()
        if self._durable <= chosen[-1].base:
            folders = (log.path, log.directory.path)  # new files, perhaps in a new folder
        files, sizes = tuple(segment.file for segment in chosen), tuple(segment.size for segment in chosen)
        doubted = sizes if self._doubtful else ()
        return Flush(log.disk, files, tuple(indexes), folders, end, self.cuts, doubted, log.epochs.writes)

    def flush_due(self, now_ms: int) -> Flush | None:
        """What is due to be forced to disk by `flush.ms` or after a roll."""
        if self._log.fault is not None or self.recovery_point >= self._log.end:
            return None
        due = now_ms - self.flushed_ms >= self._log.config.flush_ms or self.owes_flush
        return self.plan_flush(closed_only=not due)

    @property
    def may_come_due(self) -> bool:
        """Whether `flush_due` can return a plan before the next roll, config change or `owe`."""
        if self._doubtful or self._log.config.flush_ms < LONG_MAX:
            return True
        return self.recovery_point < max(self._log.active.base, self.owed)

    def flush(self, now_ms: int) -> None:
        """Force everything to disk now, blocking."""
        try:
            flush = self.plan_flush()
        except OSError as error:
            self._log.directory.note_failure(error)
            raise self._log.directory.storage_error(error) from error
        if flush is not None:
            try:
                carry_out(flush)
            except OSError as error:
                raise self.fail_sync(error) from error
            self.finish_flush(flush, now_ms)

    def finish_flush(self, flush: Flush, now_ms: int) -> None:
        """The planned files are on disk: advance the recovery point.

        The plan does not count if the log was truncated since, because other records took the place of the flushed
        ones. Nor if another flush has found the disk full since it began: the kernel reports a failure only once.
        """
        if flush.cuts == self.cuts and (flush.sizes or not self._doubtful):
            self._doubtful = self._doubtful and not flush.sizes
            forced = set(flush.indexes)
            self._rolled = [segment for segment in self._rolled if segment.stem + OFFSET_SUFFIX not in forced]
            before = self.settled_end
            self._epochs_forced = max(self._epochs_forced, flush.epochs_writes)
            self.recovery_point = max(self.recovery_point, flush.end)
            self._durable = max(self._durable, flush.end)
            self.flushed_ms = now_ms
            if self.held is not None:
                if self.owed <= self.recovery_point:
                    self.held = None
                if self.on_forced is not None:
                    self.on_forced(before)

    def fail_sync(self, error: OSError) -> BrokerError:
        """Handle a failed flush; returns the error to answer with. The directory goes offline: its content is unknown.

        Exceptions: a full disk (everything is written again later), and no free descriptor (nothing was tried).
        """
        directory = self._log.directory
        if error.errno in FULL:
            self._doubtful = True
            if self._log.fault is None:  # it may be deleted meanwhile
                directory.unforced[self._log] = None
        elif error.errno not in WANTING and not isinstance(error, FileNotFoundError):
            directory.fail(error)
        directory.note_failure(error)
        return directory.storage_error(error)

    # Truncations.

    def plan_cut_flush(self) -> Flush:
        """What to flush so that truncated records do not come back after a power cut."""
        log = self._log
        return Flush(log.disk, (log.active.file,), (), (log.path,), self.recovery_point, self.cuts)

    def finish_cut_flush(self, flush: Flush) -> None:
        """The planned files are on disk. This does not cover truncations made since the plan."""
        if flush.cuts == self.cuts:
            self.owes_cut = False

    def force_cut(self) -> None:
        """Force the truncation to disk now, blocking."""
        flush = self.plan_cut_flush()
        try:
            carry_out(flush)
        except OSError as error:
            raise self.fail_sync(error) from error
        self.finish_cut_flush(flush)

    # Stopping.

    def seal(self) -> None:
        """Write what a fast start from this folder needs. Appends may follow."""
        log = self._log
        if self.owes_cut:
            self.force_cut()
        for segment in log.segments:
            segment.write_transactions()
        log.active.seal()
        if log.active.aborts:
            log.active.transactions.force()  # unlike the other small files, it has no checksum
        counts = {segment.base: len(segment.transactions.entries) for segment in log.segments if segment.aborts}
        if counts != self._counts:
            write_counts(log.disk, log.path, counts)
            self._counts = counts
        log.epochs.flush(log.end)
        log.snapshot()
