"""Each kind of transaction violation is found under its name, and correct transactions give none."""

from __future__ import annotations

import pytest

from ottla.records import batch
from ottla.records.markers import EndMarker, encode_marker
from ottla.sim.atomic import SimTransaction, SimTransactions

ONE, TWO = ("t", 0), ("t", 1)


class Scene:
    """A transaction that has written a value to each of two partitions, at offset 0, and an offset."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.transactions = SimTransactions(self.wrong.append)
        self.transactions.note_takeover(1)
        self.transaction = self.begin(b"v")
        self.logs = {ONE: {0: b"v"}, TWO: {0: b"v"}}

    def begin(self, value: bytes) -> SimTransaction:
        made = self.transactions.begin(1)
        for partition in (ONE, TWO):
            self.transactions.note_write(made, partition, [value])
            self.transactions.note_acknowledged(made, partition, [value])
        made.offset = made.number + 1
        return made

    def commit(self, transaction: SimTransaction) -> None:
        self.transactions.note_commit_request(transaction)
        self.transactions.note_end(transaction, commit=True)

    def read(self, *partitions: tuple[str, int], value: bytes = b"v", offset: int = 0) -> None:
        for partition in partitions:
            self.transactions.note_read(partition, offset, value)

    @property
    def kinds(self) -> set[str]:
        return {one.split()[1].strip(":") for one in self.wrong}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_was_committed_and_read_is_fine(scene: Scene) -> None:
    scene.commit(scene.transaction)
    scene.read(ONE, TWO)
    scene.transactions.close(scene.logs, 1)
    assert scene.wrong == []


def test_what_was_aborted_and_not_read_is_fine(scene: Scene) -> None:
    scene.transactions.note_end(scene.transaction, commit=False)
    scene.transactions.close(scene.logs, -1)
    assert scene.wrong == []


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_may_go_either_way(scene: Scene, *, done: bool) -> None:
    scene.transactions.note_commit_request(scene.transaction)
    scene.transactions.note_end(scene.transaction, commit=False)  # its producer gave up
    scene.read(*((ONE, TWO) if done else ()))
    scene.transactions.close(scene.logs, 1 if done else -1)
    assert scene.wrong == []


def test_early(scene: Scene) -> None:
    scene.read(ONE)
    assert scene.kinds == {"early"}


def test_aborted(scene: Scene) -> None:
    scene.transactions.note_end(scene.transaction, commit=False)
    scene.read(ONE)
    assert scene.kinds == {"aborted"}


def test_half(scene: Scene) -> None:
    scene.transactions.note_commit_request(scene.transaction)
    scene.read(TWO)
    scene.transactions.close(scene.logs, 1)
    assert scene.kinds == {"half"}


def test_lost(scene: Scene) -> None:
    scene.commit(scene.transaction)
    scene.transactions.close(scene.logs, -1)
    assert scene.kinds == {"lost"}


def test_zombie(scene: Scene) -> None:
    scene.transactions.note_takeover(0)  # a response that arrived late
    scene.transactions.note_commit_request(scene.begin(b"w"))
    scene.transactions.note_takeover(2)
    scene.commit(scene.transaction)
    assert scene.kinds == {"zombie"}
    assert len(scene.wrong) == 1


def test_who_asked_before_another_took_over_may_be_answered_after(scene: Scene) -> None:
    scene.transactions.note_commit_request(scene.transaction)
    scene.transactions.note_takeover(2)
    scene.transactions.note_end(scene.transaction, commit=True)
    assert scene.wrong == []


@pytest.mark.parametrize("offset", [-1, 2])
def test_offsets_of_another_transaction(scene: Scene, offset: int) -> None:
    scene.commit(scene.transaction)
    aborted = scene.begin(b"w")
    scene.transactions.note_end(aborted, commit=False)
    scene.read(ONE, TWO)
    scene.transactions.close(scene.logs, offset)
    assert scene.kinds == {"offsets"}


def test_a_value_outside_transactions_that_was_not_read(scene: Scene) -> None:
    scene.commit(scene.transaction)
    scene.read(ONE, TWO)
    scene.transactions.close({ONE: {0: b"v", 1: b"plain"}, TWO: {0: b"v"}}, 1)
    assert len(scene.wrong) == 1


def written(*parts: bytes | bool) -> bytes:
    """A log of one transactional producer: values, and the ends of its transactions."""
    batches = []
    for at, part in enumerate(parts):
        if isinstance(part, bool):
            record = batch.Record(0, 0, *encode_marker(EndMarker(part, 1)))
        else:
            record = batch.Record(0, 0, None, part)
        batches.append(
            batch.build([record], base_offset=at, producer_id=1, transactional=True, control=isinstance(part, bool))
        )
    return b"".join(batches)


@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        ((b"v", True, b"w", False), set()),
        ((b"v", True, True, b"w", False), set()),  # a coordinator without a response sends it again
        ((b"v", b"w", False), {"marker"}),
        ((b"v", False, b"w", False), {"marker"}),
        ((b"v", True, b"w", True), {"marker"}),
    ],
)
def test_marker(scene: Scene, parts: tuple[bytes | bool, ...], kinds: set[str]) -> None:
    scene.commit(scene.transaction)
    scene.transactions.note_end(scene.begin(b"w"), commit=False)
    scene.transactions.look_for_ends(ONE, written(*parts))
    assert scene.kinds == kinds
