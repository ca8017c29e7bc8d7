"""The events that group members saw, and the laws that hold for every such history.

Events are those of hosts/program.py; the driver adds what happens to whole processes: `killed`, `frozen` (SIGSTOP) and
`thawed`, and `away` when the broker was killed. All have times of one clock. The laws (each function returns a list of
violations):

    one_owner      a partition has one owner at a time: an ownership begins with `assigned` and ends with `revoked`,
                   `left` or `killed`. Only one that ends with `lost`, or whose owner was frozen or without its broker,
                   may overlap the next, and then its commits are refused
    one_reader     only the owner reads, offsets without gaps, from the committed offset on
    no_way_back    acknowledged commits of a partition never go back
    nothing_lost   every record of every partition was read, and the broker remembers the last commit
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ENDS = frozenset({"revoked", "lost", "left", "killed", "failed"})
# A commit that failed in one of these ways is none; after another failure the broker may have it all the same.
CERTAIN = frozenset({
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID", "STALE_MEMBER_EPOCH",
    "CommitFailedException", "RebalanceInProgressException", "FencedInstanceIdException",
    "CommitFailedError", "RebalanceInProgressError", "IllegalGenerationError", "UnknownMemberIdError",
    "FencedInstanceIdError",
})  # fmt: skip


class Event(NamedTuple):
    at: int
    group: str
    member: str
    what: str
    facts: Mapping[str, Any] = {}  # never written to

    def __str__(self) -> str:
        return f"{self.at / 1e9:.6f} {self.member} {self.what} {dict(self.facts) or ''}".rstrip()


class Ownership(NamedTuple):
    part: str
    member: str
    start: int
    end: int | None = None
    how: str = ""  # the event that ended it
    frozen: int | None = None  # when its owner was frozen, or its broker went away, if that happened

    def holds(self, at: int) -> bool:
        return self.start <= at and (self.end is None or at <= self.end)

    def may_be_taken(self, at: int) -> bool:
        """Whether the group may have assigned the partition to another member by then without this owner's consent."""
        return not self.holds(at) or self.how == "lost" or (self.frozen is not None and self.frozen < at)


def ordered(events: Iterable[Event]) -> list[Event]:
    """By time. The answer to a commit sent before a freeze is read after it, but was given before."""
    began: dict[str, int] = {}  # the commit that is under way
    thawed: dict[str, int] = {}
    found = []
    for event in sorted(events, key=lambda event: event.at):
        if event.what == "thawed":
            thawed[event.member] = event.at
        elif event.what == "committing":
            began[event.member] = event.at
        elif event.what == "committed" and began.get(event.member, event.at) < thawed.get(event.member, 0):
            event = event._replace(at=began[event.member])
        found.append(event)
    return sorted(found, key=lambda event: event.at)


def ownerships(events: Sequence[Event]) -> list[Ownership]:
    """Who owned what and when, in the order in which the ownerships began."""
    held: dict[tuple[str, str], Ownership] = {}
    found = []
    for event in ordered(events):
        if event.what == "assigned":
            for part in event.facts["parts"]:
                held.setdefault((event.member, part), Ownership(part, event.member, event.at))
        elif event.what == "away":
            held = {key: ownership._replace(frozen=event.at) for key, ownership in held.items()}
        elif event.what in ENDS or event.what == "frozen":
            parts = event.facts.get("parts")
            for key in [key for key in held if key[0] == event.member and (parts is None or key[1] in parts)]:
                if event.what == "frozen":
                    held[key] = held[key]._replace(frozen=event.at)
                else:
                    found.append(held.pop(key)._replace(end=event.at, how=event.what))
    return sorted([*found, *held.values()], key=lambda ownership: ownership.start)


def by_part(owned: Sequence[Ownership]) -> dict[str, list[Ownership]]:
    found: dict[str, list[Ownership]] = {}
    for ownership in owned:
        found.setdefault(ownership.part, []).append(ownership)
    return found


def one_owner(events: Sequence[Event]) -> list[str]:
    breaches = []
    commits = [event for event in ordered(events) if event.what == "committed"]
    for part, owned in by_part(ownerships(events)).items():
        for at, later in enumerate(owned):
            for earlier in owned[:at]:
                if not earlier.may_be_taken(later.start):
                    breaches.append(f"{part} has two owners: {earlier} and {later}")
                breaches += [
                    f"{event} although {later.member} was the owner of {part} by then"
                    for event in commits
                    if event.member == earlier.member != later.member and part in event.facts["offsets"]
                    and later.start < event.at and earlier.holds(event.at)
                ]  # fmt: skip
    return breaches


