"""Which leader epoch wrote which offsets: `leader-epoch-checkpoint`, in memory and in the file.

An entry (epoch, first offset) means that the epoch wrote from there up to the next entry. Both ascend. Followers and
consumers request the end offset of an epoch, to find the point up to which two logs agree.

The file may be behind the log, but never wrong: every batch carries its epoch, so recovery adds missing entries and
drops those past the end of the log. So a new leader epoch needs no write of its own: it is kept in memory, and goes to
the file before the recovery point passes its first batch, or at a clean stop.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.log.checkpoints import CorruptCheckpointError, read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.disk import Disk

OFFSET_MAX = (1 << 63) - 1
UNKNOWN = (-1, -1)  # an unknown epoch in OffsetForLeaderEpoch


class Epochs:
    __slots__ = ("_disk", "_stored", "entries", "latest", "path", "writes")

    def __init__(self, path: str, disk: Disk, entries: list[tuple[int, int]], *, stored: bool = False) -> None:
        """`stored`: the entries are the current content of the file."""
        self.path = path
        self._disk = disk
        self.entries: list[tuple[int, int]] = []
        self.latest = -1
        self.writes = 1  # of the file, none of them forced to disk here; the first by an earlier process
        self._stored = tuple(entries) if stored else None  # what the file holds, None for unknown
        for epoch, offset in entries:
            self._put(epoch, offset)

    @classmethod
    def open(cls, path: str, disk: Disk) -> Epochs | None:
        """None when the file is corrupt: the entries have to be gathered from the batches."""
        try:
            return cls(path, disk, read_epochs(disk, path), stored=True)
        except CorruptCheckpointError:
            return None

    def assign(self, epoch: int, offset: int) -> None:
        """The epoch writes from `offset` on. Conflicting entries are removed."""
        self._put(epoch, offset)

    def recall(self, epoch: int, offset: int) -> None:
        """A batch of the epoch was found in the log at `offset`."""
        if epoch > self.latest:
            self._put(epoch, offset)

    def _put(self, epoch: int, offset: int) -> None:
        assert min(epoch, offset) >= 0, "an epoch begins somewhere"
        entries = self.entries
        if entries and entries[-1][0] == epoch and offset >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= offset):
            entries.pop()
        entries.append((epoch, offset))
        self.latest = epoch

    def of(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 when unknown."""
        at = bisect_right(self.entries, offset, key=_start)
        return self.entries[at - 1][0] if at else -1

    def end_of(self, epoch: int, end: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and its end offset; `end` is the end of the log."""
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return epoch, end
        at = bisect_right(self.entries, epoch, key=_epoch)
        return (self.entries[at - 1][0] if at else epoch), self.entries[at][1]

    def cut_end(self, end: int) -> None:
        """The log was truncated to `end`: forget the epochs that began at or after it."""
        while self.entries and self.entries[-1][1] >= end:
            self.entries.pop()
        self.latest = self.entries[-1][0] if self.entries else -1

    def cut_start(self, start: int) -> None:
        """The log starts at `start` now: its epoch starts there too, older ones are removed."""
        at = bisect_right(self.entries, start, key=_start)
        if at and self.entries[at - 1][1] != start:
            self.entries[:at] = [(self.entries[at - 1][0], start)]
        elif at > 1:
            del self.entries[: at - 1]

    def clear(self) -> None:
        self.entries.clear()
        self.latest = -1

    def flush(self, end: int | None = None) -> None:
        """Write the file if it is out of date. A full disk is no failure: the batches carry their epochs.

        With `end`, the end of the log, epochs that have written nothing do not make it out of date.
        """
        stored = self._stored
        if stored is not None:
            limit = OFFSET_MAX if end is None else end
            if _entries_below(self.entries, limit) == _entries_below(stored, limit):
                return
        try:
            write_epochs(self._disk, self.path, self.entries)
        except OSError:
            return
        self._stored = tuple(self.entries)
        self.writes += 1


def _entries_below(entries: Iterable[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    return [entry for entry in entries if entry[1] < end]


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
