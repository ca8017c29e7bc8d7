"""The real disk implements the port's contract, also when files are missing or exist already."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ottla.disk import RealDisk, claim_by_writing

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_closes_itself_when_nobody_holds_it(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a", create=True)
    fd = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_closing_twice_closes_once(tmp_path: Path) -> None:
    first = RealDisk().open(tmp_path / "a", create=True)
    fd = first.fd
    first.close()
    second = RealDisk().open(tmp_path / "b", create=True)
    assert second.fd == fd, "the number is in use again"
    first.close()
    os.fstat(second.fd)


def test_reads_and_writes_name_their_position(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(tmp_path / "a", create=True)
    assert disk.writev(file.fd, [b"world", memoryview(b"!")], 6) == 6
    assert disk.writev(file.fd, [b"hello "], 0) == 6
    assert disk.pread(file.fd, 100, 4) == b"o world!"
    disk.cut(file.fd, 5)
    disk.sync(file.fd)
    assert disk.read(tmp_path / "a") == b"hello"


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3 << 20])
def test_read_gives_the_whole_file(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    assert RealDisk().read(tmp_path / "a") == data


def test_write_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.write(tmp_path / "a", b"long content")
    disk.write(tmp_path / "a", b"short", sync=True)
    assert disk.read(tmp_path / "a") == b"short"
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inside").touch()
    with pytest.raises(OSError, match="directory"):
        RealDisk().write(tmp_path / "a", b"data")
    assert os.listdir(tmp_path) == ["a"]


def test_append_adds_to_the_end(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.append(tmp_path / "a", b"one")
    disk.append(tmp_path / "a", b"two")
    assert disk.read(tmp_path / "a") == b"onetwo"


def test_blocks_are_claimed_by_writing_where_the_system_has_no_call_for_it(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a", create=True)
    os.pwrite(file.fd, b"abc", 10)
    os.ftruncate(file.fd, 1 << 20)
    claim_by_writing(file.fd, 0, 1 << 16)
    claim_by_writing(file.fd, 1 << 20, 10)
    status = os.fstat(file.fd)
    assert (status.st_size, status.st_blocks * 512 >= 1 << 16) == ((1 << 20) + 10, True)
    assert os.pread(file.fd, 20, 0) == bytes(10) + b"abc" + bytes(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, position: len(data) - 1)
        with pytest.raises(OSError, match="No space"):
            claim_by_writing(file.fd, 0, 10)


def test_removing_what_is_missing(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.remove(tmp_path / "a", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        disk.remove(tmp_path / "a")


def test_folders_come_and_go_with_what_is_in_them(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_folder(tmp_path / "a" / "b", parents=True)
    disk.make_folder(tmp_path / "a" / "b", parents=True)
    with pytest.raises(FileExistsError):
        disk.make_folder(tmp_path / "a" / "b")
    disk.append(tmp_path / "a" / "b" / "file", b"x")
    disk.sync_folder(tmp_path / "a")
    assert [(entry.name, entry.is_dir()) for entry in disk.scan(tmp_path / "a")] == [("b", True)]
    disk.rename(tmp_path / "a", tmp_path / "c")
    disk.truncate(tmp_path / "c" / "b" / "file", 0)
    disk.remove_folder(tmp_path / "c")
    assert not disk.exists(tmp_path / "c")


def test_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    total, free = RealDisk().space(tmp_path)
    assert 0 <= free <= total