def one_owner_in_a_generation(events: Sequence[Event]) -> list[str]:
    """For members that know their generation (classic groups): generations rise, and each has one owner for a part."""
    breaches = []
    owners: dict[tuple[int, str], str] = {}
    newest: dict[str, int] = {}
    for event in ordered(events):
        if event.what != "assigned" or event.facts.get("generation") is None:
            continue
        generation = event.facts["generation"]
        if generation < newest.get(event.member, 0):
            breaches.append(f"{event}: a generation before {newest[event.member]}")
        newest[event.member] = generation
        for part in event.facts["parts"]:
            owner = owners.setdefault((generation, part), event.member)
            if owner != event.member:
                breaches.append(f"generation {generation} gives {part} to {owner} and to {event.member}")
    return breaches


class Reading:
    """How far one partition was read and committed, at one point of a history."""

    def __init__(self) -> None:
        self.owner: str | None = None  # the member of the latest poll
        self.next = 0
        self.committed = 0
        self.perhaps: set[int] = set()  # commits without an answer
        self.again = False  # the owner may read from the commit again: its commit was refused, or its broker away


def one_reader(events: Sequence[Event]) -> list[str]:
    breaches = []
    readings: dict[str, Reading] = {}
    held = by_part(ownerships(events))
    started: dict[tuple[str, str], int] = {}  # the ownership of the latest poll
    began: dict[str, int] = {}  # the commit that is under way
    away = -1
    for event in ordered(events):
        if event.what == "polled":
            part = event.facts["part"]
            reading = readings.setdefault(part, Reading())
            first, last = event.facts["first"], event.facts["last"]
            if event.facts["count"] != last - first + 1:
                breaches.append(f"{event}: offsets with gaps")
            owned = [own for own in held.get(part, ()) if own.member == event.member and own.holds(event.at)]
            if not owned:
                breaches.append(f"{event}: not its owner")
                continue
            if taken(owned[0], held[part], event.at):
                continue  # what it had in its hands when it froze; its commit is refused
            fresh = started.get((event.member, part)) != owned[0].start or reading.owner != event.member
            allowed = {reading.committed, *reading.perhaps} if fresh else {reading.next}
            if reading.again:
                allowed |= {reading.committed, *reading.perhaps}
            if first not in allowed:
                breaches.append(f"{event}: expected to begin at {sorted(allowed)}")
            started[event.member, part] = owned[0].start
            reading.owner, reading.next, reading.again = event.member, last + 1, False
        elif event.what == "away":
            away = event.at
            for reading in readings.values():
                reading.again = True
        elif event.what == "committing":
            began[event.member] = event.at
            for part, offset in event.facts["offsets"].items():
                readings.setdefault(part, Reading()).perhaps.add(offset)
        elif event.what == "committed":
            for part, offset in event.facts["offsets"].items():
                readings[part].committed = offset
                readings[part].perhaps.clear()
        elif event.what == "refused":
            for part, offset in event.facts["offsets"].items():
                readings[part].again = True
                # One from before the broker was away may have been stored, and refused when the client sent it again.
                if event.facts["error"] in CERTAIN and began[event.member] > away:
                    readings[part].perhaps.discard(offset)
    return breaches


def taken(mine: Ownership, owned: Sequence[Ownership], at: int) -> bool:
    return any(mine.start < other.start < at and other.member != mine.member for other in owned)


def no_way_back(events: Sequence[Event]) -> list[str]:
    breaches = []
    committed: dict[str, Event] = {}
    for event in ordered(events):
        if event.what == "committed":
            for part, offset in event.facts["offsets"].items():
                if part in committed and offset < committed[part].facts["offsets"][part]:
                    breaches.append(f"{part}: {event} after {committed[part]}")
                committed[part] = event
    return breaches


def nothing_lost(events: Sequence[Event], ends: Mapping[str, int], remembered: Mapping[str, int]) -> list[str]:
    """`ends`: how many records each partition has; `remembered`: what the broker answers for the group at the end."""
    breaches = []
    read: dict[str, set[int]] = {part: set() for part in ends}
    last = dict.fromkeys(ends, 0)
    for event in ordered(events):
        if event.what == "polled":
            read[event.facts["part"]].update(range(event.facts["first"], event.facts["last"] + 1))
        elif event.what == "committed":
            last |= event.facts["offsets"]
    for part, end in ends.items():
        if missing := set(range(end)) - read[part]:
            breaches.append(f"{part}: {len(missing)} of {end} records were never read, first {min(missing)}")
        if remembered.get(part, 0) != last[part]:
            breaches.append(f"{part}: committed {last[part]}, remembered {remembered.get(part)}")
    return breaches


def taken_for_nothing(events: Sequence[Event]) -> list[str]:
    """Partitions that were revoked and went back to the same member, as they do in every eager rebalance."""
    breaches = []
    for part, owned in by_part(ownerships(events)).items():
        breaches += [
            f"{part} was taken from {before.member} and given back"
            for before, after in pairwise(owned)
            if before.member == after.member and before.how == "revoked"
        ]
    return breaches


def failures(events: Sequence[Event]) -> list[str]:
    return [
        f"{event.member} {event.what}: {event.facts['error']}" for event in events if event.what in ("failed", "raised")
    ]
