"""One member of a consumer group, as in its records: its subscription, and the partitions it holds.

    Subscription   what the member sent; a change triggers a new assignment
    Holding        the partitions it holds, and its epoch

    STABLE               it holds its target assignment
    UNREVOKED            it must first revoke some partitions; until it confirms that, it stays in its epoch
    UNRELEASED           it has reached the target's epoch, but other members still hold some of its partitions

All classes are immutable: an operation makes a new member and writes its records.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Held = dict[bytes, dict[int, int]]  # topic id → partition → the epoch in which it was assigned
NOTHING_HELD: Final[Held] = {}

JOINING: Final = 0  # the epoch of a member that is not in the group yet
LEAVING: Final = -1
LEAVING_FOR_NOW: Final = -2  # a static member leaves and will return


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127  # written by a newer broker


class ClassicMetadata(NamedTuple):
    """What a member with the classic protocol sent in addition to its subscription."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # in order of preference

    @property
    def protocol(self) -> str:
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        return self.protocols[0][1]


class Subscription(NamedTuple):
    instance: str | None = None  # group.instance.id of a static member
    rack: str | None = None
    client_id: str = ""
    host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str = ""  # a regular expression, or empty
    rebalance_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None


class Holding(NamedTuple):
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD

    def is_reconciled(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def move_to(self, epoch: int, state: MemberState, assigned: Held, revoking: Held = NOTHING_HELD) -> Holding:
        return Holding(epoch, self.epoch, state, assigned, revoking)


class ConsumerMember(NamedTuple):
    id: str
    subscription: Subscription = Subscription()
    holding: Holding = Holding()

    @property
    def epoch(self) -> int:
        return self.holding.epoch

    def names(self, patterns: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The topics that the member is subscribed to; `patterns` maps each regular expression to its topics."""
        wanted = self.subscription
        if not wanted.pattern:
            return wanted.topics
        found = patterns.get(wanted.pattern, frozenset())  # no topics if it was not looked up yet
        return found if not wanted.topics else wanted.topics | found


def same_partitions(one: Held, other: Held) -> bool:
    return one.keys() == other.keys() and all(one[topic].keys() == other[topic].keys() for topic in one)
