"""Producer state: Apache Kafka's answers to sequences and epochs, its snapshot bytes, its transactions."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.log.producers import (
    Active,
    Completed,
    Duplicate,
    EndMarker,
    LastBatch,
    Producers,
    read_marker,
)
from ottla.log.recovery import marker_of
from ottla.log.snapshots import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.records import batch
from ottla.records.batch import Header

DAY_MS = 86_400_000
LAST_SEQUENCE = 2**31 - 1

# Written by Apache Kafka 4.3.1 at a clean stop. Three transactional producers on one partition: the first committed,
# the second aborted, the third was fenced while its transaction was open (so its marker has the next epoch).
TRANSACTIONS_LOG = bytes.fromhex(
    "000000000000000000000044000000000200364cd5001000000000000001a1debe8cf4000001a1debe8cf4000000000000000200000000"
    "00000000000124000000046b31143131313131313131313100000000000000000100000044000000000252cc1403001000000000000001"
    "a1debe8d33000001a1debe8d3300000000000000030000000000000000000124000000046b321432323232323232323232000000000000"
    "00000200000044000000000229be0f84001000000000000001a1debe8d3c000001a1debe8d3c0000000000000004000000000000000000"
    "0124000000046b3314333333333333333333330000000000000000030000003e00000000022e4cb1b9001000000000000001a1debe8d6a"
    "000001a1debe8d6a00000000000000030000000000010000000118000000046b32086d6f72650000000000000000040000004200000000"
    "02aa8fa0a5003000000000000001a1debe8d8a000001a1debe8d8a00000000000000030000ffffffff000000012000000008000000000c"
    "000000000000000000000000000005000000420000000002e4a36aa7003000000000000001a1debe8d8f000001a1debe8d8f0000000000"
    "0000020000ffffffff000000012000000008000000010c000000000000000000000000000006000000420000000002a156261600300000"
    "0000000001a1debf799a000001a1debf799a00000000000000040001ffffffff000000012000000008000000000c00000000000000"
)
TRANSACTIONS_SNAPSHOT = bytes.fromhex(
    "000114ae01c6000000030000000000000002000000000000000000000000000000000000000001a1debe8d8f00000000ffffffffffffff"
    "ff0000000000000003000000000001000000000000000300000000000001a1debe8d8a00000000ffffffffffffffff0000000000000004"
    "0001ffffffffffffffffffffffff00000000000001a1debf799a00000000ffffffffffffffff"
)
# Two idempotent producers: 50 records in one batch, then three batches of one.
PLAIN_SNAPSHOT = bytes.fromhex(
    "000102a0872b000000020000000000000000000000000031000000000000003100000031000001a1debe841affffffffffffffffffffff"
    "ff0000000000000001000000000002000000000000003400000000000001a1debe8a5cffffffffffffffffffffffff"
)


def a_header(
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    *,
    base: int = 0,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = 1000,
) -> Header:
    attributes = (batch.TRANSACTIONAL if transactional else 0) | (batch.CONTROL if control else 0)
    return Header(base, 49, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count)


class World:
    """A partition's producer state behind a log that only counts offsets."""

    def __init__(self, folder: Path, end: int = 0) -> None:
        self.producers = Producers(str(folder), RealDisk())
        self.end = end

    def send(self, producer_id: int = 7, epoch: int = 0, sequence: int = 0, count: int = 1, **rest: bool | int) -> int:
        header = a_header(producer_id, epoch, sequence, count, base=self.end, **rest)  # type: ignore[arg-type]
        duplicate = self.producers.check(header)
        if duplicate is not None:
            return duplicate.base
        base, self.end = self.end, self.end + count
        self.producers.update(header, base, self.end - 1, header.max_timestamp)
        return base

    def mark(self, producer_id: int, epoch: int = 0, *, commit: bool, coordinator_epoch: int = 0) -> Completed | None:
        header = a_header(producer_id, epoch, -1, base=self.end, transactional=True, control=True)
        self.end += 1
        return self.producers.update(header, self.end - 1, self.end - 1, 2000, EndMarker(commit, coordinator_epoch))


