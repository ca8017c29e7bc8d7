"""What all connections of a loop share: the receive buffers, the lines in which they wait for a turn, and the thread
that sends large answers.

All connections read into one buffer, and a small frame is handled there, in place. A large frame seldom arrives in one
piece. It is collected in a buffer of its own, which is returned here afterwards, because allocating memory costs more
time than receiving the bytes.

Laws:
- Memory follows the bytes received. A spare buffer was filled before, all spare buffers together have at most
  `SPARES_SIZE_MAX` bytes, and a buffer is never much larger than requested.
- The content of a buffer is undefined: it holds what other connections received.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ottla.net.newcomers import Newcomers
from ottla.net.turns import Turns

if TYPE_CHECKING:
    from ottla.net.region_sender import RegionSender
    from ottla.net.room import Room

# The most bytes of one read: five requests of 100 kB that a producer has in flight, or many small ones.
RECEIVE_SIZE = 512 * 1024
# A frame of this size or more seldom arrives in one piece.
LARGE_SIZE = 32 * 1024
# If the last frame was large, a buffer up to this size is allocated for the next one: a produce request with one batch
# of 1 MiB, and its overhead. Larger buffers are only reused.
EXPECTED_SIZE_MAX = (1 << 20) + (1 << 16)
# A frame of this size or more gets a mapping of its own (see `Connection`), and its buffer is not kept.
SPARE_SIZE_MAX = 8 << 20
SPARES_SIZE_MAX = 64 << 20
WASTE_MAX = 4  # a buffer is at most this many times as large as requested
# A buffer of this size or more is a mapping, which is returned to the system when it is no longer needed. The allocator
# would keep large blocks.
MAPPING_SIZE_MIN = 256 * 1024
# Private memory without reservation: a page is allocated when its first byte arrives.
MAPPED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def make(size: int) -> memoryview:
    """A new buffer."""
    return memoryview(bytearray(size) if size < MAPPING_SIZE_MIN else mmap.mmap(-1, size, flags=MAPPED))


class OwnMapping(mmap.mmap):
    """The memory of one frame, never reused."""


class Receiver:
    __slots__ = ("_sizes", "_spare", "_spare_size", "newcomers", "room", "sender", "senders", "shared", "turns")

    def __init__(self, room: Room | None = None, sender: RegionSender | None = None) -> None:
        self.room = room  # limits the memory of partial frames; None: unlimited
        self.sender = sender  # None: each connection sends by itself
        self.senders = 0  # connections that wait until their socket takes more of a large region
        self.turns = Turns()
        self.newcomers = Newcomers()
        self.shared = memoryview(bytearray(RECEIVE_SIZE))
        self._sizes: list[int] = []  # of the spare buffers, sorted
        self._spare: dict[int, list[memoryview]] = {}  # by size
        self._spare_size = 0  # total

    def take(self, size: int) -> memoryview:
        """A buffer of at least this size."""
        return self._find(size) or make(size)

    def take_expected(self, size: int) -> memoryview | None:
        """A buffer for the next frame, if it is as large as the last one; None if it would have to be allocated and is
        too large."""
        return self.take(size) if size <= EXPECTED_SIZE_MAX else self._find(size)

    def _find(self, size: int) -> memoryview | None:
        at = bisect_left(self._sizes, size)
        if at == len(self._sizes) or self._sizes[at] > WASTE_MAX * size:
            return None
        return self._remove(at)

    def _remove(self, at: int) -> memoryview:
        size = self._sizes.pop(at)
        self._spare_size -= size
        kept = self._spare[size]
        found = kept.pop()
        if not kept:
            del self._spare[size]
        return found

    def give(self, buffer: memoryview) -> None:
        """Keep a buffer for reuse. Drops smaller ones if there is no room."""
        size = len(buffer)
        if not LARGE_SIZE <= size < SPARE_SIZE_MAX:
            return
        while self._spare_size + size > SPARES_SIZE_MAX:
            if self._sizes[0] >= size:
                return
            self._remove(0)
        insort(self._sizes, size)
        self._spare.setdefault(size, []).append(buffer)
        self._spare_size += size
