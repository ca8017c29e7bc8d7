"""Consumer groups whose assignment the broker computes (KIP-848): the heartbeat does everything.

ConsumerGroupHeartbeat (68): versions 0 to 1
     1  adds subscribed_topic_regex; the member generates its own id

ConsumerGroupDescribe (69): versions 0 to 1
     1  answer adds member_type
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, message, nested, string, uuid


@nested
class ConsumerGroupHeartbeatRequestTopicPartitions:
    topic_id: uuid
    partitions: list[i32]


@message(68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    group_id: string
    member_id: string
    member_epoch: i32
    instance_id: string | None = at(default=None)
    rack_id: string | None = at(default=None)
    rebalance_timeout_ms: i32 = at(default=-1)
    subscribed_topic_names: list[string] | None = at(default=None)
    subscribed_topic_regex: string | None = at(1, default=None)
    server_assignor: string | None = at(default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = at(default=None)


@nested
class ConsumerGroupHeartbeatResponseTopicPartitions:
    topic_id: uuid
    partitions: list[i32]


@nested
class ConsumerGroupHeartbeatResponseAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions]


@message(68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    member_id: string | None = at(default=None)
    member_epoch: i32
    heartbeat_interval_ms: i32
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = at(default=None)


@message(69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    group_ids: list[string]
    include_authorized_operations: boolean


@nested
class ConsumerGroupDescribeResponseTopicPartitions:
    topic_id: uuid
    topic_name: string
    partitions: list[i32]


@nested
class ConsumerGroupDescribeResponseAssignment:
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions]


@nested
class Member:
    member_id: string
    instance_id: string | None = at(default=None)
    rack_id: string | None = at(default=None)
    member_epoch: i32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = at(default=None)
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseAssignment
    member_type: i8 = at(1, default=-1)


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


@message(69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: i32 = at(default=0)
    groups: list[DescribedGroup]
