"""The quorum of KRaft controllers, and the control records in its log. Declared so that we can read them; not served.

Vote (52): versions 0 to 2
     1  adds voter_id, replica_directory_id, voter_directory_id; answer adds node_endpoints
     2  adds pre_vote; a vote that does not raise the epoch

BeginQuorumEpoch (53): versions 0 to 1
     1  flexible; adds voter_id, voter_directory_id, leader_endpoints; answer adds node_endpoints

EndQuorumEpoch (54): versions 0 to 1
     1  flexible; adds preferred_candidates, leader_endpoints, drops preferred_successors; answer adds
        node_endpoints

DescribeQuorum (55): versions 0 to 2
     1  answer adds last_fetch_timestamp, last_caught_up_timestamp
     2  answer adds error_message, replica_directory_id, nodes

FetchSnapshot (59): versions 0 to 1
     1  adds replica_directory_id; answer adds node_endpoints

AddRaftVoter (80): versions 0 to 1
     1  adds ack_when_committed

RemoveRaftVoter (81): version 0

UpdateRaftVoter (82): version 0

LeaderChangeMessage: versions 0 to 1
     1  adds voter_directory_id

SnapshotHeaderRecord: version 0

SnapshotFooterRecord: version 0

KRaftVersionRecord: version 0

VotersRecord: version 0
"""

from __future__ import annotations

from ottla.wire.schema import (
    ZERO_UUID,
    at,
    boolean,
    i16,
    i32,
    i64,
    message,
    nested,
    records_out,
    string,
    u16,
    uuid,
)


@nested
class VoteRequestPartitionData:
    partition_index: i32
    replica_epoch: i32
    replica_id: i32
    replica_directory_id: uuid = at(1, default=ZERO_UUID)
    voter_directory_id: uuid = at(1, default=ZERO_UUID)
    last_offset_epoch: i32
    last_offset: i64
    pre_vote: boolean = at(2, default=False)


@nested
class VoteRequestTopicData:
    topic_name: string
    partitions: list[VoteRequestPartitionData]


@message(52, versions=(0, 2), flexible=0)
class VoteRequest:
    cluster_id: string | None = at(default=None)
    voter_id: i32 = at(1, default=-1)
    topics: list[VoteRequestTopicData]


@nested
class VoteResponsePartitionData:
    partition_index: i32
    error_code: i16
    leader_id: i32
    leader_epoch: i32
    vote_granted: boolean


@nested
class VoteResponseTopicData:
    topic_name: string
    partitions: list[VoteResponsePartitionData]


@nested
class NodeEndpoint:
    node_id: i32
    host: string
    port: u16


@message(52, versions=(0, 2), flexible=0)
class VoteResponse:
    error_code: i16
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint] = at(1, tag=0, factory=list)


@nested
class BeginQuorumEpochRequestPartitionData:
    partition_index: i32
    voter_directory_id: uuid = at(1, default=ZERO_UUID)
    leader_id: i32
    leader_epoch: i32


@nested
class BeginQuorumEpochRequestTopicData:
    topic_name: string
    partitions: list[BeginQuorumEpochRequestPartitionData]


@nested
class LeaderEndpoint:
    name: string
    host: string
    port: u16


