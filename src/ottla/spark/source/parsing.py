"""Parsers for the texts of options. Each raises ValueError with what was expected.

The formats are those of Spark's own Kafka source: JSON by topic and partition, -1 and -2 for latest and earliest,
durations with a unit, words in any case.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ottla.client.cluster import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST_OFFSET: Final = -1  # special values where an offset is expected
EARLIEST_OFFSET: Final = -2
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


# Where a read begins or ends.


class Offsets(NamedTuple):
    """An offset for each partition, or LATEST_OFFSET or EARLIEST_OFFSET."""

    at: dict[TopicPartition, int]


class Times(NamedTuple):
    """For each partition, a time in milliseconds: the first offset with that timestamp or a later one."""

    at: dict[TopicPartition, int]


class Time(NamedTuple):
    """The same moment for every partition."""

    ms: int


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
Bound = Literal["earliest", "latest"] | Offsets | Times | Time


def string(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text.strip()


def boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def integer(least: int, most: int = LONG_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        span = f"at least {least}" if most == LONG_MAX else f"between {least} and {most}"
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()) or not least <= int(text) <= most:
            raise ValueError(f"a whole number, {span}")
        return int(text)

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in allowed:
            raise ValueError(" or ".join(allowed))
        return text.strip().lower()

    return parse


def isolation(text: str) -> bool:
    return choice("read_uncommitted", "read_committed")(text) == "read_committed"


_UNITS_MS: Final = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    """A duration as Spark writes it: 500ms, 10s, 15m, 1h; without a unit, milliseconds."""
    found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in _UNITS_MS:
        raise ValueError("a number with a unit, such as 500ms, 10s, 15m or 1h")
    return int(int(found[1]) * _UNITS_MS[found[2]])


def topics(text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not named:
        raise ValueError("one topic, or several separated by commas")
    return named


def pattern(text: str) -> str:
    """What Java reads otherwise is refused: [a-z&&[^b]], an intersection there, would silently match no topic."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(string(text))
    except (re.error, FutureWarning) as error:
        raise ValueError(f"a regular expression that Python's re module accepts ({error})") from None
    return text.strip()


def partitions(text: str) -> tuple[TopicPartition, ...]:
    expected = ValueError('JSON such as {"visits":[0,1],"clicks":[0]}')
    try:
        given = json.loads(text)
        wheres = [TopicPartition(topic, _number(index)) for topic, indexes in given.items() for index in indexes]
    except (ValueError, AttributeError, TypeError):
        raise expected from None
    if not wheres:
        raise expected
    return tuple(sorted(set(wheres)))


def _numbers(text: str, expected: str) -> dict[TopicPartition, int]:
    try:
        given = json.loads(text)
        return {
            TopicPartition(topic, _number(index)): _number(value)
            for topic, numbers in given.items()
            for index, value in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(expected) from None


def _number(value: object) -> int:
    """JSON's keys are text, and Spark's parser accepts numbers written as text elsewhere too."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(value)
    if not -LONG_MAX <= (number := int(value)) <= LONG_MAX:
        raise ValueError(value)
    return number


def offsets(text: str) -> Bound:
    if text.strip().lower() == EARLIEST:
        return EARLIEST
    if text.strip().lower() == LATEST:
        return LATEST
    expected = 'earliest, latest, or JSON such as {"visits":{"0":23,"1":-2}}, where -2 is earliest and -1 latest'
    found = _numbers(text, expected)
    if not found or min(found.values()) < EARLIEST_OFFSET:
        raise ValueError(expected)
    return Offsets(found)


def times(text: str) -> Times:
    expected = 'JSON such as {"visits":{"0":1700000000000,"1":1700000000000}}, in milliseconds since 1970'
    found = _numbers(text, expected)
    if not found or min(found.values()) < 0:
        raise ValueError(expected)
    return Times(found)


def moment(text: str) -> Time:
    return Time(integer(0)(text))
