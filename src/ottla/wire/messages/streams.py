"""Groups of Kafka Streams whose tasks the broker assigns (KIP-1071).

StreamsGroupHeartbeat (88): version 0

StreamsGroupDescribe (89): version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, i64, message, nested, string, u16


@nested
class KeyValue:
    key: string
    value: string


@nested
class TopicInfo:
    name: string
    partitions: i32
    replication_factor: i16
    topic_configs: list[KeyValue]


@nested
class CopartitionGroup:
    source_topics: list[i16]
    source_topic_regex: list[i16]
    repartition_source_topics: list[i16]


@nested
class StreamsGroupHeartbeatRequestSubtopology:
    subtopology_id: string
    source_topics: list[string]
    source_topic_regex: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[string]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@nested
class StreamsGroupHeartbeatRequestTopology:
    epoch: i32
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology]


@nested
class TaskIds:
    subtopology_id: string
    partitions: list[i32]


@nested
class Endpoint:
    host: string
    port: u16


@nested
class TaskOffset:
    subtopology_id: string
    partition: i32
    offset: i64


@message(88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: i32
    endpoint_information_epoch: i32
    instance_id: string | None = at(default=None)
    rack_id: string | None = at(default=None)
    rebalance_timeout_ms: i32 = at(default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = at(default=None)
    active_tasks: list[TaskIds] | None = at(default=None)
    standby_tasks: list[TaskIds] | None = at(default=None)
    warmup_tasks: list[TaskIds] | None = at(default=None)
    process_id: string | None = at(default=None)
    user_endpoint: Endpoint | None = at(default=None)
    client_tags: list[KeyValue] | None = at(default=None)
    task_offsets: list[TaskOffset] | None = at(default=None)
    task_end_offsets: list[TaskOffset] | None = at(default=None)
    shutdown_application: boolean = at(default=False)


@nested
class Status:
    status_code: i8
    status_detail: string


@nested
class TopicPartition:
    topic: string
    partitions: list[i32]


@nested
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@message(88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    member_id: string
    member_epoch: i32
    heartbeat_interval_ms: i32
    acceptable_recovery_lag: i32
    task_offset_interval_ms: i32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = at(default=None)
    standby_tasks: list[TaskIds] | None = at(default=None)
    warmup_tasks: list[TaskIds] | None = at(default=None)
    endpoint_information_epoch: i32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = at(default=None)


@message(89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean


@nested
class StreamsGroupDescribeResponseSubtopology:
    subtopology_id: string
    source_topics: list[string]
    repartition_sink_topics: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@nested
class StreamsGroupDescribeResponseTopology:
    epoch: i32
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = at(default=None)


@nested
class Assignment:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@nested
class Member:
    member_id: string
    member_epoch: i32
    instance_id: string | None = at(default=None)
    rack_id: string | None = at(default=None)
    client_id: string
    client_host: string
    topology_epoch: i32
    process_id: string
    user_endpoint: Endpoint | None = at(default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: boolean


@nested
class DescribedGroup:
    error_code: i16
    error_message: string | None = at(default=None)
    group_id: string
    group_state: string
    group_epoch: i32
    assignment_epoch: i32
    topology: StreamsGroupDescribeResponseTopology | None = at(default=None)
    members: list[Member]
    authorized_operations: i32 = at(default=-2147483648)


@message(89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse:
    throttle_time_ms: i32 = at(default=0)
    groups: list[DescribedGroup]