@message(53, versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest:
    cluster_id: string | None = at(default=None)
    voter_id: i32 = at(1, default=-1)
    topics: list[BeginQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = at(1, factory=list)


@nested
class BeginQuorumEpochResponsePartitionData:
    partition_index: i32
    error_code: i16
    leader_id: i32
    leader_epoch: i32


@nested
class BeginQuorumEpochResponseTopicData:
    topic_name: string
    partitions: list[BeginQuorumEpochResponsePartitionData]


@message(53, versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse:
    error_code: i16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = at(1, tag=0, factory=list)


@nested
class ReplicaInfo:
    candidate_id: i32
    candidate_directory_id: uuid


@nested
class EndQuorumEpochRequestPartitionData:
    partition_index: i32
    leader_id: i32
    leader_epoch: i32
    preferred_successors: list[i32] = at(0, 0, factory=list)
    preferred_candidates: list[ReplicaInfo] = at(1, factory=list)


@nested
class EndQuorumEpochRequestTopicData:
    topic_name: string
    partitions: list[EndQuorumEpochRequestPartitionData]


@message(54, versions=(0, 1), flexible=1)
class EndQuorumEpochRequest:
    cluster_id: string | None = at(default=None)
    topics: list[EndQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = at(1, factory=list)


@nested
class EndQuorumEpochResponsePartitionData:
    partition_index: i32
    error_code: i16
    leader_id: i32
    leader_epoch: i32


@nested
class EndQuorumEpochResponseTopicData:
    topic_name: string
    partitions: list[EndQuorumEpochResponsePartitionData]


@message(54, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse:
    error_code: i16
    topics: list[EndQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = at(1, tag=0, factory=list)


@nested
class DescribeQuorumRequestPartitionData:
    partition_index: i32


@nested
class DescribeQuorumRequestTopicData:
    topic_name: string
    partitions: list[DescribeQuorumRequestPartitionData]


@message(55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopicData]


@nested
class ReplicaState:
    replica_id: i32
    replica_directory_id: uuid = at(2, default=ZERO_UUID)
    log_end_offset: i64
    last_fetch_timestamp: i64 = at(1, default=-1)
    last_caught_up_timestamp: i64 = at(1, default=-1)


@nested
class DescribeQuorumResponsePartitionData:
    partition_index: i32
    error_code: i16
    error_message: string | None = at(2, default="")
    leader_id: i32
    leader_epoch: i32
    high_watermark: i64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@nested
class DescribeQuorumResponseTopicData:
    topic_name: string
    partitions: list[DescribeQuorumResponsePartitionData]


@nested
class DescribeQuorumResponseListener:
    name: string
    host: string
    port: u16


@nested
class Node:
    node_id: i32
    listeners: list[DescribeQuorumResponseListener]


@message(55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    error_code: i16
    error_message: string | None = at(2, default="")
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = at(2, factory=list)


@nested
class SnapshotId:
    end_offset: i64
    epoch: i32


@nested
class FetchSnapshotRequestPartitionSnapshot:
    partition: i32
    current_leader_epoch: i32
    snapshot_id: SnapshotId
    position: i64
    replica_directory_id: uuid = at(1, tag=0, default=ZERO_UUID)


@nested
class FetchSnapshotRequestTopicSnapshot:
    name: string
    partitions: list[FetchSnapshotRequestPartitionSnapshot]


@message(59, versions=(0, 1), flexible=0)
class FetchSnapshotRequest:
    cluster_id: string | None = at(tag=0, default=None)
    replica_id: i32 = at(default=-1)
    max_bytes: i32 = at(default=0x7FFFFFFF)
    topics: list[FetchSnapshotRequestTopicSnapshot]


@nested
class LeaderIdAndEpoch:
    leader_id: i32
    leader_epoch: i32


@nested
class FetchSnapshotResponsePartitionSnapshot:
    index: i32
    error_code: i16
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch = at(tag=0, factory=LeaderIdAndEpoch)
    size: i64
    position: i64
    unaligned_records: records_out


@nested
class FetchSnapshotResponseTopicSnapshot:
    name: string
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


@message(59, versions=(0, 1), flexible=0)
class FetchSnapshotResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = at(1, tag=0, factory=list)


@nested
class AddRaftVoterRequestListener:
    name: string
    host: string
    port: u16


@message(80, versions=(0, 1), flexible=0)
class AddRaftVoterRequest:
    cluster_id: string | None
    timeout_ms: i32
    voter_id: i32
    voter_directory_id: uuid
    listeners: list[AddRaftVoterRequestListener]
    ack_when_committed: boolean = at(1, default=True)


@message(80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None


@message(81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest:
    cluster_id: string | None
    voter_id: i32
    voter_directory_id: uuid


@message(81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None


@nested
class UpdateRaftVoterRequestListener:
    name: string
    host: string
    port: u16


@nested
class KRaftVersionFeature:
    min_supported_version: i16
    max_supported_version: i16


@message(82, versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest:
    cluster_id: string | None
    current_leader_epoch: i32
    voter_id: i32
    voter_directory_id: uuid
    listeners: list[UpdateRaftVoterRequestListener]
    kraft_version_feature: KRaftVersionFeature


@nested
class CurrentLeader:
    leader_id: i32 = at(default=-1)
    leader_epoch: i32 = at(default=-1)
    host: string
    port: i32


@message(82, versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    current_leader: CurrentLeader = at(tag=0, factory=CurrentLeader)


@nested
class LeaderChangeVoter:
    voter_id: i32
    voter_directory_id: uuid = at(1, default=ZERO_UUID)


@message(None, versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    version: i16
    leader_id: i32
    voters: list[LeaderChangeVoter]
    granting_voters: list[LeaderChangeVoter]


@message(None, versions=(0, 0), flexible=0)
class SnapshotHeaderRecord:
    version: i16
    last_contained_log_timestamp: i64


@message(None, versions=(0, 0), flexible=0)
class SnapshotFooterRecord:
    version: i16


@message(None, versions=(0, 0), flexible=0)
class KRaftVersionRecord:
    version: i16
    kraft_version: i16


@nested
class Endpoint:
    name: string
    host: string
    port: u16


@nested
class VotersRecordVoter:
    voter_id: i32
    voter_directory_id: uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


@message(None, versions=(0, 0), flexible=0)
class VotersRecord:
    version: i16
    voters: list[VotersRecordVoter]
