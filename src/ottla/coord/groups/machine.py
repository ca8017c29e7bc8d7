"""All groups of one partition of `__consumer_offsets`, of every kind, and their committed offsets.

An operation finds its group and delegates to it; join, sync, heartbeat and leave of the classic protocol depend on the
group's type. A group is created by its first join or commit. It is removed by a tombstone: on request, or when it is
empty and its last offset has expired.

    timers   ("session", group)   the session of a member may have expired
             ("join", group)      a rebalance stops waiting for members
             ("sync", group)      a generation stops waiting for syncs
             RETENTION            look for expired offsets
             FORGET               remove more offsets of deleted topics
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ottla.cluster.image import EMPTY
from ottla.coord import formats
from ottla.coord.formats import ConsumerGroupMetadataKey, GroupMetadataKey, OffsetCommitKey
from ottla.coord.groups import commits, consuming, guests, migration
from ottla.coord.groups.classic import ClassicGroup, GroupState, refuse_join, refuse_sync
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.joining import Join
from ottla.coord.groups.offset_records import read_commit, tombstone
from ottla.coord.groups.offsets import Offsets
from ottla.coord.groups.outcome import Outcome
from ottla.coord.machine import NOTHING, Decision
from ottla.errors import MESSAGE_SIZE_MAX, BrokerError, ErrorCode
from ottla.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatResponse,
    LeaveGroupResponse,
    ListedGroup,
    MemberResponse,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Collection, Generator

    from ottla.cluster.image import Image
    from ottla.coord.formats import GroupMetadataValue
    from ottla.coord.groups.group import ConsumerRules, GroupRules
    from ottla.coord.machine import Caller, TimerKey, Token
    from ottla.wire.messages.commits import (
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponseGroup,
    )
    from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest
    from ottla.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, MemberIdentity, SyncGroupRequest
    from ottla.wire.messages.transactions import TxnOffsetCommitRequest

RETENTION, FORGET = ("retention", ""), ("forget", "")
FORGET_AGAIN_MS = 1_000  # retry delay if the tombstones could not be written
SLICE = 1_000  # offsets removed, or ten times as many checked, per time slice
LENGTH_MAX = 0x7FFF  # of a group id, to fit into a record's key
DEAD = "Dead"
DESCRIBE_FINDS = 6  # the first DescribeGroups version with an error for a group that does not exist

Group = ClassicGroup | ConsumerGroup


class GroupMachine:
    def __init__(
        self,
        rules: GroupRules,
        new_id: Callable[[], str],
        image: Callable[[], Image] = lambda: EMPTY,
        consumer_rules: Callable[[str], ConsumerRules] | None = None,
    ) -> None:
        self.rules = rules
        self.image = image  # the topics that exist
        self.consumer_rules = consumer_rules or (lambda group_id: rules.consumer)  # groups can have their own
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.new_id = new_id
        self._gone: dict[str, int] = {}  # deleted topics → log offset before which their commits lie
        self._unseen: list[str] = []  # groups not yet checked for expired offsets in this round

    # Records.

    def apply(self, key: bytes, value: bytes | None, *, offset: int, timestamp: int, producer_id: int) -> None:
        committed = read_commit(key, value, offset)
        if committed is not None:
            if committed[0] not in self.groups:
                self.groups[committed[0]] = ClassicGroup(committed[0], self.rules, timestamp)
            self.offsets.put(*committed, producer_id)
            return
        found = formats.decode_record(formats.GROUPS, key, value)
        if found is None:
            return
        what, content = found
        if isinstance(what, OffsetCommitKey):
            if content is not None and what.group not in self.groups:
                self.groups[what.group] = ClassicGroup(what.group, self.rules, timestamp)
            self.offsets.apply(what, content, offset, producer_id)
        elif isinstance(what, GroupMetadataKey):
            self._apply_classic(what.group, content, timestamp)
        else:
            self._apply_consumer(what, content)

    def _apply_classic(self, name: str, content: GroupMetadataValue | None, timestamp: int) -> None:
        group = self.groups.get(name)
        if content is None:
            if isinstance(group, ClassicGroup):  # else it has become a consumer group
                del self.groups[name]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[name] = ClassicGroup(name, self.rules, timestamp)
        group.written = content

    def _apply_consumer(self, what: Any, content: Any) -> None:
        group = self.groups.get(what.group_id)
        if not isinstance(group, ConsumerGroup):
            if content is None:
                return
            group = self.groups[what.group_id] = ConsumerGroup(what.group_id)
        if content is None and isinstance(what, ConsumerGroupMetadataKey):
            del self.groups[what.group_id]
        else:
            group.apply(what, content)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def finish_load(self, now_ms: int) -> Decision:
        out = Outcome()
        for name in self.offsets.by_group.keys() - self.groups.keys():  # offsets without a group would never expire
            self.groups[name] = ClassicGroup(name, self.rules, now_ms)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                group.wake(now_ms, out)
            else:
                group.wake(now_ms, out, self.consumer_rules(group.id).session_ms)
        out.timer(RETENTION, now_ms + self.rules.retention_check_ms)
        return out.decision()

    def unload(self) -> list[tuple[Token, Any]]:
        return [reply for group in self.groups.values() for reply in group.unload()]

    def durable(self) -> object:
        """The state that comes from records, for comparing machines."""
        classic = {name: group.written for name, group in self.groups.items() if isinstance(group, ClassicGroup)}
        groups = {name: value for name, value in classic.items() if value is not None}
        consumer = {name: group.durable() for name, group in self.groups.items() if isinstance(group, ConsumerGroup)}
        return groups, consumer, self.offsets.by_group, self.offsets.pending

    # The classic protocol.

    def join(self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int) -> Decision:
        out = Outcome()
        try:
            check_id(request.group_id)
            if not self.rules.session_ms_min <= request.session_timeout_ms <= self.rules.session_ms_max:
                raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = self.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                if not group.empty:
                    return guests.join(self, group, request, caller, token, now_ms)
                out.records += group.tombstones()  # an empty consumer group is replaced by a classic one
                group = None
            if group is None and request.member_id:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        except BrokerError as error:
            return Decision(replies=[(token, refuse_join(caller.version, request.member_id, error.code))])
        if group is not None:
            Join(group, request, caller, token, now_ms, out).run(self.new_id)
            return out.decision()
        return self._join_first(request, caller, token, now_ms, out)

    def _join_first(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int, out: Outcome
    ) -> Decision:
        """The first join of a new group: the group is recorded before it has a member."""
        group = ClassicGroup(request.group_id, self.rules, now_ms)
        out.records.append(group.record({}))
        migration.publish(self, group, out)
        out.on_failure = migration.plan_undo(
            out, lambda code: (token, refuse_join(caller.version, request.member_id, code))
        )
        Join(group, request, caller, token, now_ms, out).run(self.new_id)
        return out.decision()

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision:
        out = Outcome()
        try:
            check_id(request.group_id)
            group = self.groups.get(request.group_id)
            if group is None or group.empty:
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            if isinstance(group, ConsumerGroup):
                return guests.sync(self, group, request, token, now_ms)
            group.sync(request, token, now_ms, out)
        except BrokerError as error:
            out.reply(token, refuse_sync(error.code))
        return out.decision()

    def heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        try:
            if group is None:
                check_id(request.group_id)
                raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
            if isinstance(group, ConsumerGroup):
                return guests.heartbeat(group, request, token, now_ms)
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now_ms)
        except BrokerError as error:
            code = error.code
        return Decision(replies=((token, HeartbeatResponse(error_code=code)),))

    def leave(
        self, group_id: str, members: Collection[MemberIdentity], alone: bool, token: Token, now_ms: int
    ) -> Decision:
        """Members leave. `alone`: there is only one, and its error is that of the whole response."""
        out = Outcome()
        try:
            check_id(group_id)
        except BrokerError as error:
            return Decision(replies=[(token, LeaveGroupResponse(error_code=error.code))])
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return guests.leave(self, group, members, alone, token, now_ms)
        results = []
        left = False
        for one in members:
            code = ErrorCode.NONE
            try:
                if group is None:
                    raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
                left = group.leave(one.member_id, one.group_instance_id, out) or left
            except BrokerError as error:
                code = error.code
            results.append(
                MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code)
            )
        out.reply(token, LeaveGroupResponse(error_code=results[0].error_code if alone else 0, members=results))
        if group is not None:
            group.after_leaving(left, now_ms, out)
        return out.decision()

    # The new consumer protocol.

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        return consuming.heartbeat(self, request, caller, token, now_ms)

    # Offsets.

    def commit(
        self,
        request: OffsetCommitRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
        missing: Collection[tuple[str, int]] = (),
    ) -> Decision:
        """Commit offsets. `missing` are requested partitions that do not exist."""
        return commits.commit(self, request, caller, token, now_ms, missing)

    def commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
        missing: Collection[tuple[str, int]] = (),
    ) -> Decision:
        """Commit offsets in a transaction; they take effect when it commits."""
        return commits.commit_in_transaction(self, request, caller, token, now_ms, missing)

    def fetch(
        self, request: OffsetFetchRequestGroup, *, stable: bool
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Fetch committed offsets. `stable`: an error for offsets that an open transaction is about to change."""
        return commits.fetch(self, request, stable=stable)

    def delete_offsets(
        self, request: OffsetDeleteRequest, token: Token, missing: Collection[tuple[str, int]] = ()
    ) -> Decision:
        return commits.delete(self, request, token, missing)

    def forget(self, topics: Collection[str], before: int, now_ms: int) -> Decision:
        """Remove the offsets of deleted topics whose records lie before log offset `before`.

        Later commits belong to a new topic of the same name.
        """
        self._gone.update(dict.fromkeys(topics, before))
        return self._forget(now_ms)

    def _forget(self, now_ms: int) -> Decision:
        """Remove a slice of the offsets of deleted topics; a timer removes the rest."""
        partitions = (
            (group, topic, index)
            for topic, before in self._gone.items()
            for group, index in self.offsets.of_topic(topic, before)
        )
        found = list(islice(partitions, SLICE))
        if not found:
            self._gone.clear()
            return NOTHING
        return Decision(
            [tombstone(*one) for one in found],
            timers=[(FORGET, now_ms)],
            on_failure=lambda _: Decision(timers=[(FORGET, now_ms + FORGET_AGAIN_MS)]),
        )

    # Groups as a whole.

    def list(
        self, states: Collection[str], kinds: Collection[str]
    ) -> Generator[None, None, builtins.list[ListedGroup]]:
        """Groups in one of these states and of one of these kinds (lower case); an empty filter matches all."""
        found = []
        for group in tuple(self.groups.values()):
            if (not states or group.phase.lower() in states) and (not kinds or group.kind in kinds):
                found.append(
                    ListedGroup(
                        group_id=group.id,
                        protocol_type=group.protocol_type or "",
                        group_state=group.phase,
                        group_type=group.kind,
                    )
                )
            yield
        return found

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            found = version < DESCRIBE_FINDS
            what = "not found" if group is None else "is not a classic group"
            return DescribedGroup(
                error_code=ErrorCode.NONE if found else ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=None if found else f"Group {group_id} {what}."[:MESSAGE_SIZE_MAX],
                group_id=group_id,
                group_state=DEAD,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.phase,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol or "" if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=one.id,
                    group_instance_id=one.instance,
                    client_id=one.client_id,
                    client_host=one.host,
                    member_metadata=one.metadata(group.protocol) if stable else b"",
                    member_assignment=one.assignment,
                )
                for one in group.roster.members.values()
            ],
        )

    def delete(self, group_id: str, token: Token) -> Decision:
        """Remove a group and all its offsets; the reply is an ErrorCode."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(replies=[(token, ErrorCode.GROUP_ID_NOT_FOUND)])
        try:
            group.check_deletion()
        except BrokerError as error:
            return Decision(replies=[(token, error.code)])
        offsets = [tombstone(group_id, topic, index) for topic, index in self.offsets.partitions(group_id)]
        return Decision([*offsets, *group.tombstones()], [(token, ErrorCode.NONE)])

    # Time.

    def expire(self, timer: TimerKey, now_ms: int) -> Decision:
        out = Outcome()
        kind, name = cast("tuple[str, str]", timer)
        group = self.groups.get(name)
        match kind, group:
            case "session", ClassicGroup():
                group.sessions_are_due(now_ms, out)
            case "session", ConsumerGroup():
                consuming.fence_late(self, group, now_ms, out)
            case "join", ClassicGroup():
                group.join_time_is_up(now_ms, out)
            case "sync", ClassicGroup():
                group.sync_time_is_up(now_ms, out)
            case "retention", _:
                self._retain(now_ms, out)
            case "forget", _:
                return self._forget(now_ms)
            case _:
                return NOTHING
        return out.decision()

    def _retain(self, now_ms: int, out: Outcome) -> None:
        """Remove expired offsets, a few groups at a time."""
        later = now_ms + self.rules.retention_check_ms
        self._unseen = self._unseen or list(self.groups)
        work = 0
        while self._unseen and work < 10 * SLICE:
            work += commits.expire(self, self._unseen.pop(), now_ms, out)
        out.timer(RETENTION, now_ms if self._unseen else later)
        out.on_failure = lambda _: Decision(timers=[(RETENTION, later)])  # retry then


def check_id(group_id: str) -> None:
    if not group_id or len(group_id.encode()) > LENGTH_MAX:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
