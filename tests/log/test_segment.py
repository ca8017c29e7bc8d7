"""One segment: batches are found in memory, by the index and by a scan; a failed write leaves nothing behind."""

from __future__ import annotations

import errno
import os
import random
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, FaultyDisk, records, settings

from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.log.segment import TAIL_MAX, Segment
from ottla.records import batch
from ottla.records.legacy import build as build_legacy

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.disk import Disk

BASE = 500


def a_segment(folder: Path, disk: Disk | None = None, **options: object) -> Segment:
    return Segment.create(str(folder), BASE, disk or RealDisk(), settings(**options), now_ms=NOW_MS)


def fill(segment: Segment, count: int, *, size: int = 10, each: int = 2, timestamp: int = NOW_MS) -> list[int]:
    """Append `count` batches of `each` records; returns their positions."""
    positions = []
    for at in range(count):
        base = segment.end
        data = batch.build(
            [
                record._replace(offset=base + record.offset)
                for record in records(each, timestamp=timestamp + at, size=size)
            ]
        )
        positions.append(segment.size)
        segment.append([data[:16], memoryview(data)[16:]], len(data), base + each - 1, timestamp + at)
    return positions


def reopened(segment: Segment) -> Segment:
    """The same files, opened by another process."""
    disk, stem = segment.disk, segment.stem
    lengths = (disk.stat(stem + ".index").st_size, disk.stat(stem + ".timeindex").st_size)
    size = disk.stat(stem + ".log").st_size
    folder = stem.rpartition("/")[0]
    found = Segment.open(folder, BASE, disk, settings(), size=size, lengths=lengths, end=segment.end, now_ms=NOW_MS)
    return found


def test_files_are_named_by_the_first_offset(tmp_path: Path) -> None:
    a_segment(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000000500.index",
        "00000000000000000500.log",
        "00000000000000000500.timeindex",
    ]


