"""The two indexes: entries as Apache Kafka lays them out, found by any offset or time, kept through every cut."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.making import FaultyDisk

from ottla.disk import RealDisk
from ottla.log.index import BLOCK, WAITING_MAX, CorruptIndexError, Mark, OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from pathlib import Path

BASE = 1000


def offsets_at(path: Path, *, size_max: int = 1 << 16, length: int | None = None) -> OffsetIndex:
    return OffsetIndex(str(path / "0"), BASE, RealDisk(), size_max, length)


def times_at(path: Path, *, size_max: int = 1 << 16, length: int | None = None) -> TimeIndex:
    return TimeIndex(str(path / "0"), BASE, RealDisk(), size_max, length)


def files_open_in(folder: Path) -> list[str]:
    """Only those in this folder: files of other tests are closed at any time by the garbage collector."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(folder))]


def test_an_offset_entry_is_eight_bytes_big_endian(tmp_path: Path) -> None:
    index = offsets_at(tmp_path)
    index.append(BASE + 7, 4242)
    index.append(BASE + 300, 1 << 20)
    index.table.trim()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">IIII", 7, 4242, 300, 1 << 20)


def test_a_time_entry_is_twelve_bytes_big_endian(tmp_path: Path) -> None:
    index = times_at(tmp_path)
    index.append(Mark(1_700_000_000_000, BASE + 7))
    index.table.trim()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qI", 1_700_000_000_000, 7)


def test_entries_go_to_the_file_a_block_at_a_time_and_no_file_stays_open(tmp_path: Path) -> None:
    offsets, times = offsets_at(tmp_path, size_max=10 << 20), times_at(tmp_path, size_max=10 << 20)
    for relative in range(2000):
        offsets.append(BASE + relative, relative + 1)
        times.append(Mark(relative, BASE + relative))
    assert os.path.getsize(tmp_path / "0.index") == 2000 * 8 // BLOCK * BLOCK
    assert 2000 * 12 - BLOCK <= os.path.getsize(tmp_path / "0.timeindex") < 2000 * 12
    assert offsets.floor(BASE + 3) == (BASE + 3, 4)
    assert times.floor(1) == Mark(1, BASE + 1)
    assert not files_open_in(tmp_path)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("count", [1, 341, 342, 512, 513, 1024, 3000])
def test_every_entry_is_found_wherever_it_lies(tmp_path: Path, count: int, closed: bool) -> None:
    """In the file, in the block that was read last, or in memory; upwards, downwards and in leaps."""
    offsets, times = offsets_at(tmp_path, size_max=1 << 20), times_at(tmp_path, size_max=1 << 20)
    for at in range(count):
        offsets.append(BASE + at * 3 + 1, at * 100)
        times.append(Mark(at * 3 + 1, BASE + at))
    if closed:
        offsets.table.trim()
        times.table.trim()
    for order in (range(count), range(count - 1, -1, -1), [at * 7919 % count for at in range(count)]):
        for at in order:
            assert offsets.floor(BASE + at * 3 + 2) == (BASE + at * 3 + 1, at * 100)
            assert times.floor(at * 3 + 3) == Mark(at * 3 + 1, BASE + at)
            assert offsets.ceiling(at * 100 - 99, -1) == BASE + at * 3 + 1
            assert offsets.ceiling(at * 100, -1) == BASE + at * 3 + 1
    assert offsets.floor(BASE) == (BASE - 1, 0)
    assert times.floor(0) == Mark(-1, BASE)
    assert offsets.ceiling(count * 100, -1) == -1


def test_a_file_that_is_gone_or_cut_is_told_from_one_that_is_whole(tmp_path: Path) -> None:
    index = offsets_at(tmp_path)
    for relative in range(1000):
        index.append(BASE + relative, relative + 1)
    index.table.trim()
    os.truncate(tmp_path / "0.index", 100)
    with pytest.raises(CorruptIndexError):
        index.floor(BASE + 3)
    (tmp_path / "0.index").unlink()
    with pytest.raises(CorruptIndexError):
        index.floor(BASE + 3)


@given(st.sets(st.integers(0, 5000), max_size=60), st.integers(-5, 5005))
def test_floor_is_the_last_entry_not_above(
    tmp_path_factory: pytest.TempPathFactory, held: set[int], asked: int
) -> None:
    index = offsets_at(tmp_path_factory.mktemp("index"))
    for relative in sorted(held):
        index.append(BASE + relative, relative * 10 + 1)
    below = max((relative for relative in held if relative <= asked), default=None)
    expected = (BASE - 1, 0) if below is None else (BASE + below, below * 10 + 1)
    assert index.floor(BASE + asked) == expected
    index.table.trim()
    reopened = OffsetIndex(index.table.path.removesuffix(".index"), BASE, RealDisk(), 1 << 16, len(held) * 8)
    reopened.check(size=1 << 20)
    assert reopened.floor(BASE + asked) == expected


@given(st.sets(st.integers(0, 5000), max_size=60), st.integers(-5, 5005))
def test_time_floor_is_the_last_entry_not_above(
    tmp_path_factory: pytest.TempPathFactory, held: set[int], asked: int
) -> None:
    index = times_at(tmp_path_factory.mktemp("index"))
    for timestamp in sorted(held):
        index.append(Mark(timestamp, BASE + timestamp * 2))
    below = max((timestamp for timestamp in held if timestamp <= asked), default=None)
    assert index.floor(asked) == (Mark(-1, BASE) if below is None else Mark(below, BASE + below * 2))


