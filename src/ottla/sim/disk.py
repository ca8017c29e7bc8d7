"""A disk for one host: real files in a folder, with simulated power cuts, full devices and dead processes.

The files are real, because regions of them are read by descriptor. For every file the disk remembers the content at the
last sync. `cut_power` sets each file to a state between that and what was written since: all of it, some of it, or torn
writes with missing sectors. Operations on names (create, rename, remove) keep their order, as in a journaling file
system; a file that was replaced without a sync is the old or the new one.

A dead process cannot write any more: its disk refuses everything.
"""

from __future__ import annotations

import errno
import os
from threading import Lock
from typing import TYPE_CHECKING

from ottla.disk import File, RealDisk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ottla.disk import Buffer, FolderEntry, Path

SECTOR = 512
TOTAL = 1 << 40


class Device:
    """What outlives a process: the synced content of files, and whether the disk is full."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.full = False
        self.broken: str | None = None  # nothing in this folder can be used
        self.starved = False  # its processes cannot open more files
        self.synced: dict[str, bytes] = {}
        self.syncs = 0

    def cut_power(self) -> int:
        """Lose unsynced writes. Returns how many unsynced bytes there were."""
        stake = 0
        for path in sorted(self.synced):
            safe = self.synced[path]
            try:
                with open(path, "rb") as file:
                    now = file.read()
            except FileNotFoundError:
                del self.synced[path]
                continue
            if now == safe:
                continue
            stake += abs(len(now) - len(safe)) or 1
            kept = self._survivor(safe, now)
            with open(path, "wb") as file:
                file.write(kept)
            self.synced[path] = kept
        return stake

    def _survivor(self, safe: bytes, now: bytes) -> bytes:
        """The content of a file after a power cut."""
        chance = self.chance
        fate = chance.random()
        if fate < 0.3:
            return safe
        if fate < 0.5:
            return now
        size = chance.randint(min(len(safe), len(now)), max(len(safe), len(now)))
        if not now.startswith(safe):  # rewritten or truncated: either version as a whole
            return chance.choice((safe, now))
        kept = bytearray(now[:size])
        for sector in range(-(-len(safe) // SECTOR) * SECTOR, size, SECTOR):
            if chance.random() < 0.2:
                kept[sector : sector + SECTOR] = bytes(len(kept[sector : sector + SECTOR]))
        return bytes(kept)


class SimDisk(RealDisk):
    """The device as one process sees it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._paths: dict[int, str] = {}
        self._open: list[File] = []
        self._syncing = Lock()  # threads sync; none is in the middle of it when the process dies
        self.dead = False

    def kill(self) -> None:
        """The process is dead: its descriptors are closed."""
        with self._syncing:
            self.dead = True
            for file in self._open:
                file.close()
            self._open.clear()
            self._paths.clear()

    def _check(self, path: str, *, writes: bool) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the process is dead", path)
        if self._device.broken is not None and path.startswith(self._device.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if writes and self._device.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: Path, *, create: bool = False) -> File:
        name = os.fspath(path)
        self._check(name, writes=create and not os.path.exists(name))
        if self._device.starved:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
        if create and not os.path.exists(name):
            self._device.synced[name] = b""
        file = super().open(path, create=create)
        self._paths[file.fd] = name
        self._open.append(file)
        if len(self._open) > 500:
            self._open = [one for one in self._open if one.fd >= 0]
        return file

    def writev(self, fd: int, parts: Sequence[Buffer], position: int, /) -> int:  # type: ignore[override]
        self._check(self._paths.get(fd, ""), writes=True)
        return os.pwritev(fd, parts, position)

    def cut(self, fd: int, size: int, /) -> None:
        self._check(self._paths.get(fd, ""), writes=False)
        os.ftruncate(fd, size)

    def sync(self, fd: int, /) -> None:  # type: ignore[override]
        with self._syncing:
            self._check("", writes=False)  # first: the descriptor of a dead process may belong to another file
            path = self._path(fd)
            self._check(path, writes=False)
            self._device.syncs += 1
            if path in self._device.synced or os.path.exists(path):
                self._device.synced[path] = os.pread(fd, os.fstat(fd).st_size, 0)

    def _path(self, fd: int) -> str:
        """The current path of a file: it or its folder may have been renamed."""
        return os.readlink(f"/proc/self/fd/{fd}")

    def read(self, path: Path) -> bytes:
        self._check(os.fspath(path), writes=False)
        return super().read(path)

    def append(self, path: Path, data: bytes) -> None:
        self._check(os.fspath(path), writes=True)
        self._device.synced.setdefault(os.fspath(path), b"")
        super().append(path, data)

    def write(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        name = os.fspath(path)
        self._check(name, writes=True)
        before = self._device.synced.get(name)
        super().write(path, data)
        if sync or before is None:
            self._device.synced[name] = data

    def truncate(self, path: Path, size: int) -> None:
        self._check(os.fspath(path), writes=False)
        super().truncate(path, size)

    def rename(self, old: Path, new: Path) -> None:
        source, target = os.fspath(old), os.fspath(new)
        self._check(source, writes=False)
        super().rename(old, new)
        synced = self._device.synced
        synced.pop(target, None)
        for path in [path for path in synced if path == source or path.startswith(source + os.sep)]:
            synced[target + path[len(source) :]] = synced.pop(path)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        self._check(os.fspath(path), writes=False)
        super().remove(path, missing_ok=missing_ok)
        self._device.synced.pop(os.fspath(path), None)

    def scan(self, folder: Path) -> Sequence[FolderEntry]:
        """Entries sorted by name, since the order of a real folder is not deterministic."""
        self._check(os.fspath(folder), writes=False)
        return sorted(super().scan(folder), key=lambda entry: entry.name)

    def make_folder(self, folder: Path, *, parents: bool = False) -> None:
        self._check(os.fspath(folder), writes=not os.path.isdir(folder))
        super().make_folder(folder, parents=parents)

    def remove_folder(self, folder: Path) -> None:
        self._check(os.fspath(folder), writes=False)
        super().remove_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._check(os.fspath(folder), writes=False)

    def space(self, folder: Path) -> tuple[int, int]:
        self._check(os.fspath(folder), writes=False)
        return TOTAL, 0 if self._device.full else TOTAL // 2
