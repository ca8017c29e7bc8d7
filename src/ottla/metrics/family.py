"""A metric family: what one figure is called, what kind it is, which labels its series have, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(NamedTuple):
    name: str  # as it stands in the text: that of a counter ends in _total
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    kafka: str = ""  # the figure of Kafka that it stands for
    detail: str = ""  # what bounds the number of its series: PARTITIONS, GROUPS, TOPICS or CLIENTS


class Distribution(NamedTuple):
    """A histogram's value: how many fell into each bucket (the last is what is above all bounds), and their sum."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Pairs of `le` and how many are at most that."""
        total = 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


Value = int | float | Distribution


class Sample(NamedTuple):
    family: Family
    labels: tuple[str, ...]  # values, in the order of the family's names
    value: Value
