"""Find the batches of one producer shortly before an offset, by their headers in the log.

A snapshot holds only the last batch of a producer. Without this search, a producer that retries an older batch (the
broker stopped before it could answer) would get an out of order sequence error although the batch is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.snapshots import SEQUENCE_MASK
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.segment import Segment
    from ottla.log.snapshots import Batch

REACH = 1 << 20  # bytes of the log to search: batches in flight at the same time are close together


def batches_before(segments: Sequence[Segment], offset: int, producer_id: int, epoch: int) -> list[Batch]:
    """In log order. Batches further back than `REACH` are not found."""
    found: list[Batch] = []
    left = REACH
    for segment in reversed(segments):
        if segment.base >= offset:
            continue
        here = segment.locate(offset)
        end = segment.size if here is None else here[0]
        begin = _begin(segment, end - left)
        if begin < end:
            found[:0] = _batches(segment, begin, offset, producer_id, epoch)
        left -= end
        if left <= 0:
            break
    return found


def _begin(segment: Segment, position: int) -> int:
    """The start of a batch at this position or shortly after it."""
    if position <= 0:
        return 0
    found = segment.locate(segment.bound(position))
    return segment.size if found is None else found[0]


def _batches(segment: Segment, position: int, offset: int, producer_id: int, epoch: int) -> list[Batch]:
    found: list[Batch] = []
    for buffered in segment.spans(position):
        if buffered.span.base >= offset:
            break
        if buffered.span.magic != batch.MAGIC:
            continue
        header = batch.header(buffered.buffer, buffered.at)
        if header.producer_id != producer_id or header.producer_epoch != epoch or header.base_sequence < 0:
            continue
        span, first = buffered.span, header.base_sequence
        last = (first + header.last_offset_delta) & SEQUENCE_MASK
        found.append((first, last, span.base, span.last, span.max_timestamp))
    return found
