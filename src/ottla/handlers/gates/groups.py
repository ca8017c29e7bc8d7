"""Gates for consumer groups: members, offsets, lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coord.groups.describing import refuse
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.gates.gate import EarlyReply, extend, guards, list_refusals, sift, sift_list
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.consumers import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from ottla.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.handlers.finishing import Finish
    from ottla.handlers.gates.gate import Guard, Outcome
    from ottla.wire.messages import consumers
    from ottla.wire.messages.commits import OffsetFetchRequestGroup

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
GROUP_REFUSED, TOPIC_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPICS_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
GROUP_KEY, TRANSACTION_KEY = 0, 1  # key types of FindCoordinator
MANY_KEYS = 4  # the first version of FindCoordinator with a list
MANY_GROUPS = 8  # the first version of OffsetFetch with a list
TELLS_ERRORS = 2  # the first version of OffsetFetch with a top-level error
NAMES_PROTOCOLS = 5  # the first version of SyncGroup in which members name the protocol
NO_OFFSET = -1


@guards(FindCoordinatorRequest)
def find_coordinator(guard: Guard, request: FindCoordinatorRequest) -> Steps[Finish | None] | None:
    if request.key_type not in (GROUP_KEY, TRANSACTION_KEY):
        guard.demand_cluster(Operation.CLUSTER_ACTION)
        return None
    kind = GROUP if request.key_type == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
    if guard.call.version < MANY_KEYS:
        guard.demand(Operation.DESCRIBE, kind, request.key)
        return None
    return sift_list(
        guard,
        request,
        Operation.DESCRIBE,
        kind,
        of="coordinator_keys",
        into="coordinators",
        name_of=str,
    )


def demand_read(guard: Guard, request: Any) -> None:
    """For requests of group members: needs Read on the group."""
    guard.demand(Operation.READ, GROUP, request.group_id)


for member_request in (JoinGroupRequest, HeartbeatRequest, LeaveGroupRequest):
    guards(member_request)(demand_read)


@guards(SyncGroupRequest)
def sync_group(guard: Guard, request: SyncGroupRequest) -> None:
    """An incomplete request is refused for that, whatever the permissions."""
    if guard.call.version < NAMES_PROTOCOLS or None not in (request.protocol_type, request.protocol_name):
        guard.demand(Operation.READ, GROUP, request.group_id)


@guards(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(guard: Guard, request: ConsumerGroupHeartbeatRequest) -> Steps[None]:
    guard.demand(Operation.READ, GROUP, request.group_id)
    for name in request.subscribed_topic_names or ():
        if not guard.allows_topic(Operation.DESCRIBE, name):
            raise BrokerError(TOPIC_REFUSED)
        yield


@guards(DescribeGroupsRequest)
def describe_groups(guard: Guard, request: DescribeGroupsRequest) -> Steps[Finish | None]:
    request.groups, refused = yield from sift(guard, Operation.DESCRIBE, request.groups, GROUP, lambda name: name)
    refusals = [
        DescribedGroup(
            error_code=GROUP_REFUSED, group_id=name, group_state="", protocol_type="", protocol_data="", members=[]
        )
        for name in refused
    ]

    def finish(response: DescribeGroupsResponse) -> Steps[DescribeGroupsResponse]:
        for group in response.groups if request.include_authorized_operations else ():
            group.authorized_operations = guard.operations(GROUP, group.group_id)
            yield
        response.groups += refusals
        return response

    return finish


@guards(ConsumerGroupDescribeRequest)
def consumer_group_describe(guard: Guard, request: ConsumerGroupDescribeRequest) -> Steps[Finish | None]:
    request.group_ids, refused = yield from sift(guard, Operation.DESCRIBE, request.group_ids, GROUP, lambda name: name)
    refusals = [refuse(name, GROUP_REFUSED) for name in refused]

    def finish(response: ConsumerGroupDescribeResponse) -> Steps[ConsumerGroupDescribeResponse]:
        for at, group in enumerate(response.groups):
            yield
            if not all(guard.allows_topic(Operation.DESCRIBE, name) for name in topics_of(group)):
                response.groups[at] = refuse(group.group_id, TOPIC_REFUSED, TOPICS_HIDDEN)
            elif request.include_authorized_operations and not group.error_code:
                group.authorized_operations = guard.operations(GROUP, group.group_id)
        response.groups += refusals
        return response

    return finish


def topics_of(group: consumers.DescribedGroup) -> set[str]:
    """The topics that its members subscribe to or are assigned."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(one.topic_name for one in assignment.topic_partitions)
    return names


@guards(ListGroupsRequest)
def list_groups(guard: Guard, request: ListGroupsRequest) -> Finish | None:
    if guard.allows_cluster(Operation.DESCRIBE):
        return None

    def finish(response: ListGroupsResponse) -> Steps[ListGroupsResponse]:
        response.groups, _ = yield from sift(
            guard, Operation.DESCRIBE, response.groups, GROUP, lambda group: group.group_id
        )
        return response

    return finish


