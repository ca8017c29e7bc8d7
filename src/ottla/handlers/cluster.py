"""The cluster and its leaders: DescribeCluster (60), ElectLeaders (43), Alter/ListPartitionReassignments (45, 46).

DescribeCluster v1 brokers or controllers; v2 fenced brokers, of which there are none. ElectLeaders v1 unclean.
In a cluster the controller elects and moves; any other broker answers NOT_CONTROLLER.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, list_brokers
from ottla.handlers.topics import TIMEOUT_MS_MAX
from ottla.wire.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

Key = tuple[str, int]  # topic and partition
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BROKERS, CONTROLLERS = 1, 2  # kinds of endpoints


@handles(DescribeClusterRequest)
def describe_cluster(parts: Parts, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return refuse_endpoint(request.endpoint_type)
    image = parts.metadata.image
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in list_brokers(parts, call)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def refuse_endpoint(kind: int) -> DescribeClusterResponse:
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}"
    if kind == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


@handles(ElectLeadersRequest)
async def elect_leaders(parts: Parts, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = request.topic_partitions
    keys = None if asked is None else [(topic.topic, index) for topic in asked for index in topic.partitions]
    code, results = ErrorCode.NONE, dict[Key, BrokerError | None]()
    try:
        elected = await parts.controller.elect_leaders(
            keys, request.election_type, timeout_ms=min(request.timeout_ms, TIMEOUT_MS_MAX)
        )
        results.update(elected)
    except BrokerError as error:
        code = error.code
        results.update(dict.fromkeys(keys or (), error))
    grouped: dict[str, list[PartitionResult]] = {topic.topic: [] for topic in asked or ()}
    if asked is None and code == ErrorCode.NONE:
        grouped = {name: [] for name in parts.metadata.image.topics}
    for (topic, index), outcome in results.items():
        await parts.metadata.turns.pause()
        grouped.setdefault(topic, []).append(answer_election(index, outcome))
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=elections) for topic, elections in grouped.items()
        ],
    )


def answer_election(index: int, error: BrokerError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message or None)


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    parts: Parts, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    code, message = ErrorCode.NONE, None
    responses = []
    try:
        parts.controller.check_controller()
        results: list[Mapping[Key, BrokerError | None]] = [
            await parts.controller.move_partitions(wishes, resize=request.allow_replication_factor_change)
            for wishes in rounds(request)
        ]
        told: Counter[Key] = Counter()
        for topic in request.topics:
            await parts.metadata.turns.pause()
            partitions = []
            for index in (one.partition_index for one in topic.partitions):
                partitions.append(answer_move(index, results[told[topic.name, index]][topic.name, index]))
                told[topic.name, index] += 1
            responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    except BrokerError as error:
        code, message = error.code, error.message or None
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=responses,
    )


def rounds(request: AlterPartitionReassignmentsRequest) -> list[dict[Key, Sequence[int] | None]]:
    """The requested moves, in rounds. A partition that is named twice is moved twice, so that each entry has its
    answer."""
    found: list[dict[Key, Sequence[int] | None]] = [{}]
    named: Counter[Key] = Counter()
    for topic in request.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if named[key] == len(found):
                found.append({})
            found[named[key]][key] = one.replicas
            named[key] += 1
    return found


def answer_move(index: int, error: BrokerError | None) -> ReassignablePartitionResponse:
    code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message or None)
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    parts: Parts, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = request.topics
    keys = None if wanted is None else [(topic.name, index) for topic in wanted for index in topic.partition_indexes]
    try:
        moving = parts.controller.moving_partitions(keys)
    except BrokerError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message or None, topics=[])
    grouped: dict[str, list[OngoingPartitionReassignment]] = {}
    for (topic, index), state in moving.items():
        grouped.setdefault(topic, []).append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
        )
    topics = [OngoingTopicReassignment(name=topic, partitions=partitions) for topic, partitions in grouped.items()]
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
