"""Plans where replicas should be, from the current placement. No side effects.

    plan = propose(current, {1: "a", 2: "a", 3: "b"})                 # spread over these brokers
    plan = propose(current, brokers, replicas=3)                      # and give each partition three replicas
    moves = changes(current, plan)                                    # only what differs

A plan moves as little as possible. Replicas on brokers that are still allowed stay unless that leaves one broker with
more than its share. Two replicas of a partition share a rack only if there are fewer racks than replicas. Shares are
counted in replicas; among equals the broker with fewer bytes is chosen.
"""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Place = tuple[str, int]  # topic and partition
Replicas = tuple[int, ...]  # broker ids, the preferred leader first
Placement = dict[Place, Replicas]


class PlacementError(ValueError):
    """The plan asked for is impossible; the message says why."""


class ReplicaChange(NamedTuple):
    """How the replicas of one partition differ between now and the plan."""

    place: Place
    old: Replicas
    new: Replicas
    size: int  # bytes of one replica

    @property
    def added(self) -> list[int]:
        return [broker for broker in self.new if broker not in self.old]

    @property
    def removed(self) -> list[int]:
        return [broker for broker in self.old if broker not in self.new]

    @property
    def bytes_to_copy(self) -> int:
        return self.size * len(self.added)


def propose(
    current: Mapping[Place, Sequence[int]],
    brokers: Mapping[int, str | None],
    *,
    replicas: int | None = None,
    sizes: Mapping[Place, int] | None = None,
    spread: bool = True,
) -> Placement:
    """Place every partition on `brokers` (id to rack) only; with `spread`, no broker has more than its share.

    To drain a broker leave it out of `brokers`. `replicas` is the wanted replication factor; None keeps each
    partition's own.
    """
    if not brokers:
        raise PlacementError("no broker is left to place replicas on")
    wanted = {place: len(now) if replicas is None else replicas for place, now in current.items()}
    if (most := max(wanted.values(), default=1)) > len(brokers):
        raise PlacementError(f"{most} replicas need {most} brokers, there are {len(brokers)}")
    if min(wanted.values(), default=1) < 1:
        raise PlacementError("a partition needs at least one replica")
    plan = _Plan(brokers, sizes or {})
    for place in sorted(current):
        plan.keep(place, current[place], wanted[place])
    for place in sorted(current):
        plan.fill(place, wanted[place])
    if spread:
        plan.spread_replicas()
        plan.spread_leaders()
    return {place: tuple(plan.replicas[place]) for place in current}


def changes(
    current: Mapping[Place, Sequence[int]],
    plan: Mapping[Place, Sequence[int]],
    sizes: Mapping[Place, int] | None = None,
) -> list[ReplicaChange]:
    """The partitions whose replicas or their order change, in order."""
    return [
        ReplicaChange(place, tuple(current.get(place, ())), tuple(new), (sizes or {}).get(place, 0))
        for place, new in sorted(plan.items())
        if tuple(current.get(place, ())) != tuple(new)
    ]


class _Plan:
    """A placement under construction, with the number of replicas and bytes of each broker."""

    def __init__(self, brokers: Mapping[int, str | None], sizes: Mapping[Place, int]) -> None:
        # A broker without a rack counts as a rack of its own.
        self.racks = {broker: rack if rack is not None else f"\0{broker}" for broker, rack in brokers.items()}
        self.sizes = sizes
        self.replicas: dict[Place, list[int]] = {}
        self.count: Counter[int] = Counter(dict.fromkeys(sorted(brokers), 0))
        self.bytes: Counter[int] = Counter()

    def keep(self, place: Place, now: Sequence[int], wanted: int) -> None:
        """Keep the replicas that may stay: of allowed brokers, those in racks of their own first."""
        allowed = [broker for broker in dict.fromkeys(now) if broker in self.racks]
        first_of_rack = [one for i, one in enumerate(allowed) if self.racks[one] not in self._racks_of(allowed[:i])]
        ranked = first_of_rack + [one for one in allowed if one not in first_of_rack]
        if len(set(self.racks.values())) >= wanted:
            ranked = first_of_rack
        kept = set(ranked[:wanted])
        self.replicas[place] = [broker for broker in allowed if broker in kept]
        for broker in self.replicas[place]:
            self._count(place, broker, 1)

    def fill(self, place: Place, wanted: int) -> None:
        here = self.replicas[place]
        while len(here) < wanted:
            broker = min((one for one in self.racks if one not in here), key=lambda one: self._cost(one, here))
            here.append(broker)
            self._count(place, broker, 1)

    def spread_replicas(self) -> None:
        """Move replicas from brokers with more than their share to those with less, until none differs by two."""
        held: dict[int, list[tuple[int, Place]]] = {broker: [] for broker in self.racks}
        for place, here in self.replicas.items():
            for broker in here:
                held[broker].append((self.sizes.get(place, 0), place))
        for some in held.values():
            some.sort()
        while True:
            low_first = sorted(self.racks, key=lambda one: (self.count[one], self.bytes[one], one))
            if not any(self._move_one(held, high, low_first) for high in reversed(low_first)):
                return

    def _move_one(self, held: dict[int, list[tuple[int, Place]]], high: int, low_first: list[int]) -> bool:
        """Move the smallest movable replica from `high` to the emptiest broker that may have it."""
        for low in low_first:
            if self.count[high] - self.count[low] < 2:
                return False
            for entry in held[high]:
                place = entry[1]
                if self._may_move(place, high, low):
                    here = self.replicas[place]
                    here[here.index(high)] = low
                    held[high].remove(entry)
                    bisect.insort(held[low], entry)
                    self._count(place, high, -1)
                    self._count(place, low, 1)
                    return True
        return False

    def _may_move(self, place: Place, old: int, new: int) -> bool:
        others = [broker for broker in self.replicas[place] if broker != old]
        if new in others:
            return False
        racks = self._racks_of(others)
        return self.racks[new] not in racks or self.racks[old] in racks

    def spread_leaders(self) -> None:
        """Reorder replicas so that preferred leaders are balanced, too; this copies nothing."""
        leads = Counter(dict.fromkeys(self.racks, 0))
        leads.update(here[0] for here in self.replicas.values())
        improved = True
        while improved:
            improved = False
            for _, here in sorted(self.replicas.items()):
                best = min(here, key=lambda one: (leads[one], one))
                if leads[here[0]] - leads[best] >= 2:
                    leads[here[0]] -= 1
                    leads[best] += 1
                    here.remove(best)
                    here.insert(0, best)
                    improved = True

    def _cost(self, broker: int, beside: Iterable[int]) -> tuple[bool, int, int, int]:
        return self.racks[broker] in self._racks_of(beside), self.count[broker], self.bytes[broker], broker

    def _racks_of(self, brokers: Iterable[int]) -> set[str]:
        return {self.racks[broker] for broker in brokers}

    def _count(self, place: Place, broker: int, by: int) -> None:
        self.count[broker] += by
        self.bytes[broker] += by * self.sizes.get(place, 0)
