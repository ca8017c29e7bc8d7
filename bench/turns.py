"""Two sides take short turns, A B B A, and what counts is the ratio within each pair of neighbouring turns.

The speed of a machine that others use moves by a factor of three within minutes, so separate runs compare nothing.
Neighbouring turns meet the same machine, and since the order changes from pair to pair, a drift favours neither side.
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
    """Pair by pair; a turn too short for a number gives none."""
    return [one / other for one, other in zip(ours, theirs, strict=False) if other]


def spread(values: Sequence[float]) -> Spread:
    low, middle, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else list(values) * 3
    return Spread(low, middle, high)


def verdict(margins: Spread) -> str:
    """Of margins: 1 is a goal that is just met, more is better."""
    return "yes" if margins.low >= 1 else "no" if margins.high < 1 else "undecided"
