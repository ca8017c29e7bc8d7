"""Predicts when retention will delete records that a query has not read: in how many seconds, at the earliest.

A record is deleted with its segment, when the segment's last record is older than `retention.ms`, or when the log
without the segment still has `retention.bytes`. A client does not see segments, so it can only compute the earliest
moment. There are three estimates, from samples of one partition over the last minutes. The soonest one counts:

    age     how long the record at the query's position may still live; less if that record gets older every time
    size    how long until `retention.bytes` have been written after the position
    span    retention is already deleting: the log keeps about this many offsets, whatever the reason

A query whose lag does not grow will not be overtaken, and one that has read everything cannot be. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDOW_S: Final = 600.0  # older samples do not show how fast things move now
SPAN_S_MIN: Final = 2.0  # between the first and the last sample, before there is an estimate
PART: Final = 4  # warn when less than this fraction (1/4) of retention.ms is left, if that is sooner


class Retention(NamedTuple):
    """How long records are kept, and how many bytes of a partition; None means no limit."""

    ms: int | None
    bytes: int | None


class PartitionSample(NamedTuple):
    """What was seen of a partition at one moment. Time and size of the record at the position may be unknown."""

    at_s: float
    position: int
    earliest: int
    latest: int
    record_s: float | None = None
    offset_bytes: float | None = None

    @property
    def lag(self) -> int:
        return self.latest - self.position


def retention(configs: Mapping[str, str]) -> Retention:
    """From the configs of a topic. A topic that is only compacted keeps the last record of each key for ever."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return Retention(None, None)
    return Retention(_limit(configs.get("retention.ms")), _limit(configs.get("retention.bytes")))


def _limit(text: str | None) -> int | None:
    return int(text) if text is not None and int(text) >= 0 else None


def recent(samples: Sequence[PartitionSample]) -> list[PartitionSample]:
    """The relevant samples: of the last minutes, and since the query last caught up."""
    kept: list[PartitionSample] = []
    for sample in reversed(samples):
        if sample.lag <= 0 or sample.at_s < samples[-1].at_s - WINDOW_S:
            break
        kept.append(sample)
    return kept[::-1]


def time_left_s(samples: Sequence[PartitionSample], kept: Retention) -> float | None:
    """Seconds until retention may delete an unread record; None if none is in danger."""
    found = recent(samples)
    if len(found) < 2 or found[-1].at_s - found[0].at_s < SPAN_S_MIN:
        return None
    soonest = [
        one for one in (_by_age(found, kept.ms), _by_size(found, kept.bytes), _by_span(found)) if one is not None
    ]
    return max(0.0, min(soonest)) if soonest else None


def _by_age(samples: Sequence[PartitionSample], kept_ms: int | None) -> float | None:
    timed = [sample for sample in samples if sample.record_s is not None]
    if kept_ms is None or len(timed) < 2:
        return None
    first, last = timed[0], timed[-1]
    assert first.record_s is not None
    assert last.record_s is not None
    elapsed_s = last.at_s - first.at_s
    falling = 1 - (last.record_s - first.record_s) / elapsed_s if elapsed_s > 0 else 1.0
    return (last.record_s + kept_ms / 1000 - last.at_s) / falling if falling > 0 else None


def _by_size(samples: Sequence[PartitionSample], kept_bytes: int | None) -> float | None:
    last, falling = samples[-1], _falling(samples)
    if kept_bytes is None or not last.offset_bytes or falling <= 0:
        return None
    return (kept_bytes / last.offset_bytes - last.lag) / falling


def _by_span(samples: Sequence[PartitionSample]) -> float | None:
    falling = _falling(samples)
    cut = [sample.latest - sample.earliest for sample in samples if sample.earliest > samples[0].earliest]
    return (min(cut) - samples[-1].lag) / falling if cut and falling > 0 else None


def _falling(samples: Sequence[PartitionSample]) -> float:
    """Offsets per second by which the lag grows."""
    first, last = samples[0], samples[-1]
    return (last.lag - first.lag) / (last.at_s - first.at_s)


def alarming(left_s: float | None, kept: Retention, warning_ms: int) -> bool:
    """Is it time to warn? A fixed limit of an hour would always warn for topics with a retention of minutes."""
    if left_s is None:
        return False
    return left_s * 1000 < (warning_ms if kept.ms is None else min(warning_ms, kept.ms / PART))
