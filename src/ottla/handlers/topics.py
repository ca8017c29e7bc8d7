"""Topics: CreateTopics (19), DeleteTopics (20), CreatePartitions (37).

CreateTopics v1 validate only; v4 -1 takes the defaults; v5 partitions and configs in the answer; v7 topic ids.
DeleteTopics v5 messages; v6 by id as well as by name.

An invalid topic does not affect the others: each has its own code. The answer means that the logs of the partitions
exist. In a cluster it means that they have leaders; if that takes longer than the request's timeout, the code is
REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.clock import steady_ms
from ottla.cluster.plans import NewTopic
from ottla.config.describe import describe_topic
from ottla.errors import BrokerError, ErrorCode, description
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.configs import layers
from ottla.quota.mutations import mutations_of
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.cluster.image import Image, Topic
    from ottla.quota.mutations import Mutations

    Described = dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]]

DUPLICATE = BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
DEFAULTS_SINCE = 4  # CreateTopics: from this version on, -1 partitions or replicas stand for the broker's defaults
TELLS_CONFIGS = 5  # CreateTopics: from this version on, the answer has the configs of a new topic
TIMEOUT_MS_MAX = 300_000  # the longest wait for a controller
DISABLED_SINCE = 3  # DeleteTopics: the first version that knows TOPIC_DELETION_DISABLED


@handles(CreateTopicsRequest)
async def create_topics(parts: Parts, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        parts.controller.check_controller()
    except BrokerError as error:
        refused = [
            CreatableTopicResult(name=one.name, error_code=error.code, error_message=text(error))
            for one in request.topics
        ]
        return CreateTopicsResponse(topics=refused)
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, Topic | BrokerError] = {name: DUPLICATE for name, count in times.items() if count > 1}
    wishes: list[NewTopic] = []
    for topic in request.topics:
        await parts.metadata.turns.pause()
        if topic.name in results:
            continue
        try:
            wishes.append(read_wish(topic))
        except BrokerError as error:
            results[topic.name] = error
    wishes = await charge_creation(parts, call, wishes, results)
    made = await parts.controller.create_topics(
        wishes, validate_only=request.validate_only, timeout_ms=min(request.timeout_ms, TIMEOUT_MS_MAX)
    )
    results.update((wanted.name, result) for wanted, result in zip(wishes, made, strict=True))
    described: Described = {}
    topics = []
    for name in times:
        await parts.metadata.turns.pause()
        topics.append(answer_creation(parts, call, name, results[name], described))
    return CreateTopicsResponse(topics=topics)


async def charge_creation(
    parts: Parts, call: Call, wishes: list[NewTopic], results: dict[str, Topic | BrokerError]
) -> list[NewTopic]:
    """The requested topics that the client's quota allows. Invalid ones do not count."""
    mutations = quota_of(parts, call)
    if mutations is None:
        return wishes
    allowed = []
    for wish, found in zip(wishes, await parts.controller.create_topics(wishes, validate_only=True), strict=True):
        await parts.metadata.turns.pause()
        try:
            if isinstance(found, BrokerError):
                raise found
            mutations.charge(len(found.partitions), steady_ms(parts.clock))
            allowed.append(wish)
        except BrokerError as error:
            results[wish.name] = error
    call.throttle = mutations.throttle
    return allowed


def quota_of(parts: Parts, call: Call) -> Mutations | None:
    """The client's controller mutation quota; None if it has none."""
    if parts.quotas is None:
        return None
    return mutations_of(parts.quotas, (call.principal.name, call.client_id), call.key, call.version)


def read_wish(topic: CreatableTopic) -> NewTopic:
    assignments: dict[int, list[int]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in assignments:
            reason = f"Found multiple manual partition assignments for partition {assignment.partition_index}"
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        assignments[assignment.partition_index] = assignment.broker_ids
    configs = {config.name: config.value for config in topic.configs}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments or None, configs)


def answer_creation(
    parts: Parts, call: Call, name: str, result: Topic | BrokerError, described: Described
) -> CreatableTopicResult:
    """The answer for one topic. `described` caches the configs of the topics before it, which mostly are the same."""
    if isinstance(result, BrokerError):
        return CreatableTopicResult(name=name, error_code=result.code, error_message=text(result))
    overrides = frozenset(result.configs.items())
    configs = described.get(overrides)
    if configs is None:
        configs = described[overrides] = configs_of(parts, result) if call.version >= TELLS_CONFIGS else []
    return CreatableTopicResult(
        name=name,
        topic_id=result.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(result.partitions),
        replication_factor=len(result.partitions[0].replicas),
        configs=configs,
    )


