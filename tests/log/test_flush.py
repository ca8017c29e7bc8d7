"""A flush forces what it names to disk, in a thread, even while the log goes on and segments disappear."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, FaultyDisk, a_log, append, produced

from ottla.log.flush import carry_out
from ottla.log.retention import retain

if TYPE_CHECKING:
    from pathlib import Path


class WatchedDisk(FaultyDisk):
    """Remembers the paths of what is forced to disk."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def sync(self, fd: int, /) -> None:  # type: ignore[override]
        super().sync(fd)
        self.paths.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    def sync_folder(self, folder: str | os.PathLike[str]) -> None:
        super().sync_folder(folder)
        self.paths.append(os.path.basename(folder))


def test_bytes_before_indexes_before_names(tmp_path: Path) -> None:
    disk = WatchedDisk()
    log = a_log(tmp_path / "data", disk=disk, segment_bytes=200)
    append(log, produced(2))
    append(log, produced(5))
    log.durability.flush(NOW_MS)
    first, second = f"{0:020d}", f"{2:020d}"
    small = [f"{first}.index", f"{first}.timeindex", "leader-epoch-checkpoint"]
    assert disk.paths == [f"{first}.log", f"{second}.log", *small, "orders-0", "data"]
    assert log.durability.recovery_point == 7


def test_what_was_deleted_meanwhile_is_passed_over(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=200, file_delete_delay_ms=0)
    append(log, produced(2))
    append(log, produced(5))
    flush = log.durability.plan_flush()
    assert flush is not None
    log.delete_before(7)
    retain(log, NOW_MS)
    log.doomed.pop().remove(".deleted")
    carry_out(flush)
    log.durability.finish_flush(flush, NOW_MS)
    assert log.durability.recovery_point == 7


def test_a_failure_is_passed_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, produced())
    flush = log.durability.plan_flush()
    assert flush is not None
    disk.broken = 5
    with pytest.raises(OSError, match="Input/output"):
        carry_out(flush)
