"""Committed offsets of groups: store, read, delete.

OffsetCommit (8): versions 0 to 10
     1  adds generation_id_or_member_epoch, member_id, commit_timestamp
     2  retention_time_ms in place of commit_timestamp
     3  answer adds throttle_time_ms
     4  over quota, the answer is sent before throttling
     5  drops retention_time_ms
     6  adds committed_leader_epoch
     7  adds group_instance_id
     8  flexible
     9  usable by new consumer groups
    10  topic_id in place of name, both ways

OffsetFetch (9): versions 0 to 10
     0  offsets are stored in ZooKeeper
     2  topics may be null; answer adds error_code; null: all topics
     3  answer adds throttle_time_ms
     4  over quota, the answer is sent before throttling
     5  answer adds committed_leader_epoch
     6  flexible
     7  adds require_stable
     8  adds groups, drops group_id, topics; answer adds groups, drops topics, error_code; several groups at once
     9  adds member_id, member_epoch
    10  topic_id in place of name, both ways

OffsetDelete (47): version 0
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, boolean, i16, i32, i64, message, nested, string, uuid


@nested
class OffsetCommitRequestPartition:
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: i32 = at(6, default=-1)
    commit_timestamp: i64 = at(1, 1, default=-1)
    committed_metadata: string | None


@nested
class OffsetCommitRequestTopic:
    name: string = at(0, 9, default="")
    topic_id: uuid = at(10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


@message(8, versions=(0, 10), flexible=8)
class OffsetCommitRequest:
    group_id: string
    generation_id_or_member_epoch: i32 = at(1, default=-1)
    member_id: string = at(1, default="")
    group_instance_id: string | None = at(7, default=None)
    retention_time_ms: i64 = at(2, 4, default=-1)
    topics: list[OffsetCommitRequestTopic]


@nested
class OffsetCommitResponsePartition:
    partition_index: i32
    error_code: i16


@nested
class OffsetCommitResponseTopic:
    name: string = at(0, 9, default="")
    topic_id: uuid = at(10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@message(8, versions=(0, 10), flexible=8)
class OffsetCommitResponse:
    throttle_time_ms: i32 = at(3, default=0)
    topics: list[OffsetCommitResponseTopic]


@nested
class OffsetFetchRequestTopic:
    name: string = at(0, 7, default="")
    partition_indexes: list[i32] = at(0, 7, factory=list)


@nested
class OffsetFetchRequestTopics:
    name: string = at(0, 9, default="")
    topic_id: uuid = at(10, default=ZERO_UUID)
    partition_indexes: list[i32]


@nested
class OffsetFetchRequestGroup:
    group_id: string
    member_id: string | None = at(9, default=None)
    member_epoch: i32 = at(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None


@message(9, versions=(0, 10), flexible=6)
class OffsetFetchRequest:
    group_id: string = at(0, 7, default="")
    topics: list[OffsetFetchRequestTopic] | None = at(0, 7, nullable=2, factory=list)
    groups: list[OffsetFetchRequestGroup] = at(8, factory=list)
    require_stable: boolean = at(7, default=False)


@nested
class OffsetFetchResponsePartition:
    partition_index: i32 = at(0, 7, default=0)
    committed_offset: i64 = at(0, 7, default=0)
    committed_leader_epoch: i32 = at(5, 7, default=-1)
    metadata: string | None = at(0, 7, default="")
    error_code: i16 = at(0, 7, default=0)


@nested
class OffsetFetchResponseTopic:
    name: string = at(0, 7, default="")
    partitions: list[OffsetFetchResponsePartition] = at(0, 7, factory=list)


@nested
class OffsetFetchResponsePartitions:
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: i32 = at(default=-1)
    metadata: string | None
    error_code: i16


@nested
class OffsetFetchResponseTopics:
    name: string = at(0, 9, default="")
    topic_id: uuid = at(10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


@nested
class OffsetFetchResponseGroup:
    group_id: string
    topics: list[OffsetFetchResponseTopics]
    error_code: i16 = at(default=0)


@message(9, versions=(0, 10), flexible=6)
class OffsetFetchResponse:
    throttle_time_ms: i32 = at(3, default=0)
    topics: list[OffsetFetchResponseTopic] = at(0, 7, factory=list)
    error_code: i16 = at(2, 7, default=0)
    groups: list[OffsetFetchResponseGroup] = at(8, factory=list)


@nested
class OffsetDeleteRequestPartition:
    partition_index: i32


@nested
class OffsetDeleteRequestTopic:
    name: string
    partitions: list[OffsetDeleteRequestPartition]


@message(47, versions=(0, 0))
class OffsetDeleteRequest:
    group_id: string
    topics: list[OffsetDeleteRequestTopic]


@nested
class OffsetDeleteResponsePartition:
    partition_index: i32
    error_code: i16


@nested
class OffsetDeleteResponseTopic:
    name: string
    partitions: list[OffsetDeleteResponsePartition]


@message(47, versions=(0, 0))
class OffsetDeleteResponse:
    error_code: i16
    throttle_time_ms: i32 = at(default=0)
    topics: list[OffsetDeleteResponseTopic]
