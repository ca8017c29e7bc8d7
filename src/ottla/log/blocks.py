"""Blocks of an offset index that readers were in lately, unpacked: most readers go on where they stopped.

A reader of old records needs an entry of the index for every fetch, and the next one is mostly in the same block. Each
reader is somewhere else, so several blocks are kept; the one that was read first goes first. What is in the file of an
index only changes by being cut off, and whoever does that forgets the blocks.

A scan leaves blocks behind in every segment that it has passed, so there is also a bound for all of them together: for
all brokers of the process, each of which may have a thread of its own. So whoever adds a block may take one away from
under somebody who reads. Lists are therefore never changed, but replaced.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import deque
from threading import Lock
from weakref import ref

BLOCKS_MAX = 64  # as many readers of one segment; 4 kB each
KEPT_MAX = 1024  # of all segments
INT = "I"
assert array(INT).itemsize == 4, "entries are pairs of four bytes"

_kept: deque[tuple[ref[Blocks], int]] = deque()  # whose, and which: in the order in which they were read
_lock = Lock()  # of who adds


class Blocks:
    __slots__ = ("__weakref__", "_by_low", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []  # the first offset of each block, in order
        self._by_low: dict[int, tuple[array[int], array[int]]] = {}  # offsets and positions

    def __len__(self) -> int:
        return len(self._lows)

    def floor(self, offset: int) -> tuple[int, int] | None:
        """The last entry at or below `offset`, if a block that is kept says which it is."""
        lows = self._lows
        at = bisect_right(lows, offset)
        if not at:
            return None
        found = self._by_low.get(lows[at - 1])
        if found is None or offset >= found[0][-1]:
            return None  # it may be in the next block
        offsets, positions = found
        at = bisect_right(offsets, offset) - 1
        return offsets[at], positions[at]

    def add(self, block: bytes) -> None:
        """Keep a block as it stands in the file."""
        entries = array(INT, block)
        if sys.byteorder == "little":
            entries.byteswap()
        offsets, positions = entries[::2], entries[1::2]
        with _lock:
            self._put(offsets[0], offsets, positions)
            while len(_kept) > KEPT_MAX:
                reference, oldest = _kept.popleft()
                owner = reference()
                if owner is not None:
                    owner._forget(oldest)

    def _put(self, low: int, offsets: array[int], positions: array[int]) -> None:
        if low not in self._by_low:
            if len(self._lows) == BLOCKS_MAX:
                self._forget(next(iter(self._by_low)))
            self._lows = sorted((*self._lows, low))
            _kept.append((ref(self), low))
        self._by_low[low] = offsets, positions

    def _forget(self, low: int) -> None:
        if self._by_low.pop(low, None) is not None:
            self._lows = [one for one in self._lows if one != low]
