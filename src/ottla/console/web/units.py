"""Format numbers for people."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from ottla.size import format_size


def size(count: float | None) -> str:
    """Bytes."""
    return "—" if count is None or count < 0 else format_size(count)


def number(count: float | None) -> str:
    return "—" if count is None or count < 0 else f"{count:,.0f}"


def rate(per_second: float) -> str:
    """Records per second."""
    if per_second < 0.05:
        return "0/s"
    return f"{per_second:,.1f}/s" if per_second < 10 else f"{per_second:,.0f}/s"


def change(per_second: float) -> str:
    if abs(per_second) < 0.05:
        return "steady"
    return f"{'+' if per_second > 0 else '-'}{rate(abs(per_second))}"


def span(seconds: float | None) -> str:
    """A duration."""
    if seconds is None:
        return "—"
    if seconds < 0.05:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    for limit, unit, length in ((7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds / 86_400:,.0f} d"


def retention(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "—"
    return "forever" if milliseconds < 0 else span(milliseconds / 1000)


def moment(milliseconds: float) -> str:
    """In UTC, the same for all users."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return str(int(milliseconds))


def precise(milliseconds: int) -> str:
    return "—" if milliseconds < 0 else f"{moment(milliseconds)}.{milliseconds % 1000:03d}"


def brief(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def age(taken: float) -> str:
    """The age of a snapshot."""
    seconds = max(0.0, time.monotonic() - taken)
    return "now" if seconds < 3 else f"{span(seconds)} ago"
