"""Start, end and timestamps of logs: ListOffsets (2), OffsetForLeaderEpoch (23), DeleteRecords (21).

ListOffsets v0 answers with segment boundaries, newest first; v1 with one offset and its timestamp; v2 isolation level;
v4 leader epochs; v6 flexible; v7 the largest timestamp; v8 the earliest local offset; v9 and v11 offsets of tiered
storage, which Ottla does not have: -1; v10 a timeout for tiered storage.
OffsetForLeaderEpoch v1 the epoch in the answer; v2 leader epoch is checked; v3 replica id; v4 flexible.
DeleteRecords v2 flexible.

Only the leader answers; the debugging consumer (replica id -2) may ask any replica. A follower gets the log end, a
consumer the high watermark. DeleteRecords waits until the followers have deleted the same records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.log.seek import LongSearchError
from ottla.records import aside
from ottla.wire.messages.offsets import EpochEndOffset as EpochEnd
from ottla.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.wire.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.log.seek import Known
    from ottla.replica.partition import Partition
    from ottla.wire.messages.offsets import ListOffsetsPartition, OffsetForLeaderPartition
    from ottla.wire.messages.topics import DeleteRecordsPartition

    Copy = tuple[Partition, int, DeleteRecordsPartitionResult]  # the log start that its followers must reach

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version that knows each special timestamp.
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
BEGINNINGS = frozenset((EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD))
READ_COMMITTED = 1
CONSUMER, DEBUGGING_CONSUMER = -1, -2
WITH_NOT_AVAILABLE = 5  # the first version of ListOffsets whose clients know OFFSET_NOT_AVAILABLE
LOOK_S = 0.02  # how often to check whether the followers have deleted them
HIGH_WATERMARK = -1  # DeleteRecords: delete all committed records


@handles(ListOffsetsRequest)
def list_offsets(parts: Parts, call: Call, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    seen: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = topic.name, asked.partition_index
            seen[key] = seen.get(key, 0) + 1
    topics = []
    for topic in request.topics:
        found = []
        for asked in topic.partitions:
            try:
                if seen[topic.name, asked.partition_index] > 1:
                    raise BrokerError(ErrorCode.INVALID_REQUEST)
                found.append((yield from list_one(parts, call, request, topic.name, asked)))
            except BrokerError as error:
                found.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code))
            yield None
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return ListOffsetsResponse(topics=topics)


def list_one(
    parts: Parts, call: Call, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> Steps[ListOffsetsPartitionResponse]:
    if SINCE.get(asked.timestamp, 0 if asked.timestamp >= 0 else call.version + 1) > call.version > 0:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    known: Known = {}
    before = None
    find = parts.replicas.require_hosted if request.replica_id == DEBUGGING_CONSUMER else parts.replicas.require_led
    while True:
        partition = find(topic, asked.partition_index)
        if partition is not before:  # recreated meanwhile
            known.clear()
        before = partition
        try:
            if call.version == 0:
                return boundaries(partition, asked, parts.clock.now_ms())
            partition.check_epoch(asked.current_leader_epoch)
            limit = limit_of(partition, request)
            timestamp, offset, epoch = locate(partition, asked.timestamp, limit, known)
            if offset in (limit, -1) and request.replica_id == CONSUMER and asked.timestamp not in BEGINNINGS:
                check_limit(partition, limit, call.version)
            break
        except OSError as error:
            partition.log.directory.note_failure(error)
            raise partition.log.directory.storage_error(error) from error
        except LongSearchError as long:
            future = aside.run(long.size, long.search)
            yield future
            known[long.base] = future.result()
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def limit_of(partition: Partition, request: ListOffsetsRequest) -> int:
    """The first offset that this client may not see."""
    if request.replica_id >= 0:
        return partition.log.end
    if request.isolation_level == READ_COMMITTED:
        return partition.log.last_stable(partition.high)
    return partition.log.end if request.replica_id == DEBUGGING_CONSUMER else partition.high


def check_limit(partition: Partition, limit: int, version: int) -> None:
    """BrokerError while a new leader may not know all committed records yet: the reported end must not go back."""
    followers = partition.followers
    if followers is not None and limit < followers.epoch_start:
        unknown = ErrorCode.OFFSET_NOT_AVAILABLE
        raise BrokerError(unknown if version >= WITH_NOT_AVAILABLE else ErrorCode.LEADER_NOT_AVAILABLE)


def locate(partition: Partition, timestamp: int, limit: int, known: Known) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); offset -1 when there is none. LongSearchError: see `log.seek`."""
    log = partition.log
    match timestamp:
        case -1:
            return -1, limit, partition.epoch
        case -2 | -4:
            return -1, log.start, log.epochs.of(log.start)
        case -5 | -6:
            return -1, -1, -1
        case -3:
            found = log.max_timestamp(known)
        case _:
            found = log.offset_for_time(timestamp, known)
    if found is None or found[0] >= limit:
        return -1, -1, -1
    offset, at, epoch = found
    return at, offset, epoch


