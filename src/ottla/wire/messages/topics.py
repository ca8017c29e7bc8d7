"""Topics and their partitions: create, add partitions, delete records, delete, elect leaders, move replicas.

CreateTopics (19): versions 0 to 7
     1  adds validate_only; answer adds error_message
     2  answer adds throttle_time_ms
     3  over quota, the answer is sent before throttling
     4  partitions and replication factor may be -1: the broker chooses
     5  flexible; answer adds topic_config_error_code, num_partitions, replication_factor, configs
     6  THROTTLING_QUOTA_EXCEEDED possible
     7  answer adds topic_id

DeleteTopics (20): versions 0 to 6
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  TOPIC_DELETION_DISABLED possible
     4  flexible
     5  answer adds error_message; THROTTLING_QUOTA_EXCEEDED possible
     6  topics in place of topic_names; answer adds topic_id, name may be null

DeleteRecords (21): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

CreatePartitions (37): versions 0 to 3
     1  over quota, the answer is sent before throttling
     2  flexible
     3  THROTTLING_QUOTA_EXCEEDED possible

ElectLeaders (43): versions 0 to 2
     1  adds election_type; answer adds error_code
     2  flexible

AlterPartitionReassignments (45): versions 0 to 1
     1  adds allow_replication_factor_change, both ways

ListPartitionReassignments (46): version 0
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, boolean, i8, i16, i32, i64, message, nested, string, uuid


@nested
class CreatableReplicaAssignment:
    partition_index: i32
    broker_ids: list[i32]


@nested
class CreatableTopicConfig:
    name: string
    value: string | None


@nested
class CreatableTopic:
    name: string
    num_partitions: i32
    replication_factor: i16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(19, versions=(0, 7), flexible=5)
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: i32 = at(default=60000)
    validate_only: boolean = at(1, default=False)


@nested
class CreatableTopicConfigs:
    name: string
    value: string | None
    read_only: boolean
    config_source: i8 = at(default=-1)
    is_sensitive: boolean


@nested
class CreatableTopicResult:
    name: string
    topic_id: uuid = at(7, default=ZERO_UUID)
    error_code: i16
    error_message: string | None = at(1, default="")
    topic_config_error_code: i16 = at(5, tag=0, default=0)
    num_partitions: i32 = at(5, default=-1)
    replication_factor: i16 = at(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = at(5, factory=list)


@message(19, versions=(0, 7), flexible=5)
class CreateTopicsResponse:
    throttle_time_ms: i32 = at(2, default=0)
    topics: list[CreatableTopicResult]


@nested
class DeleteTopicState:
    name: string | None = at(default=None)
    topic_id: uuid


@message(20, versions=(0, 6), flexible=4)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = at(6, factory=list)
    topic_names: list[string] = at(0, 5, factory=list)
    timeout_ms: i32


@nested
class DeletableTopicResult:
    name: string | None = at(nullable=6)
    topic_id: uuid = at(6, default=ZERO_UUID)
    error_code: i16
    error_message: string | None = at(5, default=None)


@message(20, versions=(0, 6), flexible=4)
class DeleteTopicsResponse:
    throttle_time_ms: i32 = at(1, default=0)
    responses: list[DeletableTopicResult]


@nested
class DeleteRecordsPartition:
    partition_index: i32
    offset: i64


@nested
class DeleteRecordsTopic:
    name: string
    partitions: list[DeleteRecordsPartition]


@message(21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: i32


@nested
class DeleteRecordsPartitionResult:
    partition_index: i32
    low_watermark: i64
    error_code: i16


@nested
class DeleteRecordsTopicResult:
    name: string
    partitions: list[DeleteRecordsPartitionResult]


@message(21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    throttle_time_ms: i32 = at(default=0)
    topics: list[DeleteRecordsTopicResult]


@nested
class CreatePartitionsAssignment:
    broker_ids: list[i32]


@nested
class CreatePartitionsTopic:
    name: string
    count: i32
    assignments: list[CreatePartitionsAssignment] | None


@message(37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: i32
    validate_only: boolean


@nested
class CreatePartitionsTopicResult:
    name: string
    error_code: i16
    error_message: string | None = at(default=None)


@message(37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[CreatePartitionsTopicResult]


@nested
class TopicPartitions:
    topic: string
    partitions: list[i32]


@message(43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    election_type: i8 = at(1, default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: i32 = at(default=60000)


@nested
class PartitionResult:
    partition_id: i32
    error_code: i16
    error_message: string | None


@nested
class ReplicaElectionResult:
    topic: string
    partition_result: list[PartitionResult]


@message(43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16 = at(1, default=0)
    replica_election_results: list[ReplicaElectionResult]


@nested
class ReassignablePartition:
    partition_index: i32
    replicas: list[i32] | None = at(default=None)


@nested
class ReassignableTopic:
    name: string
    partitions: list[ReassignablePartition]


@message(45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    timeout_ms: i32 = at(default=60000)
    allow_replication_factor_change: boolean = at(1, default=True)
    topics: list[ReassignableTopic]


@nested
class ReassignablePartitionResponse:
    partition_index: i32
    error_code: i16
    error_message: string | None


@nested
class ReassignableTopicResponse:
    name: string
    partitions: list[ReassignablePartitionResponse]


@message(45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: i32 = at(default=0)
    allow_replication_factor_change: boolean = at(1, default=True)
    error_code: i16
    error_message: string | None
    responses: list[ReassignableTopicResponse]


@nested
class ListPartitionReassignmentsTopics:
    name: string
    partition_indexes: list[i32]


@message(46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    timeout_ms: i32 = at(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = at(default=None)


@nested
class OngoingPartitionReassignment:
    partition_index: i32
    replicas: list[i32]
    adding_replicas: list[i32]
    removing_replicas: list[i32]


@nested
class OngoingTopicReassignment:
    name: string
    partitions: list[OngoingPartitionReassignment]


@message(46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
    topics: list[OngoingTopicReassignment]
