"""The ways to append to a log as the leader: offsets, refusals, retries, and what the broker itself appends."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from log.making import (
    NOW_MS,
    FaultyDisk,
    a_log,
    a_store,
    append,
    everything,
    from_producer,
    produced,
)

from ottla.errors import BrokerError, ErrorCode
from ottla.log.append import Appended, append_own
from ottla.records import batch
from ottla.records.markers import EndMarker, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log

RECORDS = [(b"key", b"value"), (b"gone", None)]
EPOCH = 3
CONFIGS = [
    {},
    {"compression_type": "uncompressed"},
    {"compression_type": "gzip"},
    {"message_timestamp_type": "LogAppendTime"},
    {"cleanup_policy": "compact"},
]


def test_offsets_are_dense_and_the_epoch_is_stamped(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert append(log, produced(3), epoch=4) == Appended(0, 2, -1, 0, False)
    assert append(log, produced(2), epoch=5) == Appended(3, 4, -1, 0, False)
    headers = [batch.header(everything(log), entry.position) for entry in batch.entries(everything(log))]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (3, 5)]
    assert all(
        batch.crc_ok(everything(log), at, header) for at, header in zip([0, headers[0].size], headers, strict=True)
    )
    assert log.epochs.entries == [(4, 0), (5, 3)]
    assert log.epoch_end(4) == (4, 3)
    assert log.latest_epoch == 5


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced())
    broken = bytearray(produced())
    broken[-1] ^= 1
    with pytest.raises(BrokerError) as failure:
        append(log, memoryview(broken), epoch=3)
    assert failure.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (log.end, log.size, log.epochs.latest) == (1, len(produced()), 0)


def test_a_new_segment_begins_when_the_batch_would_not_fit(tmp_path: Path) -> None:
    one = len(produced(2))
    log = a_log(tmp_path, segment_bytes=one * 3)
    for _ in range(7):
        append(log, produced(2))
    assert [(segment.base, segment.size) for segment in log.segments] == [(0, one * 3), (6, one * 3), (12, one)]
    assert log.size == one * 7
    assert (log.folder / "00000000000000000006.snapshot").exists()


def test_old_clients_may_send_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert append(log, memoryview(b""), produce_version=0).base == -1
    assert log.end == 0


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_a_topic_in_an_old_format_is_stored_message_by_message(tmp_path: Path, version: str) -> None:
    log = a_log(tmp_path, message_format_version=version, index_interval_bytes=50)
    for _ in range(5):
        append(log, produced(4))
    assert log.end == 20
    assert [entry.last_offset for entry in batch.entries(everything(log))] == list(range(20))
    assert log.epochs.entries == [(0, 0)], "only since it was created: such messages carry no epoch"
    found = log.read(13, 1 << 20, offset_max=20)
    assert found is not None
    assert next(batch.entries(found.read())).last_offset == 13


def restarted(log: Log, folder: Path) -> Log:
    """The log after a clean stop: the snapshot has one batch of each producer."""
    log.close()
    (folder / ".kafka_cleanshutdown").touch()
    return a_store(folder).logs["orders", 0]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 300])
def test_a_retry_after_a_restart_is_answered_with_the_offsets_of_the_first_try(
    tmp_path: Path, segment_bytes: int
) -> None:
    log = a_log(tmp_path, segment_bytes=segment_bytes)
    bases = []
    for sequence in range(6):
        bases.append(append(log, from_producer(sequence)).base)
        append(log, from_producer(sequence, producer_id=8))
        append(log, from_producer(0, producer_id=7 + 100 * (sequence + 1)))
    log = restarted(log, tmp_path)
    for sequence in (3, 1, 2, 4, 5):
        assert append(log, from_producer(sequence))[0::4] == (bases[sequence], True)
    with pytest.raises(BrokerError) as failure:
        append(log, from_producer(0))
    assert failure.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "only the last five are known"
    assert not append(log, from_producer(6)).duplicate


def test_batches_that_a_snapshot_left_out_are_looked_up_once_and_not_far_back(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for sequence in range(400):
        append(log, from_producer(sequence))
        append(log, produced(1))
    log = restarted(log, tmp_path)
    with (
        mock.patch("ottla.log.recall.REACH", 20_000),
        mock.patch("ottla.log.recall.batch.header", wraps=batch.header) as header,
    ):
        for _ in range(3):
            with pytest.raises(BrokerError):
                append(log, from_producer(0))
    assert 20 < header.call_count < 300
    assert append(log, from_producer(396)).duplicate


def test_batches_of_an_epoch_before_are_not_looked_up(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, from_producer(0))
    append(log, from_producer(1))
    append(log, from_producer(0, epoch=1))
    log = restarted(log, tmp_path)
    with pytest.raises(BrokerError) as failure:
        append(log, from_producer(1, epoch=0))
    assert failure.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(BrokerError) as failure:
        append(log, from_producer(2, epoch=1))
    assert failure.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, from_producer(0, epoch=1)).duplicate


def test_a_retry_is_answered_with_the_offsets_of_the_first_try(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    first = append(log, from_producer(0, count=3))
    append(log, from_producer(3))
    assert append(log, from_producer(0, count=3)) == first._replace(duplicate=True, append_time=NOW_MS)
    assert log.end == 4
    with pytest.raises(BrokerError) as failure:
        append(log, from_producer(9))
    assert failure.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end == 4


def test_a_full_disk_refuses_appends_serves_reads_and_recovers_by_itself(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, produced(3))
    whole = everything(log)
    for space in (0, 1, 30, len(produced(3)) - 1):
        disk.space_left = space
        with pytest.raises(BrokerError) as failure:
            append(log, produced(3))
        assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert everything(log) == whole
        assert (log.folder / "00000000000000000000.log").read_bytes() == whole
    assert log.directory.online
    disk.space_left = None
    assert append(log, produced(3)).base == 3


def test_a_full_disk_at_a_roll_leaves_the_old_segment_in_use(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk, segment_bytes=200)
    append(log, produced(2))
    for space in range(4):
        disk.space_left = space
        with pytest.raises(BrokerError):
            append(log, produced(5))
        assert log.end == 2
    disk.space_left = None
    assert append(log, produced(5)).base == 2
    assert [segment.base for segment in log.segments] == [0, 2]


# What the broker itself appends: the log ends up as if the batch had been validated like any other.


def append_validated(log: Log, records: list[tuple[bytes, bytes | None]], producer: tuple[int, int] | None) -> None:
    """The long way: build, then let the log check and stamp it."""
    producer_id, producer_epoch = producer or (-1, -1)
    data = batch.build(
        [batch.Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer is not None,
    )
    append(log, memoryview(data), epoch=EPOCH, produce_version=11, client=False)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("producer", [None, (7, 1)])
def test_the_log_is_the_same_as_after_validation(
    tmp_path: Path, config: dict[str, object], producer: tuple[int, int] | None
) -> None:
    short, long = a_log(tmp_path / "short", **config), a_log(tmp_path / "long", **config)
    for log in (short, long):
        append(log, produced(2), epoch=EPOCH)
    for _ in range(2):
        assert append_own(short, RECORDS, EPOCH, NOW_MS, producer)[0] == long.end
        append_validated(long, RECORDS, producer)
    assert everything(short) == everything(long)
    assert (short.end, short.size, short.active.max_timestamp) == (long.end, long.size, long.active.max_timestamp)
    assert short.producers.last_stable(99) == long.producers.last_stable(99) == (99 if producer is None else 2)


def test_a_marker_ends_the_transaction(tmp_path: Path) -> None:
    log, end = a_log(tmp_path), EndMarker(False, 5)
    append_own(log, RECORDS, EPOCH, NOW_MS, (7, 1))
    assert log.producers.last_stable(log.end) == 0
    base, size = append_own(log, [encode_marker(end)], EPOCH, NOW_MS, (7, 1), end)
    assert base == 2
    assert log.producers.last_stable(log.end) == log.end == 3
    assert [(one.first, one.last) for one in log.active.transactions.entries] == [(0, 2)]
    assert batch.header(everything(log), log.size - size).control


def test_a_fenced_producer_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append_own(log, RECORDS, EPOCH, NOW_MS, (7, 2))
    before = log.end, log.size
    late = EndMarker(True, 0)
    for records, marker in ((RECORDS, None), ([encode_marker(late)], late)):
        with pytest.raises(BrokerError) as failure:
            append_own(log, records, EPOCH, NOW_MS, (7, 1), marker)
        assert failure.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.end, log.size) == before


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path, max_message_bytes=100)
    with pytest.raises(BrokerError) as failure:
        append_own(log, [(b"key", bytes(100))], EPOCH, NOW_MS)
    assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (log.end, log.size) == (0, 0)
    assert append_own(log, [(b"key", b"")], EPOCH, NOW_MS)[0] == 0


def test_a_log_with_a_fault_takes_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.fault = "gone"
    with pytest.raises(BrokerError) as failure:
        append_own(log, RECORDS, EPOCH, NOW_MS)
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
