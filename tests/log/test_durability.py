"""What is due to be forced to disk, what counts when it is, and what happens when that fails."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, FaultyDisk, StillClock, a_log, append, everything, produced

from ottla.errors import BrokerError, ErrorCode
from ottla.log.flush import Flusher
from ottla.log.truncation import truncate
from ottla.sim.disk import Device, SimDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_flush_messages_1_is_on_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk, flush_messages=1)
    append(log, produced(2))
    assert (log.durability.owed, log.durability.recovery_point) == (2, 0)
    asyncio.run(Flusher(StillClock()).wait_for(log, log.durability.owed))
    assert log.durability.recovery_point == 2
    assert disk.synced[0] == log.active.file.fd


def test_the_leader_epochs_are_on_disk_before_the_recovery_point_passes_them(tmp_path: Path) -> None:
    """Recovery does not look for them below it: followers of this log would cut off what they wrote."""
    device = Device(Random(1))
    log = a_log(tmp_path, disk=SimDisk(device), segment_bytes=100)
    for epoch in range(4):
        append(log, produced(2), epoch=epoch)
        log.durability.flush(NOW_MS)
        stored = device.synced[log.epochs.path]
        assert stored.decode().split("\n")[1:-1] == [str(epoch + 1), *(f"{at} {2 * at}" for at in range(epoch + 1))]


def test_flush_messages_counts_records(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk, flush_messages=5)
    points = []
    for _ in range(5):
        append(log, produced(2))
        points.append(log.durability.owed)
        if log.durability.owes_flush:
            log.durability.flush(NOW_MS)
    assert points == [0, 0, 6, 6, 6]


def test_after_a_roll_closed_segments_are_to_be_flushed_with_their_indexes(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=200)
    append(log, produced(2))
    assert log.durability.flush_due(NOW_MS) is None, "nothing asks for the active segment"
    append(log, produced(5))
    flush = log.durability.flush_due(NOW_MS)
    assert flush is not None
    assert flush.end == 2
    assert [file.path for file in flush.files] == [log.segments[0].stem + ".log"]
    indexes = {log.segments[0].stem + suffix for suffix in (".index", ".timeindex", ".txnindex")}
    assert set(flush.indexes) == {*indexes, log.epochs.path}
    log.durability.finish_flush(flush, NOW_MS)
    assert log.durability.recovery_point == 2
    assert log.durability.flush_due(NOW_MS) is None


def test_the_indexes_of_a_segment_that_was_on_disk_before_it_was_closed_are_flushed_too(tmp_path: Path) -> None:
    """Its last entries were written when it was closed, and recovery will not read it again."""
    log = a_log(tmp_path)
    append(log, produced(2))
    log.durability.flush(NOW_MS)
    log.roll(NOW_MS)
    append(log, produced(2))
    flush = log.durability.plan_flush()
    assert flush is not None
    assert f"{log.segments[0].stem}.txnindex" in flush.indexes
    log.durability.flush(NOW_MS)
    append(log, produced(2))
    flush = log.durability.plan_flush()
    assert flush is not None
    assert not flush.indexes, "once is enough"


def test_flush_ms_asks_for_everything_when_it_is_over(tmp_path: Path) -> None:
    log = a_log(tmp_path, flush_ms=1000)
    append(log, produced(2))
    assert log.durability.flush_due(NOW_MS + 999) is None
    flush = log.durability.flush_due(NOW_MS + 1000)
    assert flush is not None
    assert flush.end == 2


def test_the_names_of_new_files_are_flushed_once(tmp_path: Path) -> None:
    log = a_log(tmp_path, flush_messages=1000)
    append(log, produced())
    first = log.durability.plan_flush()
    assert first is not None
    assert first.folders == (str(log.folder), str(tmp_path))
    log.durability.flush(NOW_MS)
    append(log, produced())
    second = log.durability.plan_flush()
    assert second is not None
    assert second.folders == ()


def test_a_flush_that_fails_takes_the_directory_offline(tmp_path: Path) -> None:
    """After a failed fsync the content of the disk is unknown, and a second fsync may wrongly succeed."""
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, produced())
    disk.broken = errno.EIO
    with pytest.raises(BrokerError) as failure:
        log.durability.flush(NOW_MS)
    assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.directory.online


def test_a_deleted_log_does_not_come_back_when_its_last_flush_fails(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced())
    directory = log.directory
    log.fault = "it was deleted"
    directory.unforced.clear()
    log.durability.fail_sync(OSError(errno.ENOSPC, "full"))
    assert not directory.unforced


def test_what_a_full_disk_did_not_take_is_written_again_before_it_counts(tmp_path: Path) -> None:
    """After a failed fsync the kernel regards the pages as written. Only writing them again makes it try again."""
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk, segment_bytes=200)
    for _ in range(4):
        append(log, produced(2))
    disk.broken = errno.ENOSPC
    with pytest.raises(BrokerError):
        log.durability.flush(NOW_MS)
    disk.broken = None
    assert log.directory.online
    assert log.durability.recovery_point == 0
    before, written = everything(log), []
    disk.writev = lambda fd, parts, position: (  # type: ignore[method-assign]
        written.append(len(parts[0])) or FaultyDisk.writev(disk, fd, parts, position)
    )
    log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == log.end
    assert sum(written) == len(before)
    assert everything(log) == before
    append(log, produced(2))
    written.clear()
    log.durability.flush(NOW_MS)
    assert written == []


def test_what_a_full_disk_has_dropped_is_noticed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = a_log(tmp_path, disk=disk)
    append(log, produced(2))
    disk.broken = errno.ENOSPC
    with pytest.raises(BrokerError):
        log.durability.flush(NOW_MS)
    disk.broken = None
    disk.writev(log.active.file.fd, [bytes(10)], 20)
    with pytest.raises(BrokerError):
        log.durability.flush(NOW_MS)
    assert not log.directory.online


def test_a_log_that_was_cut_meanwhile_does_not_believe_an_old_flush(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, produced(5))
    flush = log.durability.plan_flush()
    assert flush is not None
    truncate(log, 0, now_ms=NOW_MS)
    append(log, produced(2))
    log.durability.finish_flush(flush, NOW_MS)
    assert log.durability.recovery_point == 0
