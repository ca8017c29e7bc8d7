"""A metric family: the name, kind, labels and meaning of one metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(NamedTuple):
    name: str  # as in the exposition: counters end in _total
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    kafka: str = ""  # the corresponding metric of Kafka
    detail: str = ""  # which limit applies to the number of its series: PARTITIONS, GROUPS, TOPICS or CLIENTS


class Distribution(NamedTuple):
    """A histogram's value: the count of each bucket (the last one is above all bounds), and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Pairs of `le` and the number of values that are at most `le`."""
        total = 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


Value = int | float | Distribution


class Sample(NamedTuple):
    family: Family
    labels: tuple[str, ...]  # values, in the order of the family's names
    value: Value
