"""One segment of a partition's log: `<base>.log` holds batches back to back, starting at the offset in its name.

    00000000000000000500.log         batch | batch | batch ...     appended only, never rewritten
    00000000000000000500.index       sparse, see `index`
    00000000000000000500.timeindex   sparse, see `index`
    00000000000000000500.txnindex    aborted transactions, only if there are any, see `transactions`

Index entries are added after the write has succeeded, so a failed append leaves only bytes past `size`, which are cut
off. The active segment also remembers the positions of its last few hundred batches: a consumer close behind the
producer is served without an index lookup.

The file is opened at the first read or write, and closed again when descriptors run short. A reader gets a `Slice`, a
reference to a range of the file: the bytes are not copied before they reach the socket.
"""

from __future__ import annotations

import errno
import os
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NoReturn
from zlib import crc32

from ottla.errors import BrokerError, ErrorCode
from ottla.log.files import OPEN_FILES
from ottla.log.index import OFFSET_SUFFIX, TIME_SUFFIX, CorruptIndexError, Mark, OffsetIndex, TimeIndex
from ottla.log.reservation import GROWN_SIZE, LEFT_MIN, RESERVED_SIZE_MAX, reserve
from ottla.log.spans import LOOK, LOOK_SIZE, SIZE_MIN, walk
from ottla.log.transactions import SUFFIX as TRANSACTION_SUFFIX
from ottla.log.transactions import TransactionIndex
from ottla.records import batch
from ottla.records.walk import WalkState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.config.topic import TopicConfig
    from ottla.disk import Buffer, Disk, File
    from ottla.log.spans import FoundSpan, Span
    from ottla.log.transactions import Aborted
    from ottla.records.walk import Walked

LOG_SUFFIX = ".log"
SUFFIXES = (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, TRANSACTION_SUFFIX)
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

RELATIVE_MAX = (1 << 31) - 1  # an index entry holds an offset as its distance from the base
TAIL_MAX = 512  # batches whose position is remembered; when exceeded, the older half is dropped
NEVER = 1 << 63
BROKEN = (-1, -1)
UNDECIDED = -2  # below every timestamp: forces the full roll check

_WINDOW = 1 << 13  # one read covers the batches between two index entries, at the default interval


