"""What a compacted replica may have removed and what not, and what a reader of its keys must find."""

from __future__ import annotations

import pytest

from ottla.records import batch
from ottla.records.markers import EndMarker, encode_marker
from ottla.sim.compacted import CompactedTruth
from ottla.sim.keyed import KeyLedger, Written

Pair = tuple[bytes, bytes | None]


class Replica:
    """A log of batches of one record each; compacted records leave a gap."""

    def __init__(self) -> None:
        self._batches: dict[int, bytes] = {}

    def put(self, offset: int, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        record = batch.Record(offset, 0, key, value)
        options = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        self._batches[offset] = batch.build([record], base_offset=offset, **options)

    def end(self, offset: int, producer_id: int, *, commits: bool) -> None:
        key, value = encode_marker(EndMarker(commits, 0))
        record = batch.Record(offset, 0, key, value)
        self._batches[offset] = batch.build(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
        )

    def drop(self, *offsets: int) -> None:
        for offset in offsets:
            del self._batches[offset]

    def found(self, end: int) -> list[tuple[batch.Entry, bytes]]:
        data = [self._batches[offset] for offset in sorted(self._batches) if offset < end]
        return [(next(iter(batch.entries(one))), one) for one in data]


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.replica = Replica()
        self.truth = CompactedTruth(lambda: self.now, delete_retention_s=10)

    def wrong(self, end: int) -> list[str]:
        return list(self.truth.verify(self.replica.found(end), 0, end))


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    for offset, (key, value) in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)]):
        scene.replica.put(offset, key, value)
    assert scene.wrong(4) == []
    return scene


def test_what_a_later_record_replaces_may_go(scene: Scene) -> None:
    scene.replica.drop(0, 1)
    assert scene.wrong(4) == []


@pytest.mark.parametrize("offset", [2, 3])
def test_the_last_record_of_a_key_may_not(scene: Scene, offset: int) -> None:
    scene.replica.drop(offset)
    assert len(scene.wrong(4)) == 1


def test_a_tombstone_goes_when_its_time_is_over(scene: Scene) -> None:
    scene.replica.drop(1, 3)
    scene.now = 9.9
    assert len(scene.wrong(4)) == 1
    scene.now = 10.1
    assert scene.wrong(4) == []


def test_another_record_at_an_offset_is_wrong(scene: Scene) -> None:
    scene.replica.put(2, b"a", b"3")
    assert len(scene.wrong(4)) == 1


def test_a_record_where_there_was_none_is_wrong(scene: Scene) -> None:
    scene.replica.end(4, 7, commits=True)
    assert scene.wrong(5) == []
    scene.replica.put(4, b"c", b"1")
    assert len(scene.wrong(5)) == 1


@pytest.mark.parametrize(("commits", "gone", "kept"), [(True, 2, 4), (False, 4, 2)])
def test_a_transaction_replaces_what_was_before_only_if_it_is_committed(
    scene: Scene, commits: bool, gone: int, kept: int
) -> None:
    scene.replica.put(4, b"a", b"3", producer_id=7)
    scene.replica.end(5, 7, commits=commits)
    assert scene.wrong(6) == []
    scene.replica.drop(gone)
    assert scene.wrong(6) == []
    scene.replica.drop(kept)
    assert len(scene.wrong(6)) == 1


def test_what_is_open_replaces_nothing(scene: Scene) -> None:
    scene.replica.put(4, b"a", b"3", producer_id=7)
    assert scene.wrong(5) == []
    scene.replica.drop(2)
    assert len(scene.wrong(5)) == 1


class Keys:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.ledger = KeyLedger(self.wrong.append)
        for offset, pair in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)]):
            self.ledger.note_sent(*pair)
            self.ledger.note_acknowledged(offset, *pair)

    def check(self, found: dict[bytes, Written], *, slow: bool = False) -> int:
        self.ledger.check(dict(self.ledger.last), found, slow=slow)
        return len(self.wrong)


A2, B1, GONE = Written(2, b"2"), Written(1, b"1"), Written(3, None)


@pytest.mark.parametrize("found", [{b"a": A2, b"b": GONE}, {b"a": A2}, {b"a": Written(5, b"3")}])
def test_a_reader_finds_the_last_of_each_key_or_something_later(found: dict[bytes, Written]) -> None:
    assert Keys().check(found) == 0


@pytest.mark.parametrize("found", [{b"b": GONE}, {b"a": Written(0, b"1")}, {b"a": A2, b"b": B1}])
def test_less_is_wrong(found: dict[bytes, Written]) -> None:
    assert Keys().check(found) == 1


def test_a_slow_reader_may_miss_a_tombstone() -> None:
    assert Keys().check({b"a": A2, b"b": B1}, slow=True) == 0


@pytest.mark.parametrize("pair", [(b"a", b"1"), (b"a", b"9")])
def test_another_record_at_an_offset_or_one_that_nobody_sent_is_wrong(pair: Pair) -> None:
    keys = Keys()
    keys.ledger.note_read(2, *pair)
    assert keys.wrong


def test_all_that_is_acknowledged_is_before_the_end() -> None:
    assert Keys().ledger.end == 4
    assert KeyLedger(pytest.fail).end == 0