@pytest.mark.parametrize("how", ["remembered", "indexed", "reopened"])
@pytest.mark.parametrize("count", [1, 5, TAIL_MAX + 300])
def test_every_offset_is_located_in_its_batch(tmp_path: Path, how: str, count: int) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=100)
    positions = [*fill(segment, count), segment.size]
    if how == "indexed":
        segment.seal()
    if how == "reopened":
        segment.seal()
        segment = reopened(segment)
    for at in range(0, count, max(1, count // 100)):
        expected = (positions[at], positions[at + 1] - positions[at])
        assert segment.locate(BASE + at * 2) == expected
        assert segment.locate(BASE + at * 2 + 1) == expected
    assert segment.locate(BASE - 10) == (0, positions[1])
    assert segment.locate(BASE + count * 2) is None


class ReadingDisk(RealDisk):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.read_size = 0

    def pread(self, fd: int, size: int, position: int, /) -> bytes:  # type: ignore[override]
        data = os.pread(fd, size, position)
        self.read_size += len(data)
        return data


def test_large_batches_are_passed_over_without_reading_them(tmp_path: Path) -> None:
    disk = ReadingDisk()
    segment = a_segment(tmp_path, disk, index_interval_bytes=1 << 20)
    positions = [position for size in (10_000, 10, 3000, 6000, 20) for position in fill(segment, 15, size=size)]
    sizes = [end - start for start, end in pairwise([*positions, segment.size])]
    segment.seal()  # from now on it is found by reading
    numbers = list(range(len(positions)))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        for offset in (BASE + 2 * number, BASE + 2 * number + 1):
            assert segment.locate(offset) == (positions[number], sizes[number])
    assert segment.locate(BASE) is not None
    disk.read_size = 0
    assert segment.locate(BASE + 20) == (positions[10], sizes[10])
    assert disk.read_size < 11 * 100


def test_the_entry_names_the_last_offset_of_the_batch_it_points_at(tmp_path: Path) -> None:
    """Kafka's DumpLogSegments compares them."""
    segment = a_segment(tmp_path, index_interval_bytes=300)
    fill(segment, 40, each=3)
    entries = segment.offsets.entries()
    assert len(entries) > 5
    for offset, position in entries:
        assert next(segment.spans(position)).span.last == offset
    gaps = [after - before for (_, before), (_, after) in pairwise(entries)]
    assert all(gap > 300 for gap in gaps)


def test_the_time_index_holds_the_largest_time_so_far(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=1)
    for timestamp in (50, 40, 60, 30, 60, 70):
        fill(segment, 1, timestamp=timestamp)
    segment.seal()
    assert [mark.timestamp for mark in segment.times.entries()] == [50, 60, 70]
    assert segment.times.entries()[1].offset == BASE + 5
    assert segment.largest().timestamp == 70
    assert reopened(segment).largest() == segment.largest()


def test_a_short_write_is_cut_off_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    segment = a_segment(tmp_path, disk)
    fill(segment, 3)
    size, end = segment.size, segment.end
    disk.space_left = 20
    with pytest.raises(OSError, match="20 of"):
        fill(segment, 1)
    with pytest.raises(OSError, match="No space"):
        fill(segment, 1)
    assert (segment.size, segment.end) == (size, end)
    assert disk.stat(segment.stem + ".log").st_size == size
    disk.space_left = None
    fill(segment, 1)
    assert segment.locate(end) == (size, segment.size - size)


def test_a_failure_that_cannot_be_undone_is_told(tmp_path: Path) -> None:
    disk = FaultyDisk()
    segment = a_segment(tmp_path, disk)
    disk.space_left, disk.cut_fails = 20, True
    with pytest.raises(OSError, match="Input/output") as failure:
        fill(segment, 1)
    assert failure.value.errno == errno.EIO


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("bit", [0x01, 0x10, 0x80])
def test_a_flipped_bit_in_the_offset_index_is_healed_or_harmless(tmp_path: Path, at: int, bit: int) -> None:
    """Whatever the entry says, the result is right: the index only says where to start."""
    segment = a_segment(tmp_path, index_interval_bytes=100)
    positions = fill(segment, 60)
    segment.seal()
    path = tmp_path / "00000000000000000500.index"
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 16 * 8 + at] ^= bit
    path.write_bytes(broken)
    found = reopened(segment)
    assert [found.locate(BASE + number * 2) for number in range(60)] == [(at, positions[1]) for at in positions]


def test_an_index_that_cannot_be_is_built_anew_as_it_was(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=100)
    fill(segment, 60)
    segment.seal()
    names = ["00000000000000000500.index", "00000000000000000500.timeindex"]
    whole = [(tmp_path / name).read_bytes() for name in names]
    (tmp_path / names[0]).write_bytes(b"\0" * 4096)
    found = Segment.open(
        str(tmp_path), BASE, RealDisk(), settings(index_interval_bytes=100), size=segment.size,
        lengths=(4096, len(whole[1])), end=segment.end, now_ms=NOW_MS,
    )  # fmt: skip
    assert found.locate(BASE + 30) == segment.locate(BASE + 30)
    assert [(tmp_path / name).read_bytes() for name in names] == whole


@pytest.mark.parametrize("cut", [BASE, BASE + 1, BASE + 20, BASE + 21, BASE + 79, BASE + 80, BASE + 99])
@pytest.mark.parametrize("active", [True, False])
def test_truncation_removes_the_batch_that_holds_the_offset(tmp_path: Path, cut: int, active: bool) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=100)
    positions = [*fill(segment, 40), segment.size]
    if not active:
        segment.seal()
    segment.truncate(cut)
    kept = min((cut - BASE) // 2, 40)
    assert segment.end == BASE + kept * 2
    assert segment.size == positions[kept] == (tmp_path / "00000000000000000500.log").stat().st_size
    assert segment.max_timestamp == (NOW_MS + kept - 1 if kept else -1)
    fill(segment, 3)
    assert segment.end == BASE + kept * 2 + 6
    assert [segment.locate(offset) is not None for offset in (segment.end - 1, segment.end)] == [True, False]


def test_a_truncation_inside_a_gap_ends_where_it_was_asked_to(tmp_path: Path) -> None:
    """Compaction leaves gaps, but the offsets in them were assigned."""
    segment = a_segment(tmp_path)
    fill(segment, 1)
    data = batch.build([batch.Record(BASE + 50, NOW_MS, b"k", b"v")])
    segment.append([data], len(data), BASE + 50, NOW_MS)
    segment.truncate(BASE + 30)
    assert segment.end == BASE + 30


def test_rolling_by_size_time_offset_and_full_index(tmp_path: Path) -> None:
    options = {"segment_bytes": 1000, "segment_ms": 5000, "segment_index_bytes": 24, "index_interval_bytes": 100}
    segment = a_segment(tmp_path, None, **options)
    config = settings(**options)

    def rolls(*, size: int = 10, last: int = BASE + 5, timestamp: int = NOW_MS, now_ms: int = NOW_MS) -> bool:
        return segment.must_roll(size, last, timestamp, now_ms=now_ms, config=config)

    assert not rolls(timestamp=NOW_MS + 9999), "an empty segment has no age"
    fill(segment, 1)
    assert not rolls()
    assert not rolls(size=1000 - segment.size)
    assert rolls(size=1001 - segment.size)
    assert not rolls(timestamp=NOW_MS + 5000)
    assert rolls(timestamp=NOW_MS + 5001)
    assert not rolls(now_ms=NOW_MS + 99_999), "batches that say when they were made go by that"
    assert not rolls(last=BASE + (1 << 31) - 1)
    assert rolls(last=BASE + (1 << 31))
    fill(segment, 6)
    assert segment.offsets.full
    assert rolls()


def test_batches_without_a_time_roll_by_the_clock(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, segment_ms=5000)
    data = build_legacy([batch.Record(BASE, -1, b"k", b"v")], magic=0)
    segment.append_run([data], len(data), [(len(data), BASE, -1)])
    config = settings(segment_ms=5000)
    assert not segment.must_roll(10, BASE + 1, -1, now_ms=NOW_MS + 5000, config=config)
    assert segment.must_roll(10, BASE + 1, -1, now_ms=NOW_MS + 5001, config=config)


def test_jitter_lets_a_segment_roll_earlier_but_always_at_the_same_time(tmp_path: Path) -> None:
    config = settings(segment_ms=5000, segment_jitter_ms=4000)
    segment = a_segment(tmp_path)
    fill(segment, 1)
    edges = {
        next(age for age in range(6000) if segment.must_roll(1, BASE, NOW_MS + age, now_ms=NOW_MS, config=config))
        for _ in range(2)
    }
    assert len(edges) == 1
    assert 1000 < edges.pop() <= 5001


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_indexed_one_by_one(tmp_path: Path, magic: int) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=50)
    messages = [build_legacy([batch.Record(BASE + at, NOW_MS + at, None, b"")], magic=magic) for at in range(20)]
    data = b"".join(messages)
    stamps = [NOW_MS + at if magic else -1 for at in range(20)]
    segment.append_run([data], len(data), [(len(one), BASE + at, stamps[at]) for at, one in enumerate(messages)])
    segment.seal()
    found = reopened(segment)
    for at in range(20):
        assert found.locate(BASE + at) == (at * len(messages[0]), len(messages[0]))
    assert found.largest().timestamp == stamps[-1]
    assert [step.span.last for step in found.spans()] == list(range(BASE, BASE + 20))


