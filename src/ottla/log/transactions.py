"""The aborted transactions whose markers lie in one segment: `<base>.txnindex`.

Entries of 34 bytes back to back, big endian, markers ascending; the file exists only when there is one:

    version i16 = 0 | producer id i64 | first offset i64 | offset of the abort marker i64 | last stable offset i64

A read_committed reader gets the transactions that overlap what it reads, and drops their records by itself. The last
stable offset (as it was just after the marker) says when to stop looking: a transaction that ends later than an
entry cannot begin before that entry's last stable offset. So once it reaches the end of the range asked for, neither
later entries nor later segments hold anything of interest.

The index holds nothing the log does not: recovery replays the markers into it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ottla.disk import Disk

SUFFIX = ".txnindex"

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

    def __init__(self, path: Path, disk: Disk, base: int) -> None:
        """Opens the file if it is there; raises CorruptTransactionIndexError if it is not sane."""
        self.path = path
        self.base = base
        self._disk = disk
        self.entries: list[Aborted] = []
        self._written = 0  # how many of the entries are in the file
        try:
            data = disk.read(path)
        except FileNotFoundError:
            return
        self.entries = decode(data, base)
        self._written = len(self.entries)

    def append(self, aborted: Aborted) -> None:
        """On OSError it is known, but not in the file yet: `write` tries again."""
        assert not self.entries or self.entries[-1].last < aborted.last, "markers ascend"
        self.entries.append(aborted)
        self.write()

    def write(self) -> None:
        """Add what is missing in the file. A part of an entry that got there before is cut off first."""
        missing = self.entries[self._written :]
        if missing:
            whole = self._written * _ENTRY.size
            if self._disk.exists(self.path) and self._disk.stat(self.path).st_size > whole:
                self._disk.truncate(self.path, whole)
            self._disk.append(self.path, encode(missing))
            self._written = len(self.entries)

    def collect(self, start: int, end: int) -> tuple[list[Aborted], bool]:
        """Transactions that overlap start <= offset < end, and whether the search is complete with this segment."""
        found = []
        for entry in self.entries:
            if entry.last >= start and entry.first < end:
                found.append(entry)
            if entry.last_stable >= end:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Drop the entries of markers at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last < offset]
        if len(kept) < len(self.entries):
            if len(kept) < self._written:
                self._disk.truncate(self.path, len(kept) * _ENTRY.size)
                self._written = len(kept)
            self.entries = kept

    def reset(self) -> None:
        self.truncate(-1)


def encode(entries: Iterable[Aborted]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode(data: bytes, base: int) -> list[Aborted]:
    """All entries, checked: whole, of a known version, and ended at or behind the segment's base offset."""
    if len(data) % _ENTRY.size:
        raise CorruptTransactionIndexError(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = Aborted(*fields)
        if version != _VERSION:
            raise CorruptTransactionIndexError(f"entry of version {version}, only {_VERSION} is known")
        if entry.last < base:
            raise CorruptTransactionIndexError(f"marker at {entry.last} lies before the segment's base {base}")
        entries.append(entry)
    return entries
