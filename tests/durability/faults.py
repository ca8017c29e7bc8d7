"""A broker on a disk that can fail: run as `python faults.py serve ...` in the place of `python -m ottla serve ...`.

The folder in OTTLA_FAULTS holds what the test says and what the disk did:

    journal       lines of `sync path size`, `rename old new`, `cut path size`, `content path`: what would outlive a
                  power cut. Written with plain appends: they outlive kill -9, which is what a test uses in its place.
    full          while it exists, writing raises ENOSPC
    broken        a path prefix; while it exists, everything under that prefix raises EIO

`power_cut` is the other half, for the test: it takes from the data folder what no sync has covered.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SECTOR = 512


class Faults:
    """Wraps the methods of the broker's disk, one by one."""

    def __init__(self, folder: Path) -> None:
        self._journal = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._full = os.fspath(folder / "full")
        self._broken = os.fspath(folder / "broken")

    def note(self, *words: object) -> None:
        os.write(self._journal, ("\t".join(map(str, words)) + "\n").encode())

    def check(self, path: str, *, writes: bool) -> None:
        if writes and os.path.exists(self._full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        try:
            prefix = Path(self._broken).read_text()
        except FileNotFoundError:
            return
        if path.startswith(prefix):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def install(self, disk: Any) -> None:
        for name in ("writev", "cut", "sync"):
            setattr(disk, name, staticmethod(self._on_descriptor(name, getattr(disk, name))))
        for name in ("open", "append", "write", "truncate", "rename", "make_folder"):
            setattr(disk, name, self._on_path(name, getattr(disk, name)))
        for name in ("read", "scan", "sync_folder"):
            setattr(disk, name, self._on_path(name, getattr(disk, name), writes=False))

    def _on_descriptor(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(fd: int, *arguments: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{fd}")
            self.check(path, writes=name != "sync")
            size = os.fstat(fd).st_size  # before the sync: what comes during it may not be covered
            result = method(fd, *arguments)
            if name == "sync":
                self.note("sync", path, size)
            elif name == "cut":
                self.note("cut", path, *arguments)
            return result

        return wrapped

    def _on_path(self, name: str, method: Callable[..., Any], *, writes: bool = True) -> Callable[..., Any]:
        def wrapped(disk: Any, path: Any, *arguments: Any, **options: Any) -> Any:
            creates = name != "open" or options.get("create", False)
            self.check(os.fspath(path), writes=writes and creates)
            result = method(disk, path, *arguments, **options)
            if name == "rename":
                self.note("rename", os.fspath(path), os.fspath(arguments[0]))
            elif name == "write" and options.get("sync"):
                self.note("content", os.fspath(path))
            elif name == "truncate":
                self.note("cut", os.fspath(path), *arguments)
            return result

        return wrapped


def power_cut(data: Path, faults: Path, random: Random) -> int:
    """Take from every log file what no sync has covered: all of it, a part, or leave a part as garbage. Bytes lost."""
    synced: dict[str, int] = {}
    for line in (faults / "journal").read_text().splitlines():
        kind, path, *rest = line.split("\t")
        if kind == "sync":
            # Two threads may force a file to disk at once: the one that saw less of it may be the last to say so.
            synced[path] = max(synced.get(path, 0), int(rest[0]))
        elif kind == "cut":
            synced[path] = min(synced.get(path, 0), int(rest[0]))
        elif kind == "rename":
            synced[rest[0]] = synced.pop(path, 0)
    lost = 0
    for log in sorted(data.rglob("*.log")):
        size = log.stat().st_size
        safe = min(synced.get(os.fspath(log), 0), size)
        keep = random.choice([safe, size, random.randint(safe, size)])
        with log.open("r+b") as file:
            file.truncate(keep)
            for sector in range(-(-safe // SECTOR) * SECTOR, keep, SECTOR):
                if random.random() < 0.1:  # written later than its neighbours: not there yet
                    file.seek(sector)
                    file.write(bytes(min(SECTOR, keep - sector)))
        lost += size - safe
    for index in sorted((*data.rglob("*.index"), *data.rglob("*.timeindex"), *data.rglob("*.txnindex"))):
        if index.suffix == ".txnindex":
            keep = random.randint(min(synced.get(os.fspath(index), 0), index.stat().st_size), index.stat().st_size)
            os.truncate(index, keep)  # torn wherever no sync has covered it
        elif random.random() < 0.3 and (size := index.stat().st_size):
            with index.open("r+b") as file:  # a page of an index that the kernel had not written yet
                file.seek(random.randrange(0, size, 8))
                file.write(bytes(8))
    return lost


if __name__ == "__main__":
    from ottla.disk import RealDisk

    Faults(Path(os.environ["OTTLA_FAULTS"])).install(RealDisk)
    from ottla.__main__ import main

    main()
