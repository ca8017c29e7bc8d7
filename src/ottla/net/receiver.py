"""What the connections of a loop share: the buffers they receive into, and the line in which they wait for a turn.

All read into one buffer, in which a small frame is handled where it lies. A large one, which seldom arrives in one
piece, gathers in a buffer of its own that goes back here afterwards: new memory costs more time than the bytes do.

Laws:
- Memory follows bytes that were sent. A buffer that is kept was filled once, all that are kept have `SPARES_SIZE_MAX`
  together, and nobody gets one that is much larger than what it is for.
- The content of a buffer is undefined: it is what others have received.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ottla.net.turns import Turns

if TYPE_CHECKING:
    from ottla.net.room import Room

# One read takes at most this much: five requests of 100 kB that a producer has in flight, or many small ones.
RECEIVE_SIZE = 512 * 1024
# A frame of this size and more seldom arrives in one piece.
LARGE_SIZE = 32 * 1024
# A buffer of this size is made for the next frame if the last one was so large: a produce request with one batch of
# 1 MiB, and what stands around it. A larger one must be there already.
EXPECTED_SIZE_MAX = (1 << 20) + (1 << 16)
# From here on a frame has memory of its own, see `Connection`, and no buffer is kept.
SPARE_SIZE_MAX = 8 << 20
SPARES_SIZE_MAX = 64 << 20
WASTE_MAX = 4  # a buffer is at most so many times as large as what was asked for
# From here on a buffer is a mapping, which the system has back when nobody needs it. An allocator that has seen large
# blocks come and go keeps them.
MAPPING_SIZE_MIN = 256 * 1024
# Private memory that is not reserved: a page costs something when a byte of it has arrived.
MAPPED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def make(size: int) -> memoryview:
    """A new buffer."""
    return memoryview(bytearray(size) if size < MAPPING_SIZE_MIN else mmap.mmap(-1, size, flags=MAPPED))


class OwnMapping(mmap.mmap):
    """The memory of one frame, which nobody else will have."""


class Receiver:
    __slots__ = ("_sizes", "_spare", "_spare_size", "room", "shared", "turns")

    def __init__(self, room: Room | None = None) -> None:
        self.room = room  # for frames that arrive in pieces; None: as much as they have
        self.turns = Turns()
        self.shared = memoryview(bytearray(RECEIVE_SIZE))
        self._sizes: list[int] = []  # of the buffers, in order
        self._spare: dict[int, list[memoryview]] = {}  # by size
        self._spare_size = 0  # of all of them

    def take(self, size: int) -> memoryview:
        """A buffer of at least this size."""
        return self._find(size) or make(size)

    def take_expected(self, size: int) -> memoryview | None:
        """A buffer for a frame of which nothing is known, but that the last one had this size."""
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
        """Keep a buffer for others. The smallest make room for it."""
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
