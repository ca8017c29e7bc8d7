"""Which brokers should hold which copies: proposals for a reassignment. Pure: what is there in, what should be out.

    plan = propose(current, brokers={1: "a", 2: "b", 3: None}, balance=True)      # spread, with the fewest moves
    plan = propose(current, brokers, leaving={3})                                 # drain a broker
    plan = propose(current, brokers, copies=3)                                    # change the number of copies
    for change in changes(current, plan, sizes): ...                              # what would be moved, in bytes

Copies stay where they are unless something speaks against it: the broker leaves or is unknown, there are too many of
them, two share a rack while another rack has none, or, with `balance`, their broker has more than its share. Brokers
of one plan end up within one copy of each other where racks allow it, and so do the leaders that are preferred, which
only needs another order and moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Collection

Assignment = Mapping[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]


class Change(NamedTuple):
    where: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int  # of one copy; -1: unknown

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(node for node in self.before if node not in self.after)

    @property
    def bytes(self) -> int:
        return max(0, self.size) * len(self.adding)


def propose(
    current: Assignment,
    brokers: Racks,
    *,
    leaving: Collection[int] = (),
    copies: int | None = None,
    balance: bool = False,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Where every copy should be. With sizes, small partitions are moved rather than large ones."""
    usable = {node: rack for node, rack in brokers.items() if node not in leaving}
    wanted = {where: copies or len(replicas) for where, replicas in current.items()}
    most = max(wanted.values(), default=0)
    if most > len(usable):
        raise Failed(f"{most} copies need {most} brokers, and {len(usable)} would be left to hold them")
    plan = Plan(current, usable)
    order = sorted(current, key=lambda where: ((sizes or {}).get(where, 0), where))
    for where in order:
        plan.trim(where, wanted[where])
    for where in order:
        plan.fill(where, wanted[where])
    for where in order:
        plan.part_racks(where)
    if balance:
        plan.level(order)
    plan.level_leaders(set(order) if balance else {where for where in order if plan.moved(where, current[where])})
    return plan.replicas()


def changes(current: Assignment, plan: Assignment, sizes: Mapping[TopicPartition, int] | None = None) -> list[Change]:
    """What differs, in order."""
    return [
        Change(where, current[where], after, (sizes or {}).get(where, -1))
        for where, after in sorted(plan.items())
        if current[where] != after
    ]


class Plan:
    """Copies by partition and by broker, kept in step."""

    def __init__(self, current: Assignment, brokers: Racks) -> None:
        self._brokers = brokers
        self._replicas = {where: [node for node in nodes if node in brokers] for where, nodes in current.items()}
        self._held: dict[int, set[TopicPartition]] = {node: set() for node in brokers}
        for where, nodes in self._replicas.items():
            for node in nodes:
                self._held[node].add(where)

    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {where: tuple(nodes) for where, nodes in self._replicas.items()}

    def moved(self, where: TopicPartition, before: tuple[int, ...]) -> bool:
        return set(self._replicas[where]) != set(before)

    def trim(self, where: TopicPartition, count: int) -> None:
        """Drop copies beyond the count: first those that share a rack, then those of the busiest; the leader stays."""
        nodes = self._replicas[where]
        while len(nodes) > count:
            racks = [self._brokers[node] for node in nodes]

            def burden(node: int, racks: list[str | None] = racks) -> tuple[bool, int, int]:
                rack = self._brokers[node]
                return rack is not None and racks.count(rack) > 1, len(self._held[node]), node

            self._drop(where, max(nodes[1:] or nodes, key=burden))

    def fill(self, where: TopicPartition, count: int) -> None:
        """Add copies on the least busy brokers, racks that have none first."""
        while len(self._replicas[where]) < count:
            self._replicas[where].append(self._best(where))
            self._held[self._replicas[where][-1]].add(where)

    def _best(self, where: TopicPartition, *, without: int | None = None) -> int:
        nodes = [node for node in self._replicas[where] if node != without]
        used = {self._brokers[node] for node in nodes} - {None}
        free = [node for node in self._brokers if node not in nodes and node != without]
        return min(free, key=lambda node: (self._brokers[node] in used, len(self._held[node]), node))

    def part_racks(self, where: TopicPartition) -> None:
        """Give up a copy that shares its rack, as long as some rack has none."""
        while (worst := self._doubled(where)) is not None:
            self._replace(where, worst, self._best(where, without=worst))

    def _doubled(self, where: TopicPartition) -> int | None:
        nodes = self._replicas[where]
        racks = [self._brokers[node] for node in nodes]
        if not {rack for rack in self._brokers.values() if rack is not None} - set(racks):
            return None
        shared = [node for node in nodes if (rack := self._brokers[node]) is not None and racks.count(rack) > 1]
        return max(shared[1:], key=lambda node: (len(self._held[node]), node)) if len(shared) > 1 else None

    def level(self, order: list[TopicPartition]) -> None:
        """Move copies from the busiest brokers to the idlest until they are within one, racks permitting."""
        rank = {where: place for place, where in enumerate(order)}
        stuck: set[int] = set()
        while True:
            givers = [node for node in self._brokers if node not in stuck]
            if not givers:
                return
            giver = max(givers, key=lambda node: (len(self._held[node]), node))
            takers = sorted(self._brokers, key=lambda node: (len(self._held[node]), node))
            if not any(self._give(giver, taker, rank) for taker in takers):
                stuck.add(giver)

    def _give(self, giver: int, taker: int, rank: dict[TopicPartition, int]) -> bool:
        if len(self._held[giver]) - len(self._held[taker]) < 2:
            return False
        fit = [where for where in self._held[giver] - self._held[taker] if self._may(where, giver, taker)]
        if not fit:
            return False
        self._replace(min(fit, key=rank.__getitem__), giver, taker)
        return True

    def _may(self, where: TopicPartition, giver: int, taker: int) -> bool:
        """Not if two copies would then share a rack that did not before."""
        rack = self._brokers[taker]
        others = [self._brokers[node] for node in self._replicas[where] if node != giver]
        return rack is None or rack == self._brokers[giver] or rack not in others

    def level_leaders(self, wheres: set[TopicPartition]) -> None:
        """Put another copy first where its broker would lead less than the one that is; nothing is moved by that."""
        leads = dict.fromkeys(self._brokers, 0)
        for nodes in self._replicas.values():
            leads[nodes[0]] += 1
        better = True
        while better:
            better = False
            for where in sorted(wheres):
                nodes = self._replicas[where]
                least = min(nodes, key=lambda node: (leads[node], nodes.index(node)))
                if leads[nodes[0]] - leads[least] >= 2:
                    leads[nodes[0]] -= 1
                    leads[least] += 1
                    place = nodes.index(least)
                    nodes[0], nodes[place] = nodes[place], nodes[0]
                    better = True

    def _drop(self, where: TopicPartition, node: int) -> None:
        self._replicas[where].remove(node)
        self._held[node].discard(where)

    def _replace(self, where: TopicPartition, node: int, by: int) -> None:
        nodes = self._replicas[where]
        nodes[nodes.index(node)] = by
        self._held[node].discard(where)
        self._held[by].add(where)
