"""Members with the classic protocol in a consumer group: they join and sync as usual, but the broker assigns.

A join does what a heartbeat of the new protocol does: it may change the subscription, the member takes its next step,
and the response carries the member epoch as the generation. No join waits for other members. The sync that follows
returns the partitions that the member holds. If the group has advanced, the heartbeat response tells the member to
rejoin, within its rebalance timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups import consuming, migration
from ottla.coord.groups.change import GroupChange
from ottla.coord.groups.classic import refuse_join, refuse_sync
from ottla.coord.groups.consumer_member import ClassicMetadata, ConsumerMember, MemberState, Subscription
from ottla.coord.groups.consumer_protocol import CONSUMER, by_id, read_subscription, version_of, write_assignment
from ottla.coord.groups.member import protocols_of
from ottla.coord.groups.outcome import Outcome
from ottla.coord.machine import Decision
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.codec import DecodeError
from ottla.wire.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.coord.groups.consumer import ConsumerGroup
    from ottla.coord.groups.machine import GroupMachine
    from ottla.coord.groups.member import Protocols
    from ottla.coord.machine import Caller, Token
    from ottla.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, MemberIdentity, SyncGroupRequest

ID_REQUIRED = 4  # the first JoinGroup version whose clients understand MEMBER_ID_REQUIRED


def join(
    machine: GroupMachine, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
) -> Decision:
    out = Outcome()
    member_id = request.member_id or machine.new_id()
    try:
        protocols = _check(machine, group, request, member_id)
        if caller.version >= ID_REQUIRED and not request.member_id and request.group_instance_id is None:
            return Decision(replies=[(token, refuse_join(caller.version, member_id, ErrorCode.MEMBER_ID_REQUIRED))])
        answer = _join(machine, group, request, caller, member_id, protocols, now_ms, out)
    except BrokerError as error:
        return Decision(replies=[(token, refuse_join(caller.version, request.member_id, error.code))])
    out.reply(token, answer)
    out.on_failure = migration.plan_undo(out, lambda code: (token, refuse_join(caller.version, member_id, code)))
    return out.decision()


def _check(machine: GroupMachine, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> Protocols:
    rules = machine.consumer_rules(group.id)
    protocols = protocols_of(request.protocols)
    if not rules.migrates:
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    consuming.check_room(group, member_id, rules)
    count = group.classic_count
    if request.protocol_type != CONSUMER or not any(group.classic_counts[name] == count for name, _ in protocols):
        raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return protocols


def _join(
    machine: GroupMachine,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    caller: Caller,
    member_id: str,
    protocols: Protocols,
    now_ms: int,
    out: Outcome,
) -> JoinGroupResponse:
    rules, image = machine.consumer_rules(group.id), machine.image()
    try:
        told = read_subscription(protocols[0][1])
    except DecodeError:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    change = GroupChange(group, rules, image, now_ms, out, caller.sees)
    former = group.static_member(request.group_instance_id)
    member = _find(change, request, member_id, former)
    before = member.subscription
    wanted = Subscription(
        instance=before.instance if request.group_instance_id is None else request.group_instance_id,
        rack=told.rack_id or before.rack,
        client_id=caller.client_id,
        host=caller.host,
        topics=frozenset(told.topics),
        rebalance_ms=request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms,
        assignor=before.assignor,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )
    updated = change.subscribe(member, wanted)
    downgrades = former is not None and migration.downgrades(group, [former], rules, joining=1)
    if not downgrades or not change.subscribed:
        part = group.target.get(change.former or member_id, {}) if downgrades else change.assign(updated)
        updated = change.reconcile(updated, part, by_id(image, told.owned_partitions))
    if former is not None and downgrades:
        migration.downgrade(machine, group, [former], updated, now_ms, out, rebalances=change.subscribed)
    else:
        group.deadlines.joins.pop(member_id, None)
        group.deadlines.silence(member_id, now_ms + request.session_timeout_ms, out)
        group.deadlines.sync(member_id, now_ms + wanted.rebalance_ms, out)
    return JoinGroupResponse(
        error_code=0,
        generation_id=updated.epoch,
        protocol_type=CONSUMER,
        protocol_name=protocols[0][0],
        leader="",
        member_id=member_id,
        members=[],
    )


def _find(
    change: GroupChange, request: JoinGroupRequest, member_id: str, former: ConsumerMember | None
) -> ConsumerMember:
    group, instance = change.group, request.group_instance_id
    if instance is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    if request.member_id:
        return consuming.check_instance(former, member_id, instance)
    if former is None:
        return ConsumerMember(member_id)
    return change.replace(former, member_id)


def sync(machine: GroupMachine, group: ConsumerGroup, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision:
    out = Outcome()
    try:
        member, classic = _member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, classic.protocol):
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.holding.state is not MemberState.UNREVOKED:
            group.deadlines.join(member.id, now_ms + member.subscription.rebalance_ms, out)
            raise BrokerError(ErrorCode.REBALANCE_IN_PROGRESS)
        part = write_assignment(machine.image(), member.holding.assigned, version_of(classic.metadata))
    except BrokerError as error:
        out.reply(token, refuse_sync(error.code))
        return out.decision()
    group.deadlines.syncs.pop(member.id, None)
    group.deadlines.silence(member.id, now_ms + classic.session_ms, out)
    out.reply(
        token,
        SyncGroupResponse(
            error_code=0,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=part,
        ),
    )
    return out.decision()


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, token: Token, now_ms: int) -> Decision:
    out = Outcome()
    code = ErrorCode.NONE
    try:
        member, classic = _member(group, request.member_id, request.group_instance_id)
        if request.generation_id != member.epoch:
            raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        group.deadlines.sessions[member.id] = now_ms + classic.session_ms
        state = member.holding.state
        if (
            member.epoch < group.epoch
            or state is MemberState.UNREVOKED
            or (state is MemberState.UNRELEASED and not _waits(group, member))
        ):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            group.deadlines.join(member.id, now_ms + member.subscription.rebalance_ms, out)
    except BrokerError as error:
        code = error.code
    out.reply(token, HeartbeatResponse(error_code=code))
    return out.decision()


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether other members still hold partitions of the member's target."""
    held = member.holding.assigned
    return any(
        index not in held.get(topic, ()) and group.is_taken(topic, index)
        for topic, indexes in group.target.get(member.id, {}).items()
        for index in indexes
    )


