"""Which leader epoch wrote which offsets: `leader-epoch-checkpoint`, in memory and in the file.

An entry (epoch, first offset) says that the epoch wrote from there up to the next entry. Both ascend. Followers and
consumers ask where an epoch ended, to find the point up to which two logs agree.

The file may be behind the log after a crash or on a full disk, never wrong: every batch carries its epoch, so recovery
adds what is missing, and what lies past the end of the log is dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.log.checkpoints import CorruptCheckpointError, read_epochs, write_epochs

if TYPE_CHECKING:
    from ottla.disk import Disk

UNKNOWN = (-1, -1)  # an epoch nobody here has heard of, as OffsetForLeaderEpoch puts it


class Epochs:
    __slots__ = ("_dirty", "_disk", "entries", "latest", "path")

    def __init__(self, path: str, disk: Disk, entries: list[tuple[int, int]]) -> None:
        self.path = path
        self._disk = disk
        self.entries: list[tuple[int, int]] = []
        self.latest = -1
        self._dirty = False
        for epoch, offset in entries:
            self._put(epoch, offset)

    @classmethod
    def open(cls, path: str, disk: Disk) -> Epochs | None:
        """None when the file cannot be understood: its content has to be gathered from the batches."""
        try:
            return cls(path, disk, read_epochs(disk, path))
        except CorruptCheckpointError:
            return None

    def assign(self, epoch: int, offset: int) -> None:
        """The epoch writes from `offset` on. Entries that contradict it go."""
        if self._put(epoch, offset):
            self._dirty = True
            self.flush()

    def recall(self, epoch: int, offset: int) -> None:
        """A batch of the epoch was found in the log at `offset`; written when somebody flushes."""
        if epoch > self.latest and self._put(epoch, offset):
            self._dirty = True

    def _put(self, epoch: int, offset: int) -> bool:
        assert min(epoch, offset) >= 0, "an epoch begins somewhere"
        entries = self.entries
        if entries and entries[-1][0] == epoch and offset >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= offset):
            entries.pop()
        entries.append((epoch, offset))
        self.latest = epoch
        return True

    def of(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 when unknown."""
        at = bisect_right(self.entries, offset, key=_start)
        return self.entries[at - 1][0] if at else -1

    def end_of(self, epoch: int, end: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended; `end` is the end of the log."""
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return epoch, end
        at = bisect_right(self.entries, epoch, key=_epoch)
        return (self.entries[at - 1][0] if at else epoch), self.entries[at][1]

    def cut_end(self, end: int) -> None:
        """The log was cut to `end`: forget the epochs that began at or behind it."""
        count = len(self.entries)
        while self.entries and self.entries[-1][1] >= end:
            self.entries.pop()
        self.latest = self.entries[-1][0] if self.entries else -1
        self._dirty |= len(self.entries) != count

    def cut_start(self, start: int) -> None:
        """The log begins at `start`: the epoch that wrote it begins there, older ones are gone."""
        at = bisect_right(self.entries, start, key=_start)
        if at and self.entries[at - 1][1] != start:
            self.entries[:at] = [(self.entries[at - 1][0], start)]
            self._dirty = True
        elif at > 1:
            del self.entries[: at - 1]
            self._dirty = True

    def clear(self) -> None:
        self._dirty |= bool(self.entries)
        self.entries.clear()
        self.latest = -1

    def flush(self) -> None:
        """Write the file if it is behind. A full disk is no failure: the batches know their epochs."""
        if self._dirty:
            try:
                write_epochs(self._disk, self.path, self.entries)
            except OSError:
                return
            self._dirty = False


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
