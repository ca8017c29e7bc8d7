"""From a time to an offset, as Apache Kafka answers ListOffsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, a_log, append, records

from ottla.log.seek import Located
from ottla.records import batch
from ottla.records.compress import Codec

if TYPE_CHECKING:
    from pathlib import Path


def at_times(*times: int, codec: Codec = Codec.NONE) -> memoryview:
    made = [record._replace(timestamp=NOW_MS + time) for record, time in zip(records(len(times)), times, strict=True)]
    return memoryview(batch.build(made, codec=codec))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("asked", "offset"),
    [(-100, 0), (0, 0), (1, 1), (5, 1), (6, 2), (15, 3), (16, 4), (30, 4), (31, 7), (40, 7), (41, None)],
)
def test_the_first_record_at_or_after(tmp_path: Path, codec: Codec, asked: int, offset: int | None) -> None:
    log = a_log(tmp_path, segment_bytes=400, index_interval_bytes=50)
    for times in ((0, 5, 10), (15, 30), (20, 25), (40,)):
        append(log, at_times(*times, codec=codec), epoch=sum(times) // 20)
    found = log.offset_for_time(NOW_MS + asked)
    assert (found and found.offset) == offset


def test_the_answer_carries_the_time_and_the_epoch_of_that_record(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, at_times(0, 10), epoch=3)
    append(log, at_times(20, 30), epoch=5)
    assert log.offset_for_time(NOW_MS + 5) == Located(1, NOW_MS + 10, 3)
    assert log.offset_for_time(NOW_MS + 25) == Located(3, NOW_MS + 30, 5)


def test_records_before_the_start_do_not_count(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    append(log, at_times(50, 10, 20, 30))
    log.delete_before(2)
    assert log.offset_for_time(NOW_MS + 5) == Located(2, NOW_MS + 20, 0)
    assert log.offset_for_time(NOW_MS + 40) is None


def test_the_largest_time_and_the_first_record_that_has_it(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=300)
    assert log.max_timestamp() is None
    append(log, at_times(5, 7, 6))
    append(log, at_times(90, 95, 95), epoch=2)
    append(log, at_times(80, 95), epoch=4)
    assert log.max_timestamp() == Located(4, NOW_MS + 95, 2)


def test_the_largest_time_may_be_that_of_a_deleted_record(tmp_path: Path) -> None:
    """As in Apache Kafka. Without an answer it would seem that the log has no records."""
    log = a_log(tmp_path)
    append(log, at_times(50, 90, 20, 30))
    append(log, at_times(40))
    for start in (2, 4, 5):
        log.delete_before(start)
        assert log.max_timestamp() == Located(1, NOW_MS + 90, 0)


def test_append_time_is_the_time_of_every_record(tmp_path: Path) -> None:
    log = a_log(tmp_path, message_timestamp_type="LogAppendTime")
    append(log, at_times(1, 2, 3), now_ms=NOW_MS + 100)
    append(log, at_times(1, 2, 3), now_ms=NOW_MS + 200)
    assert log.offset_for_time(NOW_MS + 100) == Located(0, NOW_MS + 100, 0)
    assert log.offset_for_time(NOW_MS + 101) == Located(3, NOW_MS + 200, 0)


def test_messages_without_times_are_never_found(tmp_path: Path) -> None:
    log = a_log(tmp_path, message_format_version="0.9.0")
    append(log, at_times(1, 2))
    assert log.offset_for_time(NOW_MS) is None
    assert log.max_timestamp() is None
