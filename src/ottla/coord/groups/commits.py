"""The operations on committed offsets: commit, commit in a transaction, fetch, delete, expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups.offset_records import content, key_start, pack_index, tombstone
from ottla.coord.groups.offsets import NO_EXPIRY
from ottla.coord.machine import Decision, Record, wall_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.commits import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.transactions import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable

    from ottla.coord.groups.machine import GroupMachine
    from ottla.coord.groups.offsets import CommittedOffset
    from ottla.coord.groups.outcome import Outcome
    from ottla.coord.machine import Caller, Token
    from ottla.wire.messages.commits import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
        OffsetDeleteRequest,
        OffsetFetchRequestGroup,
    )
    from ottla.wire.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

NOW = -1  # no commit time or retention was given
FOR_EVER_MS = (1 << 63) - 1
NOT_FOUND_SINCE = 9  # the first OffsetCommit version with GROUP_ID_NOT_FOUND
NOTHING_COMMITTED = -1
_new = tuple.__new__  # builds a NamedTuple in a third of the time of calling it
REPEATED_SIZE_MAX = 64  # longer metadata is sent only once per response, even if the partition is requested repeatedly


def commit(
    machine: GroupMachine,
    request: OffsetCommitRequest,
    caller: Caller,
    token: Token,
    now_ms: int,
    missing: Collection[tuple[str, int]],
) -> Decision:
    group_id, member_id, epoch = request.group_id, request.member_id, request.generation_id_or_member_epoch
    group = machine.groups.get(group_id)
    try:
        if group is None:
            if epoch >= 0:
                late = caller.version >= NOT_FOUND_SINCE
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION)
        else:
            check = group.check_commit(
                member_id, request.group_instance_id, epoch, version=caller.version, transactional=False
            )
            check_each(machine, check, request.topics, missing)
            group.note_commit(member_id, now_ms)
    except BrokerError as error:
        return Decision(replies=[(token, refuse_commit(request, error.code, missing))])
    retention_ms, today_ms = request.retention_time_ms, wall_ms(now_ms)
    expires_ms = NO_EXPIRY if retention_ms == NOW else min(today_ms + retention_ms, FOR_EVER_MS)
    size_max = machine.rules.metadata_size_max
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        name = topic.name
        start, results = key_start(group_id, name), []
        for one in topic.partitions:
            index, metadata = one.partition_index, one.committed_metadata or ""
            code = 0
            if missing and (name, index) in missing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > size_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                time_ms = today_ms if one.commit_timestamp == NOW else one.commit_timestamp
                value = content(one.committed_offset, one.committed_leader_epoch, metadata, time_ms, expires_ms)
                records.append(_new(Record, (start + pack_index(index), value)))
            results.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=results))
    return Decision(records, ((token, OffsetCommitResponse(topics=topics)),))


def check_each(
    machine: GroupMachine,
    check: Callable[[bytes, int], ErrorCode] | None,
    topics: Iterable[OffsetCommitRequestTopic] | Iterable[TxnOffsetCommitRequestTopic],
    missing: Collection[tuple[str, int]],
) -> None:
    """Raises BrokerError if the group has a check and it rejects a partition. Then nothing is committed."""
    if check is None:
        return
    known = machine.image().topics
    for topic in topics:
        topic_id = known[topic.name].id if topic.name in known else ZERO_UUID
        for one in topic.partitions:
            code = ErrorCode.NONE
            if (topic.name, one.partition_index) not in missing:
                code = check(topic_id, one.partition_index)
            if code is not ErrorCode.NONE:
                raise BrokerError(code)


def refuse_commit(
    request: OffsetCommitRequest, code: ErrorCode, missing: Collection[tuple[str, int]] = ()
) -> OffsetCommitResponse:
    """A response with the same error for every partition that exists."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=unless_missing(code, topic.name, one.partition_index, missing),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def unless_missing(code: ErrorCode, topic: str, index: int, missing: Collection[tuple[str, int]]) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (topic, index) in missing else code


def commit_in_transaction(
    machine: GroupMachine,
    request: TxnOffsetCommitRequest,
    caller: Caller,
    token: Token,
    now_ms: int,
    missing: Collection[tuple[str, int]],
) -> Decision:
    group = machine.groups.get(request.group_id)
    try:
        if group is None:
            if request.generation_id >= 0:
                raise BrokerError(ErrorCode.ILLEGAL_GENERATION)
        else:
            check = group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                version=caller.version,
                transactional=True,
            )
            check_each(machine, check, request.topics, missing)
    except BrokerError as error:
        return Decision(replies=[(token, refuse_in_transaction(request, error.code, missing))])
    records: list[Record] = []
    topics, time_ms = [], wall_ms(now_ms)
    for topic in request.topics:
        start, results = key_start(request.group_id, topic.name), []
        for one in topic.partitions:
            index, metadata = one.partition_index, one.committed_metadata or ""
            code = ErrorCode.NONE
            if (topic.name, index) in missing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > machine.rules.metadata_size_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = content(one.committed_offset, one.committed_leader_epoch, metadata, time_ms, NO_EXPIRY)
                records.append(_new(Record, (start + pack_index(index), value)))
            results.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    reply = token, TxnOffsetCommitResponse(topics=topics)
    return Decision(records, [reply], producer=(request.producer_id, request.producer_epoch))


