"""Narrows the offsets to read by the filters of a query. Pure, except `is_pushdown`, which inspects its process.

    WHERE partition IN (0, 3) AND offset >= 1000 AND timestamp > '2026-01-31'

Spark hands over the parts of a condition that are joined by AND and compare a column with a literal. They narrow the
ranges that a batch reads. All of them are also returned to Spark, which applies them to the rows: a bound that is too
wide only costs time. Of timestamps only the lower bound is used. A broker answers with the first offset whose timestamp
is late enough, so everything before it is earlier. But a late record may be followed by an early one, so an upper bound
excludes nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import Filter

    from ottla.client.cluster import TopicPartition
    from ottla.spark.source.planning import Range

WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def is_pushdown() -> bool:
    """Is this the process in which Spark hands filters over?

    If pushdown is off (spark.sql.python.filterPushdown.enabled), PySpark refuses every reader that accepts filters. So
    there are two readers, and this chooses."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return WORKER in sys.modules or getattr(main, "name", None) == WORKER


@dataclass(frozen=True)
class Interval:
    """Integers low <= number <= high; None means unbounded."""

    low: int | None = None
    high: int | None = None

    def least(self, low: int) -> Interval:
        return replace(self, low=low if self.low is None else max(self.low, low))

    def most(self, high: int) -> Interval:
        return replace(self, high=high if self.high is None else min(self.high, high))

    def has(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


ALL: Final = Interval()


@dataclass(frozen=True)
class Bounds:
    """Bounds that every wanted record satisfies."""

    topics: frozenset[str] | None = None
    partitions: Interval = ALL
    offsets: Interval = ALL
    times: Interval = ALL  # milliseconds; only `low` is used
    listed: frozenset[int] | None = None  # explicitly listed partitions

    def wants(self, where: TopicPartition) -> bool:
        return (
            (self.topics is None or where.topic in self.topics)
            and (self.listed is None or where.partition in self.listed)
            and self.partitions.has(where.partition)
        )

    def narrow(self, one: Range, since: int | None) -> Range:
        """The rest of a range. No record before offset `since` is as late as the filters require."""
        start, stop = one.start, one.stop
        if not self.wants(one.where):
            return one._replace(stop=start)
        start = max(start, self.offsets.low or 0, since or 0)
        if self.offsets.high is not None:
            stop = min(stop, self.offsets.high + 1)
        return one._replace(start=min(start, one.stop), stop=max(stop, min(start, one.stop)))


def bounds(filters: Iterable[Filter]) -> Bounds:
    """The bounds that these filters set together. Filters that are not understood set none."""
    made = Bounds()
    for one in filters:
        values = _values(one)
        name = ".".join(getattr(one, "attribute", ()))
        if not values:
            continue
        if (
            name == "topic"
            and isinstance(one, EqualTo | EqualNullSafe | In)
            and all(isinstance(v, str) for v in values)
        ):
            found = frozenset(values)
            made = replace(made, topics=found if made.topics is None else made.topics & found)
        elif name == "partition" and (numbers := _whole(values)):
            made = replace(made, partitions=_within(made.partitions, one, numbers))
            if isinstance(one, EqualTo | EqualNullSafe | In):
                named = frozenset(numbers)
                made = replace(made, listed=named if made.listed is None else made.listed & named)
        elif name == "offset" and (numbers := _whole(values)):
            made = replace(made, offsets=_within(made.offsets, one, numbers))
        elif name == "timestamp" and all(isinstance(value, datetime) and value.tzinfo for value in values):
            made = replace(made, times=_since(made.times, one, values))
    return made


def _values(one: Filter) -> tuple[Any, ...]:
    """The literals of a filter, if its kind sets bounds."""
    if isinstance(one, In):
        return tuple(value for value in one.value if value is not None)  # null equals nothing
    if isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return (one.value,) if one.value is not None else ()
    return ()


def _whole(values: tuple[Any, ...]) -> list[int]:
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return whole if len(whole) == len(values) else []


def _within(interval: Interval, one: Filter, values: list[int]) -> Interval:
    match one:
        case GreaterThan():
            return interval.least(values[0] + 1)
        case GreaterThanOrEqual():
            return interval.least(values[0])
        case LessThan():
            return interval.most(values[0] - 1)
        case LessThanOrEqual():
            return interval.most(values[0])
        case _:
            return interval.least(min(values)).most(max(values))


def _since(interval: Interval, one: Filter, values: tuple[datetime, ...]) -> Interval:
    """In milliseconds, as in Kafka, rounded so that no record is left out."""
    if isinstance(one, LessThan | LessThanOrEqual):
        return interval
    past = min(values) - EPOCH
    whole = past // MILLISECOND
    if isinstance(one, GreaterThan):
        return interval.least(whole + 1)
    return interval.least(whole + (1 if past % MILLISECOND else 0))


def narrow(
    ranges: list[Range],
    bounds: Bounds,
    at_time: Callable[[dict[TopicPartition, int]], dict[TopicPartition, int | None]],
) -> list[Range]:
    """The needed parts of the ranges. `at_time` finds the first offset with a timestamp at or after the given one, or
    None."""
    left = [bounds.narrow(one, None) for one in ranges]
    since = bounds.times.low
    if since is None or since <= 0:  # no record is earlier, and brokers give negative numbers special meanings
        return left
    asked = {one.where: since for one in left if one.start < one.stop}
    found = at_time(asked)
    return [
        bounds.narrow(one, one.stop if found[one.where] is None else found[one.where]) if one.where in asked else one
        for one in left
    ]