@pytest.mark.parametrize("cut", [BASE, BASE + 10, BASE + 11, BASE + 50, BASE + 99])
@pytest.mark.parametrize("closed", [False, True])
def test_truncation_drops_what_is_at_or_above(tmp_path: Path, cut: int, closed: bool) -> None:
    offsets, times = offsets_at(tmp_path), times_at(tmp_path)
    for relative in range(10, 100, 10):
        offsets.append(BASE + relative, relative)
        times.append(Mark(relative, BASE + relative))
    if closed:
        offsets.table.trim()
        times.table.trim()
    offsets.truncate(cut)
    times.truncate(cut)
    kept = [relative for relative in range(10, 100, 10) if BASE + relative < cut]
    assert offsets.entries() == [(BASE + relative, relative) for relative in kept]
    assert times.entries() == [Mark(relative, BASE + relative) for relative in kept]
    assert offsets.floor(BASE + 1000) == ((BASE + kept[-1], kept[-1]) if kept else (BASE - 1, 0))
    offsets.append(BASE + 500, 500)
    times.append(Mark(500, BASE + 500))
    assert offsets.entries()[-1] == (BASE + 500, 500)
    assert times.entries()[-1] == Mark(500, BASE + 500)
    offsets.table.trim()
    assert (tmp_path / "0.index").read_bytes()[-8:] == struct.pack(">II", 500, 500), "no leftovers of what was cut"
    assert os.path.getsize(tmp_path / "0.index") == (len(kept) + 1) * 8


def test_time_that_does_not_move_on_makes_no_entry(tmp_path: Path) -> None:
    index = times_at(tmp_path)
    for timestamp in (-1, 5, 5, 4, 6):
        index.append(Mark(timestamp, BASE + timestamp + 1))
    assert [mark.timestamp for mark in index.entries()] == [5, 6]


def test_a_full_index_says_so_and_the_time_index_keeps_a_place_for_the_last_entry(tmp_path: Path) -> None:
    offsets, times = offsets_at(tmp_path, size_max=40), times_at(tmp_path, size_max=40)
    for relative in range(1, 10):
        offsets.append(BASE + relative, relative)
        if not times.full:
            times.append(Mark(relative, BASE + relative))
    assert len(offsets.entries()) == 5
    assert offsets.full
    assert len(times.entries()) == 2
    times.append(Mark(99, BASE + 99))
    assert times.last == Mark(99, BASE + 99)


def test_a_full_disk_leaves_entries_in_memory_then_the_index_sparse_and_it_goes_on_when_there_is_space(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    index = OffsetIndex(str(tmp_path / "0"), BASE, disk, 10 << 20)
    index.append(BASE + 1, 1)
    disk.space_left = 0
    for relative in range(2, 20_000):
        index.append(BASE + relative, relative)
    held = len(index.entries())
    assert held == WAITING_MAX // 8
    assert index.floor(BASE + 50_000) == (BASE + held, held)
    index.table.trim()
    assert os.path.getsize(tmp_path / "0.index") == 0
    disk.space_left = 100
    index.table.trim()
    assert os.path.getsize(tmp_path / "0.index") == 0, "a part of it would be taken for the whole"
    disk.space_left = None
    index.table.trim()
    index.append(BASE + 30_000, 30_000)
    assert index.entries()[-2:] == [(BASE + held, held), (BASE + 30_000, 30_000)]


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (b"\0" * 7, 100),
        (struct.pack(">II", 5, 100), 100),
        (struct.pack(">IIII", 5, 50, 0, 0), 100),
        (b"\0" * 80, 100),
        (os.urandom(3) + struct.pack(">II", 5, 10), 100),
    ],
    ids=["not whole", "beyond the log", "zeros at the end", "all zeros", "shifted"],
)
def test_an_impossible_offset_index_is_noticed(tmp_path: Path, content: bytes, size: int) -> None:
    (tmp_path / "0.index").write_bytes(content)
    with pytest.raises(CorruptIndexError):
        offsets_at(tmp_path, length=len(content)).check(size)


@pytest.mark.parametrize(
    "content",
    [b"\0" * 13, struct.pack(">qI", -5, 1), struct.pack(">qI", 5, 100), struct.pack(">qIqI", 5, 1, 0, 0)],
    ids=["not whole", "negative time", "beyond the log", "zeros at the end"],
)
def test_an_impossible_time_index_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0.timeindex").write_bytes(content)
    with pytest.raises(CorruptIndexError):
        times_at(tmp_path, length=len(content)).check(end=BASE + 100)


def test_another_limit_applies_to_what_comes(tmp_path: Path) -> None:
    index = offsets_at(tmp_path, size_max=16)
    for relative in (1, 2, 3):
        index.append(BASE + relative, relative)
    assert index.full
    index.table.resize(1 << 16)
    index.append(BASE + 4, 4)
    assert index.entries() == [(BASE + 1, 1), (BASE + 2, 2), (BASE + 4, 4)]


def test_reset_empties_the_file(tmp_path: Path) -> None:
    offsets, times = offsets_at(tmp_path), times_at(tmp_path)
    offsets.append(BASE + 1, 1)
    times.append(Mark(1, BASE + 1))
    offsets.reset()
    times.reset()
    assert (offsets.entries(), times.entries()) == ([], [])
    assert os.path.getsize(tmp_path / "0.index") == os.path.getsize(tmp_path / "0.timeindex") == 0
    assert offsets.floor(BASE + 5) == (BASE - 1, 0)
