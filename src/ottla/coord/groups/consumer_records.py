"""Encodes and decodes the records of a consumer group.

    3   the group: its epoch, and a hash of the topics it is subscribed to
    4   metadata of these topics, as Kafka before 4.1 wrote it; we only write tombstones of it
    5   a member: its subscription
    6   the target assignment: its epoch
    7   the target assignment of a member
    8   the partitions that a member holds
    16  the topics that match a regular expression

Tombstones of members are written before that of the group, so no reader sees a member of a removed group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coord.formats import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    encode_record,
)
from ottla.coord.groups.consumer_member import ClassicMetadata, Held, Holding, MemberState, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coord.groups.assignors import Assignment
    from ottla.coord.machine import Record

NO_VERSION = 0  # metadata version of a regular expression lookup; unused, we use the time instead


class Resolved(NamedTuple):
    """The topics that match a regular expression, and when they were looked up."""

    topics: frozenset[str]
    time_ms: int


def epoch(group: str, number: int, metadata_hash: int) -> Record:
    value = ConsumerGroupMetadataValue(epoch=number, metadata_hash=metadata_hash)
    return encode_record(ConsumerGroupMetadataKey(group_id=group), value)


def no_partition_metadata(group: str) -> Record:
    return encode_record(ConsumerGroupPartitionMetadataKey(group_id=group), None)


def subscription(group: str, member: str, wanted: Subscription) -> Record:
    classic = wanted.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=wanted.instance,
        rack_id=wanted.rack,
        client_id=wanted.client_id,
        client_host=wanted.host,
        subscribed_topic_names=sorted(wanted.topics),
        subscribed_topic_regex=wanted.pattern,
        rebalance_timeout_ms=wanted.rebalance_ms,
        server_assignor=wanted.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )
    return encode_record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member), value)


def read_subscription(value: ConsumerGroupMemberMetadataValue) -> Subscription:
    classic = value.classic_member_metadata
    return Subscription(
        instance=value.instance_id,
        rack=value.rack_id,
        client_id=value.client_id,
        host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        rebalance_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms, tuple((one.name, one.metadata) for one in classic.supported_protocols)
        ),
    )


def target_epoch(group: str, number: int, time_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=number, assignment_timestamp=time_ms)
    return encode_record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), value)


def target(group: str, member: str, part: Assignment) -> Record:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[TopicPartition(topic_id=topic, partitions=sorted(part[topic])) for topic in sorted(part)]
    )
    return encode_record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member), value)


def read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions if one.partitions}


def holding(group: str, member: str, now: Holding) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=now.epoch,
        previous_member_epoch=now.previous_epoch,
        state=now.state,
        assigned_partitions=_list_held(now.assigned),
        partitions_pending_revocation=_list_held(now.revoking),
    )
    return encode_record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), value)


def _list_held(held: Held) -> list[TopicPartitions]:
    ordered = [(topic, sorted(held[topic].items())) for topic in sorted(held)]
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=[index for index, _ in partitions],
            assignment_epochs=[since for _, since in partitions],
        )
        for topic, partitions in ordered
    ]


def read_holding(value: ConsumerGroupCurrentMemberAssignmentValue) -> Holding:
    def read(topics: list[TopicPartitions]) -> Held:
        held: Held = {}
        for one in topics:
            epochs = one.assignment_epochs or [value.member_epoch] * len(one.partitions)
            if one.partitions:
                held[one.topic_id] = dict(zip(one.partitions, epochs, strict=False))
        return held

    return Holding(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in MemberState.__members__.values() else MemberState.UNKNOWN,
        assigned=read(value.assigned_partitions),
        revoking=read(value.partitions_pending_revocation),
    )


def pattern(group: str, text: str, resolved: Resolved) -> Record:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=NO_VERSION, timestamp=resolved.time_ms
    )
    return encode_record(ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=text), value)


def no_pattern(group: str, text: str) -> Record:
    return encode_record(ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=text), None)


def without_member(group: str, member: str) -> list[Record]:
    return [
        encode_record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), None),
        encode_record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member), None),
        encode_record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member), None),
    ]


def without_group(group: str, members: Iterable[str], patterns: Iterable[str]) -> list[Record]:
    named = list(members)
    return [
        *(encode_record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=one), None) for one in named),
        *(encode_record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=one), None) for one in named),
        encode_record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), None),
        *(encode_record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=one), None) for one in named),
        *(no_pattern(group, text) for text in patterns),
        no_partition_metadata(group),
        encode_record(ConsumerGroupMetadataKey(group_id=group), None),
    ]
