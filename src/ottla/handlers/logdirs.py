"""Log directories: DescribeLogDirs (35), AlterReplicaLogDirs (34).

DescribeLogDirs v3 an error for the whole answer; v4 the disk's size; v5 cordoned directories, of which there are none.
An offline directory is listed with its error and without partitions. A partition that is being moved is listed in both
directories, in the new one as a future replica with its lag.

A move continues after the answer. For a partition that is not hosted here the directory is remembered, and used when
the partition is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.topic_names import check_name
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.folders import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.log.store import Usage

    Key = tuple[str, int]


REMEMBERED_MAX = 1000  # partitions that are not hosted here; a client could invent any number of names


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(parts: Parts, call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    usages = parts.store.usage()
    sizes = {key: usage.sizes[key] for usage in usages for key in parts.store.moves if key in usage.sizes}
    results = []
    for usage in usages:
        await parts.metadata.turns.pause()
        results.append(describe(usage, wanted, sizes))
    return DescribeLogDirsResponse(results=results)


def describe(usage: Usage, wanted: set[Key] | None, sizes: Mapping[Key, int]) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    if usage.error is None:
        # Look up named partitions. Iterate over all of them only if all are wanted.
        keys = usage.sizes.keys() if wanted is None else [key for key in wanted if key in usage.sizes]
        futures = [key for key in usage.futures if wanted is None or key in wanted]
        present = [(key, usage.sizes[key], 0, False) for key in keys]
        future = [
            (key, usage.futures[key], sizes.get(key, usage.futures[key]) - usage.futures[key], True) for key in futures
        ]
        for (topic, index), size, lag, is_future in present + future:
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=index, partition_size=size, offset_lag=lag, is_future_key=is_future
                )
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE if usage.error is None else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=usage.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=usage.total,
        usable_bytes=usage.free,
    )


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    parts: Parts, call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                await parts.metadata.turns.pause()
                code = move(parts, topic.name, index, directory.path)
                results.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


def move(parts: Parts, topic: str, index: int, path: str) -> ErrorCode:
    """Start moving a partition. DescribeLogDirs shows the progress."""
    store = parts.store
    try:
        check_name(topic)
        here = (topic, index) in store.logs
        if here or len(store.preferred) < REMEMBERED_MAX:
            store.move(topic, index, path)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE if here else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
