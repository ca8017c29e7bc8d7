"""The two sparse indexes of a segment: from offset to position, and from timestamp to offset.

    <base>.index      (offset - base: u32, position: u32) ...         offset is the LAST of the batch at position
    <base>.timeindex  (timestamp: i64, offset - base: u32) ...        largest timestamp so far, last offset of its batch

Both ascend, both are big endian, and both hold nothing that is not in the log: `recovery` rebuilds lost ones. Invariant
of the offset index: all batches that start before `position` end before `offset`, so a scan for an offset starts at the
last entry that is not above it. The last time index entry of a closed segment is its largest timestamp.

The newest entries of a growing index are in memory, at most one block; a full block is written to the file. So an entry
costs no system call, and no descriptor is held: the file is opened only to write or read a block. After a crash the
index of the active segment is rebuilt anyway. On a full disk, entries wait in memory; beyond a limit they are dropped
and the index becomes more sparse.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.blocks import Blocks
from ottla.log.files import OPEN_FILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.disk import Buffer, Disk, File

OFFSET_SUFFIX = ".index"
TIME_SUFFIX = ".timeindex"
BLOCK = 1 << 12  # bytes: 2 MiB of log at the default interval
WAITING_MAX = 16 * BLOCK  # what may wait in memory for a full disk

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")
_INT = struct.Struct(">I")
_LONG = struct.Struct(">q")


class CorruptIndexError(ValueError):
    """The file cannot be the index of its segment: it has to be rebuilt."""


class Mark(NamedTuple):
    """The largest timestamp up to some batch, and the last offset of the batch that holds it."""

    timestamp: int
    offset: int


class EntryPlace(NamedTuple):
    """Where an entry is: its number, and a buffer that holds it at `at`."""

    number: int
    buffer: Buffer
    at: int


class Table:
    """A file of fixed-size entries, the newest of which are in memory. The file is opened only when needed."""

    __slots__ = (
        "_block",
        "_block_first",
        "_disk",
        "_length",
        "_saved",
        "_waiting",
        "capacity",
        "count",
        "path",
        "width",
    )

    def __init__(self, path: str, disk: Disk, width: int, size_max: int, length: int | None) -> None:
        """`length` is the size of the existing file, None to create a new one."""
        self.path = path
        self.width = width
        self.capacity = size_max // width
        self._disk = disk
        if length is None:
            self._make()
            length = 0
        self.count = self._saved = length // width
        self._length = length  # of the file, -1 for unknown
        self._waiting = bytearray()  # the entries that are not in the file yet
        self._block = b""  # the block of the file that was read last
        self._block_first = 0

    @property
    def whole(self) -> bool:
        """Whether the file is as long as its entries."""
        return self._length == self._saved * self.width

    def append(self, entry: bytes) -> bool:
        """False when there is no room for it, by `segment.index.bytes` or on the disk."""
        waiting = self._waiting
        if self.count >= self.capacity or len(waiting) >= WAITING_MAX:
            return False
        waiting += entry
        self.count += 1
        if len(waiting) % BLOCK < self.width and len(waiting) >= BLOCK:
            self._save()
        return True

    def _save(self) -> None:
        """Write the waiting entries to the file. If that fails they stay in memory."""
        if not self._waiting:
            return
        try:
            file = OPEN_FILES.open(self._disk, self.path, create=True)
            try:
                written = self._disk.writev(file.fd, [self._waiting], self._saved * self.width)
            finally:
                file.close()
        except OSError:
            written = 0
        if written == len(self._waiting):
            self._saved = self.count
            self._length = max(self._length, self._saved * self.width)
            self._waiting = bytearray()
            self._block = b""
        elif written:
            self._length = -1

    def last(self) -> bytes:
        """The last entry."""
        if self._waiting:
            return bytes(self._waiting[-self.width :])
        file = self._open()
        try:
            return self._pread(file, self.width, (self.count - 1) * self.width)
        finally:
            file.close()

    def floor(self, key: Callable[[Buffer, int], int], value: int) -> EntryPlace | None:
        """The last entry whose key is not above `value`; keys ascend."""
        width = self.width
        if self._waiting and key(self._waiting, 0) <= value:
            buffer: Buffer = self._waiting
            first = self._saved
        elif not self._saved:
            return None
        else:
            if not self._holds(key, value):
                self._load(key, value)
            buffer, first = self._block, self._block_first
            if not buffer or key(buffer, 0) > value:
                return None
        low, high = 0, len(buffer) // width - 1
        while low < high:
            middle = (low + high + 1) >> 1
            if key(buffer, middle * width) <= value:
                low = middle
            else:
                high = middle - 1
        return EntryPlace(first + low, buffer, low * width)

    def get(self, number: int) -> EntryPlace:
        if number >= self._saved:
            return EntryPlace(number, self._waiting, (number - self._saved) * self.width)
        if not self._block_first <= number < self._block_first + len(self._block) // self.width:
            file = self._open()
            try:
                self._read(file, number)
            finally:
                file.close()
        return EntryPlace(number, self._block, (number - self._block_first) * self.width)

    def _holds(self, key: Callable[[Buffer, int], int], value: int) -> bool:
        """Whether the block that was read last contains the entry."""
        block, width = self._block, self.width
        if not block or (key(block, 0) > value and self._block_first):
            return False
        end = self._block_first + len(block) // width
        return end == self._saved or value < key(block, len(block) - width)

    def _load(self, key: Callable[[Buffer, int], int], value: int) -> None:
        """Read the block that has the last entry not above `value`, the first block if there is none."""
        per_block = BLOCK // self.width
        low, high = 0, (self._saved - 1) // per_block
        file = self._open()
        try:
            while low < high:
                middle = (low + high + 1) >> 1
                if key(self._pread(file, self.width, middle * per_block * self.width), 0) <= value:
                    low = middle
                else:
                    high = middle - 1
            self._read(file, low * per_block)
        finally:
            file.close()

    def _read(self, file: File, number: int) -> None:
        first = number - number % (BLOCK // self.width)
        size = min(self._saved - first, BLOCK // self.width) * self.width
        self._block, self._block_first = self._pread(file, size, first * self.width), first

    def _pread(self, file: File, size: int, position: int) -> bytes:
        data = self._disk.pread(file.fd, size, position)
        if len(data) != size:
            raise CorruptIndexError(f"{self.path} is shorter than it was")
        return data

    def _open(self) -> File:
        try:
            return OPEN_FILES.open(self._disk, self.path)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self.path} is gone") from error

    def content(self) -> bytes:
        """All entries."""
        return (self._disk.read(self.path)[: self._saved * self.width] if self._saved else b"") + bytes(self._waiting)

    def shorten(self, count: int) -> None:
        """Forget the entries from `count` on."""
        if count >= self._saved:
            del self._waiting[(count - self._saved) * self.width :]
            self.count = count
        else:
            self._waiting.clear()
            self.count = self._saved = count
            self.trim()

    def clear(self) -> None:
        """Remove all entries. The file exists afterwards, if only empty: Apache Kafka's tools look for it."""
        self._make()
        self.shorten(0)
        self.trim()

    def _make(self) -> None:
        OPEN_FILES.open(self._disk, self.path, create=True).close()

    def trim(self) -> None:
        """Write all entries to the file, if the disk has room, and cut off anything after them."""
        self._save()
        if not self.whole:
            self._disk.truncate(self.path, self._saved * self.width)
            self._length = self._saved * self.width
            self._block = b""

    def resize(self, size_max: int) -> None:
        """Apply a new `segment.index.bytes` to further entries."""
        self.capacity = size_max // self.width

    def drop(self) -> None:
        """Let go of what is in memory for the sake of speed."""
        self._block = b""


