"""Two sides take short turns, A B B A, and the result is the ratio within each pair of neighbouring turns.

The speed of a shared machine varies by a factor of three within minutes, so separate runs cannot be compared.
Neighbouring turns see the same speed, and since the order changes from pair to pair, a drift favours neither side.
The result is the median of the paired ratios with its quartiles; a goal that lies between the quartiles is undecided.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Side = TypeVar("Side")
PAIRS = 9  # fewer say little about quartiles


class Spread(NamedTuple):
    """The quartiles of some values."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def order(sides: Sequence[Side], rounds: int) -> Iterator[Side]:
    """A B, B A, A B and so on: the n-th turn of each side belongs to the n-th round."""
    for number in range(rounds):
        yield from reversed(sides) if number % 2 else sides


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each pair; a turn too short to measure gives none."""
    return [one / other for one, other in zip(ours, theirs, strict=False) if other]


def spread(values: Sequence[float]) -> Spread:
    low, middle, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else list(values) * 3
    return Spread(low, middle, high)


def verdict(margins: Spread) -> str:
    """The verdict on margins: 1 is a goal just met, more is better."""
    return "yes" if margins.low >= 1 else "no" if margins.high < 1 else "undecided"
