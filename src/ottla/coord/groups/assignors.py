"""The broker's own assignors for consumer groups, `uniform` and `range`.

    range     each topic is split into ranges of consecutive partitions, one range per member; topics with the same
              number of partitions are split alike, so a member gets the same partition numbers of each
    uniform   partition counts of members differ by at most one, and members keep as many partitions as possible

Both are pure functions of the members, their former assignments and the sizes of the topics, so every broker computes
the same result. Racks are not considered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coord.groups.balance import Balance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Assignment = dict[bytes, frozenset[int]]  # topic id → partitions; topics without any are left out
NO_ASSIGNMENT: Final[Assignment] = {}


class MemberSpec(NamedTuple):
    """What an assignor knows of a member."""

    instance: str | None  # of a static member
    topics: frozenset[bytes]  # subscribed topics; all of them exist
    part: Assignment  # its current assignment


Specs = dict[str, MemberSpec]  # by member id
Sizes = dict[bytes, int]  # topic id → number of partitions


def range_assignor(members: Specs, sizes: Sizes) -> dict[str, Assignment]:
    subscribers: dict[bytes, int] = {}
    for spec in members.values():
        for topic in spec.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    served = dict.fromkeys(subscribers, 0)  # topic → members that have got their range
    parts: dict[str, Assignment] = {}
    for member in sorted(members, key=lambda one: _rank(one, members[one].instance)):
        part: Assignment = {}
        for topic in members[member].topics:
            share, extra = divmod(sizes[topic], subscribers[topic])
            turn = served[topic]
            served[topic] += 1
            first = turn * share + min(turn, extra)
            run = range(first, first + share + (turn < extra))
            if run:
                part[topic] = frozenset(run)
        parts[member] = part
    return parts


def _rank(member: str, instance: str | None) -> tuple[bool, str]:
    """Static members come first: their instance ids are stable, so their ranges are too."""
    return (instance is None, member if instance is None else instance)


def uniform_assignor(members: Specs, sizes: Sizes) -> dict[str, Assignment]:
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if all(spec.topics == first for spec in members.values()):
        return _uniform(members, {topic: sizes[topic] for topic in sorted(first)})
    return Balance(members, sizes).run()


def _uniform(members: Specs, sizes: Mapping[bytes, int]) -> dict[str, Assignment]:
    """For identical subscriptions: partitions beyond a member's share go to members that have less."""
    taken = {topic: {index for spec in members.values() for index in spec.part.get(topic, ())} for topic in sizes}
    free = [(topic, index) for topic, size in sizes.items() for index in range(size) if index not in taken[topic]]
    share, extra = divmod(sum(sizes.values()), len(members))
    parts: dict[str, dict[bytes, set[int]]] = {}
    wanting: list[tuple[str, int]] = []
    for turn, (member, spec) in enumerate(members.items()):
        one_more = extra > 0
        room = share + one_more
        kept: dict[bytes, set[int]] = {}
        for topic in sizes:
            ordered = sorted(spec.part.get(topic, ()))
            if ordered[:room]:
                kept[topic] = set(ordered[:room])
            free += [(topic, index) for index in ordered[room:]]
            room -= min(room, len(ordered))
        if room and one_more and len(members) - turn > extra:
            one_more, room = False, room - 1  # a later member may already hold that many
        extra -= one_more
        parts[member] = kept
        if room:
            wanting.append((member, room))
    place = 0
    for member, room in wanting:
        for topic, index in free[place : place + room]:
            parts[member].setdefault(topic, set()).add(index)
        place += room
    assert place >= len(free), "every partition has an owner"
    return {member: {topic: frozenset(indexes) for topic, indexes in part.items()} for member, part in parts.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Specs, Sizes], dict[str, Assignment]]]] = {
    "uniform": uniform_assignor,
    "range": range_assignor,
}
