"""From a time to a record: the time index says where to start, batch headers which batch, its records which record.

Timestamps are the producers' and need not ascend, so the answer to "first at or after" is the first in the order of
offsets. A batch is opened only when its largest timestamp says that the record is inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.segment import Segment
    from ottla.records import batch


def first_since(segments: Sequence[Segment], timestamp: int, start: int) -> tuple[batch.Record, int] | None:
    """The first record from offset `start` on whose timestamp is not below, with its batch's leader epoch."""
    for segment in segments:
        if segment.end > start and segment.largest().timestamp >= timestamp:
            mark = segment.times.floor(timestamp)
            _, position = segment.offsets.floor(max(mark.offset, start))
            for found in segment.spans(position):
                if found.span.max_timestamp >= timestamp and found.span.last >= start:
                    for record in segment.records(found.span):
                        if record.timestamp >= timestamp and record.offset >= start:
                            return record, found.span.epoch
    return None


def latest(segments: Sequence[Segment], start: int) -> tuple[batch.Record, int] | None:
    """The first record with the largest timestamp of all, with its batch's leader epoch."""
    segment = max(segments, key=lambda segment: segment.largest().timestamp)
    mark = segment.largest()
    if mark.timestamp < 0:
        return None
    _, position = segment.offsets.floor(max(mark.offset, start))
    for found in segment.spans(position):
        if found.span.max_timestamp == mark.timestamp and found.span.last >= start:
            for record in segment.records(found.span):
                if record.timestamp == mark.timestamp and record.offset >= start:
                    return record, found.span.epoch
    return None
