"""Brokers, topics and leaders: Metadata (3), v0-13, and DescribeTopicPartitions (75), v0.

Metadata v1 controller, racks, internal topics, null for all topics; v2 cluster id; v4 creation only when allowed; v5
offline replicas; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids; v12 requests by topic id;
v13 an error for the whole answer.

This broker's address in the answer is the one that the client connected to, unless `advertised.listeners` sets another.
Other brokers appear with their address on the same listener. Brokers without that listener are left out, and their
partitions have no leader for this client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clock import steady_ms
from ottla.cluster.image import NO_LEADER
from ottla.cluster.topic_names import check_name, is_internal
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.topics import quota_of
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

# Sets of operations, as bits. Without an authorizer every operation of the resource type is allowed.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -0x80000000
TOPICS_PER_TURN = 100
METADATA = 3  # the key of the API
LISTENER_ERROR = 6  # the first version that knows LISTENER_NOT_FOUND
WITH_ID, BY_ID = 10, 12  # the first versions with topic ids in the answer, and in the request


@handles(MetadataRequest)
def metadata(parts: Parts, call: Call, request: MetadataRequest) -> MetadataResponse | Steps[Answer]:
    image, topics = parts.metadata.image, request.topics
    if topics is not None and len(topics) == 1 and not any(topics[0].topic_id):
        known = image.topics.get(topics[0].name or "")
        if known is not None:  # the common request of a producer or consumer
            return respond(parts, call, request, [describe(known, request, ClientView(parts, call))])
    return describe_many(parts, call, request)


def describe_many(parts: Parts, call: Call, request: MetadataRequest) -> Steps[Answer]:
    image, view = parts.metadata.image, ClientView(parts, call)
    topics: list[MetadataResponseTopic] = []
    if request.topics is None or (call.version == 0 and not request.topics):
        for topic in list(image.topics.values()):
            topics.append(describe(topic, request, view))
            yield
        for name, topic_id in view.awaited.items():
            topics.append(answer_absent(name, topic_id, ErrorCode.LEADER_NOT_AVAILABLE))
        return respond(parts, call, request, topics)
    if misuses_ids(call.version, request.topics):
        code = ErrorCode.INVALID_REQUEST  # the field exists in these versions, but must not be used
        for one in request.topics:
            topics.append(answer_absent(one.name or "", one.topic_id, code))
            yield
        return respond(parts, call, request, topics)
    wanted = unique(image, request.topics)
    yield
    if may_create(parts, call, request):
        missing = [
            one.name
            for one in wanted
            if one.name and not any(one.topic_id) and one.name not in image.topics and one.name not in view.awaited
        ]
        if missing:
            return create_then_respond(parts, call, request, wanted, missing)
    for one in wanted:
        topics.append(find(image, one, request, view))
        yield
    return respond(parts, call, request, topics)


def misuses_ids(version: int, topics: list[MetadataRequestTopic]) -> bool:
    return BY_ID > version >= WITH_ID and any(one.name is None or any(one.topic_id) for one in topics)


def unique(image: Image, topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once, even if it is named several times, by name or by id."""
    found: dict[str | bytes | None, MetadataRequestTopic] = {}
    for one in topics:
        by_id = one.name is None or one.topic_id != ZERO_UUID
        key = image.names_by_id.get(one.topic_id, one.topic_id) if by_id else one.name
        found.setdefault(key, one)
    return list(found.values())


def may_create(parts: Parts, call: Call, request: MetadataRequest) -> bool:
    return parts.config.auto_create_topics_enable and (call.version < 4 or request.allow_auto_topic_creation)


