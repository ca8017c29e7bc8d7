"""When retention will take records that a query has not read: in how many seconds, at the earliest.

A record goes with its segment, when the segment's last record is older than `retention.ms`, or when the log without the
segment would still have `retention.bytes`. A client sees no segments, so it can tell the earliest moment only. There
are three ways to it, from samples of one partition over the last minutes; the soonest one counts:

    age     the record at the query's position has so long to live; less if that record is an older one every time
    size    so many bytes may still be written before there are `retention.bytes` after the position
    span    retention has been at work: the log keeps so many offsets and no more, whatever the reason

A query that is not falling further behind will not be overtaken, and one that has read everything cannot be. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDOW_S: Final = 600.0  # samples older than that say nothing about how fast things move now
SPAN_S_MIN: Final = 2.0  # between the first and the last sample, before anything is said
PART: Final = 4  # a warning comes when less than one part in so many of retention.ms is left, if that is sooner


class Retention(NamedTuple):
    """How long records are kept, and how many bytes of them in a partition; None: for ever, all."""

    ms: int | None
    bytes: int | None


class PartitionSample(NamedTuple):
    """What was seen of a partition at one moment. Time and size of the record at the position are not always known."""

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
    """From the options of a topic; a topic that is only compacted keeps the last record of each key for ever."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return Retention(None, None)
    return Retention(_limit(configs.get("retention.ms")), _limit(configs.get("retention.bytes")))


def _limit(text: str | None) -> int | None:
    return int(text) if text is not None and int(text) >= 0 else None


def recent(samples: Sequence[PartitionSample]) -> list[PartitionSample]:
    """Those that count: of the last minutes, and since the query was last at the end."""
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
    """Is it time to warn? A fixed hour would always warn where records live for minutes."""
    if left_s is None:
        return False
    return left_s * 1000 < (warning_ms if kept.ms is None else min(warning_ms, kept.ms / PART))
