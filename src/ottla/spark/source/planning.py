"""Cuts ranges of offsets into splits, one for each task: about equal in bytes, every offset in exactly one. Pure: no
I/O.

A broker tells how many offsets a partition has, not where their bytes are: a thousand offsets may be a kilobyte, or a
gigabyte, or nothing after compaction. A `Profile` is what `sampling` found out about a range: bytes as a function of
the offset. Here the range is cut by it. A wrong profile makes splits uneven and nothing worse: boundaries are offsets,
and the splits of a range cover it without gaps from its start to its stop.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from ottla.client.cluster import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

ROUNDING = 1e-6  # in offsets: a share such as 7/22 of 22 comes out a little below 7


@dataclass(frozen=True)
class Split(InputPartition):
    """Offsets start <= offset < stop of one partition, for one task. The topic's id shows whether the topic was
    recreated in the meantime."""

    topic: str
    partition: int
    start: int
    stop: int
    topic_id: UUID | None = None

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Range(NamedTuple):
    """The offsets to read of one partition: start <= offset < stop."""

    where: TopicPartition
    start: int
    stop: int
    topic_id: UUID | None = None


class Profile(NamedTuple):
    """A piecewise linear function: bytes before each of some offsets, both never decreasing. The first offset is the
    start of the range, the last its stop."""

    offsets: list[int]
    bytes_before: list[float]

    @property
    def size(self) -> float:
        return self.bytes_before[-1] - self.bytes_before[0]

    def offset_at(self, position: float) -> int:
        """The offset before which there are this many bytes."""
        last = len(self.offsets) - 1
        after = min(max(bisect_right(self.bytes_before, position), 1), last)
        low, high = self.bytes_before[after - 1], self.bytes_before[after]
        part = (position - low) / (high - low) if high > low else 1.0
        first, span = self.offsets[after - 1], self.offsets[after] - self.offsets[after - 1]
        return first + min(max(int(span * part + ROUNDING), 0), span)


def even(start: int, stop: int, size: float = 0.0) -> Profile:
    """A range about which nothing is known: every offset has the same size."""
    return Profile([start, stop], [0.0, size or float(stop - start)])


def splits(
    ranges: Sequence[Range],
    profiles: Mapping[TopicPartition, Profile],
    *,
    split_bytes: int,
    least: int | None = None,
    records_max: int | None = None,
) -> list[Split]:
    """Cut every range into pieces of about `split_bytes`; then cut the largest further until there are `least` (or one
    for each offset); then limit each to `records_max` offsets. A range without a profile counts one byte per offset."""
    wanted = [one for one in ranges if one.start < one.stop]
    found = [profiles.get(one.where) or even(one.start, one.stop) for one in wanted]
    counts = [
        min(math.ceil(profile.size / split_bytes) or 1, one.stop - one.start)
        for one, profile in zip(wanted, found, strict=True)
    ]
    _raise_to(least or 1, counts, wanted, found)
    return [
        Split(one.where.topic, one.where.partition, start, stop, one.topic_id)
        for one, profile, count in zip(wanted, found, counts, strict=True)
        for start, stop in _limit(_cut(one, profile, count), records_max)
    ]


def _raise_to(least: int, counts: list[int], ranges: Sequence[Range], profiles: Sequence[Profile]) -> None:
    """Add a piece to the range with the largest pieces, until there are enough."""
    missing = least - sum(counts)
    largest = [
        (-profile.size / count, index) for index, (profile, count) in enumerate(zip(profiles, counts, strict=True))
    ]
    heapq.heapify(largest)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        if counts[index] < ranges[index].stop - ranges[index].start:
            counts[index] += 1
            missing -= 1
            heapq.heappush(largest, (-profiles[index].size / counts[index], index))


def _cut(one: Range, profile: Profile, count: int) -> list[tuple[int, int]]:
    """At most `count` pieces, none empty, that cover the range from start to stop."""
    inner = {profile.offset_at(profile.bytes_before[0] + profile.size * part / count) for part in range(1, count)}
    bounds = [one.start, *sorted(offset for offset in inner if one.start < offset < one.stop), one.stop]
    return list(pairwise(bounds))


def _limit(pieces: list[tuple[int, int]], records_max: int | None) -> list[tuple[int, int]]:
    if records_max is None:
        return pieces
    return [
        piece
        for start, stop in pieces
        for count in [-(-(stop - start) // records_max)]
        for piece in pairwise(start + (stop - start) * part // count for part in range(count + 1))
    ]