def refuse_in_transaction(
    request: TxnOffsetCommitRequest, code: ErrorCode, missing: Collection[tuple[str, int]] = ()
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=unless_missing(code, topic.name, one.partition_index, missing),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch(
    machine: GroupMachine, request: OffsetFetchRequestGroup, *, stable: bool
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """The offsets of a group; all of them if the request names no topics. BrokerError if the member may not fetch."""
    group = machine.groups.get(request.group_id)
    if group is not None:
        group.check_fetch(request.member_id, request.member_epoch)
    offsets, name = machine.offsets, request.group_id
    known = offsets.by_group.get(name, {})

    def describe(topic: str, index: int, one: CommittedOffset | None) -> OffsetFetchResponsePartitions:
        if stable and name in offsets.open and offsets.unstable(name, topic, index):
            return no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if one is None:
            return no_offset(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=one.offset,
            committed_leader_epoch=one.leader_epoch,
            metadata=one.metadata,
            error_code=0,
        )

    topics = []
    if request.topics is None:
        for topic, partitions in tuple(known.items()):
            results = []
            for index, one in tuple(partitions.items()):
                results.append(describe(topic, index, one))
                yield
            topics.append(OffsetFetchResponseTopics(name=topic, partitions=results))
        return OffsetFetchResponseGroup(group_id=name, topics=topics)
    told: set[tuple[str, int]] = set()
    for wanted in request.topics:
        partitions, results = known.get(wanted.name, {}), []
        for index in wanted.partition_indexes:
            offset = partitions.get(index)
            if offset is not None and _of_another(offset.topic_id, wanted.topic_id):
                offset = None
            if offset is not None and len(offset.metadata) > REPEATED_SIZE_MAX:
                if (wanted.name, index) in told:  # a small request could name the same partition a million times
                    offset = offset._replace(metadata="")
                told.add((wanted.name, index))
            results.append(describe(wanted.name, index, offset))
            yield
        topics.append(OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id, partitions=results))
        yield
    return OffsetFetchResponseGroup(group_id=name, topics=topics)


def no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NOTHING_COMMITTED, metadata="", error_code=code
    )


def _of_another(committed: bytes, wanted: bytes) -> bool:
    """Whether an offset was committed for another topic of the same name."""
    return committed != wanted and committed != ZERO_UUID and wanted != ZERO_UUID


def delete(
    machine: GroupMachine, request: OffsetDeleteRequest, token: Token, missing: Collection[tuple[str, int]]
) -> Decision:
    group = machine.groups.get(request.group_id)
    try:
        if not request.group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_deletion()
    except BrokerError as error:
        return Decision(replies=[(token, OffsetDeleteResponse(error_code=error.code, topics=[]))])
    present = set(machine.offsets.partitions(group.id))
    records: list[Record] = []
    topics = []
    for topic in request.topics:
        subscribed = group.subscribes(topic.name)
        results = []
        for one in topic.partitions:
            partition = topic.name, one.partition_index
            code = ErrorCode.NONE
            if partition in missing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif partition in present:
                records.append(tombstone(group.id, *partition))
            results.append(OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    return Decision(records, [(token, OffsetDeleteResponse(error_code=0, topics=topics))])


def expire(machine: GroupMachine, name: str, now_ms: int, out: Outcome) -> int:
    """Remove the expired offsets of a group, and the group if it is empty and has no offsets left.

    Returns the amount of work: checking an offset counts 1, removing one counts 10.
    """
    offsets, retention_ms, now_ms = machine.offsets, machine.rules.retention_ms, wall_ms(now_ms)
    group = machine.groups.get(name)
    if group is None:
        return 1
    left, work = name in offsets.open, 1
    for topic, partitions in offsets.by_group.get(name, {}).items():
        subscribed = group.subscribes(topic)
        for index, one in partitions.items():
            kept = subscribed or not group.has_expired(one, now_ms, retention_ms)
            if kept or offsets.unstable(name, topic, index):
                left = True
                work += 1
            else:
                out.records.append(tombstone(name, topic, index))
                work += 10
    if not left and group.empty:
        out.records += group.tombstones()
        work += 10
    return work