def code(world: World, **batch_fields: bool | int) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        world.send(**batch_fields)
    return caught.value.code


# Sequences and epochs.


def test_a_retry_within_the_last_five_batches_gets_the_offsets_of_the_first_try(tmp_path: Path) -> None:
    world = World(tmp_path, end=100)
    bases = [world.send(sequence=2 * n, count=2) for n in range(6)]
    assert bases == [100, 102, 104, 106, 108, 110]
    for n in range(1, 6):
        assert world.producers.check(a_header(sequence=2 * n, count=2)) == Duplicate(100 + 2 * n, 101 + 2 * n, 1000)
    assert world.end == 112
    assert code(world, sequence=0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth last is forgotten"


def test_a_retry_must_have_the_same_last_sequence_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(sequence=0, count=3)
    assert code(world, sequence=0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(sequence=0)
    assert code(world, sequence=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.send(sequence=1) == 1


def test_an_unknown_producer_may_start_at_any_sequence(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.send(sequence=41) == 0
    assert world.send(sequence=42) == 1


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(epoch=3, sequence=0)
    assert code(world, epoch=2, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(world, epoch=4, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.send(epoch=4, sequence=0) == 1
    assert code(world, epoch=3, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_forgets_the_batches_of_the_old_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(epoch=0, sequence=0, count=2)
    world.send(epoch=1, sequence=0, count=1)
    assert code(world, epoch=1, sequence=0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_sequence_wraps_to_zero_between_batches_and_within_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(1, sequence=LAST_SEQUENCE)
    assert world.send(1, sequence=0) == 1
    world.send(2, sequence=LAST_SEQUENCE - 1, count=4)
    assert world.producers.check(a_header(2, sequence=LAST_SEQUENCE - 1, count=4)) == Duplicate(2, 5, 1000)
    assert code(world, producer_id=2, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.send(2, sequence=2) == 6


def test_a_coordinator_writes_without_sequences_but_not_without_its_epoch(tmp_path: Path) -> None:
    world = World(tmp_path)
    header = a_header(epoch=2, sequence=-1, transactional=True)
    for base in range(3):
        assert world.producers.check(header, client=False) is None
        world.producers.update(header, base, base, 1000)
    with pytest.raises(BrokerError) as caught:
        world.producers.check(a_header(epoch=1, sequence=-1, transactional=True), client=False)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


class Batch(NamedTuple):
    records: int
    retry: bool


@given(st.lists(st.builds(Batch, st.integers(1, 5), st.booleans()), max_size=40), st.integers(0, LAST_SEQUENCE))
def test_every_batch_lands_once_whatever_is_retried(batches: list[Batch], first: int) -> None:
    world = World(Path("/nonexistent"))
    sequence, expected = first, 0
    for count, retry in batches:
        for _ in range(1 + retry):
            assert world.send(sequence=sequence, count=count) == expected
        sequence, expected = (sequence + count) % 2**31, expected + count
    assert world.end == expected


# Transactions.


def test_the_last_stable_offset_waits_for_the_decision_and_for_its_replication(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(1)
    world.send(2, transactional=True)
    world.send(3, transactional=True)
    assert world.producers.first_undecided == 1
    assert world.producers.last_stable(3) == 1
    assert world.mark(2, commit=False) == Completed(2, 1, 3, last_stable=2, aborted=True)
    assert world.producers.last_stable(3) == 1, "the marker at 3 is not below the high watermark yet"
    assert world.producers.last_stable(4) == 2
    assert world.mark(3, commit=True) == Completed(3, 2, 4, last_stable=5, aborted=False)
    assert world.producers.last_stable(5) == 5
    assert world.producers.first_undecided is None


def test_a_marker_without_data_completes_nothing_but_raises_the_epoch(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.mark(9, epoch=5, commit=False, coordinator_epoch=3) is None
    assert world.producers.active() == [Active(9, 5, -1, 2000, 3, -1)]
    assert code(world, producer_id=9, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.producers.last_batches() == {9: LastBatch(None, 5)}


def test_a_batch_outside_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(sequence=0, transactional=True)
    assert code(world, sequence=1) == ErrorCode.INVALID_TXN_STATE
    assert world.send(sequence=1, transactional=True) == 1
    world.mark(7, commit=True)
    assert world.send(sequence=2) == 3


def test_a_retry_is_recognised_after_its_transaction_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(sequence=0, transactional=True)
    world.mark(7, commit=True)
    assert world.send(sequence=0, transactional=True) == 0


def test_a_marker_is_checked_against_epochs(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(epoch=2, transactional=True)
    world.producers.check_marker(7, 2, 0)
    world.producers.check_marker(8, 0, 0)
    for epoch, version in ((1, 0), (1, 2), (2, 2)):
        with pytest.raises(BrokerError) as caught:
            world.producers.check_marker(7, epoch, 0, version=version)
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    world.mark(7, epoch=3, commit=True, coordinator_epoch=5)
    world.producers.check_marker(7, 3, 5, version=2)
    with pytest.raises(BrokerError) as caught:
        world.producers.check_marker(7, 3, 4)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_transaction_that_ended_before_the_log_start_holds_nothing_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(1, transactional=True)
    world.mark(1, commit=True)
    world.producers.advance_start(2)
    assert world.producers.last_stable(1) == 1


def test_markers_are_read_from_control_records() -> None:
    assert read_marker(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 12)) == EndMarker(True, 12)
    assert read_marker(struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 12)) == EndMarker(False, 12)
    assert read_marker(struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 12)) is None
    assert read_marker(None, b"") is None
    assert read_marker(b"\0", b"\0") is None


# Snapshots.


def replayed(folder: Path, log: bytes) -> tuple[Producers, list[Completed]]:
    producers, completed = Producers(str(folder), RealDisk()), []
    for entry in batch.entries(log):
        header = batch.header(log, entry.position)
        done = producers.replay(header, marker_of(log[entry.position :]) if header.control else None)
        if done is not None:
            completed.append(done)
    return producers, completed


def test_replaying_what_kafka_wrote_gives_the_snapshot_kafka_wrote(tmp_path: Path) -> None:
    producers, completed = replayed(tmp_path, TRANSACTIONS_LOG)
    assert completed == [
        Completed(3, 1, 4, last_stable=0, aborted=True),
        Completed(2, 0, 5, last_stable=2, aborted=False),
        Completed(4, 2, 6, last_stable=7, aborted=True),
    ]
    path = producers.snapshot(7, sync=True)
    assert path == str(tmp_path / "00000000000000000007.snapshot")
    assert Path(path).read_bytes() == TRANSACTIONS_SNAPSHOT


@pytest.mark.parametrize("snapshot", [PLAIN_SNAPSHOT, TRANSACTIONS_SNAPSHOT])
def test_snapshots_of_kafka_come_back_byte_for_byte(snapshot: bytes) -> None:
    assert encode_snapshot(decode_snapshot(snapshot)) == snapshot


def test_a_loaded_snapshot_continues_sequences_and_knows_the_last_batch(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000053.snapshot").write_bytes(PLAIN_SNAPSHOT)
    producers = Producers(str(tmp_path), RealDisk(), snapshots=[53])
    assert producers.load(0, 53, 1_794_738_400_000) == 53
    assert producers.check(a_header(0, sequence=50)) is None
    assert producers.check(a_header(0, sequence=0, count=50)) == Duplicate(0, 49, 1_794_738_390_042)
    assert producers.check(a_header(1, sequence=2)) == Duplicate(52, 52, 1_794_738_391_644)
    with pytest.raises(BrokerError):
        producers.check(a_header(1, sequence=1))


@given(st.data())
def test_damage_to_a_snapshot_is_noticed(data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(PLAIN_SNAPSHOT) - 1))
    damaged = bytearray(PLAIN_SNAPSHOT)
    damaged[position] ^= data.draw(st.integers(1, 255))
    for broken in (bytes(damaged), PLAIN_SNAPSHOT[:position]):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(broken)


def test_the_newest_valid_snapshot_is_taken_and_broken_or_outlying_ones_are_removed(tmp_path: Path) -> None:
    world = World(tmp_path)
    for sequence in range(4):
        world.send(sequence=sequence)
        world.producers.snapshot(world.end, sync=False)
    assert world.producers.snapshot(4, sync=False) is None, "nothing has changed since"
    (tmp_path / "00000000000000000003.snapshot").write_bytes(b"\0\1torn")
    producers = Producers(str(tmp_path), RealDisk(), snapshots=[4, 3, 2, 1])
    assert producers.load(1, 3, 2000) == 2
    assert producers.active() == [Active(7, 0, 1, 1000, -1, -1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000002.snapshot"]


def test_an_open_transaction_survives_in_a_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(1)
    world.send(7, transactional=True)
    world.producers.snapshot(2, sync=False)
    producers = Producers(str(tmp_path), RealDisk(), snapshots=[2])
    assert producers.load(0, 9, 100 * DAY_MS) == 2
    assert producers.first_undecided == 1
    assert [row.producer_id for row in producers.active()] == [7], "the idle producer has expired, the other may not"


def test_without_a_snapshot_replay_begins_at_the_log_start(tmp_path: Path) -> None:
    assert Producers(str(tmp_path), RealDisk()).load(12, 40, 0) == 12


def test_stray_snapshots_go_except_the_one_of_a_clean_stop(tmp_path: Path) -> None:
    for offset in (0, 5, 10, 17, 20, 31):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(PLAIN_SNAPSHOT)
    producers = Producers(str(tmp_path), RealDisk(), snapshots=[0, 5, 10, 17, 20, 31])
    producers.remove_stray([0, 10, 20])
    assert producers.snapshots == [0, 10, 20, 31]
    producers = Producers(str(tmp_path), RealDisk(), snapshots=producers.snapshots)
    producers.remove_stray([0, 20, 40])
    assert producers.snapshots == [0, 20]
    assert len(list(tmp_path.iterdir())) == 2


def test_reset_forgets_state_and_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send()
    world.producers.snapshot(1, sync=False)
    world.producers.reset()
    assert not world.producers.active()
    assert not list(tmp_path.iterdir())


def test_idle_producers_expire(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(1, timestamp=1000)
    world.send(2, timestamp=2000)
    assert world.producers.expire(1000 + DAY_MS - 1) == 0
    assert world.producers.expire(1000 + DAY_MS) == 1
    assert len(world.producers) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "commit", "abort"])), max_size=30))
def test_replay_of_the_log_gives_the_state_that_was_live(steps: list[tuple[int, str]]) -> None:
    live = World(Path("/nonexistent"))
    written: list[tuple[Header, EndMarker | None]] = []
    sequences = {1: 0, 2: 0, 3: 0}
    for producer_id, step in steps:
        if step == "data":
            header = a_header(producer_id, 0, sequences[producer_id], base=live.end, transactional=True)
            written.append((header, None))
            live.send(producer_id, sequence=sequences[producer_id], transactional=True)
            sequences[producer_id] += 1
        else:
            header = a_header(producer_id, 0, -1, base=live.end, transactional=True, control=True, timestamp=2000)
            written.append((header, EndMarker(step == "commit", 0)))
            live.mark(producer_id, commit=step == "commit")
    again = Producers("/nonexistent", RealDisk())
    for header, marker in written:
        again.replay(header, marker)
    assert again.active() == live.producers.active()
    assert again.last_stable(live.end) == live.producers.last_stable(live.end)


def test_a_snapshot_that_cannot_be_read_is_passed_over_and_kept(tmp_path: Path) -> None:
    class Unreadable(RealDisk):
        def read(self, path: str | os.PathLike[str]) -> bytes:
            if os.fspath(path).endswith("53.snapshot"):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().read(path)

    for offset in (20, 53):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(PLAIN_SNAPSHOT)
    producers = Producers(str(tmp_path), Unreadable(), snapshots=[20, 53])
    assert producers.load(0, 60, 0) == 20
    assert (tmp_path / f"{53:020d}.snapshot").exists()
