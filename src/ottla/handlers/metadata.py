"""Which brokers there are and who leads what: Metadata (3), v0-13, and DescribeTopicPartitions (75), v0.

Metadata v1 controller, racks, internal topics, null for all topics; v2 cluster id; v4 creation only when allowed; v5
offline replicas; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids; v12 topics asked for by id;
v13 an error for the whole answer.

The address in the answer is the one that the client dialled, unless `advertised.listeners` names another: a broker
behind no proxy is reachable there by definition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER
from ottla.cluster.topic_names import check_name, is_internal
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.cluster.image import Image, Partition, Topic
    from ottla.handlers.call import Steps

    Answer = MetadataResponse | Coroutine[None, None, MetadataResponse]
    from ottla.wire.messages.metadata import MetadataRequestTopic

# Sets of operations as bits. Without an authoriser everybody may do everything that the kind of resource knows.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -0x80000000
TOPICS_PER_TURN = 100
WITH_ID, BY_ID = 10, 12  # the first versions with topic ids, and in which they can be asked for


@handles(MetadataRequest)
def metadata(parts: Parts, call: Call, request: MetadataRequest) -> MetadataResponse | Steps[Answer]:
    image, topics = parts.metadata.image, request.topics
    if topics is not None and len(topics) == 1 and not any(topics[0].topic_id):
        known = image.topics.get(topics[0].name or "")
        if known is not None:  # what clients ask most: about one topic that they write to or read
            return respond(parts, call, request, [describe(known, request, parts.replicas.offline())])
    return metadata_of_many(parts, call, request)


def metadata_of_many(parts: Parts, call: Call, request: MetadataRequest) -> Steps[Answer]:
    image, offline = parts.metadata.image, parts.replicas.offline()
    topics: list[MetadataResponseTopic] = []
    if request.topics is None or (call.version == 0 and not request.topics):
        for topic in list(image.topics.values()):
            topics.append(describe(topic, request, offline))
            yield
        return respond(parts, call, request, topics)
    if BY_ID > call.version >= WITH_ID and any(one.name is None or any(one.topic_id) for one in request.topics):
        code = ErrorCode.INVALID_REQUEST  # the field was there before the meaning was
        for one in request.topics:
            topics.append(absent(one.name or "", one.topic_id, code))
            yield
        return respond(parts, call, request, topics)
    wanted = unique(image, request.topics)
    yield
    if creates(parts, call, request):
        missing = [one.name for one in wanted if one.name and not any(one.topic_id) and one.name not in image.topics]
        if missing:
            return create_then_respond(parts, call, request, wanted, missing)
    for one in wanted:
        topics.append(find(image, one, request, offline))
        yield
    return respond(parts, call, request, topics)


def unique(image: Image, topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once, however often and by whatever it is asked for."""
    found: dict[str | bytes | None, MetadataRequestTopic] = {}
    for one in topics:
        by_id = one.name is None or one.topic_id != ZERO_UUID
        key = image.names_by_id.get(one.topic_id, one.topic_id) if by_id else one.name
        found.setdefault(key, one)
    return list(found.values())


def creates(parts: Parts, call: Call, request: MetadataRequest) -> bool:
    return parts.config.auto_create_topics_enable and (call.version < 4 or request.allow_auto_topic_creation)


async def create_then_respond(
    parts: Parts, call: Call, request: MetadataRequest, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    failed: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            check_name(name)
            await parts.controller.auto_create(name)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody else was quicker
                failed[name] = error.code
                await asyncio.sleep(0)
    image, offline = parts.metadata.image, parts.replicas.offline()
    topics = []
    for at, one in enumerate(wanted):
        found = find(image, one, request, offline)
        if one.name in failed and found.error_code:
            found.error_code = failed[one.name]
        topics.append(found)
        if at % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
            await asyncio.sleep(0)
    return respond(parts, call, request, topics)


def respond(
    parts: Parts, call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = parts.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in brokers(parts, call)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def brokers(parts: Parts, call: Call) -> list[tuple[int, str, int, str | None]]:
    """(node id, host, port, rack) of every broker, as this client reaches it."""
    found = []
    for broker in parts.metadata.image.brokers.values():
        host, port = address(parts, call) if broker.id == parts.node_id else broker.endpoints[call.listener]
        found.append((broker.id, host, port, broker.rack))
    return found


def address(parts: Parts, call: Call) -> tuple[str, int]:
    """Where this client reaches this broker."""
    return parts.config.advertised.get(call.listener, call.dialled)


def find(
    image: Image, asked: MetadataRequestTopic, request: MetadataRequest, offline: frozenset[tuple[str, int]]
) -> MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    if name is None or topic_id != ZERO_UUID:  # who asks by id may leave the name empty
        name = image.names_by_id.get(topic_id)
        if name is None:
            return absent(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    topic = image.topics.get(name)
    if topic is not None:
        return describe(topic, request, offline)
    try:
        check_name(name)
    except BrokerError as error:
        return absent(name, ZERO_UUID, error.code)
    return absent(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def absent(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=False, partitions=[])


def leader_of(topic: Topic, state: Partition, offline: frozenset[tuple[str, int]]) -> int:
    return NO_LEADER if (topic.name, state.index) in offline else state.leader


def describe(topic: Topic, request: MetadataRequest, offline: frozenset[tuple[str, int]]) -> MetadataResponseTopic:
    """`offline` are partitions whose log cannot be used: without replicas elsewhere, nobody leads them."""
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=state.index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=list(state.replicas) if leader < 0 else [],
            )
            for state in topic.partitions
            for leader in (leader_of(topic, state, offline),)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    parts: Parts, call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """Topics in order of their names, a page at a time; the cursor says where the next page starts."""
    image, cursor = parts.metadata.image, request.cursor
    names = sorted({topic.name for topic in request.topics}) if request.topics else sorted(image.topics)
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        pages = [absent_page(name, ErrorCode.INVALID_REQUEST) for name in names]
        return DescribeTopicPartitionsResponse(topics=pages, next_cursor=None)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    room = max(1, min(request.response_partition_limit, parts.config.max_request_partition_size_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    offline = parts.replicas.offline()
    for name in names:
        yield
        topic = image.topics.get(name)
        if topic is None:
            topics.append(absent_page(name))
            continue
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        page = page_of(topic, first, room, offline)
        topics.append(page)
        room -= len(page.partitions)
        end = first + len(page.partitions)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def absent_page(name: str, code: ErrorCode | None = None) -> DescribeTopicPartitionsResponseTopic:
    """A topic that is not told about: because of the code, or because it is not there."""
    if code is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_name(name)
        except BrokerError as error:
            code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=False, partitions=[]
    )


def page_of(
    topic: Topic, first: int, room: int, offline: frozenset[tuple[str, int]]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=state.index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(state.replicas) if leader < 0 else [],
            )
            for state in topic.partitions[first : first + room]
            for leader in (leader_of(topic, state, offline),)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
