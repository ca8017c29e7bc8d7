"""Conversion of groups between classic and consumer.

A classic group of consumers becomes a consumer group when a member with the new protocol joins. Its members stay, with
their assignments, and continue with the classic protocol (`guests.py`). When the last member with the new protocol is
gone, the group becomes a classic group again and rebalances. A group without members is simply replaced.

Tombstones of the old kind and the records of the new kind are written in one batch. The new group replaces the old one
at once; if the batch cannot be written, the old one is restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coord import formats
from ottla.coord.groups import consumer_records as records
from ottla.coord.groups.assignors import NO_ASSIGNMENT
from ottla.coord.groups.classic import ClassicGroup, GroupState, refuse_join, refuse_sync
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.consumer_member import ClassicMetadata, ConsumerMember, Held, Holding, MemberState, Subscription
from ottla.coord.groups.consumer_protocol import (
    CONSUMER,
    by_id,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coord.groups.member import ClassicMember
from ottla.coord.groups.topics import metadata_hash
from ottla.coord.machine import Decision
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.codec import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ottla.cluster.image import Image
    from ottla.coord.groups.group import ConsumerRules
    from ottla.coord.groups.machine import GroupMachine
    from ottla.coord.groups.outcome import Outcome
    from ottla.coord.machine import Record, Token


def consumer_group(machine: GroupMachine, group_id: str, *, joining: bool, now_ms: int, out: Outcome) -> ConsumerGroup:
    """The consumer group of that name. If a member is joining, create it or upgrade a classic group if needed."""
    group = machine.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if not joining:
        what = (
            f"Consumer group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        )
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, what)
    if group is None:
        return ConsumerGroup(group_id)
    if group.empty:
        out.records += group.tombstones()
        return ConsumerGroup(group_id)
    return upgrade(group, machine.consumer_rules(group_id), machine.image(), now_ms, out)


def publish(machine: GroupMachine, group: ConsumerGroup | ClassicGroup, out: Outcome) -> None:
    """Replace the group of the same name; undone if the records cannot be written."""
    before = machine.groups.get(group.id)
    if before is group:
        return
    machine.groups[group.id] = group

    def restore(_: ErrorCode) -> Decision:
        if before is None:
            del machine.groups[group.id]
        else:
            machine.groups[group.id] = before
        # The timers of a classic group are still set; the timer of a consumer group may just have fired.
        return Decision(timers=before.deadlines.timers() if isinstance(before, ConsumerGroup) else ())

    out.on_failure = restore


def plan_undo(
    out: Outcome, refusal: Callable[[ErrorCode], tuple[Token, Any]] | None = None
) -> Callable[[ErrorCode], Decision]:
    """What to do if the records cannot be written: undo `publish`, keep the timers, refuse the request."""
    restore = out.on_failure

    def undo(code: ErrorCode) -> Decision:
        timers = out.timers if restore is None else restore(code).timers
        return Decision(replies=[] if refusal is None else [refusal(code)], timers=timers)

    return undo


# From classic to consumer.


def upgrade(classic: ClassicGroup, rules: ConsumerRules, image: Image, now_ms: int, out: Outcome) -> ConsumerGroup:
    """Upgrade a classic group to a consumer group. Its generation becomes the epoch of the group and its members."""
    name = classic.id
    if not rules.upgrades:
        raise _cannot_upgrade(name, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER:
        raise _cannot_upgrade(name, "the group does not use the consumer embedded protocol")
    if len(classic.roster.members) > rules.size_max:
        raise _cannot_upgrade(name, "the group size exceeds the consumer group maximum size")
    try:
        taken: set[tuple[bytes, int]] = set()
        members = [_consumer_member(classic, one, image, taken) for one in classic.roster.members.values()]
    except DecodeError:
        raise _cannot_upgrade(name, "the embedded consumer protocol is malformed") from None
    group = ConsumerGroup(name)
    made = [
        *(records.subscription(name, member.id, member.subscription) for member in members),
        records.epoch(name, classic.generation, _hash_topics(image, members, taken)),
        *(records.target(name, member.id, _part(member.holding.assigned)) for member in members),
        records.target_epoch(name, classic.generation, 0),
        *(records.holding(name, member.id, member.holding) for member in members),
    ]
    _replay(group, made)
    out.records += [*classic.tombstones(), *made]
    _send_back(classic, out)
    for member in members:
        assert member.subscription.classic is not None
        group.deadlines.silence(member.id, now_ms + member.subscription.classic.session_ms, out)
    return group


def _hash_topics(image: Image, members: list[ConsumerMember], taken: set[tuple[bytes, int]]) -> int:
    """The hash of the subscribed topics.

    0 if a partition has no owner because of a cooperative rebalance: then the next heartbeat assigns again.
    """
    names = {name for member in members for name in member.subscription.topics}
    topics = [image.topics[name] for name in names if name in image.topics]
    complete = all((topic.id, one.index) in taken for topic in topics for one in topic.partitions)
    return metadata_hash(image, names) if complete else 0


def _cannot_upgrade(group_id: str, reason: str) -> BrokerError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {reason}."
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _consumer_member(
    classic: ClassicGroup, one: ClassicMember, image: Image, taken: set[tuple[bytes, int]]
) -> ConsumerMember:
    assigned: Held = {}
    if one.assignment:
        assignment = read_assignment(one.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(
                classic.id,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
                " assignor before re-attempting the upgrade",
            )
        for topic, indexes in by_id(image, assignment.assigned_partitions).items():
            # Clients made this assignment: skip partitions that do not exist or were assigned twice.
            size = len(image.topics[image.names_by_id[topic]].partitions)
            fine = [index for index in sorted(indexes) if 0 <= index < size and (topic, index) not in taken]
            taken.update((topic, index) for index in fine)
            if fine:
                assigned[topic] = dict.fromkeys(fine, classic.generation)
    # In its first rebalance the group has no protocol yet; all protocols of a member carry the same subscription.
    told = read_subscription(one.protocols[0][1] if classic.protocol is None else one.metadata(classic.protocol))
    return ConsumerMember(
        one.id,
        Subscription(
            instance=one.instance,
            rack=told.rack_id or None,
            client_id=one.client_id,
            host=one.host,
            topics=frozenset(told.topics),
            rebalance_ms=one.rebalance_ms,
            classic=ClassicMetadata(one.session_ms, one.protocols),
        ),
        Holding(classic.generation, classic.generation, MemberState.STABLE, assigned),
    )


def _part(held: Held) -> dict[bytes, frozenset[int]]:
    return {topic: frozenset(indexes) for topic, indexes in held.items()}


def _replay(group: ConsumerGroup, made: list[Record]) -> None:
    """Apply records to the new group before they are written. Applying them again after the write changes nothing."""
    for record in made:
        found = formats.decode_record(formats.GROUPS, record.key, record.value)
        assert found is not None, "our own records are known"
        group.apply(*found)


def _send_back(classic: ClassicGroup, out: Outcome) -> None:
    """Members that wait for a rebalance of the classic group must rejoin."""
    for one in classic.roster.members.values():
        if one.join is not None:
            out.reply(one.join.token, refuse_join(one.join.version, one.id, ErrorCode.REBALANCE_IN_PROGRESS))
        if one.sync is not None:
            out.reply(one.sync, refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    out.timer(("join", classic.id), None)
    out.timer(("sync", classic.id), None)


# From consumer to classic.


def downgrades(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], rules: ConsumerRules, *, joining: int = 0
) -> bool:
    """Whether the group becomes a classic one when these members leave and `joining` classic ones replace them."""
    going = {member.id for member in leaving}
    modern = {member.id for member in group.members.values() if member.subscription.classic is None}
    left = len(group.members) - len(going) + joining
    return rules.downgrades and bool(modern) and modern <= going and 0 < left <= rules.classic_size_max


def downgrade(
    machine: GroupMachine,
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    now_ms: int,
    out: Outcome,
    *,
    rebalances: bool = True,
) -> None:
    """Make the group a classic one. `joining` replaces the member that leaves, and gets its target."""
    gone = {member.id for member in leaving}
    left = [member for member in group.members.values() if member.id not in gone]
    parts = {member.id: group.target.get(member.id, NO_ASSIGNMENT) for member in left}
    if joining is not None:
        (former,) = leaving
        left.append(joining)
        parts[joining.id] = group.target.get(former.id, NO_ASSIGNMENT)
        out.records.clear()  # they belong to a consumer group, which will not exist
    classic = ClassicGroup(group.id, machine.rules, now_ms)
    classic.protocol_type, classic.generation = CONSUMER, group.epoch
    for member in left:
        classic.roster.add(_classic_member(member))
    classic.protocol = classic.roster.choose()
    classic.state = GroupState.STABLE
    for one in classic.roster.members.values():
        version = version_of(one.metadata(classic.protocol))
        one.assignment = write_assignment(machine.image(), parts[one.id], version)
        classic.expect(one, now_ms + one.session_ms, out)
    out.records += group.tombstones()
    out.records.append(classic.record({one.id: one.assignment for one in classic.roster.members.values()}))
    if rebalances:
        classic.prepare(now_ms, out)
    publish(machine, classic, out)


def _classic_member(member: ConsumerMember) -> ClassicMember:
    wanted = member.subscription
    assert wanted.classic is not None, "only these are left"
    return ClassicMember(
        member.id,
        wanted.instance,
        wanted.client_id,
        wanted.host,
        session_ms=wanted.classic.session_ms,
        rebalance_ms=wanted.rebalance_ms,
        protocols=wanted.classic.protocols,
    )