def test_a_preallocated_file_is_cut_when_it_is_closed(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, preallocate="true", segment_bytes=100_000)
    assert (tmp_path / "00000000000000000500.log").stat().st_size == 100_000
    fill(segment, 3)
    segment.seal()
    assert (tmp_path / "00000000000000000500.log").stat().st_size == segment.size


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    segment = a_segment(tmp_path)
    fill(segment, 3)
    found = segment.slice(0, segment.size)
    whole = found.read()
    segment.rename("", ".deleted")
    segment.close()
    segment.remove(".deleted")
    assert list(tmp_path.iterdir()) == []
    assert found.read() == whole
    assert found.fd >= 0
    assert repr(found).endswith(f"position=0, size={len(whole)})")


def test_renaming_what_is_gone_is_an_error(tmp_path: Path) -> None:
    segment = a_segment(tmp_path)
    segment.remove()
    with pytest.raises(FileNotFoundError):
        segment.rename("", ".deleted")


def test_a_position_that_is_no_batch_is_noticed(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=100)
    positions = fill(segment, 60)
    segment.seal()
    path = tmp_path / "00000000000000000500.index"
    entries = list(struct.iter_unpack(">II", path.read_bytes()))
    path.write_bytes(b"".join(struct.pack(">II", offset, position + 5) for offset, position in entries))
    found = reopened(segment)
    assert [found.locate(BASE + at * 2) for at in range(60)] == [(position, positions[1]) for position in positions]


def test_a_damaged_header_is_told_and_what_lies_before_it_is_served(tmp_path: Path) -> None:
    """After a clean stop the file is not read as a whole, so the damage is found when somebody reads there."""
    segment = a_segment(tmp_path, index_interval_bytes=100_000)
    positions = fill(segment, 60)
    segment.seal()
    path = tmp_path / "00000000000000000500.log"
    data = bytearray(path.read_bytes())
    data[positions[30] + 8 : positions[30] + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    found = reopened(segment)
    assert found.locate(BASE + 59) == (positions[29], positions[1])
    for _ in range(2):
        with pytest.raises(BrokerError) as failure:
            found.locate(BASE + 60)
        assert failure.value.code == ErrorCode.CORRUPT_MESSAGE


def test_offsets_that_go_back_are_not_indexed(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, index_interval_bytes=50)
    positions = fill(segment, 10)
    segment.seal()
    path = tmp_path / "00000000000000000500.log"
    data = bytearray(path.read_bytes())
    data[positions[5] : positions[5] + 8] = (BASE).to_bytes(8, "big")
    path.write_bytes(data)
    (tmp_path / "00000000000000000500.index").write_bytes(b"\0" * 80)
    found = reopened(segment)
    assert found.locate(BASE + 9) == (positions[4], positions[1])
    assert [offset for offset, _ in found.offsets.entries()] == sorted(
        {offset for offset, _ in found.offsets.entries()}
    )
