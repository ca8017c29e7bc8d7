"""Cached blocks of an index: they equal the file, their number is limited, and they are dropped with the file."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

from ottla.disk import RealDisk
from ottla.log.blocks import BLOCKS_MAX, KEPT_MAX, Blocks
from ottla.log.index import BLOCK, OffsetIndex

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from ottla.disk import File

PER_BLOCK = BLOCK // 8


class CountingDisk(RealDisk):
    """Counts how often a file is opened."""

    opened = 0

    def open(self, path: str | os.PathLike[str], *, create: bool = False) -> File:
        self.opened += 1
        return super().open(path, create=create)


def filled(folder: Path, blocks: int) -> tuple[OffsetIndex, CountingDisk]:
    disk = CountingDisk()
    index = OffsetIndex(str(folder / "0"), 0, disk, 10 << 20)
    for at in range(blocks * PER_BLOCK):
        index.append(2 * at + 1, at)
    disk.opened = 0
    return index, disk


def test_readers_open_the_file_once_for_each_block_that_they_come_to(tmp_path: Path) -> None:
    index, disk = filled(tmp_path, 2 * BLOCKS_MAX)
    readers = [2 * 2 * PER_BLOCK * number for number in range(BLOCKS_MAX)]
    for step in range(2 * PER_BLOCK - 2):
        for start in readers:
            assert index.floor(start + step + 1)[0] in (start + step, start + step + 1)
    assert disk.opened == len(readers)


def test_no_more_are_kept_than_there_are_readers_mostly(tmp_path: Path) -> None:
    index, _ = filled(tmp_path, 3 * BLOCKS_MAX)
    for at in range(1, 2 * 3 * BLOCKS_MAX * PER_BLOCK, PER_BLOCK):
        index.floor(at)
    assert index._blocks is not None
    assert len(index._blocks) == BLOCKS_MAX
    index.drop()
    assert index._blocks is None


def test_a_scan_over_many_segments_leaves_few_behind() -> None:
    block = b"".join(struct.pack(">II", 2 * at, at) for at in range(PER_BLOCK))
    scanned = []
    for _ in range(2 * KEPT_MAX):
        scanned.append(Blocks())
        scanned[-1].add(block)
    assert sum(map(len, scanned)) == KEPT_MAX
    assert [scanned[0].floor(5), scanned[-1].floor(5)] == [None, (4, 2)]


def test_another_thread_may_take_a_block_away_from_under_a_reader() -> None:
    """Several brokers of a process share the limit. One of them adds blocks during a lookup of another."""
    block = b"".join(struct.pack(">II", 2 * at, at) for at in range(PER_BLOCK))
    read, others = Blocks(), [Blocks() for _ in range(KEPT_MAX)]

    class Interrupted(int):
        def __lt__(self, other: int) -> bool:
            for one in others:
                one.add(block)
            return int(self) < other

    read.add(block)
    assert read.floor(5) == (4, 2)
    assert read.floor(Interrupted(5)) is None
    assert len(read) == 0


def test_what_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    index, _ = filled(tmp_path, 4)
    assert index.floor(1000) == (999, 499)
    index.truncate(500)
    assert index.floor(1000) == (499, 249)
    for at in range(4 * PER_BLOCK):
        index.append(500 + 5 * at, 1000 + at)
    assert index.floor(1000) == (1000, 1100)
    index.reset()
    assert index.floor(1000) == (-1, 0)


def test_an_entry_is_the_one_that_the_file_has_or_none() -> None:
    chance = random.Random(3)
    for _ in range(50):
        offsets = sorted(chance.sample(range(1 << 32), 5 * PER_BLOCK))
        blocks = Blocks()
        for first in chance.sample(range(0, len(offsets), PER_BLOCK), 3):
            part = offsets[first : first + PER_BLOCK]
            blocks.add(b"".join(struct.pack(">II", offset, first + at) for at, offset in enumerate(part)))
        for offset in [*chance.sample(offsets, 100), *(chance.randrange(1 << 32) for _ in range(100))]:
            at = bisect_right(offsets, offset) - 1
            assert blocks.floor(offset) in (None, (offsets[at], at))
        assert all(blocks.floor(one) for one in list(blocks._by_low))
