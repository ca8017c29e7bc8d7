"""The next step of a member from the partitions it holds to its target.

A partition has one holder at a time. So a member first revokes what is not in its target; until it confirms that, it
stays in its epoch. Then it advances to the epoch of the target and takes what is free. It takes partitions that other
members still hold later, when they are released.

                          some to revoke
              ┌───────────────────────────────► UNREVOKED
              │                                     │ revoked
    new target│                                     ▼
    STABLE ◄──┴── all of it taken ── take what is free ── some of it is not ──► UNRELEASED
                                         ▲                                          │
                                         └────────── at each heartbeat ─────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coord.groups.consumer_member import Held, Holding, MemberState
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coord.groups.assignors import Assignment

Owned = dict[bytes, set[int]]  # partitions that a member reports as owned


class Goal(NamedTuple):
    """The target of a member."""

    epoch: int  # of the target assignment
    part: Assignment  # the member's part of it
    topics: frozenset[bytes]  # subscribed topics: it may not hold other topics, even if they are in the target


def reconcile(
    holding: Holding,
    goal: Goal,
    *,
    owned: Owned | None,
    is_taken: Callable[[bytes, int], bool],
    changed: bool,
) -> Holding:
    """The member's holding after this step.

    `owned`: the partitions that it reported, or None if it did not report any; `is_taken`: whether some member holds
    a partition; `changed`: the member has just changed its subscription.
    """
    step = Step(holding, goal, owned, is_taken)
    if holding.state is MemberState.STABLE:
        if holding.epoch != goal.epoch:
            return step.advance(holding.epoch)
        return step.shed() if changed else holding
    if holding.state is MemberState.UNREVOKED:
        if step.still_has(holding.revoking):
            return step.shed() if changed else holding
        return step.advance(holding.epoch)
    if holding.state is MemberState.UNRELEASED:
        return step.advance(holding.epoch)
    if owned is None or owned:
        raise BrokerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return step.advance(goal.epoch)


class Step:
    def __init__(
        self, holding: Holding, goal: Goal, owned: Owned | None, is_taken: Callable[[bytes, int], bool]
    ) -> None:
        self.holding = holding
        self.goal = goal
        self.owned = owned
        self.is_taken = is_taken

    def still_has(self, revoking: Held) -> bool:
        """Whether the member still has some of these, according to its last report. Without a report: yes."""
        if self.owned is None:
            return True
        return any(not self.owned[topic].isdisjoint(revoking.get(topic, ())) for topic in self.owned)

    def advance(self, epoch: int) -> Holding:
        holding, goal = self.holding, self.goal
        assigned: Held = {}
        revoking: Held = {}
        free: list[tuple[bytes, int]] = []
        waiting = False
        for topic in {**goal.part, **holding.assigned}:
            target = goal.part.get(topic, frozenset()) if topic in goal.topics else frozenset()
            present = holding.assigned.get(topic, {})
            kept = {index: since for index, since in present.items() if index in target}
            if kept:
                assigned[topic] = kept
            if len(kept) < len(present):
                revoking[topic] = {index: since for index, since in present.items() if index not in target}
            for index in target - kept.keys():
                # It may take back what it is revoking: no other member can hold that.
                if self.is_taken(topic, index) and index not in holding.revoking.get(topic, ()):
                    waiting = True
                else:
                    free.append((topic, index))
        if revoking and self.still_has(revoking):
            return holding.move_to(epoch, MemberState.UNREVOKED, assigned, revoking)
        for topic, index in free:
            assigned.setdefault(topic, {})[index] = goal.epoch
        return holding.move_to(goal.epoch, MemberState.UNRELEASED if waiting else MemberState.STABLE, assigned)

    def shed(self) -> Holding:
        """Revoke topics that the member is no longer subscribed to, without waiting for a new target."""
        holding = self.holding
        kept = {topic: held for topic, held in holding.assigned.items() if topic in self.goal.topics}
        if len(kept) == len(holding.assigned):
            return holding
        revoking = union(holding.revoking, {t: held for t, held in holding.assigned.items() if t not in kept})
        if self.still_has(revoking):
            return holding.move_to(holding.epoch, MemberState.UNREVOKED, kept, revoking)
        return holding.move_to(holding.epoch, holding.state, kept, holding.revoking)


def union(one: Held, other: Mapping[bytes, Mapping[int, int]]) -> Held:
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}
