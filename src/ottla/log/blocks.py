"""A cache of recently read offset index blocks, unpacked: most readers continue where they stopped.

A reader of old records needs an index entry for every fetch, and the next one is usually in the same block. Readers are
at different places, so several blocks are kept; the oldest is evicted first. The content of an index file changes only
by truncation, which clears the cache.

A scan leaves blocks behind in every segment it passes, so there is also a limit for all segments together. It is shared
by all brokers of the process, each of which may have its own thread. So adding a block may evict one that another
thread is reading. Lists are therefore never modified, but replaced.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import deque
from threading import Lock
from weakref import ref

BLOCKS_MAX = 64  # per segment, enough for as many readers; 4 kB each
KEPT_MAX = 1024  # of all segments
INT = "I"
assert array(INT).itemsize == 4, "entries are pairs of four bytes"

_kept: deque[tuple[ref[Blocks], int]] = deque()  # owner and first offset, in the order in which they were added
_lock = Lock()  # held while adding


class Blocks:
    __slots__ = ("__weakref__", "_by_low", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []  # the first offset of each block, in order
        self._by_low: dict[int, tuple[array[int], array[int]]] = {}  # offsets and positions

    def __len__(self) -> int:
        return len(self._lows)

    def floor(self, offset: int) -> tuple[int, int] | None:
        """The last entry at or below `offset`, if it is in a cached block."""
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
        """Cache a block, given as it is in the file."""
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
