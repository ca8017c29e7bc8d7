"""Gates for topics and configs: metadata, creation, deletion, growth, configs.

A client that may not describe a topic is not told whether it exists.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, description
from ottla.handlers.gates.gate import REFUSED, EarlyReply, extend, guards, make_each, sift
from ottla.handlers.metadata import misuses_ids
from ottla.security.acl import CLUSTER_NAME
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from ottla.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    TopicRequest,
)
from ottla.wire.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Steps
    from ottla.handlers.finishing import Finish
    from ottla.handlers.gates.gate import Guard, Outcome
    from ottla.wire.messages.metadata import MetadataRequestTopic
    from ottla.wire.messages.topics import CreatableTopic

TOPIC = ResourceType.TOPIC
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# Resource types in requests about configs.
TOPIC_OPTIONS, GROUP_OPTIONS = 2, 32


@guards(MetadataRequest)
def metadata(guard: Guard, request: MetadataRequest) -> Steps[Finish | None]:
    refusals: list[MetadataResponseTopic] = []
    if misuses_ids(guard.call.version, request.topics or []):
        return None  # the handler refuses it all, whatever the topics
    everything = request.topics is None or (guard.call.version == 0 and not request.topics)
    if request.topics and not everything:
        kept, refused = yield from sift(
            guard, Operation.DESCRIBE, request.topics, TOPIC, lambda topic: name_of(guard, topic)
        )
        creating = yield from sift_creations(guard, request, kept)
        request.topics = [topic for topic in kept if topic.name not in creating]
        refusals = yield from make_each(refuse_metadata, [topic for topic in refused if name_of(guard, topic)])
        refusals += [refuse_metadata(topic) for topic in kept if topic.name in creating]
        request.topics += [topic for topic in refused if not name_of(guard, topic)]  # unknown ids
        if not request.topics and guard.call.version == 0:
            everything = True  # an empty list means all topics in these versions: the hidden ones are removed below

    def finish(response: MetadataResponse) -> Steps[MetadataResponse]:
        if everything and refusals:
            response.topics = []
        elif everything:
            response.topics, _ = yield from sift(
                guard, Operation.DESCRIBE, response.topics, TOPIC, lambda topic: topic.name or ""
            )
        for topic in response.topics if request.include_topic_authorized_operations else ():
            if topic.name is not None:
                topic.topic_authorized_operations = guard.operations(TOPIC, topic.name)
            yield
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(guard)
        response.topics += refusals
        return response

    return finish


def name_of(guard: Guard, topic: MetadataRequestTopic) -> str:
    return guard.topic_name(topic.topic_id) or "" if any(topic.topic_id) else topic.name or ""


def sift_creations(
    guard: Guard, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> Steps[set[str | None]]:
    """Names that the request would create, which the client may not create."""
    image = guard.parts.metadata.image
    if not request.allow_auto_topic_creation or not guard.parts.config.auto_create_topics_enable:
        return set()
    if guard.allows_cluster(Operation.CREATE):
        return set()
    missing: set[str | None] = set()
    for topic in topics:
        name = topic.name
        if name is not None and name not in image.topics and not guard.allows_topic(Operation.CREATE, name):
            missing.add(name)
        yield
    return missing


def refuse_metadata(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    """Only the name or id that was requested."""
    by_id = any(topic.topic_id)
    return MetadataResponseTopic(
        error_code=TOPIC_REFUSED,
        name=None if by_id else topic.name,
        topic_id=topic.topic_id if by_id else ZERO_UUID,
        partitions=[],
    )


def cluster_operations(guard: Guard) -> int:
    if not guard.allows_cluster(Operation.DESCRIBE):
        return 0
    return guard.operations(ResourceType.CLUSTER, CLUSTER_NAME)


@guards(DescribeClusterRequest)
def describe_cluster(guard: Guard, request: DescribeClusterRequest) -> Finish | None:
    def finish(response: DescribeClusterResponse) -> DescribeClusterResponse:
        response.cluster_authorized_operations = cluster_operations(guard)
        return response

    return finish if request.include_cluster_authorized_operations else None


@guards(DescribeTopicPartitionsRequest)
def describe_topic_partitions(guard: Guard, request: DescribeTopicPartitionsRequest) -> Steps[Outcome]:
    """Replace a request for all topics by one for the visible topics: otherwise the cursor could name a hidden one."""
    everything = not request.topics
    topics = request.topics or list_from_cursor(guard, request)
    request.topics, refused = yield from sift(guard, Operation.DESCRIBE, topics, TOPIC, lambda topic: topic.name)
    refusals = yield from make_each(refuse_partitions, [] if everything else [topic.name for topic in refused])
    if not request.topics:
        return EarlyReply(DescribeTopicPartitionsResponse(topics=refusals))
    if everything and request.cursor is not None and request.cursor.topic_name != request.topics[0].name:
        request.cursor = None  # its topic is deleted or hidden: the page begins with the next one

    def finish(response: DescribeTopicPartitionsResponse) -> Steps[DescribeTopicPartitionsResponse]:
        for topic in response.topics:
            topic.topic_authorized_operations = guard.operations(TOPIC, topic.name or "")
            yield
        response.topics += refusals
        return response

    return finish


def list_from_cursor(guard: Guard, request: DescribeTopicPartitionsRequest) -> list[TopicRequest]:
    first = request.cursor.topic_name if request.cursor is not None else ""
    return [TopicRequest(name=name) for name in sorted(guard.parts.metadata.image.topics) if name >= first]


def refuse_partitions(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=TOPIC_REFUSED, name=name, topic_id=ZERO_UUID, partitions=[])


@guards(CreateTopicsRequest)
def create_topics(guard: Guard, request: CreateTopicsRequest) -> Steps[Finish | None]:
    refused: list[CreatableTopic] = []
    if not guard.allows_cluster(Operation.CREATE):
        request.topics, refused = yield from sift(
            guard, Operation.CREATE, request.topics, TOPIC, lambda topic: topic.name
        )

    def finish(response: CreateTopicsResponse) -> Steps[CreateTopicsResponse]:
        for topic in response.topics:
            yield
            if not topic.error_code and not guard.allows_topic(Operation.DESCRIBE_CONFIGS, topic.name):
                topic.topic_config_error_code = TOPIC_REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics += yield from make_each(refuse_creation, dict.fromkeys(topic.name for topic in refused))
        return response

    return finish


def refuse_creation(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=TOPIC_REFUSED, error_message=description(TOPIC_REFUSED))


@guards(DeleteTopicsRequest)
def delete_topics(guard: Guard, request: DeleteTopicsRequest) -> Steps[Finish | None]:
    kept: list[DeleteTopicState] = []
    refusals: list[DeletableTopicResult] = []
    for topic in request.topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]:
        name = topic.name if topic.name is not None else guard.topic_name(topic.topic_id)
        if name is None or may_try_to_delete(guard, name):
            kept.append(topic)
        else:
            told = topic.name is not None or guard.allows_topic(Operation.DESCRIBE, name)
            refusals.append(refuse_deletion(name if told else None, topic.topic_id))
        yield
    request.topics, request.topic_names = kept, []
    return extend("responses", refusals)


def may_try_to_delete(guard: Guard, name: str) -> bool:
    """A client that may know that a topic does not exist is told so."""
    if guard.allows_topic(Operation.DELETE, name):
        return True
    return name not in guard.parts.metadata.image.topics and guard.allows_topic(Operation.DESCRIBE, name)


def refuse_deletion(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=TOPIC_REFUSED, error_message=description(TOPIC_REFUSED)
    )


@guards(CreatePartitionsRequest)
def create_partitions(guard: Guard, request: CreatePartitionsRequest) -> Steps[Finish | None]:
    request.topics, refused = yield from sift(guard, Operation.ALTER, request.topics, TOPIC, lambda topic: topic.name)
    names = dict.fromkeys(topic.name for topic in refused)
    return extend("results", (yield from make_each(refuse_growth, names)))


def refuse_growth(name: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=TOPIC_REFUSED, error_message=description(TOPIC_REFUSED))


def resource_of(kind: int, name: str) -> tuple[ResourceType, str]:
    """The resource for the authorizer: brokers, loggers and client metrics belong to the cluster."""
    if kind == TOPIC_OPTIONS:
        return TOPIC, name
    return (ResourceType.GROUP, name) if kind == GROUP_OPTIONS else (ResourceType.CLUSTER, CLUSTER_NAME)


def refuse_options(
    guard: Guard, request: Any, operation: Operation, into: str, result: Callable[..., Any]
) -> Steps[Finish | None]:
    """Remove the resources whose configs the client may not use, and add the refusals to this list of the answer."""
    kept, refusals = [], []
    for resource in request.resources:
        kind, name = resource_of(resource.resource_type, resource.resource_name)
        if guard.allows(operation, kind, name):
            kept.append(resource)
        else:
            refusal = result(
                error_code=REFUSED[kind],
                error_message=description(REFUSED[kind]),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            refusals.append(refusal)
        yield
    request.resources = kept
    return extend(into, refusals)


@guards(DescribeConfigsRequest)
def describe_configs(guard: Guard, request: DescribeConfigsRequest) -> Steps[Finish | None]:
    result = partial(DescribeConfigsResult, configs=[])
    return refuse_options(guard, request, Operation.DESCRIBE_CONFIGS, "results", result)


def alter_configs(guard: Guard, request: Any) -> Steps[Finish | None]:
    return refuse_options(guard, request, Operation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse)


for altering in (AlterConfigsRequest, IncrementalAlterConfigsRequest):
    guards(altering)(alter_configs)


@guards(ListConfigResourcesRequest)
def list_config_resources(guard: Guard, request: ListConfigResourcesRequest) -> None:
    guard.demand_cluster(Operation.DESCRIBE_CONFIGS)
