"""The uniform assignor when members are subscribed to different topics: balance first, then stickiness.

1. A member keeps its partitions of topics it is still subscribed to.
2. Unassigned partitions go to the least loaded subscriber of their topic, hardest topics (most partitions per
   subscriber) first.
3. Topic by topic, partitions move from the most loaded to the least loaded subscribers until they differ by one at
   most; this is repeated over all topics until a round moves nothing. Partly overlapping subscriptions can make that
   slow, so the number of rounds is bounded.

A member is identified here by its position in the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coord.groups.assignors import Assignment, Sizes, Specs

NOBODY: Final = -1
ROUNDS_MAX: Final = 16  # a round about halves the imbalance


class Balance:
    def __init__(self, members: Specs, sizes: Sizes) -> None:
        self.names = list(members)
        self.subscribers: dict[bytes, list[int]] = {}
        for number, spec in enumerate(members.values()):
            for topic in spec.topics:
                self.subscribers.setdefault(topic, []).append(number)
        self.owners = {topic: [NOBODY] * sizes[topic] for topic in self.subscribers}
        self.loads = [0] * len(self.names)
        for number, spec in enumerate(members.values()):
            for topic in spec.part.keys() & spec.topics:
                for index in spec.part[topic]:
                    self.owners[topic][index] = number
                self.loads[number] += len(spec.part[topic])

    def run(self) -> dict[str, Assignment]:
        for topic in self._hardest_first(self.subscribers):
            self._give_out(topic)
        self._level([topic for topic in self.subscribers if len(self.subscribers[topic]) > 1])
        parts: dict[str, dict[bytes, set[int]]] = {name: {} for name in self.names}
        for topic, owners in self.owners.items():
            for index, number in enumerate(owners):
                parts[self.names[number]].setdefault(topic, set()).add(index)
        return {name: {topic: frozenset(indexes) for topic, indexes in part.items()} for name, part in parts.items()}

    def _hardest_first(self, topics: Iterable[bytes]) -> list[bytes]:
        def rank(topic: bytes) -> tuple[float, int, int, int]:
            count = len(self.subscribers[topic])
            high, low = (int.from_bytes(half, signed=True) for half in (topic[:8], topic[8:]))
            return (-len(self.owners[topic]) / count, count, high, low)  # ids compare as two signed longs, as in Java

        return sorted(topics, key=rank)

    def _give_out(self, topic: bytes) -> None:
        owners = self.owners[topic]
        free = [index for index, owner in enumerate(owners) if owner == NOBODY]
        if free:
            ladder = Ladder(self.subscribers[topic], self.loads)
            for index in free:
                owners[index] = number = ladder.least()
                self.loads[number] += 1

    def _level(self, topics: list[bytes]) -> None:
        ordered = self._hardest_first(topics)
        last = NOBODY  # position of the topic that was changed last
        for _ in range(ROUNDS_MAX):
            for place, topic in enumerate(ordered):
                if place == last:
                    return
                if self._level_topic(topic) or last == NOBODY:
                    last = place

    def _level_topic(self, topic: bytes) -> int:
        """Move partitions of one topic from the most to the least loaded. Returns how many were moved."""
        ladder = Ladder(self.subscribers[topic], self.loads)
        if ladder.spread <= 1:
            return 0
        owners = self.owners[topic]
        held: dict[int, list[int]] = {}
        for index, owner in enumerate(owners):
            held.setdefault(owner, []).append(index)
        moved = 0
        while not ladder.level:
            giver = ladder.most()
            while giver != NOBODY and not held.get(giver):
                ladder.exclude()
                giver = ladder.most()
            if giver == NOBODY:
                break
            index = held[giver].pop()
            taker = ladder.least()
            if ladder.level:
                break
            owners[index] = taker
            self.loads[giver] -= 1
            self.loads[taker] += 1
            moved += 1
        return moved


class Ladder:
    """Members sorted by load, with a range of the least loaded at one end and of the most loaded at the other.

    All members of a range start with the same load. A member taken from a range is assumed to gain or lose one
    partition. When all members of a range were taken, its level moves by one, and neighbours at that level join it.
    """

    def __init__(self, members: list[int], loads: list[int]) -> None:
        assert members, "a topic here has subscribers"
        self.loads = loads  # shared: it changes as partitions move
        self.members = sorted(members, key=lambda number: (loads[number], number))
        lowest, highest = loads[self.members[0]], loads[self.members[-1]]
        self.spread = highest - lowest
        self.low_end, self.low_level, self.low_next = 0, lowest - 1, 0
        self.high_start = self.high_end = len(self.members)
        self.high_level, self.high_next = highest + 1, len(self.members) - 1

    @property
    def level(self) -> bool:
        return self.high_level - self.low_level <= 1

    def least(self) -> int:
        if self.low_next >= self.low_end:
            self.low_level += 1
            while self.low_end < len(self.members) and self.loads[self.members[self.low_end]] == self.low_level:
                self.low_end += 1
            self.low_next = 0
        number = self.members[self.low_next]
        self.low_next += 1
        return number

    def most(self) -> int:
        """The member that gives a partition next; NOBODY if all were excluded."""
        if self.high_next < self.high_start:
            if self.high_end <= self.high_start and self.high_start > 0:
                self.high_level = self.loads[self.members[self.high_start - 1]]  # the range was emptied by exclusions
            else:
                self.high_level -= 1
            while self.high_start > 0 and self.loads[self.members[self.high_start - 1]] == self.high_level:
                self.high_start -= 1
            self.high_next = self.high_end - 1
        if self.high_next < 0:
            return NOBODY
        number = self.members[self.high_next]
        self.high_next -= 1
        return number

    def exclude(self) -> None:
        """Exclude the member that `most` just returned: it has no partition to give."""
        place, last = self.high_next + 1, self.high_end - 1
        self.members[place], self.members[last] = self.members[last], self.members[place]
        self.high_end -= 1
