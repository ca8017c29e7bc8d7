"""Gates for cluster-wide requests: between brokers, reassignments and elections, ACLs, credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, description
from ottla.handlers.gates.gate import EarlyReply, guards
from ottla.wire.access import Operation
from ottla.wire.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.wire.messages.folders import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasRequest,
)
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.messages.transactions import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Steps
    from ottla.handlers.gates.gate import Guard

CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def demanding(operation: Operation) -> Callable[[Guard, Any], None]:
    """A gate that requires one operation on the cluster."""

    def gate(guard: Guard, request: Any) -> None:
        guard.demand_cluster(operation)

    return gate


for right, requests in (
    (
        Operation.CLUSTER_ACTION,
        (
            LeaderAndIsrRequest,
            StopReplicaRequest,
            UpdateMetadataRequest,
            ControlledShutdownRequest,
            AlterPartitionRequest,
            AllocateProducerIdsRequest,
        ),
    ),
    (
        Operation.DESCRIBE,
        (
            DescribeAclsRequest,
            DescribeLogDirsRequest,
            ListPartitionReassignmentsRequest,
        ),
    ),
    (Operation.DESCRIBE_CONFIGS, (DescribeClientQuotasRequest,)),
    (Operation.ALTER, (AlterPartitionReassignmentsRequest,)),
):
    for one in requests:
        guards(one)(demanding(right))


@guards(CreateAclsRequest)
def create_acls(guard: Guard, request: CreateAclsRequest) -> EarlyReply | None:
    if guard.allows_cluster(Operation.ALTER):
        return None
    refused = AclCreationResult(error_code=CLUSTER_REFUSED, error_message=description(CLUSTER_REFUSED))
    return EarlyReply(CreateAclsResponse(results=[refused] * len(request.creations)))


@guards(DeleteAclsRequest)
def delete_acls(guard: Guard, request: DeleteAclsRequest) -> EarlyReply | None:
    if guard.allows_cluster(Operation.ALTER):
        return None
    refused = DeleteAclsFilterResult(
        error_code=CLUSTER_REFUSED, error_message=description(CLUSTER_REFUSED), matching_acls=[]
    )
    return EarlyReply(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))


@guards(DescribeUserScramCredentialsRequest)
def describe_scram(guard: Guard, request: DescribeUserScramCredentialsRequest) -> Steps[EarlyReply | None]:
    if guard.allows_cluster(Operation.DESCRIBE):
        return None
    message = description(CLUSTER_REFUSED)
    results = []
    for _ in request.users or ():
        results.append(
            DescribeUserScramCredentialsResult(
                user="", error_code=CLUSTER_REFUSED, error_message=message, credential_infos=[]
            )
        )
        yield
    return EarlyReply(
        DescribeUserScramCredentialsResponse(error_code=CLUSTER_REFUSED, error_message=message, results=results)
    )


@guards(AlterUserScramCredentialsRequest)
def alter_scram(guard: Guard, request: AlterUserScramCredentialsRequest) -> Steps[EarlyReply | None]:
    if guard.allows_cluster(Operation.ALTER):
        return None
    names = dict.fromkeys(one.name for some in (request.deletions, request.upsertions) for one in some)
    results = []
    for name in names:
        results.append(
            AlterUserScramCredentialsResult(
                user=name, error_code=CLUSTER_REFUSED, error_message=description(CLUSTER_REFUSED)
            )
        )
        yield
    return EarlyReply(AlterUserScramCredentialsResponse(results=results))


@guards(AlterClientQuotasRequest)
def alter_quotas(guard: Guard, request: AlterClientQuotasRequest) -> Steps[EarlyReply | None]:
    if guard.allows_cluster(Operation.ALTER_CONFIGS):
        return None
    entries = []
    for entry in request.entries:
        entries.append(
            AlterClientQuotasResponseEntryData(
                error_code=CLUSTER_REFUSED, error_message=description(CLUSTER_REFUSED), entity=entry.entity
            )
        )
        yield
    return EarlyReply(AlterClientQuotasResponse(entries=entries))


@guards(AlterReplicaLogDirsRequest)
def alter_log_dirs(guard: Guard, request: AlterReplicaLogDirsRequest) -> Steps[EarlyReply | None]:
    if guard.allows_cluster(Operation.ALTER):
        return None
    topics: dict[str, list[int]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            topics.setdefault(topic.name, []).extend(topic.partitions)
            yield
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=CLUSTER_REFUSED)
                for index in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    return EarlyReply(AlterReplicaLogDirsResponse(results=results))


@guards(ElectLeadersRequest)
def elect_leaders(guard: Guard, request: ElectLeadersRequest) -> Steps[EarlyReply | None]:
    """Also refuse each partition: version 0 has no top-level error."""
    if guard.allows_cluster(Operation.ALTER):
        return None
    results = []
    for topic in request.topic_partitions or ():
        partitions = [
            PartitionResult(partition_id=index, error_code=CLUSTER_REFUSED, error_message=description(CLUSTER_REFUSED))
            for index in topic.partitions
        ]
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=partitions))
        yield
    return EarlyReply(ElectLeadersResponse(error_code=CLUSTER_REFUSED, replica_election_results=results))
