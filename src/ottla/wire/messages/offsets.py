"""offsets

ListOffsets (2), versions 0 to 11
     1  max_num_offsets dropped; answer: timestamp, offset added, old_style_offsets dropped
     2  isolation_level added; answer: throttle_time_ms added
     4  current_leader_epoch added; answer: leader_epoch added
     6  flexible
    10  timeout_ms added

OffsetForLeaderEpoch (23), versions 0 to 4
     1  answer: leader_epoch added
     2  current_leader_epoch added; answer: throttle_time_ms added
     3  replica_id added
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