async def create_then_respond(
    parts: Parts, call: Call, request: MetadataRequest, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    failed: dict[str, ErrorCode] = {}
    mutations = quota_of(parts, call)
    for name in missing:
        charged = 0
        try:
            check_name(name)
            if mutations is not None:
                mutations.charge(parts.config.num_partitions, steady_ms(parts.clock))
                charged = parts.config.num_partitions
            await parts.controller.auto_create(name)
        except BrokerError as error:
            if mutations is not None and charged and error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                mutations.refund(charged, steady_ms(parts.clock))
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another request meanwhile
                continue
            # Over the client's quota, the topic is reported as missing, as in Kafka, and clients ask again.
            over = error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            failed[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if over else error.code
            await asyncio.sleep(0)
    image, view = parts.metadata.image, ClientView(parts, call)
    topics = []
    for at, one in enumerate(wanted):
        found = find(image, one, request, view)
        if one.name in failed and found.error_code:
            found.error_code = failed[one.name]
        elif found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and one.name in missing:
            # Created, but the controller has not sent it to this broker yet.
            found.error_code = ErrorCode.LEADER_NOT_AVAILABLE
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
            for node_id, host, port, rack in list_brokers(parts, call)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def list_brokers(parts: Parts, call: Call) -> list[tuple[int, str, int, str | None]]:
    """(node id, host, port, rack) of every broker that this client can reach."""
    found = []
    known = parts.metadata.image.brokers
    if not known and parts.membership is not None:  # nothing received from the controller yet
        known = parts.membership.brokers
    for broker in known.values():
        reached = address(parts, call) if broker.id == parts.node_id else broker.endpoints.get(call.listener)
        if reached is not None:
            found.append((broker.id, *reached, broker.rack))
    return found


def address(parts: Parts, call: Call) -> tuple[str, int]:
    """The address of this broker for this client."""
    return parts.config.advertised.get(call.listener, call.dialled)


def find(
    image: Image, asked: MetadataRequestTopic, request: MetadataRequest, view: ClientView
) -> MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    if name is None or topic_id != ZERO_UUID:  # the name may be empty when the id is given
        name = image.names_by_id.get(topic_id)
        if name is None:
            awaited = topic_id in view.awaited.values()
            code = ErrorCode.LEADER_NOT_AVAILABLE if awaited else ErrorCode.UNKNOWN_TOPIC_ID
            return answer_absent(None, topic_id, code)
    topic = image.topics.get(name)
    if topic is not None:
        return describe(topic, request, view)
    if name in view.awaited:
        return answer_absent(name, view.awaited[name], ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        check_name(name)
    except BrokerError as error:
        return answer_absent(name, ZERO_UUID, error.code)
    return answer_absent(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def answer_absent(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=False, partitions=[])


class ClientView:
    """Leaders as seen by one client: depends on its listener and the version of its request."""

    __slots__ = ("_alive", "_listener", "_node_id", "_offline", "_version", "awaited")

    def __init__(self, parts: Parts, call: Call) -> None:
        self._alive = parts.metadata.image.brokers
        self.awaited = parts.membership.awaited if parts.membership is not None else {}
        self._listener = call.listener
        self._node_id = parts.node_id
        self._offline = parts.replicas.offline()  # replicas here whose logs are offline
        self._version = call.version if call.key == METADATA else LISTENER_ERROR

    def leader(self, topic: Topic, state: Partition) -> tuple[int, ErrorCode]:
        """The leader, if this client can reach it, and an error code if not."""
        broker = self._alive.get(state.leader)
        if broker is None or (state.leader == self._node_id and (topic.name, state.index) in self._offline):
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        if not self._reaches(state.leader):
            known = self._version >= LISTENER_ERROR
            return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
        if self._version == 0 and not all(map(self._reaches, state.replicas)):
            return state.leader, ErrorCode.REPLICA_NOT_AVAILABLE
        return state.leader, ErrorCode.NONE

    def filter_reachable(self, replicas: tuple[int, ...]) -> list[int]:
        """Version 0 leaves out unreachable replicas."""
        return [one for one in replicas if self._version > 0 or self._reaches(one)]

    def offline(self, topic: Topic, state: Partition) -> list[int]:
        """Replicas whose broker is down, or whose log here is offline."""
        lost = self._node_id if (topic.name, state.index) in self._offline else NO_LEADER
        return [one for one in state.replicas if one not in self._alive or one == lost]

    def _reaches(self, broker_id: int) -> bool:
        broker = self._alive.get(broker_id)
        return broker is not None and (broker_id == self._node_id or self._listener in broker.endpoints)


def describe(topic: Topic, request: MetadataRequest, view: ClientView) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=code,
                partition_index=state.index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=view.filter_reachable(state.replicas),
                isr_nodes=view.filter_reachable(state.isr),
                offline_replicas=view.offline(topic, state),
            )
            for state in topic.partitions
            for leader, code in (view.leader(topic, state),)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    parts: Parts, call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """Topics sorted by name, one page at a time; the cursor is the start of the next page."""
    image, cursor = parts.metadata.image, request.cursor
    names = sorted({topic.name for topic in request.topics}) if request.topics else sorted(image.topics)
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        pages = [absent_page(name, ErrorCode.INVALID_REQUEST) for name in names]
        return DescribeTopicPartitionsResponse(topics=pages, next_cursor=None)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    room = max(1, min(request.response_partition_limit, parts.config.max_request_partition_size_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    view = ClientView(parts, call)
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
        page = page_of(topic, first, room, view)
        topics.append(page)
        room -= len(page.partitions)
        end = first + len(page.partitions)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def absent_page(name: str, code: ErrorCode | None = None) -> DescribeTopicPartitionsResponseTopic:
    """An answer without partitions: with this code, or because the topic does not exist."""
    if code is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_name(name)
        except BrokerError as error:
            code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=False, partitions=[]
    )


def page_of(topic: Topic, first: int, room: int, view: ClientView) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=state.index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=view.offline(topic, state),
            )
            for state in topic.partitions[first : first + room]
            for leader, code in (view.leader(topic, state),)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