class OffsetIndex:
    """`<base>.index`: from an offset to the position where to start looking for it."""

    __slots__ = ("_blocks", "base", "last_offset", "last_position", "table")

    def __init__(self, stem: str, base: int, disk: Disk, size_max: int, length: int | None = None) -> None:
        self.base = base
        self._blocks: Blocks | None = None  # cache for readers
        self.table = Table(stem + OFFSET_SUFFIX, disk, OFFSET_ENTRY.size, size_max, length)
        self.last_offset = base - 1
        self.last_position = 0

    @property
    def full(self) -> bool:
        return self.table.count >= self.table.capacity

    def check(self, size: int) -> None:
        """Check the last entry; raises CorruptIndexError when it is impossible in a log of `size` bytes."""
        table = self.table
        if not table.whole:
            raise CorruptIndexError(f"{table.path} does not hold whole entries")
        if table.count:
            relative, position = OFFSET_ENTRY.unpack(table.last())
            if position >= size or (position == 0 and table.count > 1):
                raise CorruptIndexError(f"{table.path}: last entry points at {position} of {size} bytes")
            self.last_offset, self.last_position = self.base + relative, position

    def append(self, offset: int, position: int) -> None:
        assert offset > self.last_offset, "offsets only grow"
        if self.table.append(OFFSET_ENTRY.pack(offset - self.base, position)):
            self.last_offset, self.last_position = offset, position

    def floor(self, offset: int) -> tuple[int, int]:
        """The last entry at or below `offset`: (its offset, its position), or (base - 1, 0) before the first."""
        if offset >= self.last_offset:
            return self.last_offset, self.last_position
        known = None if self._blocks is None else self._blocks.floor(offset - self.base)
        if known is not None:
            return self.base + known[0], known[1]
        place = self.table.floor(_first, offset - self.base)
        if place is None:
            return self.base - 1, 0
        if place.buffer.__class__ is bytes:  # a block of the file
            self._blocks = self._blocks or Blocks()
            self._blocks.add(bytes(place.buffer))
        relative, position = OFFSET_ENTRY.unpack_from(place.buffer, place.at)
        return self.base + relative, position

    def drop(self) -> None:
        """Let go of what is in memory for the sake of speed."""
        self._blocks = None
        self.table.drop()

    def ceiling(self, position: int, end: int) -> int:
        """The offset of the first entry at or after `position`, `end` if there is none."""
        if position > self.last_position:
            return end
        place = self.table.floor(_second, position - 1)
        following = self.table.get(0 if place is None else place.number + 1)
        return self.base + _first(following.buffer, following.at)

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        if self.last_offset < offset:
            return
        self._blocks = None
        place = self.table.floor(_first, offset - self.base - 1)
        kept = (-1, 0) if place is None else OFFSET_ENTRY.unpack_from(place.buffer, place.at)
        self.table.shorten(0 if place is None else place.number + 1)
        self.last_offset, self.last_position = self.base + kept[0], kept[1]

    def reset(self) -> None:
        self._blocks = None
        self.table.clear()
        self.last_offset, self.last_position = self.base - 1, 0

    def entries(self) -> list[tuple[int, int]]:
        return [(self.base + offset, position) for offset, position in OFFSET_ENTRY.iter_unpack(self.table.content())]