def boundaries(partition: Partition, asked: ListOffsetsPartition, now_ms: int) -> ListOffsetsPartitionResponse:
    """v0: base offsets of segments last written before the timestamp, newest first; the end counts as one."""
    log, high = partition.log, partition.high
    marks = [(max(segment.base, log.start), segment.modified_ms()) for segment in log.segments]
    if log.active.size:
        marks.append((high, now_ms))
    match asked.timestamp:
        case -1:
            count = len(marks)
        case -2:
            count = 1
        case timestamp:
            count = max((at + 1 for at, (_, modified) in enumerate(marks) if modified <= timestamp), default=0)
    found = sorted((min(offset, high) for offset, _ in marks[:count]), reverse=True)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, old_style_offsets=found[: max(0, asked.max_num_offsets)]
    )


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    parts: Parts, call: Call, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    def find(topic: str, asked: OffsetForLeaderPartition) -> EpochEnd:
        try:
            partition = parts.replicas.require_led(topic, asked.partition)
            partition.check_epoch(asked.current_leader_epoch)
            epoch, end = partition.log.epoch_end(asked.leader_epoch)
        except BrokerError as error:
            return EpochEnd(error_code=error.code, partition=asked.partition)
        return EpochEnd(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end)

    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(find(topic.topic, one))
            yield None
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield None
    return OffsetForLeaderEpochResponse(topics=topics)


@handles(DeleteRecordsRequest)
def delete_records(parts: Parts, call: Call, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    def delete(topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        try:
            partition = parts.replicas.require_led(topic, asked.partition_index)
            low = delete_before(partition, asked.offset)
        except BrokerError as error:
            return DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=-1, error_code=error.code
            )
        if partition.followers is not None:
            copies.append((partition, low, result := answer_deletion(asked, low)))
            return result
        return answer_deletion(asked, low)

    copies: list[Copy] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(delete(topic.name, one))
            yield None
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield None
    until = parts.clock.monotonic() + request.timeout_ms / 1000
    while copies and (copies := [one for one in copies if not follow_deletion(parts, *one)]):
        if parts.clock.monotonic() >= until:
            for _, _, result in copies:
                result.low_watermark, result.error_code = -1, ErrorCode.REQUEST_TIMED_OUT
            break
        yield asyncio.ensure_future(asyncio.sleep(LOOK_S))
    return DeleteRecordsResponse(topics=topics)


def answer_deletion(asked: DeleteRecordsPartition, low: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low, error_code=0)


def follow_deletion(parts: Parts, partition: Partition, start: int, result: DeleteRecordsPartitionResult) -> bool:
    """Update a result with the low watermark. Returns whether all live replicas start at `start` or later, or this
    broker no longer leads."""
    followers = partition.followers
    if not partition.led or followers is None:
        result.low_watermark, result.error_code = -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return True
    alive = parts.metadata.image.brokers
    starts = [one.start for replica, one in followers.followers.items() if replica in alive]
    result.low_watermark = min((partition.log.start, *starts))
    return result.low_watermark >= start


def delete_before(partition: Partition, offset: int) -> int:
    """Delete the records before offset. Returns the log's new start."""
    log = partition.log
    if partition.internal:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is not for clients")
    if not log.config.deletes:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not contain delete")
    wanted = partition.high if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > partition.high:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.delete_before(wanted)
    partition.wake()
    return log.start
