"""Estimate when offsets were written, from samples of end offsets: lag in seconds without reading records.

A sample is a partition's end offset at one time. The record at a committed offset arrived between the last sample that
ended at or before it and the first that ended after it; the estimate interpolates between them. The newer half of the
samples has one per round, the older half gets coarser, so that a partition takes at most a kilobyte. If the two samples
are more than `FINE_S` apart, `estimate` says so, and the record itself is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 64
FINE_S: Final = 2.0  # the middle of such a gap is right within a second


class Estimate(NamedTuple):
    moment: float  # monotonic
    fine: bool


class Arrivals:
    """The samples of one partition. Times are monotonic seconds."""

    __slots__ = ("_ends", "_moments")

    def __init__(self) -> None:
        self._moments = array("d")
        self._ends = array("q")

    def note(self, moment: float, end: int) -> None:
        if self._ends and end < self._ends[-1]:  # recreated or truncated: old samples are wrong
            del self._ends[:], self._moments[:]
        if len(self._ends) >= 2 and end == self._ends[-1] == self._ends[-2]:
            self._moments[-1] = moment  # no new records: move the last sample forward
            return
        self._ends.append(end)
        self._moments.append(moment)
        if len(self._ends) > SAMPLES_MAX:
            half = len(self._ends) // 2
            del self._ends[1:half:2], self._moments[1:half:2]

    def estimate(self, offset: int) -> Estimate | None:
        """When the record at this offset was written; None if before the first sample, or not written yet."""
        after = bisect_right(self._ends, offset)
        if after == 0 or after == len(self._ends):
            return None
        before = after - 1
        first, last = self._moments[before], self._moments[after]
        share = (offset - self._ends[before] + 0.5) / (self._ends[after] - self._ends[before])
        return Estimate(first + min(1.0, share) * (last - first), last - first <= FINE_S)

    def __len__(self) -> int:
        return len(self._ends)
