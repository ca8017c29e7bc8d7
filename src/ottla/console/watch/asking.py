"""The requests to one broker in one round. Each is a function of the broker's link and returns plain values.

Requests are batched: each carries hundreds of partitions, groups or topics, so that a round takes only a few requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Refused, check
from ottla.client.groups import Committed, fetch_committed
from ottla.console.watch.snapshot import Disk, Member, Move, Transaction
from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.folders import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.groups import (
    ConsumerProtocolAssignment,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.wire.messages.topics import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from ottla.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.console.watch.links import Link
    from ottla.wire.messages.consumers import Member as ConsumerMember
    from ottla.wire.messages.groups import DescribedGroupMember

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER_DESCRIBE: Final = 69
LIST_TRANSACTIONS: Final = 66
LOG_DIRS: Final = 35
REASSIGNMENTS: Final = 46
PARTITIONS_AT_ONCE: Final = 2000
GROUPS_AT_ONCE: Final = 100
TOPICS_AT_ONCE: Final = 500
TRANSACTIONS_MAX: Final = 1000
TOPIC: Final = 2
WANTED: Final = ["min.insync.replicas", "cleanup.policy", "retention.ms"]
READING: Final = ("classic", "consumer")  # kinds of groups that commit offsets
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")

T = TypeVar("T")


class GroupFacts(NamedTuple):
    name: str
    kind: str
    state: str
    protocol: str
    members: tuple[Member, ...] = ()
    commits: dict[TopicPartition, Committed] | None = None


def metadata(link: Link) -> MetadataResponse:
    answer = link.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    check("the cluster", answer.error_code)
    return answer


def ends(link: Link, wheres: Sequence[TopicPartition], moment: int = LATEST) -> dict[TopicPartition, int]:
    """End or start offsets of these partitions. Omits those of which this broker is no longer the leader."""
    found: dict[TopicPartition, int] = {}
    for some in portions(wheres, PARTITIONS_AT_ONCE):
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in some:
            topics.setdefault(name, []).append(ListOffsetsPartition(partition_index=index, timestamp=moment))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        for topic in link.ask(request, ListOffsetsResponse).topics:
            for one in topic.partitions:
                if not one.error_code:
                    found[TopicPartition(topic.name, one.partition_index)] = one.offset
    return found


def disks(link: Link) -> tuple[tuple[Disk, ...], dict[TopicPartition, int]]:
    """The log folders of a broker, and the size of each replica in them."""
    if not link.speaks(LOG_DIRS):
        return (), {}
    answer = link.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    check("log folders", answer.error_code)
    found, sizes = [], {}
    for folder in answer.results:
        total = 0
        for topic in folder.topics:
            for one in topic.partitions:
                total += one.partition_size
                if not one.is_future_key:
                    sizes[TopicPartition(topic.name, one.partition_index)] = one.partition_size
        found.append(Disk(folder.log_dir, total, folder.total_bytes, folder.usable_bytes, folder.error_code))
    return tuple(found), sizes


def groups(link: Link) -> list[GroupFacts]:
    """The groups that this broker coordinates, with members and commits."""
    listed = link.ask(ListGroupsRequest(), ListGroupsResponse)
    if listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return []
    check("groups", listed.error_code)
    facts = {
        one.group_id: GroupFacts(one.group_id, kind(one.group_type), one.group_state, one.protocol_type)
        for one in listed.groups
    }
    for which in READING:
        if which == "consumer" and not link.speaks(CONSUMER_DESCRIBE):
            continue
        for some in portions([name for name, one in facts.items() if one.kind == which], GROUPS_AT_ONCE):
            facts |= describe(link, some, which)
    for some in portions([name for name, one in facts.items() if one.kind in READING], GROUPS_AT_ONCE):
        for name, commits in fetch_committed(link, some, stable=False).items():
            if not isinstance(commits, Refused):
                facts[name] = facts[name]._replace(commits=commits)
    return list(facts.values())


def kind(said: str) -> str:
    return said.lower() or "classic"


def describe(link: Link, names: list[str], kind: str) -> dict[str, GroupFacts]:
    """State and members of groups of one type. Omits groups deleted meanwhile."""
    if kind == "consumer":
        newer = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
        return {
            one.group_id: GroupFacts(
                one.group_id,
                kind,
                one.group_state,
                one.assignor_name,
                tuple(member(each, each.instance_id, list_partitions(each)) for each in one.members),
            )
            for one in link.ask(newer, ConsumerGroupDescribeResponse).groups
            if not one.error_code
        }
    return {
        one.group_id: GroupFacts(
            one.group_id,
            kind,
            one.group_state,
            one.protocol_data or one.protocol_type,
            tuple(
                member(each, each.group_instance_id, read_assignment(bytes(each.member_assignment)))
                for each in one.members
            ),
        )
        for one in link.ask(DescribeGroupsRequest(groups=names), DescribeGroupsResponse).groups
        if not one.error_code
    }


def member(one: DescribedGroupMember | ConsumerMember, instance: str | None, has: tuple[TopicPartition, ...]) -> Member:
    return Member(one.member_id, one.client_id, one.client_host.lstrip("/"), instance, has)


def list_partitions(one: ConsumerMember) -> tuple[TopicPartition, ...]:
    parts = one.assignment.topic_partitions
    return tuple(TopicPartition(topic.topic_name, index) for topic in parts for index in topic.partitions)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode a consumer's assignment. Other kinds of members may put any bytes there."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big", signed=True), 3)
    if version < 0:
        return ()
    try:
        told, _ = codec.decoder(ConsumerProtocolAssignment, version)(bytearray(data), 2)
    except codec.DecodeError:
        return ()
    return tuple(TopicPartition(one.topic, index) for one in told.assigned_partitions for index in one.partitions)


def transactions(link: Link, node: int) -> list[Transaction]:
    if not link.speaks(LIST_TRANSACTIONS):
        return []
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    listed = link.ask(request, ListTransactionsResponse)
    if listed.error_code:
        return []
    states = {one.transactional_id: one for one in listed.transaction_states[:TRANSACTIONS_MAX]}
    found = []
    opened = [name for name, one in states.items() if one.transaction_state in OPEN]
    for some in portions(opened, GROUPS_AT_ONCE):
        answer = link.ask(DescribeTransactionsRequest(transactional_ids=some), DescribeTransactionsResponse)
        for one in answer.transaction_states:
            if one.error_code:
                continue
            wheres = tuple(TopicPartition(each.topic, index) for each in one.topics for index in each.partitions)
            begun = one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None
            found.append(
                Transaction(
                    one.transactional_id,
                    node,
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_state,
                    one.transaction_timeout_ms,
                    begun,
                    wheres,
                )
            )
    known = {one.name for one in found}
    found += [
        Transaction(name, node, one.producer_id, -1, one.transaction_state, 0, None, ())
        for name, one in states.items()
        if name not in known
    ]
    return found


def moves(link: Link) -> tuple[Move, ...]:
    if not link.speaks(REASSIGNMENTS):
        return ()
    answer = link.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    check("reassignments", answer.error_code, answer.error_message)
    return tuple(
        Move(
            TopicPartition(topic.name, one.partition_index),
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in answer.topics
        for one in topic.partitions
    )


def options(link: Link, names: list[str]) -> dict[str, dict[str, str]]:
    """The few options of these topics that the tables show."""
    found: dict[str, dict[str, str]] = {}
    for some in portions(names, TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=WANTED) for name in some
        ]
        for one in link.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse).results:
            if not one.error_code:
                found[one.resource_name] = {each.name: each.value or "" for each in one.configs}
    return found


def portions(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for first in range(0, len(items), size):
        yield list(items[first : first + size])
