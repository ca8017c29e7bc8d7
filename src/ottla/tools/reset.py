"""Compute a group's new offset from a goal and the state of a partition. Pure functions, no requests.

    Earliest   Latest   To(offset)   At(time)   Shift(by)   Current   (the committed offset, else the end)

As in Kafka's own tool, offsets are clamped to the partition's start and end, a time later than all records means the
end, and a shift requires a committed offset.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.tools.lag import Commit, OffsetSpan, Place
from ottla.tools.session import Failed


class Earliest(NamedTuple):
    pass


class Latest(NamedTuple):
    pass


class Current(NamedTuple):
    pass


class To(NamedTuple):
    offset: int


class At(NamedTuple):
    milliseconds: int


class Shift(NamedTuple):
    by: int


Goal = Earliest | Latest | Current | To | At | Shift


class OffsetMove(NamedTuple):
    topic: str
    partition: int
    old: int | None
    new: int
    metadata: str | None = None


def move(
    goal: Goal, place: Place, span: OffsetSpan, commit: Commit | None, found: int | None, warn: Callable[[str], None]
) -> OffsetMove:
    """`found` is the offset of the first record at or after the time of `At`, if any."""
    old = commit.offset if commit else None
    match goal:
        case Earliest():
            new = span.start
        case Latest():
            new = span.end
        case Current():
            new = span.end if old is None else old
        case At():
            new = span.end if found is None else found
        case To(offset):
            new = within(span, offset, place, warn)
        case Shift(by):
            if old is None:
                raise Failed(f"{place[0]} partition {place[1]} has no committed offset to shift")
            new = within(span, old + by, place, warn)
    return OffsetMove(*place, old, new)


def plan_restore(
    wanted: Mapping[Place, Commit],
    spans: Mapping[Place, OffsetSpan],
    commits: Mapping[Place, Commit],
    warn: Callable[[str], None],
) -> list[OffsetMove]:
    """The moves that restore exported offsets."""
    if missing := sorted(wanted.keys() - spans.keys()):
        raise Failed(f"no such partition: {', '.join(f'{topic}:{index}' for topic, index in missing)}")
    return [
        OffsetMove(
            *place,
            commits[place].offset if place in commits else None,
            within(spans[place], commit.offset, place, warn),
            commit.metadata,
        )
        for place, commit in sorted(wanted.items())
    ]


def within(span: OffsetSpan, offset: int, place: Place, warn: Callable[[str], None]) -> int:
    allowed = min(max(offset, span.start), span.end)
    if allowed != offset:
        end = "before the start" if offset < span.start else "beyond the end"
        warn(f"{place[0]} partition {place[1]}: offset {offset} is {end}, {allowed} is used")
    return allowed
