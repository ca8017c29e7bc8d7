"""A classic group: members join, one of them (the leader) assigns the partitions, and syncs fetch the assignment.

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance ──leader's sync──► Stable
                        │      ▲                                             │                                  │
                        │      └──── somebody joins, leaves or falls silent ─┴──────────────────────────────────┘
                        └──── all have left ──► Empty

Every pass through CompletingRebalance is a generation, and only members of the current one may commit. A join waits for
the other members, a sync for the leader's sync. A record of the group is written when it becomes stable and when it
becomes empty. `written` is the last one, and only it survives a restart. Pending requests and deadlines are in memory.

A heartbeat only moves the member's deadline. The group has one timer, set for the earliest deadline; when it fires and
the deadline has moved, it is set again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ottla.coord.formats import GroupMetadataKey, GroupMetadataValue, MemberMetadata, encode_record
from ottla.coord.groups.consumer_protocol import CONSUMER, read_topics
from ottla.coord.groups.member import NEVER, ClassicMember
from ottla.coord.groups.offsets import NO_EXPIRY
from ottla.coord.groups.outcome import Outcome
from ottla.coord.groups.roster import Roster
from ottla.coord.machine import wall_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coord.groups.group import GroupRules
    from ottla.coord.groups.offsets import CommittedOffset
    from ottla.coord.machine import Decision, Record, Token
    from ottla.wire.messages.groups import SyncGroupRequest

PROTOCOL_NULLABLE = 7  # the first JoinGroup version whose response may have no protocol
NO_TIME = -1


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, rules: GroupRules, now_ms: int | None = None) -> None:
        self.id = group_id
        self.written: GroupMetadataValue | None = None
        self.rules = rules
        self.state = GroupState.EMPTY
        # When the group entered this state; None if an older broker did not record it.
        self.since_ms = None if now_ms is None else wall_ms(now_ms)
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.roster = Roster()
        self.invited: dict[str, int] = {}  # member ids handed out that have not joined yet → deadline
        self.unsynced: set[str] = set()  # members that have not fetched their assignment in this generation
        self.first = False  # in the initial rebalance of an empty group, which waits for more members
        self.grown = False  # a new member has joined since that wait began
        self.wait_ms = self.wait_left_ms = 0  # the length of that wait, and by how much it may still be extended
        self.armed_ms = NEVER  # what the session timer is set for
        self._subscriptions: list[bytes] | None = None  # of the members of this generation; None before the first
        self._topics: tuple[list[bytes], frozenset[str] | None] | None = None  # the topics in those, once decoded

    @property
    def phase(self) -> str:
        return self.state.value

    @property
    def empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def wake(self, now_ms: int, out: Outcome) -> None:
        """Resume after the record was loaded. Every member gets a full session timeout."""
        value = self.written
        if value is None:
            return
        self.protocol_type = value.protocol_type or None
        self.protocol, self.generation = value.protocol, value.generation
        self.since_ms = None if value.current_state_timestamp == NO_TIME else value.current_state_timestamp
        for one in value.members:
            member = ClassicMember.from_record(value.protocol, one)
            self.roster.add(member)
            self.expect(member, now_ms + member.session_ms, out)
        self.roster.leader = value.leader if value.leader in self.roster.members else self.roster.leader
        self._subscriptions = [one.subscription for one in value.members]
        if value.members:
            self.state = GroupState.STABLE
        if len(value.members) > self.rules.size_max:  # group.max.size was lowered: consumers may commit first
            self.prepare(now_ms, out)

    # The Group protocol.

    def check_commit(
        self, member_id: str, instance: str | None, epoch: int, *, version: int, transactional: bool
    ) -> None:
        if epoch < 0 and self.state is GroupState.EMPTY:
            return  # a client that only stores offsets, without members
        if epoch >= 0 or member_id or instance is not None:
            self.roster.check(member_id, instance)
            if epoch != self.generation:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING and not transactional:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)

    def note_commit(self, member_id: str, now_ms: int) -> None:
        member = self.roster.members.get(member_id)
        if member is not None and self.state is not GroupState.COMPLETING:
            member.deadline_ms = now_ms + member.session_ms

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Everyone may fetch."""

    def check_deletion(self) -> None:
        if self.state is not GroupState.EMPTY:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_deletion(self) -> None:
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)

    def subscribes(self, topic: str) -> bool:
        topics = self.topics
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def has_expired(self, one: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        if self.protocol_type is None:
            base = one.time_ms
        elif self.state is GroupState.EMPTY:
            base = one.time_ms if self.since_ms is None else self.since_ms
        elif self.state is GroupState.STABLE and self.topics is not None:
            base = one.time_ms
        else:
            return False
        return now_ms >= one.expires_ms if one.expires_ms != NO_EXPIRY else now_ms - base >= retention_ms

    def tombstones(self) -> list[Record]:
        return [encode_record(GroupMetadataKey(group=self.id), None)]

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that the members are subscribed to; None if they do not use the consumer protocol."""
        if self.protocol_type != CONSUMER or self._subscriptions is None:
            return None
        if self._topics is None or self._topics[0] is not self._subscriptions:
            self._topics = self._subscriptions, read_topics(self._subscriptions)
        return self._topics[1]

    # Rebalances.

    def rebalance(self, now_ms: int, out: Outcome) -> None:
        """Called when members or subscriptions change: begin a rebalance, or complete the current one."""
        if self.state is not GroupState.PREPARING:
            self.prepare(now_ms, out)
        elif not self.first and self.all_joined:
            self.complete(now_ms, out)

    def prepare(self, now_ms: int, out: Outcome) -> None:
        if self.state is GroupState.COMPLETING:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
        self._stop_waiting_for_syncs(out)
        self.first = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING, now_ms)
        if self.first:
            self.wait_ms = self.rules.initial_delay_ms
            self.wait_left_ms = max(self.roster.rebalance_ms - self.wait_ms, 0)
            out.timer(("join", self.id), now_ms + self.wait_ms)
        elif self.all_joined:
            self.complete(now_ms, out)
        else:
            out.timer(("join", self.id), now_ms + self.roster.rebalance_ms)

    def join_time_is_up(self, now_ms: int, out: Outcome) -> None:
        if self.state is not GroupState.PREPARING:
            return
        if self.first and self.grown and self.wait_left_ms:
            self.grown = False
            before, self.wait_ms = self.wait_ms, min(self.rules.initial_delay_ms, self.wait_left_ms)
            self.wait_left_ms = max(self.wait_left_ms - before, 0)
            out.timer(("join", self.id), now_ms + self.wait_ms)
        else:
            self.complete(now_ms, out)

    def complete(self, now_ms: int, out: Outcome) -> None:
        """End the join phase. Members that have joined form the next generation; if none has, the group is empty."""
        out.timer(("join", self.id), None)
        roster = self.roster
        for member in [one for one in roster.members.values() if one.join is None and one.instance is None]:
            self.remove(member.id)
        if not roster.elect() and roster.members:
            # Only static members, and none of them has joined: wait until one joins or their sessions end.
            out.timer(("join", self.id), now_ms + roster.rebalance_ms)
            return
        self.first = self.grown = False
        self.generation += 1
        self.unsynced.clear()
        self._subscriptions = []
        if not roster.members:
            self.protocol = None
            self._become(GroupState.EMPTY, now_ms)
            out.records.append(self.record({}))
            out.on_failure = out.without_records  # the older record is harmless: an empty generation has no members
            return
        self.protocol = roster.choose()
        self._subscriptions = [member.metadata(self.protocol) for member in roster.members.values()]
        self._become(GroupState.COMPLETING, now_ms)
        for member in roster.members.values():
            self.answer_join(member, out)
            self.expect(member, now_ms + member.session_ms, out)
            member.fresh = False
            self.unsynced.add(member.id)
        out.timer(("sync", self.id), now_ms + roster.rebalance_ms)

    def answer_join(self, member: ClassicMember, out: Outcome, *, skip_assignment: bool = False) -> None:
        """Answer a member's join with the generation; the leader also gets the list of members."""
        waiting = self.roster.wait(member, None)
        if waiting is not None:
            out.reply(waiting.token, self.generation_for(member, skip_assignment=skip_assignment))

    def generation_for(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
        leads = member.id == self.roster.leader
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.roster.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.id, group_instance_id=one.instance, metadata=one.metadata(self.protocol)
                )
                for one in self.roster.members.values()
            ]
            if leads
            else [],
        )

    def remove(self, member_id: str) -> None:
        self.roster.remove(member_id)
        self.invited.pop(member_id, None)
        self.unsynced.discard(member_id)

    def dismiss(self, member: ClassicMember, out: Outcome) -> None:
        """Remove a member. A pending join gets an error, so that the member can join again."""
        waiting = self.roster.wait(member, None)
        if waiting is not None:
            out.reply(waiting.token, refuse_join(waiting.version, "", ErrorCode.UNKNOWN_MEMBER_ID))
        if member.sync is not None:
            out.reply(member.sync, refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID))
            member.sync = None
        self.remove(member.id)

    @property
    def all_joined(self) -> bool:
        return self.roster.joined == len(self.roster.members) and not self.invited

    def _become(self, state: GroupState, now_ms: int) -> None:
        self.state, self.since_ms = state, wall_ms(now_ms)

    # Syncs.

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int, out: Outcome) -> None:
        member = self.roster.check(request.member_id, request.group_instance_id)
        if request.generation_id != self.generation:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, self.protocol_type) or _differ(request.protocol_name, self.protocol):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.unsynced.discard(member.id)
        if not self.unsynced:
            out.timer(("sync", self.id), None)
        if self.state is GroupState.STABLE:
            out.reply(token, self._part_of(member))
            return
        if member.sync is not None:
            out.reply(member.sync, refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS))  # the member sent another sync
        member.sync = token
        if member.id == self.roster.leader:
            self._settle({one.member_id: one.assignment for one in request.assignments}, now_ms, out)

    def _settle(self, parts: Mapping[str, bytes], now_ms: int, out: Outcome) -> None:
        """The leader has sent the assignment: write it, and answer all pending syncs."""
        if sum(len(parts.get(member, b"")) for member in self.roster.members) > self.rules.record_size_max:
            self._refuse_syncs(ErrorCode.UNKNOWN_SERVER_ERROR, now_ms, out)  # too large for the log
            self.prepare(now_ms, out)
            return
        out.records.append(self.record(parts))
        for member in self.roster.members.values():
            member.assignment = parts.get(member.id, b"")
        self._become(GroupState.STABLE, now_ms)
        waiting = [member for member in self.roster.members.values() if member.sync is not None]
        for member in waiting:
            assert member.sync is not None
            out.reply(member.sync, self._part_of(member))
            self.expect(member, now_ms + member.session_ms, out)
        tokens = [(member, member.sync) for member in waiting]
        for member in waiting:
            member.sync = None

        def undo(code: ErrorCode) -> Decision:
            for member, token in tokens:
                member.sync = token
            self._become(GroupState.COMPLETING, now_ms)
            instead = Outcome()
            self._refuse_syncs(code, now_ms, instead)
            self.prepare(now_ms, instead)
            return instead.decision()

        out.on_failure = undo

    def _part_of(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def _refuse_syncs(self, code: ErrorCode, now_ms: int, out: Outcome) -> None:
        for member in self.roster.members.values():
            member.assignment = b""
            if member.sync is not None:
                out.reply(member.sync, refuse_sync(code))
                member.sync = None
                self.expect(member, now_ms + member.session_ms, out)

    def _stop_waiting_for_syncs(self, out: Outcome) -> None:
        if self.unsynced:
            self.unsynced.clear()
            out.timer(("sync", self.id), None)

    def sync_time_is_up(self, now_ms: int, out: Outcome) -> None:
        """Remove members that joined this generation and did not sync in time."""
        if self.state in (GroupState.COMPLETING, GroupState.STABLE) and self.unsynced:
            for member_id in list(self.unsynced):
                self.remove(member_id)
            self.prepare(now_ms, out)

    # Heartbeats.

    def heartbeat(self, member_id: str, instance: str | None, generation: int, now_ms: int) -> ErrorCode:
        member = self.roster.check(member_id, instance)
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.deadline_ms = now_ms + member.session_ms
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def expect(self, member: ClassicMember, deadline_ms: int, out: Outcome) -> None:
        member.deadline_ms = deadline_ms
        self.arm(deadline_ms, out)

    def arm(self, deadline_ms: int, out: Outcome) -> None:
        if deadline_ms < self.armed_ms:
            self.armed_ms = deadline_ms
            out.timer(("session", self.id), deadline_ms)

    def sessions_are_due(self, now_ms: int, out: Outcome) -> None:
        """Remove members whose session has expired, and set the timer for the next deadline."""
        self.armed_ms = NEVER
        for member_id, deadline_ms in list(self.invited.items()):
            if deadline_ms <= now_ms:
                del self.invited[member_id]
                self._go_on(now_ms, out)
        for member in list(self.roster.members.values()):
            if member.deadline_ms > now_ms or self.roster.members.get(member.id) is not member:
                continue
            if member.excused:
                member.deadline_ms = NEVER  # until its request is answered
                continue
            self.dismiss(member, out)
            if self.state is GroupState.PREPARING:
                self._go_on(now_ms, out)
            else:
                self.prepare(now_ms, out)
        deadlines = [member.deadline_ms for member in self.roster.members.values()]
        self.arm(min([*deadlines, *self.invited.values()], default=NEVER), out)

    def _go_on(self, now_ms: int, out: Outcome) -> None:
        """A member that the rebalance waited for is gone: complete the rebalance if all others have joined."""
        if self.state is GroupState.PREPARING and self.all_joined:
            self.complete(now_ms, out)

    # Leaving.

    def leave(self, member_id: str, instance: str | None, out: Outcome) -> bool:
        """Remove a member, by its instance id if it gives no member id. False: it had not joined yet."""
        if member_id in self.invited:
            del self.invited[member_id]
            return False
        if not member_id and instance is not None:
            member_id = self.static.get(instance, "")
        self.dismiss(self.roster.check(member_id, instance), out)
        return True

    def after_leaving(self, left: bool, now_ms: int, out: Outcome) -> None:
        """Called once for all members that left with one request."""
        if left and self.state is not GroupState.EMPTY:
            self.rebalance(now_ms, out)
        elif not self.first:
            self._go_on(now_ms, out)

    @property
    def static(self) -> Mapping[str, str]:
        return self.roster.static

    def unload(self) -> list[tuple[Token, JoinGroupResponse | SyncGroupResponse]]:
        """Replies for pending joins and syncs when another broker takes over."""
        replies: list[tuple[Token, JoinGroupResponse | SyncGroupResponse]] = []
        for member in self.roster.members.values():
            if member.join is not None:
                refusal = refuse_join(member.join.version, member.id, ErrorCode.NOT_COORDINATOR)
                replies.append((member.join.token, refusal))
            if member.sync is not None:
                replies.append((member.sync, refuse_sync(ErrorCode.NOT_COORDINATOR)))
        return replies

    # Writing.

    def record(self, parts: Mapping[str, bytes]) -> Record:
        """The record of the group with this assignment."""
        return encode_record(
            GroupMetadataKey(group=self.id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=self.roster.leader,
                current_state_timestamp=NO_TIME if self.since_ms is None else self.since_ms,
                members=[
                    MemberMetadata(
                        member_id=one.id,
                        group_instance_id=one.instance,
                        client_id=one.client_id,
                        client_host=one.host,
                        rebalance_timeout=one.rebalance_ms,
                        session_timeout=one.session_ms,
                        subscription=one.metadata(self.protocol),
                        assignment=parts.get(one.id, b""),
                    )
                    for one in self.roster.members.values()
                ],
            ),
        )


def refuse_join(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= PROTOCOL_NULLABLE else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def refuse_sync(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def _differ(asked: str | None, present: str | None) -> bool:
    return asked is not None and present is not None and asked != present
