"""Find a record by timestamp: the time index gives the start, batch headers the batch, its records the record.

Producers set timestamps and these need not ascend, so "first at or after" means first in offset order. A batch is
opened only when its largest timestamp shows that the record is inside.

A batch that is too large to be opened on the loop raises LongSearchError, whose `search` runs in another thread. The
caller then searches again and passes `known`: the results for such batches, by base offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records import batch, native
from ottla.records.check import OVER, WRONG, RecordLimits
from ottla.records.compress import CorruptError, InflatedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.log.epochs import Epochs
    from ottla.log.segment import Segment
    from ottla.log.spans import Span

ON_LOOP: Final = RecordLimits(4 << 20, 1 << 31)
ELSEWHERE: Final = RecordLimits(1 << 30, 50_000_000)
# Old formats are opened in Python.
OLD_ON_LOOP: Final = RecordLimits(1 << 20, 2_000)
OLD_ELSEWHERE: Final = RecordLimits(16 << 20, 200_000)


class Hit(NamedTuple):
    offset: int
    timestamp: int


Known = dict[int, Hit | None]
NOTHING_KNOWN: Mapping[int, Hit | None] = {}


class Located(NamedTuple):
    """An offset with the timestamp of its record and the epoch that wrote it, -1 where unknown."""

    offset: int
    timestamp: int
    epoch: int


class LongSearchError(Exception):
    """The batch at offset `base` is too large to be searched on the loop; call `search` in any thread."""

    def __init__(self, base: int, data: bytes, timestamp: int, start: int) -> None:
        super().__init__(f"the batch at offset {base}")
        self.base = base
        self.size = len(data)
        self._data = data
        self._timestamp = timestamp
        self._start = start

    def search(self) -> Hit | None:
        try:
            return find(self._data, self._timestamp, self._start, ELSEWHERE, OLD_ELSEWHERE, release=True)
        except InflatedError as error:
            raise CorruptError(f"the batch at offset {self.base} cannot be searched: {error.message}") from None


def first_since(
    segments: Sequence[Segment], timestamp: int, start: int, known: Mapping[int, Hit | None]
) -> tuple[Hit, int] | None:
    """The first record at or after `start` whose timestamp is at least `timestamp`, with its batch's leader epoch."""
    for segment in segments:
        if segment.end > start and segment.reaches(timestamp):
            mark = segment.times.floor(timestamp)
            _, position = segment.offsets.floor(max(mark.offset, start))
            for found in segment.spans(position):
                if found.span.max_timestamp >= timestamp and found.span.last >= start:
                    hit = _open(segment, found.span, timestamp, start, known)
                    if hit is not None:
                        return hit, found.span.epoch
    return None


def latest(segments: Sequence[Segment], known: Mapping[int, Hit | None]) -> tuple[Hit, int] | None:
    """The first record with the largest timestamp of all, with its batch's leader epoch.

    As in Apache Kafka it may lie before the log's start: a segment knows the largest timestamp of all its records.
    """
    segment = max(segments, key=lambda segment: segment.largest().timestamp)
    mark = segment.largest()
    if mark.timestamp < 0:
        return None
    _, position = segment.offsets.floor(mark.offset)
    for found in segment.spans(position):
        if found.span.max_timestamp == mark.timestamp:
            hit = _open(segment, found.span, mark.timestamp, segment.base, known)
            if hit is not None:
                return hit, found.span.epoch
    return None


def locate(found: tuple[Hit, int] | None, epochs: Epochs) -> Located | None:
    """The result of a search. Batches in old formats do not hold their epoch, so it is looked up."""
    if found is None:
        return None
    (offset, timestamp), epoch = found
    return Located(offset, timestamp, epoch if epoch >= 0 else epochs.of(offset))


def _open(segment: Segment, span: Span, timestamp: int, start: int, known: Mapping[int, Hit | None]) -> Hit | None:
    if span.base in known:
        return known[span.base]
    data = segment.slice(span.position, span.size).read()
    try:
        return find(data, timestamp, start, ON_LOOP, OLD_ON_LOOP)
    except InflatedError:
        raise LongSearchError(span.base, data, timestamp, start) from None


def find(
    data: bytes, timestamp: int, start: int, limits: RecordLimits, old_limits: RecordLimits, *, release: bool = False
) -> Hit | None:
    """The first matching record of one batch. InflatedError when the batch exceeds the limits."""
    if data[batch.MAGIC_POSITION] == batch.MAGIC:
        state, detail, hit = native.since(data, timestamp, start, limits, release=release)
        if state == OVER:
            raise InflatedError("it inflates to too much")
        if state == WRONG:
            raise CorruptError(detail)
        return None if hit is None else Hit(*hit)
    for record in batch.iterate(data, size_max=old_limits.inflated, count_max=old_limits.records):
        if record.timestamp >= timestamp and record.offset >= start:
            return Hit(record.offset, record.timestamp)
    return None
