"""A consumer group (KIP-848): the broker assigns the partitions, and each member reconciles at its own pace.

    group epoch     rises when members, subscriptions or topics change
    target          the assignment that was computed for a group epoch
    member epoch    the epoch whose target a member has reached

    Empty ──► Assigning ──target computed──► Reconciling ──all members have reached it──► Stable
              a newer group epoch leads back to Assigning

All state here except the deadlines comes from records and changes only through `apply`. The operations are in
`consuming.py`, `change.py`, `guests.py` and `migration.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ottla.coord.formats import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.coord.groups import consumer_records as records
from ottla.coord.groups.consumer_member import LEAVING, ConsumerMember, Holding, MemberState
from ottla.coord.groups.consumer_records import Resolved
from ottla.coord.groups.deadlines import Deadlines
from ottla.coord.groups.offsets import NO_EXPIRY
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.image import Image
    from ottla.coord.groups.assignors import Assignment
    from ottla.coord.groups.offsets import CommittedOffset
    from ottla.coord.groups.outcome import Outcome
    from ottla.coord.machine import Record, Token

KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
COMMITS_WITH_EPOCH: Final = 9  # the first OffsetCommit version with member epochs
NO_TARGET: Final = -1
GONE: Final = Holding(epoch=LEAVING, previous_epoch=LEAVING)


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        # From records.
        self.epoch = 1
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Assignment] = {}
        self.target_epoch = 0
        self.target_ms = 0  # when the target was computed; 0: not yet, or by an older broker
        self.patterns: dict[str, Resolved] = {}
        self.partition_metadata = False  # whether there is a record of type 4, which Kafka before 4.1 wrote
        # Derived from the records.
        self.static: dict[str, str] = {}  # group.instance.id → member id
        self.owners: dict[tuple[bytes, int], str] = {}  # who holds a partition, or has yet to revoke it
        self.pattern_counts: Counter[str] = Counter()  # members subscribed to each regular expression
        self.classic_counts: Counter[str] = Counter()  # classic members that offer each assignor
        # In memory only.
        self.deadlines = Deadlines(group_id)
        self.seen = 0  # the version of the image's topics at the last check
        self.patterns_ms = 0  # when the regular expressions were last looked up
        self.patterns_due_ms = 0  # when they are due to be looked up again

    # The Group protocol.

    @property
    def phase(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reconciled = all(one.holding.is_reconciled(self.target_epoch) for one in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def empty(self) -> bool:
        return not self.members

    def check_commit(
        self, member_id: str, instance: str | None, epoch: int, *, version: int, transactional: bool
    ) -> Callable[[bytes, int], ErrorCode] | None:
        """Raises BrokerError unless this member may commit.

        A member with an older epoch may commit partitions that it has held since then. In that case this returns a
        check to call for each partition.
        """
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == LEAVING and not member_id and instance is None:
            return None
        member = self.member(member_id)
        classic = member.subscription.classic is not None
        if not transactional and not classic and version < COMMITS_WITH_EPOCH:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        if epoch == member.epoch:
            return None
        stale = ErrorCode.ILLEGAL_GENERATION if classic or transactional else ErrorCode.STALE_MEMBER_EPOCH
        if epoch > member.epoch:
            raise BrokerError(stale)
        holding = member.holding

        def check(topic: bytes, index: int) -> ErrorCode:
            since = holding.assigned.get(topic, {}).get(index, holding.revoking.get(topic, {}).get(index))
            return stale if since is None or epoch < since else ErrorCode.NONE

        return check

    def note_commit(self, member_id: str, now_ms: int) -> None:
        """Does nothing: only heartbeats extend the session."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            classic = member.subscription.classic is not None
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH)

    def check_deletion(self) -> None:
        if self.members:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_deletion(self) -> None:
        """Allowed, unless members are subscribed to the topic."""

    def subscribes(self, topic: str) -> bool:
        names = self.names_by_pattern()
        return any(topic in one.names(names) for one in self.members.values())

    def has_expired(self, one: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        return now_ms >= one.expires_ms if one.expires_ms != NO_EXPIRY else now_ms - one.time_ms >= retention_ms

    def tombstones(self) -> list[Record]:
        return records.without_group(self.id, self.members, self.patterns)

    def wake(self, now_ms: int, out: Outcome, session_ms: int) -> None:
        """Resume after a load. Every member gets its full timeouts."""
        for member in self.members.values():
            classic, holding = member.subscription.classic, member.holding
            self.deadlines.silence(member.id, now_ms + (classic.session_ms if classic else session_ms), out)
            if holding.state is MemberState.UNREVOKED and not classic:
                self.deadlines.revoke(member.id, holding.epoch, now_ms + member.subscription.rebalance_ms, out)

    def unload(self) -> list[tuple[Token, Any]]:
        return []  # consumer groups have no pending requests

    def durable(self) -> object:
        return (
            (self.epoch, self.metadata_hash, self.members, self.target, self.target_epoch, self.target_ms),
            (self.patterns, self.partition_metadata),
        )

    # Queries.

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}.")
        return member

    def static_member(self, instance: str | None) -> ConsumerMember | None:
        return self.members.get(self.static.get(instance, "")) if instance is not None else None

    def unresolved_patterns(self, image: Image, now_ms: int) -> list[str]:
        """The patterns that the next heartbeat may have to look up; none if no topics have changed."""
        if not self.pattern_counts or (self.seen == image.topics.version and now_ms < self.patterns_due_ms):
            return []
        return [text for text, count in self.pattern_counts.items() if count > 0]

    def names_by_pattern(self) -> dict[str, frozenset[str]]:
        return {text: resolved.topics for text, resolved in self.patterns.items()}

    def is_taken(self, topic: bytes, index: int) -> bool:
        return (topic, index) in self.owners

    @property
    def classic_count(self) -> int:
        return sum(one.subscription.classic is not None for one in self.members.values())

    # Records.

    def apply(self, key: Any, value: Any) -> None:
        """Apply a record of this group, of any type except the tombstone of the group itself."""
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            self._hold(key.member_id, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if value is None:
                self.target.pop(key.member_id, None)
            else:
                self.target[key.member_id] = records.read_target(value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            self.target_epoch = NO_TARGET if value is None else value.assignment_epoch
            self.target_ms = 0 if value is None else value.assignment_timestamp
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            self._subscribe(key.member_id, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ConsumerGroupPartitionMetadataKey):
            self.partition_metadata = value is not None
        elif value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            self.patterns[key.regular_expression] = Resolved(frozenset(value.topics), value.timestamp)

    def _hold(self, member_id: str, value: Any) -> None:
        member = self.members.get(member_id)
        if value is None and member is None:
            return
        member = member or ConsumerMember(member_id)
        self._release(member)
        holding = GONE if value is None else records.read_holding(value)
        self.members[member_id] = member._replace(holding=holding)
        for held in (holding.assigned, holding.revoking):
            self.owners.update(((topic, index), member_id) for topic in held for index in held[topic])

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.holding.assigned, member.holding.revoking):
            for topic, indexes in held.items():
                for index in indexes:
                    if self.owners.get((topic, index)) == member.id:
                        del self.owners[topic, index]

    def _subscribe(self, member_id: str, value: Any) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before, -1)
        if value is None:
            if before is not None:
                self._release(before)
                del self.members[member_id]
                self.deadlines.forget(member_id)
                if self.static.get(before.subscription.instance or "") == member_id:
                    del self.static[before.subscription.instance or ""]
            return
        wanted = records.read_subscription(value)
        member = (before or ConsumerMember(member_id))._replace(subscription=wanted)
        self.members[member_id] = member
        self._count(member, 1)
        if wanted.instance is not None:
            self.static[wanted.instance] = member_id

    def _count(self, member: ConsumerMember, change: int) -> None:
        wanted = member.subscription
        if wanted.pattern:
            self.pattern_counts[wanted.pattern] += change
        if wanted.classic is not None:
            for name, _ in wanted.classic.protocols:
                self.classic_counts[name] += change