@guards(DeleteGroupsRequest)
def delete_groups(guard: Guard, request: DeleteGroupsRequest) -> Steps[Finish | None]:
    return sift_list(guard, request, Operation.DELETE, GROUP, of="groups_names", into="results", name_of=str)


@guards(OffsetCommitRequest)
def offset_commit(guard: Guard, request: OffsetCommitRequest) -> Steps[Outcome]:
    guard.demand(Operation.READ, GROUP, request.group_id)
    request.topics, refused = yield from sift(
        guard, Operation.READ, request.topics, TOPIC, lambda topic: name_of(guard, topic)
    )
    unknown = [topic for topic in refused if is_unknown(guard, topic)]
    known = [topic for topic in refused if not is_unknown(guard, topic)]
    refusals = yield from list_refusals(guard, request, unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    refusals += yield from list_refusals(guard, request, known, TOPIC_REFUSED)
    return extend("topics", refusals) if request.topics else EarlyReply(OffsetCommitResponse(topics=refusals))


def is_unknown(guard: Guard, topic: Any) -> bool:
    """Whether the topic id is unknown. That reveals nothing, so the answer may say it."""
    return any(topic.topic_id) and guard.topic_name(topic.topic_id) is None


@guards(OffsetDeleteRequest)
def offset_delete(guard: Guard, request: OffsetDeleteRequest) -> Steps[Finish | None]:
    """The answer has an error code of its own, so the codes of topics are set here."""
    guard.demand(Operation.DELETE, GROUP, request.group_id)
    request.topics, refused = yield from sift(guard, Operation.READ, request.topics, TOPIC, lambda topic: topic.name)
    return extend(
        "topics",
        [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=TOPIC_REFUSED)
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ],
    )


@guards(OffsetFetchRequest)
def offset_fetch(guard: Guard, request: OffsetFetchRequest) -> Steps[Finish | EarlyReply | None]:
    if guard.call.version >= MANY_GROUPS:
        return (yield from offset_fetch_of_many(guard, request))
    if not guard.allows(Operation.DESCRIBE, GROUP, request.group_id):
        return EarlyReply(refuse_group_offsets(guard, request))
    if request.topics is None:
        return lambda response: hide_topics(guard, response, [response])
    request.topics, refused = yield from sift(
        guard, Operation.DESCRIBE, request.topics, TOPIC, lambda topic: topic.name
    )
    refusals = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[refuse_offset(index, TOPIC_REFUSED) for index in topic.partition_indexes]
        )
        for topic in refused
    ]
    if refusals and not request.topics:
        return EarlyReply(OffsetFetchResponse(topics=refusals))  # in old versions an empty list means all topics
    return extend("topics", refusals)


def refuse_group_offsets(guard: Guard, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if guard.call.version >= TELLS_ERRORS:
        return OffsetFetchResponse(error_code=GROUP_REFUSED, topics=[])
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[refuse_offset(index, GROUP_REFUSED) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics)


def refuse_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)


def hide_topics(guard: Guard, response: OffsetFetchResponse, holders: list[Any]) -> Steps[OffsetFetchResponse]:
    """Leave out topics that the client may not describe, if it asked for all."""
    for holder in holders:
        holder.topics, _ = yield from sift(
            guard, Operation.DESCRIBE, holder.topics, TOPIC, lambda topic: name_of(guard, topic)
        )
    return response


def name_of(guard: Guard, topic: Any) -> str:
    return topic.name or guard.topic_name(getattr(topic, "topic_id", b"")) or ""


def offset_fetch_of_many(guard: Guard, request: OffsetFetchRequest) -> Steps[Finish | None]:
    request.groups, refused = yield from sift(
        guard, Operation.DESCRIBE, request.groups, GROUP, lambda group: group.group_id
    )
    refusals = [OffsetFetchResponseGroup(group_id=one.group_id, topics=[], error_code=GROUP_REFUSED) for one in refused]
    everything = {group.group_id for group in request.groups if group.topics is None}
    hidden: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        if group.topics is not None:
            hidden[group.group_id] = yield from sift_group(guard, group)

    def finish(response: OffsetFetchResponse) -> Steps[OffsetFetchResponse]:
        yield from hide_topics(guard, response, [group for group in response.groups if group.group_id in everything])
        for group in response.groups:
            group.topics += hidden.get(group.group_id, ())
        response.groups += refusals
        return response

    return finish


def sift_group(guard: Guard, group: OffsetFetchRequestGroup) -> Steps[list[OffsetFetchResponseTopics]]:
    assert group.topics is not None
    group.topics, refused = yield from sift(
        guard, Operation.DESCRIBE, group.topics, TOPIC, lambda topic: name_of(guard, topic)
    )
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if is_unknown(guard, topic) else TOPIC_REFUSED,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in refused
    ]
