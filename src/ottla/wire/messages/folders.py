"""Log directories of a broker: their content, moving replicas between them, reporting to the controller.

AlterReplicaLogDirs (34): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

DescribeLogDirs (35): versions 0 to 5
     1  over quota, the answer is sent before throttling
     2  flexible
     3  answer adds error_code
     4  answer adds total_bytes, usable_bytes
     5  answer adds is_cordoned

AssignReplicasToDirs (73): version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i16, i32, i64, message, nested, string, uuid


@nested
class AlterReplicaLogDirTopic:
    name: string
    partitions: list[i32]


@nested
class AlterReplicaLogDir:
    path: string
    topics: list[AlterReplicaLogDirTopic]


@message(34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@nested
class AlterReplicaLogDirPartitionResult:
    partition_index: i32
    error_code: i16


@nested
class AlterReplicaLogDirTopicResult:
    topic_name: string
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[AlterReplicaLogDirTopicResult]


@nested
class DescribableLogDirTopic:
    topic: string
    partitions: list[i32]


@message(35, versions=(0, 5), flexible=2)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None


@nested
class DescribeLogDirsPartition:
    partition_index: i32
    partition_size: i64
    offset_lag: i64
    is_future_key: boolean


@nested
class DescribeLogDirsTopic:
    name: string
    partitions: list[DescribeLogDirsPartition]


@nested
class DescribeLogDirsResult:
    error_code: i16
    log_dir: string
    topics: list[DescribeLogDirsTopic]
    total_bytes: i64 = at(4, default=-1)
    usable_bytes: i64 = at(4, default=-1)
    is_cordoned: boolean = at(5, default=False)


@message(35, versions=(0, 5), flexible=2)
class DescribeLogDirsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16 = at(3, default=0)
    results: list[DescribeLogDirsResult]


@nested
class AssignReplicasToDirsRequestPartitionData:
    partition_index: i32


@nested
class AssignReplicasToDirsRequestTopicData:
    topic_id: uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData]


@nested
class AssignReplicasToDirsRequestDirectoryData:
    id: uuid
    topics: list[AssignReplicasToDirsRequestTopicData]


@message(73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest:
    broker_id: i32
    broker_epoch: i64 = at(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData]


@nested
class AssignReplicasToDirsResponsePartitionData:
    partition_index: i32
    error_code: i16


@nested
class AssignReplicasToDirsResponseTopicData:
    topic_id: uuid
    partitions: list[AssignReplicasToDirsResponsePartitionData]


@nested
class AssignReplicasToDirsResponseDirectoryData:
    id: uuid
    topics: list[AssignReplicasToDirsResponseTopicData]


@message(73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    directories: list[AssignReplicasToDirsResponseDirectoryData]
