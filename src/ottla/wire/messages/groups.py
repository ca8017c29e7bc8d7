"""Classic consumer groups: find the coordinator, join, share out, stay alive, leave; list, describe and delete them.

The messages between the members of a group are inside `metadata` and `assignment` as opaque bytes. Consumers put
ConsumerProtocolSubscription and ConsumerProtocolAssignment there, each behind an int16 with its version.

FindCoordinator (10): versions 0 to 6
     1  adds key_type; answer adds throttle_time_ms, error_message
     2  over quota, the answer is sent before throttling
     3  flexible
     4  coordinator_keys in place of key; answer adds coordinators, drops error_code, error_message, node_id, host,
        port; several keys at once
     5  TRANSACTION_ABORTABLE possible
     6  key_type 2, share groups: the key is group:topic id:partition

JoinGroup (11): versions 0 to 9
     1  adds rebalance_timeout_ms; before, the session timeout was used for it
     2  answer adds throttle_time_ms
     3  over quota, the answer is sent before throttling
     4  a member without id gets one with MEMBER_ID_REQUIRED, and joins again
     5  adds group_instance_id, both ways
     6  flexible
     7  answer adds protocol_type, protocol_name may be null
     8  adds reason
     9  answer adds skip_assignment

Heartbeat (12): versions 0 to 4
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  adds group_instance_id
     4  flexible

LeaveGroup (13): versions 0 to 5
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  members in place of member_id; answer adds members
     4  flexible
     5  adds reason

SyncGroup (14): versions 0 to 5
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  adds group_instance_id
     4  flexible
     5  adds protocol_type, protocol_name, both ways

DescribeGroups (15): versions 0 to 6
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  adds include_authorized_operations; answer adds authorized_operations
     4  answer adds group_instance_id
     5  flexible
     6  answer adds error_message; GROUP_ID_NOT_FOUND for a group that does not exist

ListGroups (16): versions 0 to 5
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  flexible
     4  adds states_filter; answer adds group_state
     5  adds types_filter; answer adds group_type

DeleteGroups (42): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

ConsumerProtocolSubscription: versions 0 to 3
     1  adds owned_partitions
     2  adds generation_id
     3  adds rack_id

ConsumerProtocolAssignment: versions 0 to 3
"""

from __future__ import annotations

from ottla.wire.schema import at, blob, boolean, i8, i16, i32, message, nested, string


@message(10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    key: string = at(0, 3, default="")
    key_type: i8 = at(1, default=0)
    coordinator_keys: list[string] = at(4, factory=list)


@nested
class Coordinator:
    key: string
    node_id: i32
    host: string
    port: i32
    error_code: i16
    error_message: string | None


@message(10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16 = at(0, 3, default=0)
    error_message: string | None = at(1, 3, default="")
    node_id: i32 = at(0, 3, default=0)
    host: string = at(0, 3, default="")
    port: i32 = at(0, 3, default=0)
    coordinators: list[Coordinator] = at(4, factory=list)


@nested
class JoinGroupRequestProtocol:
    name: string
    metadata: blob


@message(11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    group_id: string
    session_timeout_ms: i32
    rebalance_timeout_ms: i32 = at(1, default=-1)
    member_id: string
    group_instance_id: string | None = at(5, default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = at(8, default=None)


@nested
class JoinGroupResponseMember:
    member_id: string
    group_instance_id: string | None = at(5, default=None)
    metadata: blob


@message(11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    throttle_time_ms: i32 = at(2, default=0)
    error_code: i16
    generation_id: i32 = at(default=-1)
    protocol_type: string | None = at(7, default=None)
    protocol_name: string | None = at(nullable=7)
    leader: string
    skip_assignment: boolean = at(9, default=False)
    member_id: string
    members: list[JoinGroupResponseMember]


@message(12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    group_id: string
    generation_id: i32
    member_id: string
    group_instance_id: string | None = at(3, default=None)


@message(12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16


@nested
class MemberIdentity:
    member_id: string
    group_instance_id: string | None = at(default=None)
    reason: string | None = at(5, default=None)


@message(13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    group_id: string
    member_id: string = at(0, 2, default="")
    members: list[MemberIdentity] = at(3, factory=list)


@nested
class MemberResponse:
    member_id: string
    group_instance_id: string | None
    error_code: i16


@message(13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16
    members: list[MemberResponse] = at(3, factory=list)


@nested
class SyncGroupRequestAssignment:
    member_id: string
    assignment: blob


@message(14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    group_id: string
    generation_id: i32
    member_id: string
    group_instance_id: string | None = at(3, default=None)
    protocol_type: string | None = at(5, default=None)
    protocol_name: string | None = at(5, default=None)
    assignments: list[SyncGroupRequestAssignment]


@message(14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16
    protocol_type: string | None = at(5, default=None)
    protocol_name: string | None = at(5, default=None)
    assignment: blob


@message(15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    groups: list[string]
    include_authorized_operations: boolean = at(3, default=False)


@nested
class DescribedGroupMember:
    member_id: string
    group_instance_id: string | None = at(4, default=None)
    client_id: string
    client_host: string
    member_metadata: blob
    member_assignment: blob


@nested
class DescribedGroup:
    error_code: i16
    error_message: string | None = at(6, default=None)
    group_id: string
    group_state: string
    protocol_type: string
    protocol_data: string
    members: list[DescribedGroupMember]
    authorized_operations: i32 = at(3, default=-2147483648)


@message(15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    throttle_time_ms: i32 = at(1, default=0)
    groups: list[DescribedGroup]


@message(16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    states_filter: list[string] = at(4, factory=list)
    types_filter: list[string] = at(5, factory=list)


@nested
class ListedGroup:
    group_id: string
    protocol_type: string
    group_state: string = at(4, default="")
    group_type: string = at(5, default="")


@message(16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16
    groups: list[ListedGroup]


@message(42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    groups_names: list[string]


@nested
class DeletableGroupResult:
    group_id: string
    error_code: i16


@message(42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[DeletableGroupResult]


@nested
class SubscriptionTopicPartition:
    topic: string
    partitions: list[i32]


@message(None, versions=(0, 3))
class ConsumerProtocolSubscription:
    topics: list[string]
    user_data: blob | None = at(default=None)
    owned_partitions: list[SubscriptionTopicPartition] = at(1, factory=list)
    generation_id: i32 = at(2, default=-1)
    rack_id: string | None = at(3, default=None)


@nested
class AssignmentTopicPartition:
    topic: string
    partitions: list[i32]


@message(None, versions=(0, 3))
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignmentTopicPartition]
    user_data: blob | None = at(default=None)
