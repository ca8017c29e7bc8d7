"""Retention: which of the oldest segments to delete, and deleting them.

A segment is deleted when all of it is below the log start offset (whatever the policy), or, with the policy `delete`,
when its newest record is older than `retention.ms`, or when the log without it still has `retention.bytes`. Always
oldest first without a gap, never at or above the high watermark, never an empty active segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.directory import FULL
from ottla.log.segment import DELETED, LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config.topic import TopicConfig
    from ottla.log.log import Log
    from ottla.log.segment import Segment


def retain(log: Log, now_ms: int) -> int:
    """Delete the segments that retention has expired, oldest first. Returns how many."""
    if log.fault is not None:
        return 0
    try:
        count = count_expired(log.segments, log.config, start=log.start, end=log.end, high=log.high, now_ms=now_ms)
        if count and count == len(log.segments):
            log.roll(now_ms)
        for segment in log.segments[:count]:
            size = segment.size
            _retire(log, segment)
            log.directory.retired += 1
            log.directory.retired_size += size
            log.advance_start(log.segments[1].base)
            del log.segments[0]
            log.durability.note_deletion()
            log.producers.remove(segment.base)
    except OSError as error:
        log.directory.note_failure(error)
        raise log.directory.storage_error(error) from error
    return count


def count_expired(
    segments: Sequence[Segment], config: TopicConfig, *, start: int, end: int, high: int, now_ms: int
) -> int:
    """How many of the oldest segments to delete. If it is all of them, the log must roll first."""
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    for count, segment in enumerate(segments):
        last = count + 1 == len(segments)
        upper = end if last else segments[count + 1].base
        if upper > high or (last and segment.size == 0):
            return count
        before_start = upper <= start and not last  # a log with nothing to read keeps its active segment
        too_much = config.deletes and config.retention_bytes >= 0 and excess - segment.size >= 0
        too_old = config.deletes and config.retention_ms >= 0 and now_ms - newest(segment) > config.retention_ms
        if not (before_start or too_much or too_old):
            return count
        excess -= segment.size
    return len(segments)


def newest(segment: Segment) -> int:
    """The largest timestamp, or the file's modification time if no record has one."""
    timestamp = segment.largest().timestamp
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _retire(log: Log, segment: Segment) -> None:
    """Rename the files of a segment before it leaves the list. On OSError the segment is unchanged."""
    try:
        segment.rename("", DELETED)
    except OSError as error:
        if log.disk.exists(segment.stem + LOG_SUFFIX):
            if error.errno not in FULL:
                raise
            segment.remove()  # a full disk may have no room for the new name; deleting frees space
    segment.close()
    log.doom([segment])
