"""The transaction index: the same bytes as Apache Kafka's, search, and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.making import FaultyDisk

from ottla.disk import RealDisk
from ottla.log.transactions import Aborted, CorruptTransactionIndexError, TransactionIndex, decode, encode

if TYPE_CHECKING:
    from pathlib import Path

# Written by Apache Kafka 4.3.1; the log it belongs to is in test_producers.
FROM_KAFKA = bytes.fromhex(
    "0000000000000000000300000000000000010000000000000004000000000000000000000000000000000004000000000000000200000000"
    "000000060000000000000007"
)
ENTRIES = [Aborted(3, 1, 4, 0), Aborted(4, 2, 6, 7)]


def test_entries_are_kafkas_byte_for_byte() -> None:
    assert decode(FROM_KAFKA, 0) == ENTRIES
    assert encode(ENTRIES) == FROM_KAFKA


def test_the_file_appears_with_the_first_entry_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(str(path), RealDisk(), 0)
    assert not path.exists()
    for entry in ENTRIES:
        index.append(entry)
    assert path.read_bytes() == FROM_KAFKA
    assert TransactionIndex.open(str(path), RealDisk(), 0).entries == ENTRIES


def test_truncation_drops_the_markers_at_or_above_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(FROM_KAFKA)
    index = TransactionIndex.open(str(path), RealDisk(), 0)
    index.truncate(7)
    assert index.entries == ENTRIES
    index.truncate(6)
    assert index.entries == ENTRIES[:1]
    assert path.read_bytes() == FROM_KAFKA[:34]
    index.append(Aborted(9, 3, 8, 9))
    assert TransactionIndex.open(str(path), RealDisk(), 0).entries == [ENTRIES[0], Aborted(9, 3, 8, 9)]
    index.truncate(0)
    assert not path.exists()
    index.append(ENTRIES[0])
    assert path.read_bytes() == FROM_KAFKA[:34]


@pytest.mark.parametrize(
    ("data", "base"),
    [
        (FROM_KAFKA[:-1], 0),
        (FROM_KAFKA, 5),
        (b"\0\1" + FROM_KAFKA[2:], 0),
        (encode([ENTRIES[1], ENTRIES[0]]), 0),
        (encode([ENTRIES[0], ENTRIES[0]]), 0),
        (encode([Aborted(3, 1, 10, 0)]), 0),
        (encode([Aborted(3, 7, 4, 0)]), 0),
        (encode([Aborted(3, -1, 4, 0)]), 0),
        (encode([Aborted(-1, 1, 4, 0)]), 0),
        (encode([Aborted(3, 1, 4, 6)]), 0),
        (bytes(34), 0),
    ],
    ids=[
        "torn",
        "marker before the segment",
        "unknown version",
        "out of order",
        "twice",
        "marker behind the segment",
        "begins behind its marker",
        "begins nowhere",
        "nobody's",
        "stable beyond its marker",
        "zeros",
    ],
)
def test_a_file_that_cannot_be_true_is_refused(tmp_path: Path, data: bytes, base: int) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(data)
    with pytest.raises(CorruptTransactionIndexError):
        TransactionIndex.open(str(path), RealDisk(), base, 10)


def test_what_a_full_disk_refuses_is_known_and_written_later(tmp_path: Path) -> None:
    disk = FaultyDisk()
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(str(path), disk, 0)
    index.append(ENTRIES[0])
    disk.space_left = 20
    with pytest.raises(OSError, match="20 of 34 bytes"):
        index.append(ENTRIES[1])
    assert index.collect(0, 100)[0] == ENTRIES
    assert path.stat().st_size == 54
    disk.space_left = None
    index.write()
    assert path.read_bytes() == FROM_KAFKA


def test_a_marker_out_of_order_is_a_broken_promise(tmp_path: Path) -> None:
    index = TransactionIndex(str(tmp_path / "00000000000000000000.txnindex"), RealDisk(), 0)
    index.append(ENTRIES[1])
    with pytest.raises(AssertionError, match="ascend"):
        index.append(ENTRIES[0])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Aborted], int]:
    """Aborted transactions as a log would see them, with the last stable offset as it was after each marker."""
    opened: dict[int, int] = {}
    entries: list[Aborted] = []
    offset = 0
    for producer_id in draw(st.lists(st.integers(0, 4), max_size=30)):
        if producer_id in opened:
            first = opened.pop(producer_id)
            entries.append(Aborted(producer_id, first, offset, min(opened.values(), default=offset + 1)))
        else:
            opened[producer_id] = offset
        offset += 1
    return entries, offset


@given(histories(), st.data())
def test_collecting_finds_every_overlap_and_may_stop_when_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[list[Aborted], int], data: st.DataObject
) -> None:
    entries, end = history
    index = TransactionIndex(str(tmp_path_factory.mktemp("index") / "0.txnindex"), RealDisk(), 0)
    for entry in entries:
        index.append(entry)
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end))
    found, complete = index.collect(start, stop)
    assert found == [entry for entry in entries if entry.last >= start and entry.first < stop]
    assert complete or start == stop or all(entry.last_stable < stop for entry in entries)
