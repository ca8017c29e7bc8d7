"""Offsets that a group keeps, read and written from outside of it: no membership, no generation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster import GROUP, TopicPartition, portions
from ottla.client.failure import Failed, check
from ottla.errors import ErrorCode
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.client.cluster import Cluster

OFFSET_FETCH: Final = 9
CONSUMER_GROUP_DESCRIBE: Final = 69
NAMES_UNTIL: Final = 9  # of OffsetCommit and OffsetFetch; later versions say topics by id
ALL_SINCE: Final = 2  # OffsetFetch of everything
GROUPS_SINCE: Final = 8


class Committed(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def committed(
    cluster: Cluster, group: str, wheres: Iterable[TopicPartition] | None = None, *, stable: bool = True
) -> dict[TopicPartition, Committed]:
    """What a group has committed, everywhere or here.

    An open transaction that holds a newer offset is waited for, if what is `stable` is wanted. Where a group has
    committed nothing yet, Apache Kafka says so only of partitions that are asked for by name.
    """
    found: dict[TopicPartition, Committed] = {}
    for wanted in [None] if wheres is None else [by_topic(some) for some in portions(wheres)]:
        attempt = partial(_committed, cluster, group, wanted, stable)
        found |= cluster.retrying(attempt, what=f"reading the offsets of {group}")
    return found


def _committed(
    cluster: Cluster, group: str, wanted: Mapping[str, list[int]] | None, stable: bool
) -> dict[TopicPartition, Committed]:
    connection = cluster.coordinator(group, GROUP)
    version = connection.version(OFFSET_FETCH, NAMES_UNTIL)
    if version < ALL_SINCE:
        raise Failed(f"the broker at {connection.name} is too old: Apache Kafka 0.11 and later are supported")
    pairs = None if wanted is None else list(wanted.items())
    request = OffsetFetchRequest(
        group_id=group,
        topics=None
        if pairs is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in pairs],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if pairs is None
                else [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in pairs],
            )
        ],
        require_stable=stable,
    )
    answer = connection.ask(request, OffsetFetchResponse, newest=NAMES_UNTIL)
    found: dict[TopicPartition, Committed] = {}
    if version < GROUPS_SINCE:
        check(f"group {group}", answer.error_code)
        old = [(topic.name, one) for topic in answer.topics for one in topic.partitions]
        for name, one in old:
            _note(found, group, name, one.partition_index, one.error_code,
                  Committed(one.committed_offset, one.metadata or "", one.committed_leader_epoch))  # fmt: skip
        return found
    for said in answer.groups:
        check(f"group {group}", said.error_code)
        for topic in said.topics:
            for part in topic.partitions:
                _note(found, group, topic.name, part.partition_index, part.error_code,
                      Committed(part.committed_offset, part.metadata or "", part.committed_leader_epoch))  # fmt: skip
    return found


def _note(
    found: dict[TopicPartition, Committed], group: str, name: str, index: int, code: int, value: Committed
) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # a partition that is gone has no offset
        return
    check(f"group {group}, {name} partition {index}", code)
    if value.offset >= 0:
        found[TopicPartition(name, index)] = value


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Store offsets for a group that has no members now; what a group with members says of that is Refused."""
    for some in portions(offsets):
        _commit(cluster, group, {where: offsets[where] for where in some})


def _commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), value in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                committed_metadata=value.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    def attempt() -> None:
        answer = cluster.coordinator(group, GROUP).ask(request, OffsetCommitResponse, newest=NAMES_UNTIL)
        for topic in answer.topics:
            for one in topic.partitions:
                check(f"group {group}, {topic.name} partition {one.partition_index}", one.error_code)

    cluster.retrying(attempt, what=f"committing offsets of {group}")


class Membership(NamedTuple):
    """Who joins a group: the kind of its members, now or when it had some, and how many there are."""

    kind: str  # such as `consumer`; empty for a group that only keeps offsets
    members: int


def membership(cluster: Cluster, group: str) -> Membership:
    """Who is in a group, or was; nobody, where there is no group of that name."""

    def attempt() -> Membership:
        connection = cluster.coordinator(group, GROUP)
        (one,) = connection.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse).groups
        if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(f"group {group}", one.error_code)
        if one.protocol_type or one.members or not connection.knows(CONSUMER_GROUP_DESCRIBE):
            return Membership(one.protocol_type, len(one.members))
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (new,) = connection.ask(request, ConsumerGroupDescribeResponse).groups
        if new.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return Membership("", 0)
        check(f"group {group}", new.error_code)
        return Membership("consumer", len(new.members))

    return cluster.retrying(attempt, what=f"looking at group {group}")


def delete_group(cluster: Cluster, group: str) -> None:
    """Forget a group and its offsets; content if there is none of that name."""

    def attempt() -> None:
        answer = cluster.coordinator(group, GROUP).ask(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        for one in answer.results:
            if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(f"group {group}", one.error_code)

    cluster.retrying(attempt, what=f"deleting group {group}")


def by_topic(wheres: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in wheres:
        topics.setdefault(name, []).append(index)
    return topics
