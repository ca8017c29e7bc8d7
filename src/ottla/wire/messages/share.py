"""Share groups (KIP-932): records of one partition handed to several consumers and acknowledged one by one.

Version 0 of the first four is the early access of 3.9 and 4.0; 4.1 started over with 1.

ShareGroupHeartbeat (76): versions 0 to 1

ShareGroupDescribe (77): versions 0 to 1

ShareFetch (78): versions 0 to 2
     1  adds max_records, batch_size, drops partition_max_bytes; answer adds acquisition_lock_timeout_ms
     2  adds share_acquire_mode, is_renew_ack

ShareAcknowledge (79): versions 0 to 2
     2  adds is_renew_ack; answer adds acquisition_lock_timeout_ms

DescribeShareGroupOffsets (90): versions 0 to 1
     1  answer adds lag

AlterShareGroupOffsets (91): version 0

DeleteShareGroupOffsets (92): version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, i64, message, nested, records_out, string, uuid


@message(76, versions=(0, 1), flexible=0)
class ShareGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: i32
    rack_id: string | None = at(default=None)
    subscribed_topic_names: list[string] | None = at(default=None)


@nested
class ShareGroupHeartbeatResponseTopicPartitions:
    topic_id: uuid
    partitions: list[i32]


@nested
class ShareGroupHeartbeatResponseAssignment:
    topic_partitions: list[ShareGroupHeartbeatResponseTopicPartitions]


@message(76, versions=(0, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    member_id: string | None = at(default=None)
    member_epoch: i32
    heartbeat_interval_ms: i32
    assignment: ShareGroupHeartbeatResponseAssignment | None = at(default=None)


@message(77, versions=(0, 1), flexible=0)
class ShareGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean


@nested
class ShareGroupDescribeResponseTopicPartitions:
    topic_id: uuid
    topic_name: string
    partitions: list[i32]


@nested
class ShareGroupDescribeResponseAssignment:
    topic_partitions: list[ShareGroupDescribeResponseTopicPartitions]


@nested
class Member:
    member_id: string
    rack_id: string | None = at(default=None)
    member_epoch: i32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    assignment: ShareGroupDescribeResponseAssignment


@nested
class DescribedGroup:
    error_code: i16
    error_message: string | None = at(default=None)
    group_id: string
    group_state: string
    group_epoch: i32
    assignment_epoch: i32
    assignor_name: string
    members: list[Member]
    authorized_operations: i32 = at(default=-2147483648)


@message(77, versions=(0, 1), flexible=0)
class ShareGroupDescribeResponse:
    throttle_time_ms: i32 = at(default=0)
    groups: list[DescribedGroup]


@nested
class AcknowledgementBatch:
    first_offset: i64
    last_offset: i64
    acknowledge_types: list[i8]


@nested
class FetchPartition:
    partition_index: i32
    partition_max_bytes: i32 = at(0, 0, default=0)
    acknowledgement_batches: list[AcknowledgementBatch]


@nested
class FetchTopic:
    topic_id: uuid
    partitions: list[FetchPartition]


@nested
class ForgottenTopic:
    topic_id: uuid
    partitions: list[i32]


@message(78, versions=(0, 2), flexible=0)
class ShareFetchRequest:
    group_id: string | None = at(default=None)
    member_id: string | None
    share_session_epoch: i32
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = at(default=0x7FFFFFFF)
    max_records: i32 = at(1, default=0)
    batch_size: i32 = at(1, default=0)
    share_acquire_mode: i8 = at(2, default=0)
    is_renew_ack: boolean = at(2, default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@nested
class LeaderIdAndEpoch:
    leader_id: i32
    leader_epoch: i32


@nested
class AcquiredRecords:
    first_offset: i64
    last_offset: i64
    delivery_count: i16


@nested
class ShareFetchResponsePartitionData:
    partition_index: i32
    error_code: i16
    error_message: string | None = at(default=None)
    acknowledge_error_code: i16
    acknowledge_error_message: string | None = at(default=None)
    current_leader: LeaderIdAndEpoch
    records: records_out | None = at(nullable=(0, 0))
    acquired_records: list[AcquiredRecords]


@nested
class ShareFetchableTopicResponse:
    topic_id: uuid
    partitions: list[ShareFetchResponsePartitionData]


@nested
class NodeEndpoint:
    node_id: i32
    host: string
    port: i32
    rack: string | None = at(default=None)


@message(78, versions=(0, 2), flexible=0)
class ShareFetchResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    acquisition_lock_timeout_ms: i32 = at(1, default=0)
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


@nested
class AcknowledgePartition:
    partition_index: i32
    acknowledgement_batches: list[AcknowledgementBatch]


@nested
class AcknowledgeTopic:
    topic_id: uuid
    partitions: list[AcknowledgePartition]


@message(79, versions=(0, 2), flexible=0)
class ShareAcknowledgeRequest:
    group_id: string | None = at(default=None)
    member_id: string | None
    share_session_epoch: i32
    is_renew_ack: boolean = at(2, default=False)
    topics: list[AcknowledgeTopic]


@nested
class ShareAcknowledgeResponsePartitionData:
    partition_index: i32
    error_code: i16
    error_message: string | None = at(default=None)
    current_leader: LeaderIdAndEpoch


@nested
class ShareAcknowledgeTopicResponse:
    topic_id: uuid
    partitions: list[ShareAcknowledgeResponsePartitionData]


@message(79, versions=(0, 2), flexible=0)
class ShareAcknowledgeResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    acquisition_lock_timeout_ms: i32 = at(2, default=0)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@nested
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: string
    partitions: list[i32]


@nested
class DescribeShareGroupOffsetsRequestGroup:
    group_id: string
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@nested
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: i32
    start_offset: i64
    leader_epoch: i32
    lag: i64 = at(1, default=-1)
    error_code: i16
    error_message: string | None = at(default=None)


@nested
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: string
    topic_id: uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@nested
class DescribeShareGroupOffsetsResponseGroup:
    group_id: string
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: i16
    error_message: string | None = at(default=None)


@message(90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: i32 = at(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@nested
class AlterShareGroupOffsetsRequestPartition:
    partition_index: i32
    start_offset: i64


@nested
class AlterShareGroupOffsetsRequestTopic:
    topic_name: string
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    group_id: string
    topics: list[AlterShareGroupOffsetsRequestTopic]


@nested
class AlterShareGroupOffsetsResponsePartition:
    partition_index: i32
    error_code: i16
    error_message: string | None = at(default=None)


@nested
class AlterShareGroupOffsetsResponseTopic:
    topic_name: string
    topic_id: uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message(91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]


@nested
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: string


@message(92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    group_id: string
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@nested
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: string
    topic_id: uuid
    error_code: i16
    error_message: string | None = at(default=None)


@message(92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
