"""Log directories: DescribeLogDirs (35), AlterReplicaLogDirs (34).

DescribeLogDirs v3 an error for all; v4 the disk's size; v5 cordoned directories, of which there are none. A directory
that is offline is listed with its error and without partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.folders import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.log.store import Usage


@handles(DescribeLogDirsRequest)
def describe_log_dirs(parts: Parts, call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(results=[described(usage, wanted) for usage in parts.store.usage()])


def described(usage: Usage, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), size in usage.sizes.items():
        if usage.error is None and (wanted is None or (topic, index) in wanted):
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=0, is_future_key=False)
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE if usage.error is None else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=usage.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=usage.total,
        usable_bytes=usage.free,
    )
