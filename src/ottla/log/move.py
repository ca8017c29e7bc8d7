"""Moves a partition from one log directory to another while it is in use.

A thread copies files into a folder `<topic>-<partition>.<hex>-future` of the other directory: the log files, and the
indexes of closed segments. Each round has less left to copy, because segments grow slower than they are copied. When
the rest fits into one step, the loop copies it and the small files, gives the new folder the partition's name and sets
the old one aside. From then on the same `Log` object uses the other directory; its users notice nothing.

A crash in between leaves either the old folder in use and an unfinished future folder, which is deleted and copied
again, or two complete folders, of which the next start uses one and sets the other aside.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.index import OFFSET_SUFFIX, TIME_SUFFIX
from ottla.log.segment import CLEANED, DELETED, LOG_SUFFIX

if TYPE_CHECKING:
    from ottla.disk import Disk, File
    from ottla.log.directory import Directory
    from ottla.log.log import Log
    from ottla.log.segment import Segment

STEP_SIZE = 1 << 20  # bytes that may be copied on the loop: about a millisecond

PIECES_MAX = 100  # files to open at once: others need descriptors, too

_CHUNK = 1 << 20

Mark = tuple[int, int, int]  # inode, size and modification time of a file: another mark means other content
GONE: Mark = (0, 0, 0)


class MovedPiece(NamedTuple):
    """Bytes of a log file that are not yet in the other folder."""

    source: File
    target: str
    start: int
    end: int


class LogMove:
    """`directory` is the destination, `folder` the folder with the copy."""

    def __init__(self, log: Log, directory: Directory, folder: str) -> None:
        self.log = log
        self.directory = directory
        self.folder = folder
        self.rests_until_ms = 0  # on the steady clock
        self._copied: dict[Segment, int] = {}
        self._indexes: dict[str, Mark] = {}  # copied index files, by path
        self._cuts = log.durability.cuts

    def begin(self) -> None:
        """Start the copy from the beginning: an earlier try may have stopped anywhere."""
        self._copied.clear()
        self._indexes.clear()

    @property
    def size(self) -> int:
        return sum(self._copied.values())

    def pieces(self) -> list[MovedPiece]:
        """What is left to copy now, up to PIECES_MAX. Copies of segments that the log no longer has are removed."""
        log, disk = self.log, self.directory.disk
        held = set(log.segments) if log.durability.cuts == self._cuts else set()
        for segment in [segment for segment in self._copied if segment not in held]:
            del self._copied[segment]
            disk.remove(self._target(segment), missing_ok=True)
        self._cuts = log.durability.cuts
        found = []
        for segment in log.segments:
            start = self._copied.get(segment, 0)
            if start < segment.size or segment not in self._copied:
                found.append(MovedPiece(segment.file, self._target(segment), start, segment.size))
                self._copied[segment] = segment.size
                if len(found) == PIECES_MAX:
                    break
        return found

    def copy(self, pieces: list[MovedPiece]) -> None:
        """Copy these pieces. May run in a thread."""
        for piece in pieces:
            _copy_bytes(self.directory.disk, piece)

    def indexes(self) -> list[str]:
        """The index files of closed segments that are left to copy."""
        paths = [one.stem + suffix for one in self.log.segments[:-1] for suffix in (OFFSET_SUFFIX, TIME_SUFFIX)]
        return [path for path in paths if path not in self._indexes]

    def copy_indexes(self, paths: list[str]) -> None:
        """Copy these, so that `finish` need not: they may be large. May run in a thread.

        A file that is gone was removed with its segment, or replaced by compaction. `finish` copies what has changed.
        """
        for path in paths:
            try:
                mark = mark_of(self.log.disk.stat(path))
                file = self.log.disk.open(path)
            except FileNotFoundError:
                self._indexes[path] = GONE
                continue
            target = os.path.join(self.folder, os.path.basename(path))
            _copy_bytes(self.directory.disk, MovedPiece(file, target, 0, mark[1]))
            self._indexes[path] = mark

    def finish(self) -> None:
        """Copy the rest and the small files. The log must be sealed, and nothing may be appended after that."""
        disk = self.directory.disk
        self.copy(self.pieces())
        kept = {os.path.basename(segment.stem) + LOG_SUFFIX for segment in self.log.segments}
        for entry in self.log.disk.scan(self.log.folder):
            target = os.path.join(self.folder, entry.name)
            if entry.name in kept or entry.name.endswith((DELETED, CLEANED)):
                continue
            status = entry.stat()
            if self._indexes.get(entry.path) != mark_of(status):
                file = self.log.disk.open(entry.path)
                _copy_bytes(disk, MovedPiece(file, target, 0, status.st_size))
                file.close()

    def _target(self, segment: Segment) -> str:
        return os.path.join(self.folder, os.path.basename(segment.stem)) + LOG_SUFFIX


def mark_of(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


def count_bytes(pieces: list[MovedPiece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def _copy_bytes(disk: Disk, piece: MovedPiece) -> None:
    target = disk.open(piece.target, create=True)
    try:
        if piece.start == 0:
            disk.cut(target.fd, 0)  # remove leftovers of an earlier try
        for position in range(piece.start, piece.end, _CHUNK):
            data = _read(disk, piece, position)
            written = disk.writev(target.fd, [data], position)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written", piece.target)
    finally:
        target.close()


def _read(disk: Disk, piece: MovedPiece, position: int) -> bytes:
    size = min(_CHUNK, piece.end - position)
    try:
        return disk.pread(piece.source.fd, size, position)
    except OSError as error:
        raise OSError(error.errno, error.strerror, piece.source.path) from error  # tells which of the disks failed
