"""The aborted transactions whose markers lie in one segment: `<base>.txnindex`.

Entries of 34 bytes back to back, big endian, markers ascending; the file exists only when there is one:

    version i16 = 0 | producer id i64 | first offset i64 | offset of the abort marker i64 | last stable offset i64

A read_committed reader gets the transactions that overlap what it reads, and drops their records itself. The last
stable offset (as of just after the marker) tells when to stop searching: a transaction that ends after an entry cannot
begin before that entry's last stable offset. So once it reaches the end of the requested range, no later entry or
segment can match.

A missing or empty file looks like that of a segment without aborted transactions. So a file beside the segments,
`aborted-transactions-checkpoint`, holds the number of entries of each (segments without any are left out). Apache Kafka
does not know this file and ignores it.

The index holds nothing that is not in the log: recovery replays the markers into it, and rebuilds an invalid file.
Entries that do not fit on a full disk stay in memory and are written later; until then recovery must read the segment.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import CorruptCheckpointError, read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.disk import Disk

SUFFIX = ".txnindex"
COUNTS = "aborted-transactions-checkpoint"

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class Aborted(NamedTuple):
    """One aborted transaction: first data offset, offset of the marker, last stable offset after it."""

    producer_id: int
    first: int
    last: int
    last_stable: int


class CorruptTransactionIndexError(ValueError):
    """The file cannot be a transaction index of its segment: it has to be rebuilt."""


class TransactionIndex:
    """Entries of one segment, in memory and in the file. Abort markers are rare, so the list is short."""

    def __init__(self, path: str, disk: Disk, base: int, entries: Iterable[Aborted] = ()) -> None:
        """`entries`: the current content of the file."""
        self.path = path
        self.base = base
        self.entries = list(entries)
        self._disk = disk
        self._written = len(self.entries)  # how many of them are in the file
        self._forced = self._written  # and how many are forced to disk

    @classmethod
    def open(cls, path: str, disk: Disk, base: int, end: int | None = None) -> TransactionIndex:
        """Load the file if it exists. CorruptTransactionIndexError if its entries are impossible in base..end."""
        try:
            return cls(path, disk, base, decode(disk.read(path), base, end))
        except FileNotFoundError:
            return cls(path, disk, base)

    def append(self, aborted: Aborted) -> None:
        """On OSError the entry is in memory, but not in the file yet: `write` tries again."""
        self.add(aborted)
        self.write()

    def add(self, aborted: Aborted) -> None:
        assert not self.entries or self.entries[-1].last < aborted.last, "markers ascend"
        self.entries.append(aborted)

    def write(self) -> None:
        """Write the missing entries, by position: a partial entry of an earlier try is overwritten."""
        if self._written == len(self.entries):
            return
        data = encode(self.entries[self._written :])
        file = self._disk.open(self.path, create=True)
        try:
            written = self._disk.writev(file.fd, [data], self._written * _ENTRY.size)
        finally:
            file.close()
        if written != len(data):
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written", self.path)
        self._written = len(self.entries)

    def force(self) -> None:
        """Force all entries to disk."""
        self.write()
        if self._forced < self._written:
            file = self._disk.open(self.path)
            try:
                self._disk.sync(file.fd)
            finally:
                file.close()
            self._forced = self._written

    def collect(self, start: int, end: int) -> tuple[list[Aborted], bool]:
        """Transactions that overlap start <= offset < end, and whether later segments need not be searched."""
        found = []
        for entry in self.entries[bisect_left(self.entries, start, key=_marker) :]:
            if entry.first < end:
                found.append(entry)
            if entry.last_stable >= end:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Drop the entries of markers at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last < offset]
        if len(kept) == len(self.entries):
            return
        if not kept:
            self._disk.remove(self.path, missing_ok=True)
        elif len(kept) < self._written:
            self._disk.truncate(self.path, len(kept) * _ENTRY.size)
        self.entries = kept
        self._written = min(self._written, len(kept))
        self._forced = min(self._forced, len(kept))


def read_counts(disk: Disk, folder: str) -> dict[int, int]:
    """How many entries the transaction indexes of a log had, by the base offset of the segment."""
    try:
        return dict(read_epochs(disk, os.path.join(folder, COUNTS)))
    except (CorruptCheckpointError, OSError):
        return {}  # only a cross-check: the indexes are validated on their own


def write_counts(disk: Disk, folder: str, counts: Mapping[int, int]) -> None:
    path = os.path.join(folder, COUNTS)
    if counts:
        write_epochs(disk, path, counts.items(), sync=True)
    else:
        disk.remove(path, missing_ok=True)


def encode(entries: Iterable[Aborted]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes, base: int, end: int | None = None) -> list[Aborted]:
    """All entries, validated: complete, of a known version, in order, and possible in a segment base..end."""
    if len(data) % _ENTRY.size:
        raise CorruptTransactionIndexError(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
    entries = []
    before = base - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = Aborted(*fields)
        if version != _VERSION:
            raise CorruptTransactionIndexError(f"entry of version {version}, only {_VERSION} is known")
        if entry.last <= before or (end is not None and entry.last >= end):
            raise CorruptTransactionIndexError(f"marker at {entry.last}, where {before + 1} to {end} is possible")
        if not (0 <= entry.first < entry.last and 0 <= entry.last_stable <= entry.last + 1 and entry.producer_id >= 0):
            raise CorruptTransactionIndexError(f"{entry} is invalid")
        before = entry.last
        entries.append(entry)
    return entries


def _marker(entry: Aborted) -> int:
    return entry.last
