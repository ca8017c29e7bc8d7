"""A scan of a log file sees every batch once, with any window size, and stops where no batch can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS

from ottla.disk import RealDisk
from ottla.log.spans import Span, walk
from ottla.records import batch
from ottla.records.compress import Codec
from ottla.records.legacy import build as build_legacy

if TYPE_CHECKING:
    from pathlib import Path

DISK = RealDisk()


def record(offset: int, size: int = 5) -> batch.Record:
    return batch.Record(offset, NOW_MS + offset, None, b"v" * size)


ENTRIES = [
    batch.build([record(0), record(1)], leader_epoch=3),
    build_legacy([record(2)], magic=0),
    build_legacy([record(3)], magic=1),
    build_legacy([batch.Record(4, -1, None, None)], magic=0),
    build_legacy([record(5), record(6)], magic=1, codec=Codec.GZIP),
    batch.build([record(9, 3000)], leader_epoch=4),
    batch.build([record(10)], leader_epoch=4),
]
FACTS = [(0, 1, NOW_MS + 1, 3, 2), (2, 2, -1, -1, 0), (3, 3, NOW_MS + 3, -1, 1), (4, 4, -1, -1, 0),
         (6, 6, NOW_MS + 6, -1, 1), (9, 9, NOW_MS + 9, 4, 2), (10, 10, NOW_MS + 10, 4, 2)]  # fmt: skip


def expected() -> list[Span]:
    found, position = [], 0
    for data, facts in zip(ENTRIES, FACTS, strict=True):
        found.append(Span(position, len(data), *facts))
        position += len(data)
    return found


@pytest.mark.parametrize("window", [61, 64, 100, 1000, 1 << 16])
@pytest.mark.parametrize("whole", [False, True])
def test_every_batch_once(tmp_path: Path, window: int, whole: bool) -> None:
    (tmp_path / "log").write_bytes(b"".join(ENTRIES))
    file = DISK.open(tmp_path / "log")
    size = sum(map(len, ENTRIES))
    steps = list(walk(DISK, file, 0, size, whole=whole, window=window))
    assert [step.span for step in steps] == expected()
    for step, data in zip(steps, ENTRIES, strict=True):
        shown = step.buffer[step.at : step.at + len(data)]
        assert data.startswith(bytes(shown))
        assert len(shown) >= (len(data) if whole else 61 if step.span.magic == 2 else 26)
    middle = expected()[3].position
    assert [step.span for step in walk(DISK, file, middle, size)] == expected()[3:]


@pytest.mark.parametrize("whole", [False, True])
def test_a_torn_tail_ends_the_walk(tmp_path: Path, whole: bool) -> None:
    data = b"".join(ENTRIES)
    (tmp_path / "log").write_bytes(data)
    file = DISK.open(tmp_path / "log")
    for end in range(len(data) + 1):
        steps = list(walk(DISK, file, 0, end, whole=whole, window=1000))
        assert [step.span for step in steps] == [span for span in expected() if span.position + span.size <= end]


IMPOSSIBLE = {
    "too short": (8, b"\0\0\0\5"),
    "negative length": (8, b"\xff\xff\xff\xff"),
    "endless": (8, b"\x7f\xff\xff\xff"),
    "magic 3": (16, b"\3"),
    "negative magic": (16, b"\xff"),
    "negative offset": (0, b"\xff"),
    "negative delta": (23, b"\xff"),
}


@pytest.mark.parametrize(("at", "value"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_cannot_be_a_batch_ends_the_walk(tmp_path: Path, at: int, value: bytes) -> None:
    broken = bytearray(ENTRIES[0])
    broken[at : at + len(value)] = value
    (tmp_path / "log").write_bytes(ENTRIES[0] + broken + ENTRIES[6])
    file = DISK.open(tmp_path / "log")
    steps = list(walk(DISK, file, 0, len(ENTRIES[0]) * 2 + len(ENTRIES[6])))
    assert [step.span.position for step in steps] == [0]
