"""Gates of consumer groups: members, offsets, lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.gates.gate import Reply, extend, guards, sift
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages import consumers
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
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
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.handlers.gates.gate import Finish, Guard
    from ottla.wire.messages.commits import OffsetCommitRequestTopic, OffsetFetchRequestGroup

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
GROUP_REFUSED, TOPIC_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_KEY, TRANSACTION_KEY = 0, 1  # what FindCoordinator may ask for
MANY_KEYS = 4  # the first version of FindCoordinator with a list
MANY_GROUPS = 8  # the first version of OffsetFetch with a list
TELLS_ERRORS = 2  # the first version of OffsetFetch with an error for all
NAMES_PROTOCOLS = 5  # the first version of SyncGroup in which members say what they have agreed upon
NO_OFFSET = -1


@guards(FindCoordinatorRequest)
def find_coordinator(guard: Guard, request: FindCoordinatorRequest) -> Steps[Finish | Reply | None]:
    if request.key_type not in (GROUP_KEY, TRANSACTION_KEY):
        guard.demand_cluster(Operation.CLUSTER_ACTION)
        return None
    kind, code = GROUP, GROUP_REFUSED
    if request.key_type == TRANSACTION_KEY:
        kind, code = ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if guard.call.version < MANY_KEYS:
        if guard.allows(Operation.DESCRIBE, kind, request.key):
            return None
        return Reply(FindCoordinatorResponse(error_code=code, error_message=None, node_id=-1, host="", port=-1))
    request.coordinator_keys, refused = yield from sift(
        guard, Operation.DESCRIBE, request.coordinator_keys, kind, lambda key: key
    )
    return extend(
        "coordinators",
        [Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None) for key in refused],
    )


def demand_read(guard: Guard, request: Any) -> Steps[None]:
    """Of a member's requests: whoever reads for a group."""
    guard.demand(Operation.READ, GROUP, request.group_id)
    if False:
        yield


for member_request in (JoinGroupRequest, HeartbeatRequest, LeaveGroupRequest):
    guards(member_request)(demand_read)


@guards(SyncGroupRequest)
def sync_group(guard: Guard, request: SyncGroupRequest) -> Steps[None]:
    """A request that is not whole is refused for that, whoever sends it."""
    if guard.call.version < NAMES_PROTOCOLS or None not in (request.protocol_type, request.protocol_name):
        guard.demand(Operation.READ, GROUP, request.group_id)
    if False:
        yield


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

    def finish(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                group.authorized_operations = guard.operations(GROUP, group.group_id)
        response.groups += refusals
        return response

    return finish


@guards(ConsumerGroupDescribeRequest)
def consumer_group_describe(guard: Guard, request: ConsumerGroupDescribeRequest) -> Steps[Finish | None]:
    request.group_ids, refused = yield from sift(guard, Operation.DESCRIBE, request.group_ids, GROUP, lambda name: name)
    refusals = [refuse_consumer_group(name, GROUP_REFUSED) for name in refused]

    def finish(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        for at, group in enumerate(response.groups):
            if not all(guard.allows_topic(Operation.DESCRIBE, name) for name in topics_of(group)):
                response.groups[at] = refuse_consumer_group(group.group_id, TOPIC_REFUSED)
            elif request.include_authorized_operations and not group.error_code:
                group.authorized_operations = guard.operations(GROUP, group.group_id)
        response.groups += refusals
        return response

    return finish


def topics_of(group: consumers.DescribedGroup) -> set[str]:
    """What its members read, or will."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(one.topic_name for one in assignment.topic_partitions)
    return names


def refuse_consumer_group(name: str, code: ErrorCode) -> consumers.DescribedGroup:
    return consumers.DescribedGroup(
        error_code=code,
        error_message="The group has described topic(s) that the client is not authorized to describe."
        if code is TOPIC_REFUSED
        else None,
        group_id=name,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


@guards(ListGroupsRequest)
def list_groups(guard: Guard, request: ListGroupsRequest) -> Steps[Finish | None]:
    if False:
        yield
    if guard.allows_cluster(Operation.DESCRIBE):
        return None

    def finish(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [one for one in response.groups if guard.allows(Operation.DESCRIBE, GROUP, one.group_id)]
        return response

    return finish


@guards(DeleteGroupsRequest)
def delete_groups(guard: Guard, request: DeleteGroupsRequest) -> Steps[Finish | None]:
    request.groups_names, refused = yield from sift(
        guard, Operation.DELETE, request.groups_names, GROUP, lambda name: name
    )
    return extend("results", [DeletableGroupResult(group_id=name, error_code=GROUP_REFUSED) for name in refused])


@guards(OffsetCommitRequest)
def offset_commit(guard: Guard, request: OffsetCommitRequest) -> Steps[Finish | Reply | None]:
    if not guard.allows(Operation.READ, GROUP, request.group_id):
        return Reply(OffsetCommitResponse(topics=[refuse_commit(topic, GROUP_REFUSED) for topic in request.topics]))
    request.topics, refused = yield from sift(
        guard, Operation.READ, request.topics, TOPIC, lambda topic: topic.name or guard.topic_name(topic.topic_id) or ""
    )
    refusals = [refuse_commit(topic, refuse_topic(guard, topic.topic_id)) for topic in refused]
    if not request.topics:
        return Reply(OffsetCommitResponse(topics=refusals))
    return extend("topics", refusals)


def refuse_topic(guard: Guard, topic_id: bytes) -> ErrorCode:
    """An id that is nobody's tells nothing, and is as unknown as it is."""
    return ErrorCode.UNKNOWN_TOPIC_ID if any(topic_id) and guard.topic_name(topic_id) is None else TOPIC_REFUSED


def refuse_commit(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [
        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


@guards(OffsetDeleteRequest)
def offset_delete(guard: Guard, request: OffsetDeleteRequest) -> Steps[Finish | None]:
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
def offset_fetch(guard: Guard, request: OffsetFetchRequest) -> Steps[Finish | Reply | None]:
    if guard.call.version >= MANY_GROUPS:
        return (yield from offset_fetch_of_many(guard, request))
    if not guard.allows(Operation.DESCRIBE, GROUP, request.group_id):
        return Reply(refuse_group_offsets(guard, request))
    if request.topics is None:
        return lambda response: hide_topics(guard, response, response)
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
        return Reply(OffsetFetchResponse(topics=refusals))  # an empty list asks for all in old versions
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


def hide_topics(guard: Guard, response: OffsetFetchResponse, holder: Any) -> OffsetFetchResponse:
    """Leave out the topics that the client may not know, where it asked for all."""
    holder.topics = [topic for topic in holder.topics if guard.allows_topic(Operation.DESCRIBE, name_of(guard, topic))]
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

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            if group.group_id in everything:
                hide_topics(guard, response, group)
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
                    error_code=refuse_topic(guard, topic.topic_id),
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in refused
    ]
