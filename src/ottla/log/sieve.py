"""Filters one batch during compaction: the kept records go into a new batch with the same header fields.

A rewritten v2 batch keeps its base offset, last offset, leader epoch, codec and producer fields, so offsets do not
change and the last sequence of a producer is not lost. Removed records are simply missing.

A tombstone must outlive its key's older values by `delete.retention.ms`, or a reader that lags would never see the
deletion. When the cleaner first reads a batch that still holds tombstones, it overwrites the base timestamp with the
time at which they may be removed, now + delete.retention.ms, and sets a bit that says so: the delete horizon. The
marker of a transaction whose data is all gone gets the same delay.

Magic 0 and 1 have no such bit: there the age of the segment decides, and a wrapper of compressed messages is
decompressed and compressed again.

The caller must have verified the checksum: a damaged batch must not get a new, valid one. A batch that cannot be opened
raises CorruptError, and the caller keeps it unchanged: one such batch must not block the compaction of its log forever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.option import LONG_MAX
from ottla.records import batch, legacy
from ottla.records.compress import CorruptError
from ottla.records.markers import read_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.records.batch import Header, Record

    Keep = Callable[[Record], bool]


OPENED_SIZE_MAX: Final = 64 << 20
OPENED_COUNT_MAX: Final = 200_000


class FilteredBatch(NamedTuple):
    """The bytes to write (None: nothing is left), how many records were read and kept, and what an index needs."""

    data: bytes | memoryview | None
    read: int
    kept: int
    last_offset: int
    max_timestamp: int


def read_records(data: memoryview) -> Iterator[Record]:
    """The records of a batch, within limits: all of them are in memory at once, each as an object."""
    return batch.iterate(data, size_max=OPENED_SIZE_MAX, count_max=OPENED_COUNT_MAX)


def control_type(data: memoryview) -> int | None:
    """The type of a control batch (0 abort, 1 commit, -1 other); None when compaction has emptied the batch."""
    try:
        record = next(read_records(data), None)
    except CorruptError:
        return -1  # an unreadable marker ends no transaction
    if record is not None:
        kind = read_type(record.key)
        return -1 if kind is None else kind
    return None


def sift(
    data: memoryview,
    head: Header,
    keep: Keep,
    *,
    new_horizon_ms: int,
    retain_empty: bool = False,
    ended_empty: bool = False,
) -> FilteredBatch:
    """Filter a v2 batch.

    `new_horizon_ms` is the delete horizon to write if one is due; `retain_empty` keeps a bare header when no record is
    left; `ended_empty`: this is the marker of a transaction without data.
    """
    kept = [record for record in read_records(data) if keep(record)]
    if not kept:
        return (
            build_empty(head)
            if retain_empty
            else FilteredBatch(None, head.count, 0, head.last_offset, head.max_timestamp)
        )
    horizon = head.delete_horizon
    due = horizon is None and (ended_empty or any(record.value is None for record in kept))
    due = due and _fits(new_horizon_ms, kept)
    if len(kept) == head.count and not due:
        return FilteredBatch(data, head.count, head.count, head.last_offset, head.max_timestamp)
    latest = head.max_timestamp if head.log_append_time else max(record.timestamp for record in kept)
    rewritten = _rewrite(head, kept, new_horizon_ms if due else horizon)
    return FilteredBatch(rewritten, head.count, len(kept), head.last_offset, latest)


def _fits(horizon_ms: int, kept: list[Record]) -> bool:
    """Whether a batch can hold this horizon, and its records' distances from it, as 64-bit numbers. If not, the
    tombstones stay forever: `delete.retention.ms` is that large, or a timestamp that far in the past."""
    return horizon_ms <= LONG_MAX and min(record.timestamp for record in kept) - horizon_ms >= -LONG_MAX


def build_empty(head: Header) -> FilteredBatch:
    """A batch without records that still carries its offsets, producer and last sequence.

    Its timestamp belongs to no record, so it is not indexed: Kafka's verification expects a record for every entry.
    """
    return FilteredBatch(_rewrite(head, [], None), head.count, 0, head.last_offset, batch.NO_TIMESTAMP)


def _rewrite(head: Header, kept: list[Record], delete_horizon: int | None) -> bytes:
    return batch.build(
        kept,
        base_offset=head.base_offset,
        last_offset=head.last_offset,
        codec=head.codec,
        append_time=head.max_timestamp if head.log_append_time else None,
        max_timestamp=None if kept else head.max_timestamp,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        transactional=head.transactional,
        control=head.control,
        leader_epoch=head.leader_epoch,
        delete_horizon=delete_horizon,
    )


def sift_legacy(data: memoryview, keep: Keep) -> FilteredBatch:
    """Filter a message or wrapper of magic 0 or 1. If no record is left, its last offset is not kept."""
    head = legacy.outer(data)
    records = list(read_records(data))
    kept = [record for record in records if keep(record)]
    if not kept:
        return FilteredBatch(None, len(records), 0, -1, -1)
    latest = max(record.timestamp for record in kept)
    if len(kept) == len(records):
        return FilteredBatch(data, len(records), len(records), head.offset, latest)
    append_time = head.timestamp if head.log_append_time else None
    rewritten = legacy.build(kept, magic=head.magic, codec=head.codec, append_time=append_time)
    return FilteredBatch(rewritten, len(records), len(kept), kept[-1].offset, latest)