class Slice:
    """A range of a log file to be sent. Holding it keeps the file open, even a deleted one."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    @property
    def fd(self) -> int:
        return self.file.fd

    def read(self) -> bytes:
        return os.pread(self.file.fd, self.size, self.position)

    def __repr__(self) -> str:
        return f"Slice({self.file.path}, position={self.position}, size={self.size})"


class Segment:
    __slots__ = (
        "__weakref__",
        "_checked",
        "_interval",
        "_largest_known",
        "_look_size",
        "_preallocated",
        "_reindexed",
        "_reserve_at",
        "_reserved",
        "_reserved_for",
        "_since",
        "_size_max",
        "_tail_last",
        "_tail_position",
        "_transactions",
        "base",
        "created_ms",
        "disk",
        "end",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_max",
        "offsets",
        "opened",
        "roll_at",
        "size",
        "stem",
        "times",
        "used",
    )

    def __init__(self, stem: str, base: int, disk: Disk, config: TopicConfig, *, size: int, now_ms: int) -> None:
        self.stem = stem
        self.base = base
        self.disk = disk
        self.size = size
        self.end = base
        self.created_ms = now_ms
        self.offset_max = base + RELATIVE_MAX
        self.first_timestamp = -1  # of the first batch; read on first use
        self.roll_at = NEVER if size == 0 else UNDECIDED
        self.max_timestamp = -1
        self.max_timestamp_offset = base
        self.offsets: OffsetIndex
        self.times: TimeIndex
        self.used = False  # whether the file was used since the last check: see `files`
        self._largest_known = size == 0
        self.opened: File | None = None  # the log file, while it is open
        self._interval = config.index_interval_bytes
        self._look_size = _WINDOW  # of one read in a search: small ones for headers only if the batches are large
        self._since = 0
        self._tail_last = array("q")
        self._tail_position = array("q")
        self._transactions: TransactionIndex | None = None
        self._checked = True
        self._reindexed = False
        self._preallocated = False  # whether the file is larger than its content
        self._reserved = False  # whether the file may have blocks, or a part of a batch, after its content
        self._reserved_for = 0  # the size at the last call of `free_idle`
        self._reserve_at = NEVER if config.preallocate else GROWN_SIZE  # the size at which blocks are reserved next
        self._size_max = config.segment_bytes

    @classmethod
    def create(
        cls, folder: str, base: int, disk: Disk, config: TopicConfig, *, now_ms: int, new: bool = False
    ) -> Segment:
        """A new segment with its files. Existing files are emptied; `new` says that the folder has none."""
        stem = stem_of(folder, base)
        segment = cls(stem, base, disk, config, size=0, now_ms=now_ms)
        file = OPEN_FILES.open(disk, stem + LOG_SUFFIX, create=True)
        if config.preallocate or not new:
            disk.cut(file.fd, config.segment_bytes if config.preallocate else 0)
        segment._preallocated = config.preallocate
        segment.offsets = OffsetIndex(stem, base, disk, config.segment_index_bytes)
        segment.times = TimeIndex(stem, base, disk, config.segment_index_bytes)
        return segment

    @classmethod
    def open(
        cls,
        folder: str,
        base: int,
        disk: Disk,
        config: TopicConfig,
        *,
        size: int,
        lengths: tuple[int, int],
        end: int,
        now_ms: int,
    ) -> Segment:
        """An existing segment; `lengths` are the sizes of its index files. Reads nothing: indexes are checked on first
        use."""
        segment = cls(stem_of(folder, base), base, disk, config, size=size, now_ms=now_ms)
        segment.end = end
        segment.offsets = OffsetIndex(segment.stem, base, disk, config.segment_index_bytes, lengths[0])
        segment.times = TimeIndex(segment.stem, base, disk, config.segment_index_bytes, lengths[1])
        segment._checked = False
        return segment

    @property
    def file(self) -> File:
        """The log file. Hold it while you use its descriptor: the segment may drop its reference at any time."""
        file = self.opened
        if file is None:
            file = self.opened = OPEN_FILES.open(self.disk, self.stem + LOG_SUFFIX)
            self.used = False  # only a second use counts
            OPEN_FILES.keep(self)
        else:
            self.used = True
        return file

    def let_go(self) -> None:
        self.opened = None

    @property
    def transactions(self) -> TransactionIndex:
        """Empty unless it was loaded: `recovery` does that where there is a file."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.stem + TRANSACTION_SUFFIX, self.disk, self.base)
        return self._transactions

    @property
    def aborts(self) -> bool:
        """Whether a transaction was aborted in this segment."""
        return self._transactions is not None and bool(self._transactions.entries)

    def read_transactions(self) -> None:
        """Load the transaction index from its file. CorruptTransactionIndexError: it has to be rebuilt."""
        end = self.end if self.end > self.base else None
        self._transactions = TransactionIndex.open(self.stem + TRANSACTION_SUFFIX, self.disk, self.base, end)

    def adopt_transactions(self, aborted: Sequence[Aborted]) -> None:
        """Set the transaction index to these entries, which its file already holds."""
        if aborted:
            path = self.stem + TRANSACTION_SUFFIX
            self._transactions = TransactionIndex(path, self.disk, self.base, aborted)

    def clear_transactions(self) -> None:
        """Start with an empty transaction index and remove its file."""
        self.disk.remove(self.stem + TRANSACTION_SUFFIX, missing_ok=True)
        self._transactions = None

    def write_transactions(self) -> None:
        """Write transaction index entries that could not be written before, because the disk was full."""
        if self._transactions is not None:
            self._transactions.write()

    # Writing.

    def append(self, parts: Sequence[Buffer], size: int, last: int, max_timestamp: int) -> None:
        """Write one batch. On OSError the segment is unchanged."""
        position = self.size
        file = self.opened
        if file is None:
            file = self.file
        else:
            self.used = True
        self._write(file, parts, size, position)
        self.extend(position, size, last, max_timestamp)

    def extend(self, position: int, size: int, last: int, max_timestamp: int) -> None:
        """Record a batch that was written at the end of the file."""
        if position == 0:
            self.first_timestamp, self.roll_at = max_timestamp, UNDECIDED
        self.size = position + size
        self.end = last + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last
        if self._since > self._interval:
            self._index(last, position)
            self._since = size
        else:
            self._since += size
        tail = self._tail_last
        tail.append(last)
        self._tail_position.append(position)
        if len(tail) > TAIL_MAX:
            del tail[: TAIL_MAX // 2], self._tail_position[: TAIL_MAX // 2]
        if self.size >= self._reserve_at:
            self._reserve()

    def append_run(self, parts: Sequence[Buffer], size: int, entries: Sequence[tuple[int, int, int]]) -> None:
        """Write several batches at once; `entries` holds (size, last offset, largest timestamp) of each."""
        position = self.size
        self._write(self.file, parts, size, position)
        for entry_size, last, max_timestamp in entries:
            self.note(position, entry_size, last, max_timestamp)
            self._tail_last.append(last)
            self._tail_position.append(position)
            position += entry_size
        del self._tail_last[:-TAIL_MAX], self._tail_position[:-TAIL_MAX]
        assert position == self.size, "the entries are the bytes"
        if position >= self._reserve_at:
            self._reserve()

    def note(self, position: int, size: int, last: int, max_timestamp: int) -> None:
        """Record a batch that is in the file at `position`: update size, end, timestamps and indexes."""
        if position == 0:
            self.first_timestamp, self.roll_at = max_timestamp, UNDECIDED
        self.size = position + size
        self.end = last + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last
        if self._since > self._interval:
            self._index(last, position)
            self._since = 0
        self._since += size

    def _write(self, file: File, parts: Sequence[Buffer], size: int, position: int) -> None:
        try:
            written = self.disk.writev(file.fd, parts, position)
        except OSError as error:
            self.undo(file, position, size, error)
        if written != size:
            self.undo(file, position, size, written)

    def _reserve(self) -> None:
        """Reserve blocks for the next batches, if possible: see `reservation`."""
        file = self.opened
        size = 0 if file is None else reserve(self.disk, file, self.size, self._size_max)
        self._reserved = self._reserved or size > 0
        self._reserve_at = self.size + (size or RESERVED_SIZE_MAX) - LEFT_MIN

    def _cut(self, file: File, size: int) -> None:
        """Cut the file to this size. That frees what was reserved, too."""
        self._reserved = True  # until the cut has succeeded
        self.disk.cut(file.fd, size)
        self._reserved = False
        if self._reserve_at != NEVER:
            self._reserve_at = min(self._reserve_at, max(GROWN_SIZE, size))

    def free_reserved(self) -> None:
        """Free the blocks that were reserved."""
        if self._reserved:
            modified_ms = self.modified_ms()
            self._cut(self.file, self.size)
            self.disk.set_modified(self.stem + LOG_SUFFIX, modified_ms)

    def free_idle(self) -> None:
        """The same, if nothing was appended since the last call."""
        if self.size == self._reserved_for:
            self.free_reserved()
        self._reserved_for = self.size

    def drop_end(self, file: File) -> None:
        """Cut off what was written after the last batch."""
        if self.disk.stat(file.path).st_size > self.size:
            self._cut(file, self.size)

    def undo(self, file: File, position: int, size: int, result: int | OSError) -> NoReturn:
        """Cut off what a write has left that failed, or wrote too few bytes. Raises OSError."""
        self._cut(file, position)
        if isinstance(result, OSError):
            raise result
        raise OSError(errno.ENOSPC, f"{result} of {size} bytes written", file.path)

    def _index(self, last: int, position: int) -> None:
        self.offsets.append(last, position)
        if self.max_timestamp > self.times.last.timestamp:
            self.times.append(Mark(self.max_timestamp, self.max_timestamp_offset))
        if self.offsets.full or self.times.full:
            self.roll_at = UNDECIDED

    # Rolling.

    def must_roll(self, size: int, last: int, max_timestamp: int, *, now_ms: int, config: TopicConfig) -> bool:
        """Whether a batch belongs in a new segment, because of its size, time or offset, or a full index."""
        if self.size == 0:
            return False
        if self.size + size > config.segment_bytes or last > self.offset_max or self.offsets.full or self.times.full:
            return True
        longest = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        limit = longest - self._jitter(config)  # only closed segments are compacted
        if self._first() < 0:
            return now_ms - self.created_ms > limit  # batches without a timestamp: use the creation time
        self.roll_at = self.first_timestamp + limit
        return max_timestamp > self.roll_at

    def _first(self) -> int:
        if self.first_timestamp < 0 and self.size:
            found = next(walk(self.disk, self.file, 0, self.size, window=_WINDOW), None)
            self.first_timestamp = found.span.max_timestamp if found else -1
        return self.first_timestamp

    def _jitter(self, config: TopicConfig) -> int:
        """Spreads the rolls of many partitions over time, by a stable hash of the name instead of a random number."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return crc32(self.stem.encode()) % most if most > 0 else 0

    def begin(self) -> bool:
        """Make this the active segment: find its end and largest timestamp.

        False if it must be recovered before anything is appended: the file does not end with a whole batch of possible
        offsets, so what follows could not be read, or an index has an entry for an offset past the end.
        """
        self.end = self.base
        if self.size or self.offsets.table.count or self.times.table.count:
            self._ensure_checked()
        if not self._largest_known:
            self.max_timestamp, self.max_timestamp_offset = self.times.last
        reached = self.offsets.last_position
        for found in self.spans(reached) if self.size else ():
            span = found.span
            if not self.end <= span.base <= span.last <= self.offset_max:
                break
            reached = span.position + span.size
            self.end = span.last + 1
            if span.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = span.max_timestamp, span.last
        self._largest_known = True
        self._since = self.size - self.offsets.last_position
        self.roll_at = NEVER if self.size == 0 else UNDECIDED
        indexed = max(self.offsets.last_offset, self.times.last.offset)
        return reached == self.size and (indexed < self.end or self.size == 0)

    def reconfigure(self, config: TopicConfig) -> None:
        self._interval = config.index_interval_bytes
        self._size_max = config.segment_bytes
        self.offsets.table.resize(config.segment_index_bytes)
        self.times.table.resize(config.segment_index_bytes)
        self.roll_at = NEVER if self.size == 0 else UNDECIDED

    def seal(self) -> None:
        """At a roll or stop: write the last time index entry and trim the files to their content."""
        self.largest()
        self.times.append(Mark(self.max_timestamp, self.max_timestamp_offset))
        self.offsets.table.trim()
        self.times.table.trim()
        if self._preallocated:
            self._cut(self.file, self.size)
            self._preallocated = False
        self.free_reserved()
        self._forget_tail()

    # Reading.

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or after `offset`, None if there is none."""
        tail = self._tail_last
        if tail and (offset > tail[0] or self._tail_position[0] == 0):
            at = bisect_left(tail, offset)
            if at == len(tail):
                return None
            position = self._tail_position[at]
            following = self._tail_position[at + 1] if at + 1 < len(tail) else self.size
            return position, following - position
        if not self._checked:
            self._ensure_checked()
        try:
            found = self._search(offset, *self.offsets.floor(offset))
        except CorruptIndexError:
            found = BROKEN
        if found == BROKEN and not self._reindexed:
            self.reindex()
            found = self._search(offset, *self.offsets.floor(offset))
        if found == BROKEN:
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{self.stem}{LOG_SUFFIX} has no sound batch for {offset}")
        return found

    def _search(self, offset: int, entry: int, position: int) -> tuple[int, int] | None:
        """Scan headers from an index entry on. BROKEN: the index does not match the log, or the log is damaged."""
        file, size, pread, unpack = self.file, self.size, self.disk.pread, LOOK.unpack_from
        suspect = position > 0
        if position >= size:
            return BROKEN if suspect else None
        while position < size:
            window = pread(file.fd, self._look_size, position)
            if len(window) < LOOK_SIZE:
                window = window.ljust(LOOK_SIZE, b"\0")
            at, stop = 0, len(window) - LOOK_SIZE
            while at <= stop:
                first, length, _, magic, delta = unpack(window, at)
                last = first + delta if magic == 2 else first
                if suspect:
                    if magic not in (0, 1, 2) or not self.base <= first <= last <= entry:
                        return BROKEN
                    suspect = False
                if length < SIZE_MIN - 12 or position + at + length + 12 > size:
                    return BROKEN
                if last >= offset:
                    self._look_size = LOOK_SIZE if length > _WINDOW // 2 else _WINDOW
                    return position + at, length + 12
                at += length + 12
            position += at
        return None

    def bound(self, position: int) -> int:
        """An offset above all batches that begin before `position`; too high by at most one index interval."""
        if position >= self.size:
            return self.end
        at = bisect_left(self._tail_position, position)
        if at:
            return self._tail_last[at - 1] + 1
        if not self._checked:
            self._ensure_checked()
        return min(self.end, self.offsets.ceiling(position, self.end))

    def spans(self, position: int = 0, *, whole: bool = False) -> Iterator[FoundSpan]:
        return walk(self.disk, self.file, position, self.size, whole=whole)

    def records(self, span: Span) -> Iterator[batch.Record]:
        """The records of one batch."""
        return batch.iterate(self.slice(span.position, span.size).read())

    def slice(self, position: int, size: int) -> Slice:
        return Slice(self.file, position, size)

    def largest(self) -> Mark:
        """The largest timestamp and the last offset of its batch. For a segment from disk it is computed once."""
        if not self._largest_known:
            self._ensure_checked()
            mark = self.times.last
            _, position = self.offsets.floor(mark.offset)
            for found in self.spans(position):
                if found.span.max_timestamp > mark.timestamp:
                    mark = Mark(found.span.max_timestamp, found.span.last)
            self.max_timestamp, self.max_timestamp_offset = mark
            self._largest_known = True
        return Mark(self.max_timestamp, self.max_timestamp_offset)

    def reaches(self, timestamp: int) -> bool:
        """Whether a record may have this timestamp or a later one."""
        return (self.max_timestamp if self._largest_known else self.largest().timestamp) >= timestamp

    def modified_ms(self) -> int:
        return int(self.disk.stat(self.stem + LOG_SUFFIX).st_mtime * 1000)

    # Repair.

    def _ensure_checked(self) -> None:
        if not self._checked:
            self._checked = True
            try:
                self.offsets.check(self.size)
                self.times.check(self.end if self.end > self.base else NEVER)
            except CorruptIndexError:
                self.reindex()

    def reindex(self) -> None:
        """Rebuild both indexes from the batch headers in the file."""
        size, end = self.size, self.end
        self._clear_indexes()
        self._reindexed = True
        self.end = self.base
        for found in self.spans():
            span = found.span
            if span.base < self.end:
                break  # damaged: later batches cannot be indexed
            self.note(span.position, span.size, span.last, span.max_timestamp)
            self.size = size
        self.size, self.end = size, max(end, self.end)
        self.finish()

    def clear(self) -> None:
        """Drop all derived state, before `advance` or `note` rebuilds it and `finish` completes it."""
        self._clear_indexes()
        self.clear_transactions()
        self.size, self.end = 0, self.base

    def state(self, epoch: int) -> WalkState:
        """The state of a walk over the file, to be passed to it with the next region."""
        return WalkState(
            self.end,
            self.offset_max,
            self._since,
            self._interval,
            self.max_timestamp,
            self.max_timestamp_offset,
            epoch,
        )

    def advance(self, position: int, walked: Walked) -> None:
        """Record the result of a walk over the region at `position`: same effect as `note` for each of its batches."""
        for last, at, timestamp, offset in walked.points:
            self.offsets.append(last, position + at)
            self.times.append(Mark(timestamp, offset))
        self.size = position + walked.size
        self.end, self._since = walked.end, walked.since
        self.max_timestamp, self.max_timestamp_offset = walked.timestamp, walked.timestamp_offset
        self.first_timestamp = -1  # read on first use
        self.roll_at = NEVER if self.size == 0 else UNDECIDED

    def _clear_indexes(self) -> None:
        self._checked = self._largest_known = True
        self.offsets.reset()
        self.times.reset()
        self._since = 0
        self.max_timestamp, self.max_timestamp_offset = -1, self.base
        self._forget_tail()

    def finish(self) -> None:
        self.times.append(Mark(self.max_timestamp, self.max_timestamp_offset))
        self.offsets.table.trim()
        self.times.table.trim()

    def truncate(self, offset: int) -> None:
        """Remove the batch that holds `offset` and everything after it."""
        found = self.locate(offset)
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        if self._transactions is not None:
            self._transactions.truncate(offset)
        if found is not None:
            position = found[0]
            first = next(self.spans(position)).span.base
            self._cut(self.file, position)
            self.size = position
            self._forget_tail()
            if position == 0:
                self.first_timestamp = -1
            self._largest_known = False
            self.begin()
            # Compaction may have left a gap before the batch. For an offset in that gap the log ends there.
            self.end = max(self.end, min(offset, first))

    def _forget_tail(self) -> None:
        self._tail_last = array("q")
        self._tail_position = array("q")

    # Life.

    def close(self) -> None:
        """Close the file. Slices still in use keep it open."""
        self.opened = None
        self.offsets.drop()
        self.times.table.drop()

    def rename(self, old: str, new: str) -> None:
        """Change the suffix of every file, such as "" to ".deleted". Readers do not notice."""
        for suffix in SUFFIXES:
            path = self.stem + suffix
            try:
                self.disk.rename(path + old, path + new)
            except FileNotFoundError:
                if suffix == LOG_SUFFIX and not self.disk.exists(path + new):  # else an earlier try renamed it
                    raise

    def remove(self, suffix: str = "") -> None:
        """Remove the files, with `suffix` if they were renamed. Slices still in use keep them open."""
        for name in SUFFIXES:
            self.disk.remove(self.stem + name + suffix, missing_ok=True)


def stem_of(folder: str, base: int) -> str:
    return f"{folder}/{base:020d}"
