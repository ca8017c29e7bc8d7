"""Which segments are deleted: by age, by size, by the start of the log; only replicated ones, and in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, FaultyDisk, a_log, append, everything, produced, settings

from ottla.errors import BrokerError, ErrorCode
from ottla.log.retention import retain
from ottla.log.segment import DELETED

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log

HOUR_MS = 3_600_000
ONE = len(produced(1))


def aged(folder: Path, ages: list[int], **options: object) -> Log:
    """A log of one segment for each age in hours, one record each; the last is the active one."""
    log = a_log(folder, None, segment_bytes=ONE, **options)
    for age in ages:
        append(log, produced(1, timestamp=NOW_MS - age * HOUR_MS))
    assert len(log.segments) == len(ages)
    return log


@pytest.mark.parametrize(
    ("ages", "left"),
    [([9, 8, 7, 1], 1), ([9, 2, 8, 1], 3), ([2, 9, 9, 1], 4), ([1, 1, 1, 1], 4), ([9, 9, 9, 4], 1)],
    ids=[
        "all but the active one",
        "stops at the first that stays",
        "the first stays",
        "none",
        "none is left but the active",
    ],
)
def test_by_age_of_the_newest_record(tmp_path: Path, ages: list[int], left: int) -> None:
    log = aged(tmp_path, ages, retention_ms=4 * HOUR_MS)
    retain(log, NOW_MS)
    assert len(log.segments) == left
    assert log.start == 4 - left
    assert log.end == 4


def test_an_idle_log_is_emptied_too(tmp_path: Path) -> None:
    """Its active segment is closed first: only closed segments are deleted."""
    log = aged(tmp_path, [9, 8, 7], retention_ms=4 * HOUR_MS)
    assert retain(log, NOW_MS) == 3
    assert (log.start, log.end, log.size, len(log.segments)) == (3, 3, 0, 1)
    assert retain(log, NOW_MS) == 0, "an empty segment stays"
    assert append(log, produced(1)).base == 3


def test_exactly_the_limit_is_not_yet_over_it(tmp_path: Path) -> None:
    log = aged(tmp_path, [4, 1], retention_ms=4 * HOUR_MS)
    assert retain(log, NOW_MS) == 0
    assert retain(log, NOW_MS + 1) == 1


def test_records_without_a_time_go_by_their_file(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=100, retention_ms=4 * HOUR_MS, message_format_version="0.9.0")
    for _ in range(4):
        append(log, produced(2))
    first = log.segments[0]
    os.utime(first.stem + ".log", (NOW_MS / 1000 - 5 * 3600, NOW_MS / 1000 - 5 * 3600))
    for segment in log.segments[1:]:
        os.utime(segment.stem + ".log", (NOW_MS / 1000, NOW_MS / 1000))
    assert retain(log, NOW_MS) == 1


@pytest.mark.parametrize(
    ("keep", "left"), [(0, 1), (ONE, 1), (ONE + 1, 2), (ONE * 3, 3), (ONE * 4, 4), (ONE * 9, 4), (-1, 4)]
)
def test_by_size_the_log_keeps_at_least_what_was_asked(tmp_path: Path, keep: int, left: int) -> None:
    log = aged(tmp_path, [0, 0, 0, 0], retention_bytes=keep, retention_ms=-1)
    retain(log, NOW_MS)
    assert log.size >= min(keep, ONE * 4)
    assert len([segment for segment in log.segments if segment.size]) == (0 if keep == 0 else left)


def test_nothing_at_or_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = aged(tmp_path, [9, 9, 9, 9], retention_ms=HOUR_MS)
    log.high = 2
    assert retain(log, NOW_MS) == 2
    assert log.start == 2
    log.high = 4
    retain(log, NOW_MS)
    assert log.start == 4


def test_a_compacted_topic_deletes_only_what_lies_before_its_start(tmp_path: Path) -> None:
    log = aged(tmp_path, [9, 9, 9, 9], retention_ms=HOUR_MS, retention_bytes=0, cleanup_policy="compact")
    assert retain(log, NOW_MS) == 0
    log.delete_before(2)
    assert retain(log, NOW_MS) == 2
    log.reconfigure(settings(retention_ms=HOUR_MS, cleanup_policy="compact,delete"))
    assert retain(log, NOW_MS) == 2


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    log = aged(tmp_path, [9, 9, 1, 1], retention_ms=4 * HOUR_MS)
    assert log.producers.snapshots == [1, 2, 3]
    retain(log, NOW_MS)
    assert log.producers.snapshots == [2, 3]


def test_the_recovery_point_and_the_epochs_follow_the_start(tmp_path: Path) -> None:
    log = aged(tmp_path, [9, 9, 1, 1], retention_ms=4 * HOUR_MS)
    retain(log, NOW_MS)
    assert log.durability.recovery_point == 2
    assert log.epochs.entries == [(0, 2)]
    assert log.durability.plan_flush() is not None


def test_a_slice_handed_out_before_stays_readable(tmp_path: Path) -> None:
    log = aged(tmp_path, [9, 9, 1], retention_ms=4 * HOUR_MS, file_delete_delay_ms=0)
    found = log.read(0, 100, offset_max=1)
    assert found is not None
    whole = found.read()
    retain(log, NOW_MS)
    for segment in log.doomed:
        segment.remove(DELETED)
    assert found.read() == whole
    assert len(everything(log)) == ONE


def test_a_broken_disk_is_noticed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = aged(
        tmp_path,
        [9, 9],
        retention_ms=HOUR_MS,
    )
    log.directory.disk = log.disk = disk
    log.segments[0].disk = disk
    disk.broken = 5
    with pytest.raises(BrokerError) as failure:
        retain(log, NOW_MS)
    assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.directory.online
    assert retain(log, NOW_MS) == 0, "an offline directory is left alone"
