"""The cluster and who leads what: DescribeCluster (60), ElectLeaders (43), Alter/ListPartitionReassignments (45, 46).

DescribeCluster v1 brokers or controllers; v2 fenced brokers, of which there are none. ElectLeaders v1 unclean ones.
On one node every partition is led by the only replica it can have: there is nothing to elect and nowhere to move to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.plans import check_replicas
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, brokers
from ottla.wire.messages.metadata import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
    TopicPartitions,
)

if TYPE_CHECKING:
    from ottla.cluster.image import Image

BROKERS, CONTROLLERS = 1, 2  # kinds of endpoints
PREFERRED, UNCLEAN = 0, 1  # kinds of elections


@handles(DescribeClusterRequest)
def describe_cluster(parts: Parts, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return wrong_endpoint(request.endpoint_type)
    image = parts.metadata.image
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in brokers(parts, call)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def wrong_endpoint(kind: int) -> DescribeClusterResponse:
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}"
    if kind == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


@handles(ElectLeadersRequest)
async def elect_leaders(parts: Parts, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    image = parts.metadata.image
    if request.topic_partitions is None:
        # All partitions: the answer names those that changed or failed, so here none.
        results = [ReplicaElectionResult(topic=name, partition_result=[]) for name in image.topics]
        return ElectLeadersResponse(replica_election_results=results)
    known = request.election_type in (PREFERRED, UNCLEAN)
    results = []
    for topic in request.topic_partitions:
        elections = []
        for index in dict.fromkeys(topic.partitions):
            await parts.metadata.turns.pause()
            elections.append(election(image, topic, index, request.election_type if not known else None))
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=elections))
    code = ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def election(image: Image, topic: TopicPartitions, index: int, unknown_kind: int | None) -> PartitionResult:
    code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if unknown_kind is not None:
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {unknown_kind}"
    elif topic.topic not in image.topics:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic.topic}"
    elif not 0 <= index < len(image.topics[topic.topic].partitions):
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic.topic}-{index}"
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    parts: Parts, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    responses = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            await parts.metadata.turns.pause()
            partitions.append(reassigned(parts.metadata.image, topic.name, one))
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


def reassigned(image: Image, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    """Moving a partition to the broker it is on is done at once; there is no other broker to move it to."""
    code, message = ErrorCode.NONE, None
    try:
        if topic not in image.topics:
            reason = f"Unable to find a topic named {topic}."
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        if not 0 <= asked.partition_index < len(image.topics[topic].partitions):
            reason = f"Unable to find partition {topic}:{asked.partition_index}."
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        if asked.replicas is None:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        check_replicas(image, asked.replicas, expected=None)
    except BrokerError as error:
        code, message = error.code, error.message or None
    return ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=message)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    parts: Parts, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
