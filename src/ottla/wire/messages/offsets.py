"""Asking a partition leader for offsets: by time or by name (earliest, latest, ...), and the end of a leader epoch.

ListOffsets (2): versions 0 to 11
     1  drops max_num_offsets; answer adds timestamp, offset, drops old_style_offsets; one offset per partition
     2  adds isolation_level; answer adds throttle_time_ms
     3  over quota, the answer is sent before throttling
     4  adds current_leader_epoch; answer adds leader_epoch
     5  OFFSET_NOT_AVAILABLE possible
     6  flexible
     7  timestamp -3: offset of the largest timestamp
     8  -4: start of the local log
     9  -5: last offset in remote storage
    10  adds timeout_ms
    11  -6: first offset not yet in remote storage

OffsetForLeaderEpoch (23): versions 0 to 4
     1  answer adds leader_epoch
     2  adds current_leader_epoch; answer adds throttle_time_ms
     3  adds replica_id
     4  flexible
"""

from __future__ import annotations

from ottla.wire.schema import at, i8, i16, i32, i64, message, nested, string


@nested
class ListOffsetsPartition:
    partition_index: i32
    current_leader_epoch: i32 = at(4, default=-1)
    timestamp: i64
    max_num_offsets: i32 = at(0, 0, default=1)


@nested
class ListOffsetsTopic:
    name: string
    partitions: list[ListOffsetsPartition]


@message(2, versions=(0, 11), flexible=6)
class ListOffsetsRequest:
    replica_id: i32
    isolation_level: i8 = at(2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: i32 = at(10, default=0)


@nested
class ListOffsetsPartitionResponse:
    partition_index: i32
    error_code: i16
    old_style_offsets: list[i64] = at(0, 0, factory=list)
    timestamp: i64 = at(1, default=-1)
    offset: i64 = at(1, default=-1)
    leader_epoch: i32 = at(4, default=-1)


@nested
class ListOffsetsTopicResponse:
    name: string
    partitions: list[ListOffsetsPartitionResponse]


@message(2, versions=(0, 11), flexible=6)
class ListOffsetsResponse:
    throttle_time_ms: i32 = at(2, default=0)
    topics: list[ListOffsetsTopicResponse]


@nested
class OffsetForLeaderPartition:
    partition: i32
    current_leader_epoch: i32 = at(2, default=-1)
    leader_epoch: i32


@nested
class OffsetForLeaderTopic:
    topic: string
    partitions: list[OffsetForLeaderPartition]


@message(23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    replica_id: i32 = at(3, default=-2)
    topics: list[OffsetForLeaderTopic]


@nested
class EpochEndOffset:
    error_code: i16
    partition: i32
    leader_epoch: i32 = at(1, default=-1)
    end_offset: i64 = at(default=-1)


@nested
class OffsetForLeaderTopicResult:
    topic: string
    partitions: list[EpochEndOffset]


@message(23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: i32 = at(2, default=0)
    topics: list[OffsetForLeaderTopicResult]
