"""Single records of a stored batch (magic 2): the first at or after a time, and a portion from an offset on.

The reference in Python of what the crate does in windows; `native` chooses. State and detail are those of a verdict: a
stored batch can be malformed, or exceed the limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.records import batch
from ottla.records.check import INFLATED_MAX, OVER, RECORDS_MAX, SOUND, WRONG, wrap
from ottla.records.compress import CorruptError, InflatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.records.check import RecordLimits
    from ottla.records.compress import Buffer


class Picked(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: int  # how many


def since(data: Buffer, timestamp: int, start: int, limits: RecordLimits) -> tuple[int, str, tuple[int, int] | None]:
    try:
        for record in _records(data, limits):
            if record.timestamp >= timestamp and record.offset >= start:
                return SOUND, "", (record.offset, record.timestamp)
    except InflatedError:
        return OVER, "", None
    except CorruptError as error:
        return WRONG, error.message, None
    return SOUND, "", None


def portion(
    data: Buffer, start: int, records_max: int, bytes_max: int, limits: RecordLimits
) -> tuple[int, str, list[Picked]]:
    found: list[Picked] = []
    size = 0
    try:
        for record in _records(data, limits):
            if record.offset < start:
                continue
            found.append(Picked(*record[:4], len(record.headers)))
            size += len(record.key or b"") + len(record.value or b"")
            if len(found) >= records_max or size >= bytes_max:
                break
    except InflatedError:
        return OVER, "", []
    except CorruptError as error:
        return WRONG, error.message, []
    return SOUND, "", found


def _records(data: Buffer, limits: RecordLimits) -> Iterator[batch.Record]:
    size_max, count_max = min(limits.inflated, INFLATED_MAX), min(limits.records, RECORDS_MAX)
    for record in batch.iterate(data, size_max=size_max, count_max=count_max):
        yield record._replace(timestamp=wrap(record.timestamp))
