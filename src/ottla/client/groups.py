"""Read and write a group's offsets without being a member: no membership, no generation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from ottla.client.cluster import GROUP, TopicPartition, portions
from ottla.client.failure import Failed, Refused, check
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
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.cluster import Cluster
    from ottla.wire.messages.commits import OffsetFetchResponsePartition, OffsetFetchResponsePartitions

Answer = TypeVar("Answer")

OFFSET_FETCH: Final = 9
CONSUMER_GROUP_DESCRIBE: Final = 69
NAMES_UNTIL: Final = 9  # versions of OffsetCommit and OffsetFetch; later ones use topic ids
ALL_SINCE: Final = 2  # OffsetFetch of all partitions
GROUPS_SINCE: Final = 8


class RequestSender(Protocol):
    """What can send requests: a connection, or an object that opens one when needed."""

    @property
    def name(self) -> str: ...

    def version(self, key: int, newest: int | None = None) -> int: ...

    def ask(self, request: object, answer: type[Answer], *, newest: int | None = None) -> Answer: ...


class Committed(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def read_offsets(
    cluster: Cluster, group: str, wheres: Iterable[TopicPartition] | None = None, *, stable: bool = True
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, of all partitions or of these.

    With `stable`, waits for open transactions that hold a newer offset. Apache Kafka reports a missing offset only for
    partitions that are requested by name.
    """
    found: dict[TopicPartition, Committed] = {}
    for wanted in [None] if wheres is None else [by_topic(some) for some in portions(wheres)]:
        attempt = partial(_read_offsets, cluster, group, wanted, stable)
        found |= cluster.retrying(attempt, what=f"reading the offsets of {group}")
    return found


def _read_offsets(
    cluster: Cluster, group: str, wanted: Mapping[str, list[int]] | None, stable: bool
) -> dict[TopicPartition, Committed]:
    found = fetch_committed(cluster.coordinator(group, GROUP), [group], wanted, stable=stable)[group]
    if isinstance(found, Refused):
        raise found
    return found


def fetch_committed(
    connection: RequestSender, groups: Sequence[str], wanted: Mapping[str, list[int]] | None = None, *, stable: bool
) -> dict[str, dict[TopicPartition, Committed] | Refused]:
    """The committed offsets of groups, of all partitions or of these, from their coordinator.

    A group that fails has a Refused as its value. One request for all groups, or one per group if the broker is older
    than Apache Kafka 3.0.
    """
    version = connection.version(OFFSET_FETCH, NAMES_UNTIL)
    if version < ALL_SINCE:
        raise Failed(f"the broker at {connection.name} is too old: Apache Kafka 0.11 and later are supported")
    if version < GROUPS_SINCE:
        return {group: _fetch_old(connection, group, wanted, stable) for group in groups}
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in wanted.items()]
    asked = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups]
    request = OffsetFetchRequest(group_id="", topics=None, groups=asked, require_stable=stable)
    found = {}
    for said in connection.ask(request, OffsetFetchResponse, newest=NAMES_UNTIL).groups:
        parts = [(topic.name, one) for topic in said.topics for one in topic.partitions]
        found[said.group_id] = _read(said.group_id, said.error_code, parts)
    if missing := set(groups) - found.keys():
        raise Failed(f"the broker at {connection.name} left out group {min(missing)}")
    return found


def _fetch_old(
    connection: RequestSender, group: str, wanted: Mapping[str, list[int]] | None, stable: bool
) -> dict[TopicPartition, Committed] | Refused:
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in wanted.items()]
    request = OffsetFetchRequest(group_id=group, topics=topics, groups=[], require_stable=stable)
    answer = connection.ask(request, OffsetFetchResponse, newest=GROUPS_SINCE - 1)
    return _read(group, answer.error_code, [(topic.name, one) for topic in answer.topics for one in topic.partitions])


def _read(
    group: str,
    code: int,
    parts: Iterable[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]],
) -> dict[TopicPartition, Committed] | Refused:
    found: dict[TopicPartition, Committed] = {}
    try:
        check(f"group {group}", code)
        for name, one in parts:
            if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # a deleted partition has no offset
                continue
            check(f"group {group}, {name} partition {one.partition_index}", one.error_code)
            if one.committed_offset >= 0:
                value = Committed(one.committed_offset, one.metadata or "", one.committed_leader_epoch)
                found[TopicPartition(name, one.partition_index)] = value
    except Refused as error:
        return error
    return found


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Commit offsets for a group without members; Refused if it has members."""
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
    """The members of a group: their kind, now or last time, and their number."""

    kind: str  # such as `consumer`; empty for a group that only keeps offsets
    members: int


def membership(cluster: Cluster, group: str) -> Membership:
    """The membership of a group; empty if the group does not exist."""

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
    """Delete a group and its offsets; succeeds if it does not exist."""

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
