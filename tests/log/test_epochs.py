"""Leader epochs: where each began and ended, through appends, truncation and a file that is behind or broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log.making import FaultyDisk

from ottla.disk import RealDisk
from ottla.log.epochs import Epochs

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = [(1, 0), (3, 10), (7, 25)]


def held(path: Path, entries: list[tuple[int, int]] = ENTRIES) -> Epochs:
    return Epochs(str(path / "leader-epoch-checkpoint"), RealDisk(), entries)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 25)), (6, (3, 25)), (7, (7, 40)), (8, (-1, -1))],
)
def test_where_an_epoch_ended(tmp_path: Path, epoch: int, answer: tuple[int, int]) -> None:
    assert held(tmp_path).end_of(epoch, 40) == answer


def test_no_epoch_is_known_to_an_empty_log(tmp_path: Path) -> None:
    assert held(tmp_path, []).end_of(0, 0) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (9, 1), (10, 3), (24, 3), (25, 7), (99, 7)])
def test_which_epoch_wrote_an_offset(tmp_path: Path, offset: int, epoch: int) -> None:
    assert held(tmp_path).of(offset) == epoch


def test_before_the_first_entry_nothing_is_known(tmp_path: Path) -> None:
    assert held(tmp_path, [(3, 10)]).of(9) == -1


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    epochs = held(tmp_path, [])
    epochs.assign(0, 0)
    epochs.assign(4, 100)
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 100\n"
    reopened = Epochs.open(epochs.path, RealDisk())
    assert reopened is not None
    assert reopened.entries == [(0, 0), (4, 100)]


@pytest.mark.parametrize(
    ("new", "entries"),
    [
        ((7, 30), ENTRIES),
        ((8, 40), [*ENTRIES, (8, 40)]),
        ((8, 25), [(1, 0), (3, 10), (8, 25)]),
        ((8, 5), [(1, 0), (8, 5)]),
        ((2, 40), [(1, 0), (2, 40)]),
        ((7, 20), [(1, 0), (3, 10), (7, 20)]),
    ],
    ids=["again", "next", "nothing written by the last", "earlier offset", "earlier epoch", "moved back"],
)
def test_a_new_entry_drops_those_it_contradicts(
    tmp_path: Path, new: tuple[int, int], entries: list[tuple[int, int]]
) -> None:
    epochs = held(tmp_path)
    epochs.assign(*new)
    assert epochs.entries == entries
    assert epochs.latest == entries[-1][0]


@pytest.mark.parametrize(
    ("end", "entries"), [(26, ENTRIES), (25, ENTRIES[:2]), (11, ENTRIES[:2]), (10, ENTRIES[:1]), (0, [])]
)
def test_cutting_the_end(tmp_path: Path, end: int, entries: list[tuple[int, int]]) -> None:
    epochs = held(tmp_path)
    epochs.cut_end(end)
    assert epochs.entries == entries
    assert epochs.latest == (entries[-1][0] if entries else -1)


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, ENTRIES),
        (5, [(1, 5), (3, 10), (7, 25)]),
        (10, [(3, 10), (7, 25)]),
        (12, [(3, 12), (7, 25)]),
        (25, [(7, 25)]),
        (99, [(7, 99)]),
    ],
)
def test_cutting_the_start(tmp_path: Path, start: int, entries: list[tuple[int, int]]) -> None:
    epochs = held(tmp_path)
    epochs.cut_start(start)
    assert epochs.entries == entries


def test_what_batches_say_is_added_only_if_newer(tmp_path: Path) -> None:
    epochs = held(tmp_path)
    for epoch, offset in ((-1, 26), (3, 27), (7, 28), (9, 30)):
        epochs.recall(epoch, offset)
    assert epochs.entries == [*ENTRIES, (9, 30)]
    epochs.flush()
    assert (tmp_path / "leader-epoch-checkpoint").read_text().endswith("9 30\n")


def test_a_full_disk_does_not_stop_the_leader(tmp_path: Path) -> None:
    disk = FaultyDisk()
    epochs = Epochs(str(tmp_path / "epochs"), disk, [])
    disk.space_left = 0
    epochs.assign(5, 0)
    assert epochs.latest == 5
    assert not (tmp_path / "epochs").exists()
    disk.space_left = None
    epochs.flush()
    assert (tmp_path / "epochs").read_text() == "0\n1\n5 0\n"


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\n0 0\n", b"0\nx\n", b"0\n1\n0 0 0\n", b"0\n1\n-1 0\n", b"\xff\xfe"]
)
def test_a_file_that_cannot_be_understood_is_not_guessed_at(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "epochs").write_bytes(content)
    assert Epochs.open(str(tmp_path / "epochs"), RealDisk()) is None


def test_forgetting_everything(tmp_path: Path) -> None:
    epochs = held(tmp_path)
    epochs.clear()
    epochs.flush()
    assert (epochs.entries, epochs.latest) == ([], -1)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n0\n"
