"""Reading records, for consumers and for followers: positions per partition in, record bytes out.

A consumer's fetch is told from a follower's by its replica id. From version 7 on, a session lets client and broker send
only what changed since the last fetch: partitions left out stay as they were, `forgotten_topics_data` ends them.

Fetch (1): versions 0 to 18
     1  answer adds throttle_time_ms
     2  the client reads message format 1
     3  adds max_bytes; partitions are served in the order given
     4  adds isolation_level; answer adds last_stable_offset, aborted_transactions; the client reads record batches
        v2
     5  adds log_start_offset, both ways
     6  KAFKA_STORAGE_ERROR possible
     7  adds session_id, session_epoch, forgotten_topics_data; answer adds error_code, session_id
     8  over quota, the answer is sent before throttling
     9  adds current_leader_epoch
    10  the client reads zstd
    11  adds rack_id; answer adds preferred_read_replica
    12  flexible; adds cluster_id, last_fetched_epoch; answer adds diverging_epoch, current_leader, snapshot_id
    13  topic_id in place of topic, both ways
    14  OFFSET_MOVED_TO_TIERED_STORAGE possible
    15  replica_state in place of replica_id
    16  answer adds node_endpoints
    17  adds replica_directory_id
    18  adds high_watermark
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, i8, i16, i32, i64, message, nested, records_out, string, uuid


@nested
class ReplicaState:
    replica_id: i32 = at(default=-1)
    replica_epoch: i64 = at(default=-1)


@nested
class FetchPartition:
    partition: i32
    current_leader_epoch: i32 = at(9, default=-1)
    fetch_offset: i64
    last_fetched_epoch: i32 = at(12, default=-1)
    log_start_offset: i64 = at(5, default=-1)
    partition_max_bytes: i32
    replica_directory_id: uuid = at(17, tag=0, default=ZERO_UUID)
    high_watermark: i64 = at(18, tag=1, default=9223372036854775807)


@nested
class FetchTopic:
    topic: string = at(0, 12, default="")
    topic_id: uuid = at(13, default=ZERO_UUID)
    partitions: list[FetchPartition]


@nested
class ForgottenTopic:
    topic: string = at(0, 12, default="")
    topic_id: uuid = at(13, default=ZERO_UUID)
    partitions: list[i32]


@message(1, versions=(0, 18), flexible=12)
class FetchRequest:
    cluster_id: string | None = at(12, tag=0, default=None)
    replica_id: i32 = at(0, 14, default=-1)
    replica_state: ReplicaState = at(15, tag=1, factory=ReplicaState)
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = at(3, default=0x7FFFFFFF)
    isolation_level: i8 = at(4, default=0)
    session_id: i32 = at(7, default=0)
    session_epoch: i32 = at(7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = at(7, factory=list)
    rack_id: string = at(11, default="")


@nested
class EpochEndOffset:
    epoch: i32 = at(default=-1)
    end_offset: i64 = at(default=-1)


@nested
class LeaderIdAndEpoch:
    leader_id: i32 = at(default=-1)
    leader_epoch: i32 = at(default=-1)


@nested
class SnapshotId:
    end_offset: i64 = at(default=-1)
    epoch: i32 = at(default=-1)


@nested
class AbortedTransaction:
    producer_id: i64
    first_offset: i64


@nested
class PartitionData:
    partition_index: i32
    error_code: i16
    high_watermark: i64
    last_stable_offset: i64 = at(4, default=-1)
    log_start_offset: i64 = at(5, default=-1)
    diverging_epoch: EpochEndOffset = at(12, tag=0, factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = at(12, tag=1, factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = at(12, tag=2, factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = at(4, factory=list)
    preferred_read_replica: i32 = at(11, default=-1)
    records: records_out | None = at(default=None)


@nested
class FetchableTopicResponse:
    topic: string = at(0, 12, default="")
    topic_id: uuid = at(13, default=ZERO_UUID)
    partitions: list[PartitionData]


@nested
class NodeEndpoint:
    node_id: i32
    host: string
    port: i32
    rack: string | None = at(default=None)


@message(1, versions=(0, 18), flexible=12)
class FetchResponse:
    throttle_time_ms: i32 = at(1, default=0)
    error_code: i16 = at(7, default=0)
    session_id: i32 = at(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = at(16, tag=0, factory=list)
