"""The log of a partition: reads, transactions, deletion of records, and faults."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from log.making import (
    NOW_MS,
    TOPIC_ID,
    FaultyDisk,
    a_log,
    append,
    end_transaction,
    in_transaction,
    produced,
    settings,
)

from ottla.errors import BrokerError, ErrorCode
from ottla.log.replicate import replicate
from ottla.log.retention import retain
from ottla.log.transactions import TransactionIndex
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.disk import File


def code_of(failure: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return failure.value.code


# Reading.


def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for _ in range(5):
        append(log, produced(3))
    one = len(produced(3))
    for offset in range(15):
        found = log.read(offset, 1 << 20, offset_max=log.end)
        assert found is not None
        assert (found.position, found.size) == (offset // 3 * one, (5 - offset // 3) * one)


def test_a_read_at_the_end_is_empty_and_beyond_it_an_error(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.read(0, 100, offset_max=0) is None
    append(log, produced(3))
    assert log.read(3, 100, offset_max=3) is None
    for offset in (-1, 4):
        with pytest.raises(BrokerError) as failure:
            log.read(offset, 100, offset_max=3)
        assert code_of(failure) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_at_or_above_the_limit_is_handed_out(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for _ in range(4):
        append(log, produced(3))
    one = len(produced(3))
    sizes = [found.size if (found := log.read(3, 1 << 20, offset_max=limit)) else 0 for limit in (3, 5, 6, 9, 12, 99)]
    assert sizes == [0, 0, one, 2 * one, 3 * one, 3 * one], "half a batch cannot be shown"


def test_sizes_of_reads(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for _ in range(4):
        append(log, produced(3))
    one = len(produced(3))

    def size(size_max: int, *, min_one: bool = True, partial: bool = False) -> int:
        found = log.read(0, size_max, offset_max=log.end, min_one=min_one, partial=partial)
        return found.size if found else 0

    assert size(one * 2) == one * 2
    assert size(one * 2 + 5) == one * 2 + 5, "clients cope with half a batch at the end"
    assert size(1) == one, "but need a whole one to get on"
    assert size(0) == one
    assert size(one - 1, min_one=False) == 0
    assert size(one, min_one=False) == one
    assert size(one - 1, min_one=False, partial=True) == one - 1, "as the oldest fetch versions expect"
    assert size(0, min_one=False, partial=True) == 0


def test_a_read_ends_with_its_segment_and_goes_on_in_the_next(tmp_path: Path) -> None:
    one = len(produced(2))
    log = a_log(tmp_path, segment_bytes=one * 2)
    for _ in range(5):
        append(log, produced(2))
    sizes = [found.size for offset in (0, 3, 4, 8) if (found := log.read(offset, 1 << 20, offset_max=log.end))]
    assert sizes == [one * 2, one, one * 2, one]


def test_a_read_in_a_gap_gives_the_next_batch_there_is(tmp_path: Path) -> None:
    """Compaction may have emptied the rest of a segment, or all of it."""
    log = a_log(tmp_path, segment_bytes=100)
    for _ in range(4):
        append(log, produced(2))
    for segment in log.segments[1:3]:
        segment.disk.cut(segment.file.fd, 0)
        segment.size = 0
        segment.reindex()
    found = log.read(3, 1 << 20, offset_max=log.end)
    assert found is not None
    assert batch.header(found.read()).base_offset == 6


# Transactions.


def test_an_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced(3))
    append(log, in_transaction(0))
    append(log, produced(1))
    assert log.last_stable(log.end) == 3
    end_transaction(log, commit=True)
    assert log.last_stable(log.end) == log.end == 7
    assert log.list_aborted(0, log.end) == []


def test_the_last_stable_offset_is_not_before_the_start_of_the_log(tmp_path: Path) -> None:
    """Otherwise a read_committed reader would be sent to an offset without records, again and again."""
    log = a_log(tmp_path)
    append(log, produced())
    append(log, in_transaction(0))
    append(log, produced(3))
    log.delete_before(4)
    assert (log.last_stable(log.end), log.end) == (4, 6)
    end_transaction(log, commit=False)
    assert log.last_stable(log.end) == log.end == 7


def test_aborted_transactions_are_listed_over_segments(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=400)
    for producer_id in (7, 8):
        append(log, in_transaction(0, producer_id))
    for _ in range(4):
        append(log, produced(3))
    end_transaction(log, commit=False, producer_id=7)
    end_transaction(log, commit=False, producer_id=8)
    assert len(log.segments) > 1
    assert log.list_aborted(0, log.end) == [(7, 0), (8, 2)]
    assert log.list_aborted(2, log.end) == [(7, 0), (8, 2)], "they end later"
    assert log.list_aborted(0, 2) == [(7, 0)]
    assert log.list_aborted(log.end - 1, log.end) == [(8, 2)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_an_aborted_transaction_that_cannot_be_written_down_is_told_from_memory(tmp_path: Path, number: int) -> None:
    """The recovery point stays before it, so that recovery finds it again."""
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, in_transaction(0))
    opened = disk.open
    disk.open = failing(number)  # type: ignore[method-assign]
    end_transaction(log, commit=False)
    assert log.list_aborted(0, log.end) == [(7, 0)]
    assert log.directory.online
    with pytest.raises(OSError, match=os.strerror(number)):
        log.durability.plan_flush()
    disk.open = opened  # type: ignore[method-assign]
    log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == log.end
    assert (log.folder / "00000000000000000000.txnindex").stat().st_size == 34


def failing(number: int) -> Callable[..., File]:
    def fail(path: object, **_: object) -> File:
        raise OSError(number, os.strerror(number), path)

    return fail


def test_the_list_of_aborted_transactions_goes_with_the_bytes_that_are_read(tmp_path: Path) -> None:
    """5,000 entries for 1,000 bytes are too many. Kafka returns only those up to the end of the returned bytes."""
    log = a_log(tmp_path, segment_bytes=100_000, index_interval_bytes=1000)
    for at in range(400):
        append(log, in_transaction(at * 2))
        end_transaction(log, commit=False)
    assert len(log.segments) == 1
    for offset in (0, 300, log.end - 300):
        found = log.read(offset, 1000, offset_max=log.end)
        assert found is not None
        listed = log.list_aborted(offset, log.end, found)
        held = list(batch.entries(found.read()))
        needed = [(7, entry.base_offset) for entry in held if not batch.header(found.read(), entry.position).control]
        assert listed[: len(needed)] == needed
        assert len(listed) < len(needed) + 10


# Deleting.


def test_deleting_records_hides_them_at_once_and_their_segments_with_the_next_retention(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=200, file_delete_delay_ms=1000)
    for _ in range(6):
        append(log, produced(2))
    assert log.delete_before(5) == 5
    with pytest.raises(BrokerError):
        log.read(4, 100, offset_max=log.end)
    found = log.read(5, 1, offset_max=log.end)
    assert found is not None
    assert batch.header(found.read()).base_offset == 4, "the batch that holds it stays whole"
    before = len(log.segments)
    assert retain(log, NOW_MS) == 1
    assert len(log.segments) == before - 1
    deleted = {path.name for path in log.folder.iterdir() if path.name.endswith(".deleted")}
    assert deleted == {f"00000000000000000000{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}
    assert [segment.base for segment in log.doomed] == [0]
    assert log.delete_before(3) == 5, "never back"


def test_records_above_the_high_watermark_cannot_be_deleted(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced(4))
    log.high = 2
    with pytest.raises(BrokerError) as failure:
        log.delete_before(3)
    assert code_of(failure) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_before(2) == 2


# Faults.


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_broken_disk_takes_the_directory_offline(tmp_path: Path, number: int) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, produced())
    disk.broken = number
    for _ in range(2):
        with pytest.raises(BrokerError) as failure:
            append(log, produced())
        assert code_of(failure) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.directory.online
    disk.broken = None
    for use in (
        lambda: append(log, produced()),
        lambda: log.read(0, 100, offset_max=1),
        lambda: log.delete_before(1),
        lambda: replicate(log, produced(), now_ms=NOW_MS),
    ):
        with pytest.raises(BrokerError) as failure:
            use()
        assert code_of(failure) == ErrorCode.KAFKA_STORAGE_ERROR, "it stays offline until a restart"


def test_an_index_that_cannot_be_read_fails_that_log_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(tmp_path)
    append(log, produced())

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(TransactionIndex, "collect", fail)
    with pytest.raises(BrokerError) as failure:
        log.list_aborted(0, 1)
    assert code_of(failure) == ErrorCode.KAFKA_STORAGE_ERROR


# The rest.


def test_options_change_while_it_is_written_to(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced(2))
    log.reconfigure(settings(segment_bytes=len(produced(2)) * 2))
    append(log, produced(2))
    append(log, produced(2))
    assert [segment.base for segment in log.segments] == [0, 4]


def test_the_topic_id_is_written_when_the_cluster_tells_it(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.topic_id == TOPIC_ID
    log.set_topic_id(b"x" * 16)
    assert "eHh4" in (log.folder / "partition.metadata").read_text()


def test_a_new_leader_notes_its_epoch_before_it_writes(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced(3))
    log.assign_epoch(6)
    log.assign_epoch(4)
    assert log.epochs.entries == [(0, 0), (6, 3)]
    assert log.epoch_end(0) == (0, 3)