def _member(group: ConsumerGroup, member_id: str, instance: str | None) -> tuple[ConsumerMember, ClassicMetadata]:
    if instance is None:
        member = group.member(member_id)
    else:
        member = consuming.check_instance(group.static_member(instance), member_id, instance)
    classic = member.subscription.classic
    if classic is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)  # it does not speak the classic protocol
    return member, classic


def leave(
    machine: GroupMachine,
    group: ConsumerGroup,
    members: Collection[MemberIdentity],
    alone: bool,
    token: Token,
    now_ms: int,
) -> Decision:
    """Members leave, or an administrator removes them.

    `alone`: there is one member, and its error is that of the whole response.
    """
    out = Outcome()
    leaving: dict[str, ConsumerMember] = {}
    results = []
    for one in members:
        code = ErrorCode.NONE
        try:
            member = _leaving(group, one)
            leaving[member.id] = member
        except BrokerError as error:
            code = error.code
        results.append(
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code)
        )
    if leaving:
        consuming.fence(machine, group, list(leaving.values()), now_ms, out)
    whole = results[0].error_code if alone else ErrorCode.NONE
    out.reply(token, LeaveGroupResponse(error_code=whole, members=results))
    out.on_failure = migration.plan_undo(out, lambda code: (token, LeaveGroupResponse(error_code=code, members=[])))
    return out.decision()


def _leaving(group: ConsumerGroup, one: MemberIdentity) -> ConsumerMember:
    if one.group_instance_id is None:
        return group.member(one.member_id)
    member = group.static_member(one.group_instance_id)
    if member is not None and not one.member_id:
        return member
    return consuming.check_instance(member, one.member_id, one.group_instance_id)