class TimeIndex:
    """`<base>.timeindex`: from a timestamp to the offset where to start looking for it."""

    __slots__ = ("base", "last", "table")

    def __init__(self, stem: str, base: int, disk: Disk, size_max: int, length: int | None = None) -> None:
        self.base = base
        self.table = Table(stem + TIME_SUFFIX, disk, TIME_ENTRY.size, size_max, length)
        self.last = Mark(-1, base)

    @property
    def full(self) -> bool:
        """Room for one entry is reserved: the last one of a closed segment."""
        return self.table.count >= self.table.capacity - 1

    def check(self, end: int) -> None:
        """Check the last entry; raises CorruptIndexError when it is impossible in a log that ends at `end`."""
        table = self.table
        if not table.whole:
            raise CorruptIndexError(f"{table.path} does not hold whole entries")
        if table.count:
            timestamp, relative = TIME_ENTRY.unpack(table.last())
            if timestamp < 0 or self.base + relative >= end or (relative == 0 and table.count > 1):
                raise CorruptIndexError(f"{table.path}: last entry ({timestamp}, {relative}) is invalid")
            self.last = Mark(timestamp, self.base + relative)

    def append(self, mark: Mark) -> None:
        """Add an entry if its timestamp is above the last one."""
        if mark.timestamp <= self.last.timestamp:
            return
        assert mark.offset >= self.last.offset, "offsets only grow"
        if self.table.append(TIME_ENTRY.pack(mark.timestamp, mark.offset - self.base)):
            self.last = mark

    def floor(self, timestamp: int) -> Mark:
        """The last entry whose timestamp is at most `timestamp`: no earlier batch has a later record."""
        if timestamp >= self.last.timestamp:
            return self.last
        place = self.table.floor(_timestamp, timestamp)
        if place is None:
            return Mark(-1, self.base)
        found, relative = TIME_ENTRY.unpack_from(place.buffer, place.at)
        return Mark(found, self.base + relative)

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        if not self.table.count or self.last.offset < offset:
            return
        kept = [mark for mark in self.entries() if mark.offset < offset]
        self.table.shorten(len(kept))
        self.last = kept[-1] if kept else Mark(-1, self.base)

    def reset(self) -> None:
        self.table.clear()
        self.last = Mark(-1, self.base)

    def entries(self) -> list[Mark]:
        return [
            Mark(timestamp, self.base + offset) for timestamp, offset in TIME_ENTRY.iter_unpack(self.table.content())
        ]


def _first(buffer: Buffer, at: int) -> int:
    found: int = _INT.unpack_from(buffer, at)[0]
    return found


def _second(buffer: Buffer, at: int) -> int:
    found: int = _INT.unpack_from(buffer, at + 4)[0]
    return found


def _timestamp(buffer: Buffer, at: int) -> int:
    found: int = _LONG.unpack_from(buffer, at)[0]
    return found
