"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups.assignors import NO_ASSIGNMENT
from ottla.coord.groups.change import choose_assignor
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.reconciliation import union
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.consumers import (
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseTopicPartitions,
    DescribedGroup,
    Member,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cluster.image import Image
    from ottla.coord.groups.consumer_member import ConsumerMember
    from ottla.coord.groups.group import ConsumerRules

CLASSIC, CONSUMER = 0, 1  # the protocol that a member speaks


def describe(group: object, name: str, rules: ConsumerRules, image: Image) -> DescribedGroup:
    if not name:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} {what}.")
    members = list(group.members.values())
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=name,
        group_state=group.phase,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=choose_assignor(members, rules),
        members=[_member(group, one, image) for one in members],
    )


def refuse(name: str, code: ErrorCode, message: str = "") -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message or None,
        group_id=name,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, one: ConsumerMember, image: Image) -> Member:
    wanted, holding = one.subscription, one.holding
    return Member(
        member_id=one.id,
        instance_id=wanted.instance,
        rack_id=wanted.rack,
        member_epoch=one.epoch,
        client_id=wanted.client_id,
        client_host=wanted.host,
        subscribed_topic_names=sorted(wanted.topics),
        subscribed_topic_regex=wanted.pattern,
        assignment=_assignment(union(holding.assigned, holding.revoking), image),
        target_assignment=_assignment(group.target.get(one.id, NO_ASSIGNMENT), image),
        member_type=CLASSIC if wanted.classic is not None else CONSUMER,
    )


def _assignment(part: Mapping[bytes, Iterable[int]], image: Image) -> ConsumerGroupDescribeResponseAssignment:
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic, topic_name=image.names_by_id[topic], partitions=sorted(part[topic])
            )
            for topic in part
            if topic in image.names_by_id
        ]
    )
