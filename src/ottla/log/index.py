"""The two sparse indexes of a segment: where a batch lies, and how late its records are.

    <base>.index      (offset - base: u32, position: u32) ...         offset is the LAST of the batch at position
    <base>.timeindex  (timestamp: i64, offset - base: u32) ...        largest timestamp so far, last offset of its batch

Both ascend, both are big endian, and both hold nothing the log does not: lose them and `recovery` rebuilds them. A law
of the offset index: all batches that start before `position` end before `offset`, so a scan for an offset starts
at the last entry that is not above it. The last time index entry of a closed segment is its largest timestamp.

Files of the active segment are as long as `segment.index.bytes` allows and mapped, so an entry costs no system call; a
closed segment's files are cut to their entries. Blocks are claimed ahead in steps: to touch a mapped page for which a
full disk has no block kills the process, while a refused claim only leaves the index more sparse than it might be.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.disk import Disk, Map

OFFSET_SUFFIX = ".index"
TIME_SUFFIX = ".timeindex"

_OFFSET = struct.Struct(">II")
_TIME = struct.Struct(">qI")
_CLAIM = 1 << 16  # bytes claimed at a time: 32 MiB of log or more at the default interval
_PAGE = 1 << 12


class CorruptIndexError(ValueError):
    """The file cannot be the index of its segment: it has to be rebuilt."""


class Mark(NamedTuple):
    """The largest timestamp up to some batch, and the last offset of the batch that holds it."""

    timestamp: int
    offset: int


class Table:
    """A file of equal entries behind a map. Nothing is opened before the first entry is written or looked up."""

    __slots__ = ("_claimed", "_disk", "_map", "capacity", "count", "length", "path", "width")

    def __init__(self, path: str, disk: Disk, width: int, size_max: int, length: int | None) -> None:
        """`length` is the size of the file as found, None to begin a new one."""
        self.path = path
        self.width = width
        self.capacity = size_max // width
        self._disk = disk
        self._map: Map | None = None
        self._claimed = 0
        if length is None:
            disk.open(path, create=True).close()
            length = 0
        self.length = length
        self.count = length // width

    def view(self) -> Map:
        """The entries, for reading. At least one must exist."""
        if self._map is None:
            self._attach(self.length)
        assert self._map is not None
        return self._map

    def grown(self) -> Map | None:
        """The map with room for one more entry, or None when neither the option nor the disk has any."""
        end = (self.count + 1) * self.width
        if self._map is not None and end <= self._claimed:
            return self._map
        if self.count >= self.capacity:
            return None
        try:
            self._claim(end)
        except OSError:
            return None
        return self._map

    def _claim(self, end: int) -> None:
        """Make the file as long as it may become, and own the blocks up to `end` and a step more."""
        limit = self.capacity * self.width
        start = self.count * self.width // _PAGE * _PAGE
        upto = min(limit, max(end, start + _CLAIM) if self.count else max(end, _PAGE))
        file = self._disk.open(self.path, create=True)
        try:
            if self.length != limit:
                self._detach()
                self._disk.cut(file.fd, limit)
                self.length = limit
            self._disk.reserve(file.fd, start, upto - start)
            if self._map is None:
                self._map = self._disk.map(file.fd, limit)
            self._claimed = upto
        finally:
            file.close()

    def _attach(self, length: int) -> None:
        file = self._disk.open(self.path)
        try:
            self._map = self._disk.map(file.fd, length)
        finally:
            file.close()

    def _detach(self) -> None:
        view, self._map = self._map, None
        self._claimed = 0
        if view is not None and not isinstance(view, bytearray):
            view.close()

    def last(self) -> bytes:
        """The last entry, read without mapping the file."""
        position = (self.count - 1) * self.width
        if self._map is not None:
            return bytes(self._map[position : position + self.width])
        file = self._disk.open(self.path)
        try:
            return self._disk.pread(file.fd, self.width, position)
        finally:
            file.close()

    def shorten(self, count: int) -> None:
        """Forget the entries from `count` on; the file keeps its length, zeros where they were."""
        if self._map is not None and self._claimed:
            self._map[count * self.width : self.count * self.width] = bytes((self.count - count) * self.width)
            self.count = count
        else:
            self.count = count
            self.trim()

    def trim(self) -> None:
        """Cut the file to its entries. It grows again by itself if another one comes."""
        length = self.count * self.width
        if self.length != length:
            self._detach()
            self._disk.truncate(self.path, length)
            self.length = length

    def resize(self, size_max: int) -> None:
        """Another `segment.index.bytes`: applies to what comes."""
        if size_max // self.width != self.capacity:
            self.trim()
            self.capacity = size_max // self.width

    def drop(self) -> None:
        """Let go of the map; the file stays as it is."""
        self._detach()


class OffsetIndex:
    """`<base>.index`: from an offset to the position where to start looking for it."""

    __slots__ = ("base", "last_offset", "last_position", "table")

    def __init__(self, stem: str, base: int, disk: Disk, size_max: int, length: int | None = None) -> None:
        self.base = base
        self.table = Table(stem + OFFSET_SUFFIX, disk, _OFFSET.size, size_max, length)
        self.last_offset = base - 1
        self.last_position = 0

    @property
    def full(self) -> bool:
        return self.table.count >= self.table.capacity

    def check(self, size: int) -> None:
        """Look at the last entry; raises CorruptIndexError when it cannot be true of a log of `size` bytes."""
        table = self.table
        if table.length % _OFFSET.size:
            raise CorruptIndexError(f"{table.path}: {table.length} bytes are not whole entries")
        if table.count:
            relative, position = _OFFSET.unpack(table.last())
            if position >= size or (position == 0 and table.count > 1):
                raise CorruptIndexError(f"{table.path}: last entry points at {position} of {size} bytes")
            self.last_offset, self.last_position = self.base + relative, position

    def append(self, offset: int, position: int) -> None:
        table = self.table
        view = table.grown()
        if view is not None:
            assert offset > self.last_offset, "offsets only grow"
            _OFFSET.pack_into(view, table.count * 8, offset - self.base, position)
            table.count += 1
            self.last_offset, self.last_position = offset, position

    def floor(self, offset: int) -> tuple[int, int]:
        """The last entry at or below `offset`: (its offset, its position), or (base - 1, 0) before the first."""
        if offset >= self.last_offset:
            return self.last_offset, self.last_position
        low, high = 0, self.table.count
        if not high:
            return self.base - 1, 0
        relative = offset - self.base
        view, unpack = self.table.view(), _OFFSET.unpack_from
        while low < high:
            middle = (low + high) >> 1
            if unpack(view, middle << 3)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        if not low:
            return self.base - 1, 0
        found, position = unpack(view, (low - 1) << 3)
        return self.base + found, position

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        if self.last_offset < offset:
            return
        low, high = 0, self.table.count
        view = self.table.view()
        while low < high:
            middle = (low + high) >> 1
            if self.base + _OFFSET.unpack_from(view, middle << 3)[0] < offset:
                low = middle + 1
            else:
                high = middle
        found = _OFFSET.unpack_from(view, (low - 1) << 3) if low else (-1, 0)
        self.table.shorten(low)
        self.last_offset, self.last_position = self.base + found[0], found[1]

    def reset(self) -> None:
        self.table.count = 0
        self.table.trim()
        self.last_offset, self.last_position = self.base - 1, 0

    def entries(self) -> list[tuple[int, int]]:
        count = self.table.count
        view = self.table.view() if count else b""
        return [(self.base + o, p) for o, p in _OFFSET.iter_unpack(bytes(view[: count * 8]))]


class TimeIndex:
    """`<base>.timeindex`: from a timestamp to the offset where to start looking for it."""

    __slots__ = ("base", "last", "table")

    def __init__(self, stem: str, base: int, disk: Disk, size_max: int, length: int | None = None) -> None:
        self.base = base
        self.table = Table(stem + TIME_SUFFIX, disk, _TIME.size, size_max, length)
        self.last = Mark(-1, base)

    @property
    def full(self) -> bool:
        """One place is kept for the entry that closes the segment."""
        return self.table.count >= self.table.capacity - 1

    def check(self, end: int) -> None:
        """Look at the last entry; raises CorruptIndexError when it cannot be true of a log that ends at `end`."""
        table = self.table
        if table.length % _TIME.size:
            raise CorruptIndexError(f"{table.path}: {table.length} bytes are not whole entries")
        if table.count:
            timestamp, relative = _TIME.unpack(table.last())
            if timestamp < 0 or self.base + relative >= end or (relative == 0 and table.count > 1):
                raise CorruptIndexError(f"{table.path}: last entry ({timestamp}, {relative}) cannot be")
            self.last = Mark(timestamp, self.base + relative)

    def append(self, mark: Mark) -> None:
        """Add an entry if time has moved on since the last one."""
        if mark.timestamp <= self.last.timestamp:
            return
        table = self.table
        view = table.grown()
        if view is not None:
            assert mark.offset >= self.last.offset, "offsets only grow"
            _TIME.pack_into(view, table.count * 12, mark.timestamp, mark.offset - self.base)
            table.count += 1
            self.last = mark

    def floor(self, timestamp: int) -> Mark:
        """The last entry whose timestamp is not above: no earlier batch has a later record."""
        if timestamp >= self.last.timestamp:
            return self.last
        low, high = 0, self.table.count
        if not high:
            return Mark(-1, self.base)
        view, unpack = self.table.view(), _TIME.unpack_from
        while low < high:
            middle = (low + high) >> 1
            if unpack(view, middle * 12)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        if not low:
            return Mark(-1, self.base)
        found, relative = unpack(view, (low - 1) * 12)
        return Mark(found, self.base + relative)

    def truncate(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        count = self.table.count
        if not count or self.last.offset < offset:
            return
        kept = [mark for mark in self.entries() if mark.offset < offset]
        self.table.shorten(len(kept))
        self.last = kept[-1] if kept else Mark(-1, self.base)

    def reset(self) -> None:
        self.table.count = 0
        self.table.trim()
        self.last = Mark(-1, self.base)

    def entries(self) -> list[Mark]:
        count = self.table.count
        view = self.table.view() if count else b""
        return [Mark(t, self.base + o) for t, o in _TIME.iter_unpack(bytes(view[: count * 12]))]
