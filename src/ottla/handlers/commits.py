"""Committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

OffsetCommit and OffsetFetch v0 are of the 0.8 era: offsets lie in the metadata store, without text or generation.
OffsetCommit v1 generations; v2-4 how long to keep an offset; v6 leader epochs; v7 static members; v9 consumer groups;
v10 topics by id. OffsetFetch v2 all topics, an error for the whole group; v7 stable offsets only; v8 many groups at
once; v9 members of consumer groups; v10 topics by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups.commits import no_offset, refused_commit
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.groups import ask, caller_of
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from ottla.cluster.image import Image
    from ottla.wire.messages.commits import OffsetCommitRequestTopic, OffsetDeleteRequestTopic
    from ottla.wire.messages.transactions import TxnOffsetCommitRequestTopic

BY_ID = 10
MANY_GROUPS = 8
GROUP_ERROR = 2  # the first version of OffsetFetch with an error for the whole group
NOTHING = -1


@handles(OffsetCommitRequest)
def offset_commit(
    parts: Parts, call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse]:
    image, version = parts.controller.image, call.version
    if version >= BY_ID:
        unnamed = name_topics(image, request.topics)
        if unnamed:
            return commit_named(parts, call, request, unnamed)
    if version == 0:
        return commit_to_store(parts, request)
    return commit(parts, call, request)


def commit(
    parts: Parts, call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse]:
    missing, found = missing_of(parts.controller.image, request.topics)
    if not found:
        return refused_commit(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    caller = caller_of(call)
    answer: OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse] = ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.commit(request, caller, token, now_ms, missing),
        lambda code: refused_commit(request, code, missing),
    )
    return answer


async def commit_named(
    parts: Parts, call: Call, request: OffsetCommitRequest, unnamed: list[OffsetCommitRequestTopic]
) -> OffsetCommitResponse:
    """Some topics are given by ids that are not known here: leave them out, and refuse them at the end."""
    request.topics = [topic for topic in request.topics if topic.name]
    answer = commit(parts, call, request)
    response = answer if isinstance(answer, OffsetCommitResponse) else await answer
    response.topics += [
        OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
                for one in topic.partitions
            ],
        )
        for topic in unnamed
    ]
    return response


async def commit_to_store(parts: Parts, request: OffsetCommitRequest) -> OffsetCommitResponse:
    missing, _ = missing_of(parts.controller.image, request.topics)
    response = refused_commit(request, ErrorCode.NONE, missing)
    for topic, answer in zip(request.topics, response.topics, strict=True):
        for one, result in zip(topic.partitions, answer.partitions, strict=True):
            if result.error_code == ErrorCode.NONE:
                try:
                    if len(one.committed_metadata or "") > parts.config.offset_metadata_max_bytes:
                        raise BrokerError(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    await parts.old_offsets.set(request.group_id, topic.name, one.partition_index, one.committed_offset)
                except BrokerError as error:
                    result.error_code = error.code
    return response


def name_topics(image: Image, topics: Iterable[OffsetCommitRequestTopic]) -> list[OffsetCommitRequestTopic]:
    """Give topics that came by id their names. Returns those whose id is not known."""
    for topic in topics:
        topic.name = image.names_by_id.get(topic.topic_id, "")
    return [topic for topic in topics if not topic.name]


def missing_of(
    image: Image, topics: Iterable[OffsetCommitRequestTopic | OffsetDeleteRequestTopic | TxnOffsetCommitRequestTopic]
) -> tuple[set[tuple[str, int]], bool]:
    """The partitions that there are not, and whether there are any others."""
    missing: set[tuple[str, int]] = set()
    found = False
    for topic in topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        for one in topic.partitions:
            if 0 <= one.partition_index < count:
                found = True
            else:
                missing.add((topic.name, one.partition_index))
    return missing, found


@handles(OffsetFetchRequest)
def offset_fetch(
    parts: Parts, call: Call, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[None, None, OffsetFetchResponse]:
    version = call.version
    if version == 0:
        return fetch_from_store(parts, request)
    if version >= MANY_GROUPS:
        return OffsetFetchResponse(groups=[fetch(parts, version, one, request) for one in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    wanted = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return of_one_group(version, request, fetch(parts, version, wanted, request))


def fetch(
    parts: Parts, version: int, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> OffsetFetchResponseGroup:
    image = parts.controller.image
    unknown: list[OffsetFetchRequestTopics] = []
    if version >= BY_ID and wanted.topics is not None:
        for topic in wanted.topics:
            topic.name = image.names_by_id.get(topic.topic_id, "")
        unknown = [topic for topic in wanted.topics if not topic.name]
        wanted.topics = [topic for topic in wanted.topics if topic.name]
    try:
        found = parts.groups.peek(wanted.group_id).fetch(wanted, stable=request.require_stable)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)
    if version >= BY_ID and wanted.topics is None:
        found.topics = [topic for topic in found.topics if topic.name in image.topics]
        for answer in found.topics:
            answer.topic_id = image.topics[answer.name].id
    found.topics += [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes],
        )
        for topic in unknown
    ]
    return found


def of_one_group(version: int, request: OffsetFetchRequest, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The same before there were many groups in one answer; before v2 a group's error is that of each partition."""
    if group.error_code and version < GROUP_ERROR:
        topics = [
            old_topic(topic.name, [(index, NOTHING, -1, "", group.error_code) for index in topic.partition_indexes])
            for topic in request.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    topics = [
        old_topic(
            topic.name,
            [
                (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def old_topic(name: str, rows: Iterable[tuple[int, int, int, str | None, int]]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=code,
            )
            for index, offset, epoch, metadata, code in rows
        ],
    )


async def fetch_from_store(parts: Parts, request: OffsetFetchRequest) -> OffsetFetchResponse:
    image = parts.controller.image
    topics = []
    for topic in request.topics or ():
        known = image.topics.get(topic.name)
        rows = []
        for index in topic.partition_indexes:
            offset, code = NOTHING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            try:
                if known is not None and 0 <= index < len(known.partitions):
                    found = await parts.old_offsets.get(request.group_id, topic.name, index)
                    if found is not None:
                        offset, code = found, ErrorCode.NONE
            except BrokerError as error:
                code = error.code
            rows.append((index, offset, -1, "", code))
        topics.append(old_topic(topic.name, rows))
    return OffsetFetchResponse(topics=topics)


@handles(OffsetDeleteRequest)
def offset_delete(
    parts: Parts, call: Call, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Coroutine[None, None, OffsetDeleteResponse]:
    missing, _ = missing_of(parts.controller.image, request.topics)
    answer: OffsetDeleteResponse | Coroutine[None, None, OffsetDeleteResponse] = ask(
        parts,
        request.group_id,
        lambda machine, token, _: machine.delete_offsets(request, token, missing),
        lambda code: OffsetDeleteResponse(error_code=code, topics=[]),
    )
    return answer