def configs_of(parts: Parts, topic: Topic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.row.name,
            value=None if entry.row.sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.row.sensitive,
        )
        for entry in describe_topic(layers(parts), topic.configs)
    ]


@handles(DeleteTopicsRequest)
async def delete_topics(parts: Parts, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    image = parts.metadata.image
    found: list[tuple[str, bytes]] = []
    responses: list[DeletableTopicResult] = []
    for key, states in group_states(asked).items():
        await parts.metadata.turns.pause()
        try:
            parts.controller.check_controller()
            check_enabled(parts, call)
            found.append(find_topic(image, states))
        except BrokerError as error:
            responses.append(refuse_deletion(key, error))
    taken = Counter(name for name, _ in found)
    for name, topic_id in found:
        if taken[name] > 1 and topic_id == ZERO_UUID:
            reason = "The provided topic name maps to an ID that was already supplied."
            responses.append(
                refuse_deletion((name, image.topics[name].id), BrokerError(ErrorCode.INVALID_REQUEST, reason))
            )
    names = charge_deletion(parts, call, [name for name in taken if taken[name] == 1], responses)
    deleted = await parts.controller.delete_topics(names, timeout_ms=min(request.timeout_ms, TIMEOUT_MS_MAX))
    for name, result in zip(names, deleted, strict=True):
        await parts.metadata.turns.pause()
        if isinstance(result, BrokerError):
            responses.append(refuse_deletion((name, ZERO_UUID), result))
        else:
            shown = result.id if call.version >= 6 else ZERO_UUID
            responses.append(DeletableTopicResult(name=name, topic_id=shown, error_code=ErrorCode.NONE))
    return DeleteTopicsResponse(responses=responses)


def charge_deletion(parts: Parts, call: Call, names: list[str], responses: list[DeletableTopicResult]) -> list[str]:
    """The topics that the client's quota allows it to delete."""
    mutations = quota_of(parts, call)
    if mutations is None:
        return names
    allowed = []
    for name in names:
        topic = parts.metadata.image.topics.get(name)
        try:
            mutations.charge(0 if topic is None else len(topic.partitions), steady_ms(parts.clock))
            allowed.append(name)
        except BrokerError as error:
            responses.append(refuse_deletion((name, ZERO_UUID), error))
    call.throttle = mutations.throttle
    return allowed


def group_states(asked: list[DeleteTopicState]) -> dict[tuple[str | None, bytes], list[DeleteTopicState]]:
    groups: dict[tuple[str | None, bytes], list[DeleteTopicState]] = {}
    for state in asked:
        groups.setdefault((state.name, state.topic_id), []).append(state)
    return groups


def check_enabled(parts: Parts, call: Call) -> None:
    if not parts.config.delete_topic_enable:
        disabled = call.version >= DISABLED_SINCE
        raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST)


def find_topic(image: Image, states: list[DeleteTopicState]) -> tuple[str, bytes]:
    """The name of the requested topic, and the id if it was requested by id."""
    name, topic_id = states[0].name, states[0].topic_id
    if name is not None and topic_id != ZERO_UUID:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if len(states) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
    if name is None:
        name = image.names_by_id.get(topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    elif name not in image.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return name, topic_id


def refuse_deletion(key: tuple[str | None, bytes], error: BrokerError) -> DeletableTopicResult:
    name, topic_id = key
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=text(error))


@handles(CreatePartitionsRequest)
async def create_partitions(parts: Parts, call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = []
    mutations = quota_of(parts, call)
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise DUPLICATE
            parts.controller.check_controller()
            if mutations is not None:
                grown = await grow(parts, topic, validate_only=True, timeout_ms=request.timeout_ms)
                more = len(grown.partitions) - len(parts.metadata.image.topic(topic.name).partitions)
                mutations.charge(more, steady_ms(parts.clock))
            await grow(parts, topic, validate_only=request.validate_only, timeout_ms=request.timeout_ms)
        except BrokerError as error:
            result = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
        else:
            result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)
        results.append(result)
    if mutations is not None:
        call.throttle = mutations.throttle
    return CreatePartitionsResponse(results=results)


async def grow(parts: Parts, topic: CreatePartitionsTopic, *, validate_only: bool, timeout_ms: int) -> Topic:
    assignments = None if topic.assignments is None else [given.broker_ids for given in topic.assignments]
    return await parts.controller.create_partitions(
        topic.name,
        topic.count,
        assignments,
        validate_only=validate_only,
        timeout_ms=min(timeout_ms, TIMEOUT_MS_MAX),
    )


def text(error: BrokerError) -> str:
    return error.message or description(error.code)
