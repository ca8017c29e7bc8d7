"""Requests between a ZooKeeper-based controller and brokers, up to Kafka 3.9, and forwarded requests.

Kafka 4 has dropped LeaderAndIsr, StopReplica, UpdateMetadata and ControlledShutdown. The request header of version 0 of
ControlledShutdown has no client id.

LeaderAndIsr (4): versions 0 to 7
     1  adds is_new; KAFKA_STORAGE_ERROR possible
     2  adds broker_epoch, topic_states, drops ungrouped_partition_states; partitions grouped by topic
     3  adds adding_replicas, removing_replicas
     4  flexible
     5  adds type, topic_id; answer: topics in place of partition_errors
     6  adds leader_recovery_state
     7  adds is_kraft_controller

StopReplica (5): versions 0 to 4
     1  adds broker_epoch, topics, drops ungrouped_partitions; partitions grouped by topic
     2  flexible
     3  adds topic_states, drops delete_partitions, topics; FENCED_LEADER_EPOCH possible
     4  adds is_kraft_controller

UpdateMetadata (6): versions 0 to 8
     1  adds endpoints, drops v0_host, v0_port; several endpoints per broker
     2  adds rack
     3  adds listener
     4  adds offline_replicas
     5  adds broker_epoch, topic_states, drops ungrouped_partition_states; partitions grouped by topic
     6  flexible
     7  adds topic_id
     8  adds is_kraft_controller, type

ControlledShutdown (7): versions 0 to 3
     1  request header with client id
     2  adds broker_epoch
     3  flexible

AlterPartition (56): versions 0 to 3
     1  adds leader_recovery_state, both ways
     2  topic_id in place of topic_name, both ways; INELIGIBLE_REPLICA, NEW_LEADER_ELECTED and UNKNOWN_TOPIC_ID
        possible
     3  new_isr_with_epochs in place of new_isr

Envelope (58): version 0
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, blob, boolean, i8, i16, i32, i64, message, nested, string, uuid


@nested
class LeaderAndIsrPartitionState:
    topic_name: string = at(0, 1, default="")
    partition_index: i32
    controller_epoch: i32
    leader: i32
    leader_epoch: i32
    isr: list[i32]
    partition_epoch: i32
    replicas: list[i32]
    adding_replicas: list[i32] = at(3, factory=list)
    removing_replicas: list[i32] = at(3, factory=list)
    is_new: boolean = at(1, default=False)
    leader_recovery_state: i8 = at(6, default=0)


@nested
class LeaderAndIsrTopicState:
    topic_name: string
    topic_id: uuid = at(5, default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState]


@nested
class LeaderAndIsrLiveLeader:
    broker_id: i32
    host_name: string
    port: i32


@message(4, versions=(0, 7), flexible=4)
class LeaderAndIsrRequest:
    controller_id: i32
    is_kraft_controller: boolean = at(7, default=False)
    controller_epoch: i32
    broker_epoch: i64 = at(2, default=-1)
    type: i8 = at(5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = at(0, 1, factory=list)
    topic_states: list[LeaderAndIsrTopicState] = at(2, factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@nested
class LeaderAndIsrPartitionError:
    topic_name: string = at(0, 4, default="")
    partition_index: i32
    error_code: i16


@nested
class LeaderAndIsrTopicError:
    topic_id: uuid
    partition_errors: list[LeaderAndIsrPartitionError]


@message(4, versions=(0, 7), flexible=4)
class LeaderAndIsrResponse:
    error_code: i16
    partition_errors: list[LeaderAndIsrPartitionError] = at(0, 4, factory=list)
    topics: list[LeaderAndIsrTopicError] = at(5, factory=list)


@nested
class StopReplicaPartitionV0:
    topic_name: string = at(0, 0, default="")
    partition_index: i32 = at(0, 0, default=0)


@nested
class StopReplicaTopicV1:
    name: string = at(0, 2, default="")
    partition_indexes: list[i32] = at(0, 2, factory=list)


@nested
class StopReplicaPartitionState:
    partition_index: i32
    leader_epoch: i32 = at(default=-1)
    delete_partition: boolean


@nested
class StopReplicaTopicState:
    topic_name: string
    partition_states: list[StopReplicaPartitionState]


@message(5, versions=(0, 4), flexible=2)
class StopReplicaRequest:
    controller_id: i32
    is_kraft_controller: boolean = at(4, default=False)
    controller_epoch: i32
    broker_epoch: i64 = at(1, default=-1)
    delete_partitions: boolean = at(0, 2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = at(0, 0, factory=list)
    topics: list[StopReplicaTopicV1] = at(1, 2, factory=list)
    topic_states: list[StopReplicaTopicState] = at(3, factory=list)


@nested
class StopReplicaPartitionError:
    topic_name: string
    partition_index: i32
    error_code: i16


@message(5, versions=(0, 4), flexible=2)
class StopReplicaResponse:
    error_code: i16
    partition_errors: list[StopReplicaPartitionError]


@nested
class UpdateMetadataPartitionState:
    topic_name: string = at(0, 4, default="")
    partition_index: i32
    controller_epoch: i32
    leader: i32
    leader_epoch: i32
    isr: list[i32]
    zk_version: i32
    replicas: list[i32]
    offline_replicas: list[i32] = at(4, factory=list)


@nested
class UpdateMetadataTopicState:
    topic_name: string
    topic_id: uuid = at(7, default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState]


@nested
class UpdateMetadataEndpoint:
    port: i32
    host: string
    listener: string = at(3, default="")
    security_protocol: i16


@nested
class UpdateMetadataBroker:
    id: i32
    v0_host: string = at(0, 0, default="")
    v0_port: i32 = at(0, 0, default=0)
    endpoints: list[UpdateMetadataEndpoint] = at(1, factory=list)
    rack: string | None = at(2, default="")


@message(6, versions=(0, 8), flexible=6)
class UpdateMetadataRequest:
    controller_id: i32
    is_kraft_controller: boolean = at(8, default=False)
    type: i8 = at(8, tag=0, default=0)
    controller_epoch: i32
    broker_epoch: i64 = at(5, default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = at(0, 4, factory=list)
    topic_states: list[UpdateMetadataTopicState] = at(5, factory=list)
    live_brokers: list[UpdateMetadataBroker]


@message(6, versions=(0, 8), flexible=6)
class UpdateMetadataResponse:
    error_code: i16


@message(7, versions=(0, 3), flexible=3)
class ControlledShutdownRequest:
    broker_id: i32
    broker_epoch: i64 = at(2, default=-1)


@nested
class RemainingPartition:
    topic_name: string
    partition_index: i32


@message(7, versions=(0, 3), flexible=3)
class ControlledShutdownResponse:
    error_code: i16
    remaining_partitions: list[RemainingPartition]


@nested
class BrokerState:
    broker_id: i32
    broker_epoch: i64 = at(default=-1)


@nested
class AlterPartitionRequestPartitionData:
    partition_index: i32
    leader_epoch: i32
    new_isr: list[i32] = at(0, 2, factory=list)
    new_isr_with_epochs: list[BrokerState] = at(3, factory=list)
    leader_recovery_state: i8 = at(1, default=0)
    partition_epoch: i32


@nested
class AlterPartitionRequestTopicData:
    topic_name: string = at(0, 1, default="")
    topic_id: uuid = at(2, default=ZERO_UUID)
    partitions: list[AlterPartitionRequestPartitionData]


@message(56, versions=(0, 3), flexible=0)
class AlterPartitionRequest:
    broker_id: i32
    broker_epoch: i64 = at(default=-1)
    topics: list[AlterPartitionRequestTopicData]


@nested
class AlterPartitionResponsePartitionData:
    partition_index: i32
    error_code: i16
    leader_id: i32
    leader_epoch: i32
    isr: list[i32]
    leader_recovery_state: i8 = at(1, default=0)
    partition_epoch: i32


@nested
class AlterPartitionResponseTopicData:
    topic_name: string = at(0, 1, default="")
    topic_id: uuid = at(2, default=ZERO_UUID)
    partitions: list[AlterPartitionResponsePartitionData]


@message(56, versions=(0, 3), flexible=0)
class AlterPartitionResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    topics: list[AlterPartitionResponseTopicData]


@message(58, versions=(0, 0), flexible=0)
class EnvelopeRequest:
    request_data: blob
    request_principal: blob | None
    client_host_address: blob


@message(58, versions=(0, 0), flexible=0)
class EnvelopeResponse:
    response_data: blob | None = at(default=None)
    error_code: i16
