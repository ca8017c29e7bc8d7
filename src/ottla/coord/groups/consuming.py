"""Heartbeats of a consumer group and their responses: join, stay, revoke, leave.

    epoch 0    the member joins, or rejoins after it was fenced; it owns nothing
    epoch n    it is in epoch n; a full request has all fields, other requests only what has changed
    epoch -1   it leaves
    epoch -2   it is static and leaves temporarily: its assignment is kept for a session timeout

A member whose epoch differs from the coordinator's is fenced: it must give up all partitions and rejoin. But if it is
one epoch behind and owns only what it may own, we assume that our last response was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups import consumer_records as records
from ottla.coord.groups import migration
from ottla.coord.groups.change import GroupChange
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    NOTHING_HELD,
    ConsumerMember,
    Held,
    Subscription,
    same_partitions,
)
from ottla.coord.groups.outcome import Outcome
from ottla.coord.groups.topics import metadata_hash
from ottla.coord.machine import Decision
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.consumers import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.coord.groups.group import ConsumerRules
    from ottla.coord.groups.machine import GroupMachine
    from ottla.coord.groups.reconciliation import Owned
    from ottla.coord.machine import Caller, Token
    from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest

OWN_IDS = 1  # the first version whose members generate their own ids
NOT_GIVEN = -1
AGAIN_MS = 1_000


def heartbeat(
    machine: GroupMachine, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now_ms: int
) -> Decision:
    group = machine.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and (idle := _answer_idle(machine, group, request, caller, now_ms)):
        return Decision(replies=((token, idle),))
    out = Outcome()
    try:
        check(request, caller.version, machine.consumer_rules(request.group_id))
        answer = _run(machine, request, caller, now_ms, out)
    except BrokerError as error:
        return Decision(replies=[(token, refuse(error.code, error.message))])
    out.reply(token, answer)
    out.on_failure = migration.plan_undo(out, lambda code: (token, refuse(code)))
    return out.decision()


def refuse(code: ErrorCode, message: str = "") -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message or None, member_epoch=0, heartbeat_interval_ms=0
    )


def _answer_idle(
    machine: GroupMachine, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> ConsumerGroupHeartbeatResponse | None:
    """The response if neither the member nor the group has changed, as in nearly all heartbeats; else None."""
    member = group.members.get(request.member_id)
    epoch = group.epoch
    if (
        member is None
        or not request.member_epoch == member.holding.epoch == epoch == group.target_epoch
        or member.holding.state
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.topic_partitions is not None
        or request.rebalance_timeout_ms != NOT_GIVEN
        or request.server_assignor is not None
        or request.rack_id is not None
        or group.seen != machine.image().topics.version
        or (group.pattern_counts and now_ms >= group.patterns_due_ms)
    ):
        return None
    wanted = member.subscription
    if (
        request.instance_id != wanted.instance
        or caller.client_id != wanted.client_id
        or caller.host != wanted.host
        or wanted.classic is not None
    ):
        return None
    rules = machine.consumer_rules(group.id)
    group.deadlines.sessions[member.id] = now_ms + rules.session_ms
    return ConsumerGroupHeartbeatResponse(
        error_code=0, member_id=member.id, member_epoch=epoch, heartbeat_interval_ms=rules.heartbeat_ms
    )


def check(request: ConsumerGroupHeartbeatRequest, version: int, rules: ConsumerRules) -> None:
    """BrokerError for a request that is invalid for any group."""
    epoch = request.member_epoch
    if (version >= OWN_IDS or epoch > JOINING or epoch == LEAVING) and not request.member_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == NOT_GIVEN:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVING_FOR_NOW:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in rules.assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(rules.assignors)}.",
        )


def _run(
    machine: GroupMachine, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Outcome
) -> ConsumerGroupHeartbeatResponse:
    if request.member_epoch < JOINING:
        return _leave(machine, request, now_ms, out)
    rules = machine.consumer_rules(request.group_id)
    joining = request.member_epoch == JOINING
    group = migration.consumer_group(machine, request.group_id, joining=joining, now_ms=now_ms, out=out)
    member_id = request.member_id or machine.new_id()
    check_room(group, member_id, rules)
    change = GroupChange(group, rules, machine.image(), now_ms, out, caller.sees)
    owned = read_owned(request)
    member = _find(change, request, member_id, owned)
    wanted = _update_subscription(member.subscription, request, caller)
    updated = change.subscribe(member, wanted)
    part = change.assign(updated)
    updated = change.reconcile(updated, part, owned)
    group.deadlines.silence(member_id, now_ms + rules.session_ms, out)
    group.deadlines.joins.pop(member_id, None)
    group.deadlines.syncs.pop(member_id, None)
    migration.publish(machine, group, out)
    held, full = updated.holding.assigned, owned is not None and request.rebalance_timeout_ms != NOT_GIVEN
    full = full and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    told = joining or full or not same_partitions(member.holding.assigned, held)
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=rules.heartbeat_ms,
        assignment=_assignment(held) if told else None,
    )


def check_room(group: ConsumerGroup, member_id: str, rules: ConsumerRules) -> None:
    if len(group.members) >= rules.size_max and member_id not in group.members:
        raise BrokerError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {rules.size_max} members.",
        )


def read_owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: Owned = {}
    for one in request.topic_partitions:
        owned.setdefault(one.topic_id, set()).update(one.partitions)
    return owned


def _find(
    change: GroupChange, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Owned | None
) -> ConsumerMember:
    """The member that sent the request: a known one, a new one, or the successor of a static one."""
    group, instance = change.group, request.instance_id
    joining = request.member_epoch == JOINING
    if instance is None:
        known = group.members.get(member_id)
        member = ConsumerMember(member_id) if known is None and joining else group.member(member_id)
        check_epoch(member, request.member_epoch, owned)
        return member
    former = group.static_member(instance)
    if not joining:
        member = check_instance(former, member_id, instance)
        check_epoch(member, request.member_epoch, owned)
        return member
    if former is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    if former.subscription.classic is None and former.epoch != LEAVING_FOR_NOW:
        raise BrokerError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance} cannot join the group because the instance id is"
            f" owned by {former.id} member.",
        )
    return change.replace(former, member_id)


def check_instance(member: ConsumerMember | None, member_id: str, instance: str) -> ConsumerMember:
    """Raises BrokerError unless the instance id belongs to this member."""
    if member is None:
        raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance} is unknown.")
    if member.id != member_id:
        raise BrokerError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance} was fenced by member {member.id}.",
        )
    return member


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    holding = member.holding
    if epoch in (JOINING, holding.epoch):
        return
    greater = epoch > holding.epoch
    if not greater and epoch == holding.previous_epoch and owned is not None and _within(owned, holding.assigned):
        return
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if greater else 'smaller'} member epoch ({epoch}) than the one"
        f" known by the group coordinator ({holding.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _within(owned: Owned, held: Held) -> bool:
    return all(topic in held and indexes <= held[topic].keys() for topic, indexes in owned.items())


def _update_subscription(before: Subscription, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Subscription:
    """The subscription after this request. Fields that are not set stay as they are."""
    return Subscription(
        instance=before.instance if request.instance_id is None else request.instance_id,
        rack=before.rack if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        host=caller.host,
        topics=before.topics if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        pattern=before.pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        rebalance_ms=before.rebalance_ms if request.rebalance_timeout_ms == NOT_GIVEN else request.rebalance_timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
    )


def _assignment(held: Held) -> ConsumerGroupHeartbeatResponseAssignment:
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic, partitions=sorted(indexes))
            for topic, indexes in held.items()
        ]
    )


# Leaving.


def _leave(
    machine: GroupMachine, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: Outcome
) -> ConsumerGroupHeartbeatResponse:
    group = machine.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = check_instance(group.static_member(request.instance_id), request.member_id, request.instance_id)
    if request.member_epoch == LEAVING_FOR_NOW:
        holding = member.holding._replace(epoch=LEAVING_FOR_NOW, revoking=NOTHING_HELD)
        out.records.append(records.holding(group.id, member.id, holding))
    else:
        fence(machine, group, [member], now_ms, out)
    return ConsumerGroupHeartbeatResponse(
        error_code=0, member_id=member.id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )


def fence(
    machine: GroupMachine, group: ConsumerGroup, leaving: Collection[ConsumerMember], now_ms: int, out: Outcome
) -> None:
    """Remove members. If only members with the classic protocol are left, the group becomes a classic one."""
    if migration.downgrades(group, leaving, machine.consumer_rules(group.id)):
        migration.downgrade(machine, group, leaving, None, now_ms, out)
        return
    gone = {member.id for member in leaving}
    left = [member for member in group.members.values() if member.id not in gone]
    for member in leaving:
        out.records += records.without_member(group.id, member.id)
    used = {member.subscription.pattern for member in left}
    dropped = {member.subscription.pattern for member in leaving} - used
    out.records += [records.no_pattern(group.id, text) for text in sorted(dropped - {""})]
    names = group.names_by_pattern()
    wanted = {name for member in left for name in member.names(names)}
    out.records.append(records.epoch(group.id, group.epoch + 1, metadata_hash(machine.image(), wanted)))


def fence_late(machine: GroupMachine, group: ConsumerGroup, now_ms: int, out: Outcome) -> None:
    """Called when the group's timer fires: remove members that are late, and set it for the next deadline."""
    deadlines = group.deadlines
    late = []
    for name, epoch in sorted(deadlines.due(now_ms).items()):
        member = group.members.get(name)
        if member is None:
            deadlines.forget(name)  # its join could not be written
        elif epoch is not None and member.epoch != epoch:
            del deadlines.revocations[name]  # it has advanced since
        else:
            late.append(member)
            deadlines.forget(name)
            deadlines.sessions[name] = now_ms + AGAIN_MS  # in case the removal cannot be written
    deadlines.rearm(out)
    if late:
        fence(machine, group, late, now_ms, out)
    out.on_failure = migration.plan_undo(out)
