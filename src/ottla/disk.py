"""The disk as a parameter: every file operation of the broker goes through this port, so that tests can inject faults.

`File` is an open file that closes itself when the last reference is gone: while a `Slice` is being sent, its bytes stay
readable even if the segment is deleted meanwhile.

Reads and writes take a position: no file has a cursor, so a failed write needs no seek to undo.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Path: TypeAlias = "str | os.PathLike[str]"
Buffer: TypeAlias = "bytes | bytearray | memoryview"


class File:
    """An open file. `fd` is valid as long as the object exists and is not closed."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class FolderEntry(Protocol):
    """What `scan` returns for one name in a folder (an os.DirEntry fits)."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_dir(self) -> bool: ...

    def stat(self) -> os.stat_result: ...


class Disk(Protocol):
    """The port. Failures are OSError with their errno; FileNotFoundError if a name is missing."""

    def open(self, path: Path, *, create: bool = False) -> File: ...

    def writev(self, fd: int, parts: Sequence[Buffer], position: int, /) -> int: ...

    def pread(self, fd: int, size: int, position: int, /) -> bytes: ...

    def cut(self, fd: int, size: int, /) -> None:
        """Set the size of an open file; new bytes are zeros."""

    def sync(self, fd: int, /) -> None: ...

    def read(self, path: Path) -> bytes: ...

    def append(self, path: Path, data: bytes) -> None: ...

    def write(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Replace the file atomically: a reader sees the old or the new content, never a part."""

    def truncate(self, path: Path, size: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path, *, missing_ok: bool = False) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def stat(self, path: Path) -> os.stat_result: ...

    def set_modified(self, path: Path, modified_ms: int) -> None: ...

    def scan(self, folder: Path) -> Sequence[FolderEntry]: ...

    def make_folder(self, folder: Path, *, parents: bool = False) -> None: ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder and the files in it."""

    def sync_folder(self, folder: Path) -> None: ...

    def space(self, folder: Path) -> tuple[int, int]:
        """Total and free bytes of the file system that holds the folder."""


def claim_by_writing(fd: int, position: int, size: int, /) -> None:
    """For macOS, which has no fallocate: rewrite the content, and zeros after it, to allocate its blocks."""
    data = os.pread(fd, size, position).ljust(size, b"\0")
    if os.pwrite(fd, data, position) != size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


claim: Callable[[int, int, int], None] = getattr(os, "posix_fallocate", claim_by_writing)


class RealDisk:
    """The machine's disk."""

    writev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    cut = staticmethod(os.ftruncate)
    # A log needs only the size of all metadata, and fdatasync writes it.
    sync = staticmethod(getattr(os, "fdatasync", os.fsync))

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        name = os.fspath(path)
        return File(os.open(name, flags, 0o644), name)

    def read(self, path: Path) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, 1 << 14, 0)
            if len(data) < 1 << 14:
                return data
            parts = [data]
            position = len(data)
            while data := os.pread(fd, 1 << 20, position):
                parts.append(data)
                position += len(data)
            return b"".join(parts)
        finally:
            os.close(fd)

    def append(self, path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def write(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        new = os.fspath(path) + ".tmp"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
            os.replace(new, path)
        except OSError:
            os.unlink(new)
            raise
        finally:
            os.close(fd)
        if sync:
            self.sync_folder(os.path.dirname(new))

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def scan(self, folder: Path) -> Sequence[FolderEntry]:
        with os.scandir(os.fspath(folder)) as entries:
            return list(entries)

    def make_folder(self, folder: Path, *, parents: bool = False) -> None:
        if parents:
            os.makedirs(folder, exist_ok=True)
        else:
            os.mkdir(folder)

    def remove_folder(self, folder: Path) -> None:
        for entry in self.scan(folder):
            if entry.is_dir():
                self.remove_folder(entry.path)
            else:
                self.remove(entry.path)
        os.rmdir(folder)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, folder: Path) -> tuple[int, int]:
        found = os.statvfs(folder)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
