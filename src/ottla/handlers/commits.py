"""Committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

OffsetCommit and OffsetFetch v0 are from Kafka 0.8: offsets in the metadata store, without metadata or generation.
OffsetCommit v1 generations; v2-4 how long to keep an offset; v6 leader epochs; v7 static members; v9 consumer groups;
v10 topics by id. OffsetFetch v2 all topics, an error for the whole group; v7 stable offsets only; v8 many groups at
once; v9 members of consumer groups; v10 topics by id.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from ottla.coord.groups.commits import no_offset, refuse_commit
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.groups import ask, caller_of
from ottla.handlers.repeats import Repeats
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
    from collections.abc import Iterable, Iterator

    from ottla.cluster.image import Image
    from ottla.handlers.call import Steps
    from ottla.handlers.groups import Answer
    from ottla.wire.messages.commits import OffsetCommitRequestTopic, OffsetDeleteRequestTopic
    from ottla.wire.messages.transactions import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
        TxnOffsetCommitResponse,
    )

Request = TypeVar("Request", "OffsetCommitRequest", "OffsetDeleteRequest", "TxnOffsetCommitRequest")
Response = TypeVar("Response", "OffsetCommitResponse", "OffsetDeleteResponse", "TxnOffsetCommitResponse")

BY_ID = 10
MANY_GROUPS = 8
GROUP_ERROR = 2  # the first version of OffsetFetch with an error for the whole group
NOTHING = -1
COMMITS_PER_TURN = 1000  # each takes about ten microseconds


@handles(OffsetCommitRequest)
def offset_commit(
    parts: Parts, call: Call, request: OffsetCommitRequest
) -> Answer[OffsetCommitResponse] | Steps[OffsetCommitResponse]:
    image, version = parts.metadata.image, call.version
    if version >= BY_ID:
        unnamed = name_topics(image, request.topics)
        if unnamed:
            return commit_known_topics(parts, call, request, unnamed)
    if version == 0:
        return commit_to_store(parts, request)
    count = 0
    for topic in request.topics:  # a sum() of a generator would cost as much as the commit of a partition
        count += len(topic.partitions) or 1
    return commit(parts, call, request) if count <= COMMITS_PER_TURN else commit_portions(parts, call, request)


def commit_portions(parts: Parts, call: Call, request: OffsetCommitRequest) -> Steps[OffsetCommitResponse]:
    """Commit in slices. Later requests of the connection wait, so that this commit does not overwrite a later one."""
    answers = []
    for portion in portions(request):
        answer = commit(parts, call, portion)
        if not isinstance(answer, OffsetCommitResponse):
            waiting = asyncio.ensure_future(answer)
            yield waiting
            answer = waiting.result()
        answers.append(answer)
        yield None
    return join_answers(answers)


def portions(request: Request) -> Iterator[Request]:
    """Split a request into portions of COMMITS_PER_TURN partitions.

    Only the first topic of a portion may be the last of the one before.
    """
    part, room = copy(request), COMMITS_PER_TURN
    part.topics = []
    for topic in request.topics:
        for first in range(0, len(topic.partitions) or 1, COMMITS_PER_TURN):
            piece = copy(topic)
            piece.partitions = topic.partitions[first : first + COMMITS_PER_TURN]
            part.topics.append(piece)
            room -= 1 + len(piece.partitions)
            if room <= 0:
                yield part
                part, room = copy(request), COMMITS_PER_TURN
                part.topics = []
    if part.topics or room == COMMITS_PER_TURN:
        yield part


def join_answers(answers: list[Response]) -> Response:
    """Join the answers to the portions into one."""
    whole = answers[0]
    for answer in answers[1:]:
        last, topics = whole.topics[-1], answer.topics
        if topics and (last.name, getattr(last, "topic_id", b"")) == (
            topics[0].name,
            getattr(topics[0], "topic_id", b""),
        ):
            last.partitions += topics[0].partitions
            topics = topics[1:]
        whole.topics += topics
    return whole


def commit(parts: Parts, call: Call, request: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    missing, found = find_missing(parts.metadata.image, request.topics)
    if not found:
        return refuse_commit(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    caller = caller_of(parts, call)
    return ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.commit(request, caller, token, now_ms, missing),
        lambda code: refuse_commit(request, code, missing),
    )


def commit_known_topics(
    parts: Parts, call: Call, request: OffsetCommitRequest, unnamed: list[OffsetCommitRequestTopic]
) -> Steps[OffsetCommitResponse]:
    """Commit a request with unknown topic ids: these topics are left out, and refused in the answer."""
    request.topics = [topic for topic in request.topics if topic.name]
    response = yield from commit_portions(parts, call, request)
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
    missing, _ = find_missing(parts.metadata.image, request.topics)
    response = refuse_commit(request, ErrorCode.NONE, missing)
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
    """Fill in the names of topics given by id. Returns those with an unknown id."""
    for topic in topics:
        topic.name = image.names_by_id.get(topic.topic_id, "")
    return [topic for topic in topics if not topic.name]


def find_missing(
    image: Image, topics: Iterable[OffsetCommitRequestTopic | OffsetDeleteRequestTopic | TxnOffsetCommitRequestTopic]
) -> tuple[set[tuple[str, int]], bool]:
    """The partitions that do not exist, and whether there are others."""
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
def offset_fetch(parts: Parts, call: Call, request: OffsetFetchRequest) -> Steps[Answer[OffsetFetchResponse]]:
    version = call.version
    if version == 0:
        return fetch_from_store(parts, request)
    if version >= MANY_GROUPS:
        groups, repeats = [], Repeats()
        for one in request.groups:
            groups.append((yield from fetch(parts, version, one, request, repeats)))
            yield
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    wanted = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = yield from fetch(parts, version, wanted, request, Repeats())
    return (yield from answer_one_group(version, request, found))


def fetch(
    parts: Parts, version: int, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest, repeats: Repeats
) -> Steps[OffsetFetchResponseGroup]:
    image = parts.metadata.image
    unknown: list[OffsetFetchRequestTopics] = []
    if version >= BY_ID and wanted.topics is not None:
        for topic in wanted.topics:
            topic.name = image.names_by_id.get(topic.topic_id, "")
        unknown = [topic for topic in wanted.topics if not topic.name]
        wanted.topics = [topic for topic in wanted.topics if topic.name]
    try:
        repeats.check(wanted.group_id)
        machine = parts.groups.peek(wanted.group_id)
        try:
            found = yield from machine.fetch(wanted, stable=request.require_stable)
        except BrokerError as error:
            found = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)
        yield from parts.groups.wait_for_commit(wanted.group_id, machine)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)
    if found.error_code:
        return found
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


def answer_one_group(
    version: int, request: OffsetFetchRequest, group: OffsetFetchResponseGroup
) -> Steps[OffsetFetchResponse]:
    """Answer in the format before many groups. Before v2 an error of the group is set on each partition."""
    topics: list[OffsetFetchResponseTopic] = []
    if group.error_code and version < GROUP_ERROR:
        for topic in request.topics or ():
            rows = [(index, NOTHING, -1, "", group.error_code) for index in topic.partition_indexes]
            topics.append(answer_topic(topic.name, rows))
            yield
        return OffsetFetchResponse(topics=topics)
    for found in group.topics:
        told = [
            (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
            for one in found.partitions
        ]
        topics.append(answer_topic(found.name, told))
        yield
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def answer_topic(name: str, rows: Iterable[tuple[int, int, int, str | None, int]]) -> OffsetFetchResponseTopic:
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
    image = parts.metadata.image
    topics = []
    for topic in request.topics or ():
        known = image.topics.get(topic.name)
        rows = []
        for index in topic.partition_indexes:
            offset, code = NOTHING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(0)
            try:
                if known is not None and 0 <= index < len(known.partitions):
                    found = await parts.old_offsets.get(request.group_id, topic.name, index)
                    if found is not None:
                        offset, code = found, ErrorCode.NONE
            except BrokerError as error:
                code = error.code
            rows.append((index, offset, -1, "", code))
        topics.append(answer_topic(topic.name, rows))
    return OffsetFetchResponse(topics=topics)


@handles(OffsetDeleteRequest)
async def offset_delete(parts: Parts, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    answers = []
    for portion in portions(request):
        answers.append(await delete_portion(parts, portion))
        if answers[-1].error_code:
            return answers[-1]
        await asyncio.sleep(0)
    return join_answers(answers)


async def delete_portion(parts: Parts, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    missing, _ = find_missing(parts.metadata.image, request.topics)
    answer = ask(
        parts,
        request.group_id,
        lambda machine, token, _: machine.delete_offsets(request, token, missing),
        lambda code: OffsetDeleteResponse(error_code=code, topics=[]),
    )
    return answer if isinstance(answer, OffsetDeleteResponse) else await answer
