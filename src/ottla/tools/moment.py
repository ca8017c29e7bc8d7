"""Parse the position after `--from`.

beginning   end   1234 (an offset)   -10 (the last ten of each partition)
-5m  -2h  -1d  -30s (this long ago)   2026-11-15T09:30:00Z  2026-11-15 (a time; local if no zone is given)
"""

import re
from datetime import datetime
from typing import NamedTuple

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Offset(NamedTuple):
    value: int


class Last(NamedTuple):
    records: int


class Time(NamedTuple):
    milliseconds: int


class End(NamedTuple):
    pass


Moment = Offset | Last | Time | End

BEGINNING = Offset(0)  # clamped to the log start offset when reading


def moment(text: str, now_ms: int) -> Moment:
    """Raises ValueError with a message for the user."""
    if text == "beginning":
        return BEGINNING
    if text == "end":
        return End()
    if re.fullmatch(r"\d+", text):
        return Offset(int(text))
    if re.fullmatch(r"-\d+", text):
        return Last(int(text[1:]))
    try:
        return Time(milliseconds(text, now_ms))
    except ValueError:
        raise ValueError(
            f"{text}: expected beginning, end, an offset, -N, or a time such as -5m or 2026-11-15T09:30:00Z"
        ) from None


def milliseconds(text: str, now_ms: int) -> int:
    """A time in milliseconds since 1970. A plain number is taken as such."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    if ago := re.fullmatch(r"-(\d+)([smhd])", text):
        return now_ms - int(ago[1]) * UNITS_MS[ago[2]]
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"{text}: expected a time such as -5m or 2026-11-15T09:30:00Z") from None


def duration_ms(text: str) -> int:
    """A duration: 30s 5m 2h 1d, or in ISO 8601, which Kafka's tools use: PT5M, P1DT2H."""
    if short := re.fullmatch(r"(\d+)([smhd])", text):
        return int(short[1]) * UNITS_MS[short[2]]
    if long := re.fullmatch(r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text):
        return sum(int(count or 0) * UNITS_MS[unit] for count, unit in zip(long.groups(), "dhms", strict=True))
    raise ValueError(f"{text}: expected a duration such as 30s, 5m, 2h, 1d or PT5M")
