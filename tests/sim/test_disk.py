"""The simulated disk: what a power cut may lose, and what not."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.sim.disk import Device, SimDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_synced_stays_and_the_rest_may_go(tmp_path: Path) -> None:
    fates = set()
    for seed in range(60):
        device = Device(Random(seed))
        disk, path = SimDisk(device), tmp_path / f"{seed}.log"
        file = disk.open(path, create=True)
        disk.writev(file.fd, [b"a" * 700], 0)
        disk.sync(file.fd)
        disk.writev(file.fd, [b"b" * 1500], 700)
        disk.kill()
        device.cut_power()
        found = path.read_bytes()
        assert found[:700] == b"a" * 700
        assert set(found[700:]) <= {0, ord("b")}
        fates.add((len(found) == 700, len(found) == 2200, 0 in found))
    assert len(fates) >= 4, "nothing lost, all lost, a part lost, torn"


def test_a_file_that_was_replaced_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    found = set()
    for seed in range(40):
        device = Device(Random(seed))
        disk, path = SimDisk(device), tmp_path / f"{seed}"
        disk.write(path, b"old", sync=True)
        disk.write(path, b"new!")
        device.cut_power()
        found.add(path.read_bytes())
    assert found == {b"old", b"new!"}


def test_what_was_synced_follows_a_renamed_folder(tmp_path: Path) -> None:
    device = Device(Random(1))
    disk = SimDisk(device)
    disk.make_folder(tmp_path / "one")
    file = disk.open(tmp_path / "one" / "log", create=True)
    disk.writev(file.fd, [b"kept"], 0)
    disk.sync(file.fd)
    disk.rename(tmp_path / "one", tmp_path / "two")
    device.cut_power()
    assert (tmp_path / "two" / "log").read_bytes() == b"kept"


def test_a_full_disk_refuses_writing_and_nothing_else(tmp_path: Path) -> None:
    device = Device(Random(1))
    disk = SimDisk(device)
    file = disk.open(tmp_path / "log", create=True)
    disk.writev(file.fd, [b"here"], 0)
    device.full = True
    with pytest.raises(OSError, match="No space") as full:
        disk.writev(file.fd, [b"more"], 4)
    assert full.value.errno == errno.ENOSPC
    assert disk.pread(file.fd, 4, 0) == b"here"
    assert disk.space(tmp_path)[1] == 0


def test_the_dead_write_nothing(tmp_path: Path) -> None:
    disk = SimDisk(Device(Random(1)))
    file = disk.open(tmp_path / "log", create=True)
    disk.kill()
    assert file.fd < 0
    with pytest.raises(OSError, match="dead"):
        disk.write(tmp_path / "other", b"x")
