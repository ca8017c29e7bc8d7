"""Options at runtime: DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

ListConfigResources v1 other resources than client metrics.
DescribeConfigs v1 sources and synonyms; v3 types and documentation.
AlterConfigs replaces all options of a resource, IncrementalAlterConfigs changes the ones it names.

Resources are topics, brokers (an empty name for all of them), the loggers of a broker, groups, and subscriptions to
clients' metrics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from ottla.cluster.alterations import APPEND, DELETE, OPERATIONS, SET, OptionChange
from ottla.cluster.image import EVERY_BROKER
from ottla.cluster.topic_names import check_name
from ottla.config.describe import (
    DEFAULT,
    TYPES,
    ConfigEntry,
    Layers,
    describe_broker,
    describe_client_metrics,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from ottla.coord.patterns import PatternError, compile_pattern
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers import loggers
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.repeats import Repeats
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.handlers.call import Steps

TOPIC, BROKER, LOGGERS, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
LISTED = (LOGGERS, BROKER, TOPIC, GROUP)
NAMELESS = "Subscription name can't be empty"


def layers(parts: Parts) -> Layers:
    """The layers of this broker's options."""
    configs = parts.metadata.image.broker_configs
    return Layers(parts.metadata.static, configs.get(EVERY_BROKER, {}), configs.get(str(parts.node_id), {}))


@handles(DescribeConfigsRequest)
def describe_configs(parts: Parts, call: Call, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    results, repeats = [], Repeats()
    for resource in request.resources:
        results.append(describe_resource(parts, request, resource, repeats))
        yield
    return DescribeConfigsResponse(results=results)


def describe_resource(
    parts: Parts, request: DescribeConfigsRequest, resource: DescribeConfigsResource, repeats: Repeats
) -> DescribeConfigsResult:
    code, message, configs = ErrorCode.NONE, "", list[DescribeConfigsResourceResult]()
    names = resource.configuration_keys or None  # an empty list means all, like null
    try:
        repeats.check((resource.resource_type, resource.resource_name))
        if resource.resource_type == LOGGERS:
            check_broker(parts, resource.resource_name, "Unexpected broker id, expected {} but received {}")
            configs = loggers.describe(names)
        else:
            entries = list_entries(parts, resource.resource_type, resource.resource_name, names)
            configs = [describe_entry(entry, request) for entry in entries]
    except BrokerError as error:
        code, message = error.code, error.message
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def list_entries(parts: Parts, kind: int, name: str, names: Sequence[str] | None) -> list[ConfigEntry]:
    if kind == TOPIC:
        check_name(name)
        topic = parts.metadata.image.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(layers(parts), topic.configs, names)
    if kind == BROKER and name == "":
        return describe_every_broker(layers(parts), names)
    if kind == BROKER:
        check_broker(
            parts,
            name,
            "Unexpected broker id, expected {} or empty string, but received {}",
            malformed="Broker id must be an integer, but it is: {}",
        )
        return describe_broker(layers(parts), names)
    if kind == GROUP:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(layers(parts), parts.metadata.image.group_configs.get(name, {}), names)
    if kind == CLIENT_METRICS:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(parts.metadata.image.client_metrics.get(name, {}), names)
    raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}")


def describe_entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    sensitive = entry.row.sensitive
    return DescribeConfigsResourceResult(
        name=entry.row.name,
        value=None if sensitive else entry.value,
        read_only=entry.read_only,
        is_default=entry.source == DEFAULT,
        config_source=entry.source,
        is_sensitive=sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if sensitive else value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=TYPES[entry.row.kind],
        documentation=(entry.row.doc or None) if request.include_documentation else None,
    )


@handles(AlterConfigsRequest)
async def alter_configs(parts: Parts, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def alter(kind: int, name: str, changes: Sequence[OptionChange]) -> None:
        if kind == LOGGERS:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        await apply(parts, kind, name, changes, replace=True, validate_only=request.validate_only)

    resources = [
        (one.resource_type, one.resource_name, [OptionChange(config.name, SET, config.value) for config in one.configs])
        for one in request.resources
    ]
    return AlterConfigsResponse(responses=await alter_each(resources, alter))


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    parts: Parts, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(kind: int, name: str, changes: Sequence[OptionChange]) -> None:
        if kind == LOGGERS:
            check_broker(parts, name, "Unexpected node id. Expected {}, but received {}")
            loggers.alter(changes, validate_only=request.validate_only)
        else:
            await apply(parts, kind, name, changes, replace=False, validate_only=request.validate_only)

    resources = [
        (
            one.resource_type,
            one.resource_name,
            [OptionChange(config.name, config.config_operation, config.value) for config in one.configs],
        )
        for one in request.resources
    ]
    return IncrementalAlterConfigsResponse(responses=await alter_each(resources, alter))


async def alter_each(
    resources: list[tuple[int, str, list[OptionChange]]],
    alter: Callable[[int, str, Sequence[OptionChange]], Awaitable[None]],
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource. One that fails does not affect the others."""
    times = Counter((kind, name) for kind, name, _ in resources)
    responses = []
    for kind, name, changes in resources:
        code, message = ErrorCode.NONE, None
        try:
            await asyncio.sleep(0)  # even resources that are refused at once take time
            if times[kind, name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_changes(changes)
            await alter(kind, name, changes)
        except BrokerError as error:
            code, message = error.code, error.message or None
        responses.append(
            AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        )
    return responses


def check_changes(changes: Sequence[OptionChange]) -> None:
    if len({change.name for change in changes}) != len(changes):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if empty:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(empty)}")
    unknown = [change.operation for change in changes if not 0 <= change.operation < len(OPERATIONS)]
    if unknown:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {unknown[0]}")


async def apply(
    parts: Parts, kind: int, name: str, changes: Sequence[OptionChange], *, replace: bool, validate_only: bool
) -> None:
    if kind == TOPIC:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        await parts.controller.alter_topic(name, changes, replace=replace, validate_only=validate_only)
    elif kind == BROKER:
        if name != "":
            check_broker(parts, name, "Unexpected broker id, expected {}, but received {}")
        await parts.controller.alter_broker(name, changes, replace=replace, validate_only=validate_only)
    elif kind == GROUP:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        await parts.controller.alter_group(name, changes, replace=replace, validate_only=validate_only)
    elif kind == CLIENT_METRICS:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, NAMELESS)
        check_patterns(changes)
        await parts.controller.alter_client_metrics(name, changes, replace=replace, validate_only=validate_only)
    else:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def check_patterns(changes: Sequence[OptionChange]) -> None:
    """Check the patterns that match clients; the controller checks everything else."""
    for change in changes:
        if change.name == "match" and change.operation in (SET, APPEND) and change.value:
            for pair in change.value.split(","):
                pattern = pair.partition("=")[2].strip()
                try:
                    compile_pattern(pattern)
                except PatternError:
                    reason = f"Illegal client matching pattern: {pair.strip()}"
                    raise BrokerError(ErrorCode.INVALID_CONFIG, reason) from None


def check_broker(
    parts: Parts, name: str, mistaken: str, *, malformed: str = "Node id must be an integer, but it is: {}"
) -> None:
    """BrokerError unless `name` is this broker: each broker serves only its own options."""
    try:
        broker = int(name)
    except ValueError:
        raise BrokerError(ErrorCode.INVALID_REQUEST, malformed.format(name)) from None
    if broker != parts.node_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, mistaken.format(parts.node_id, broker))


@handles(ListConfigResourcesRequest)
def list_config_resources(
    parts: Parts, call: Call, request: ListConfigResourcesRequest
) -> Steps[ListConfigResourcesResponse]:
    kinds = [CLIENT_METRICS] if call.version == 0 else request.resource_types or [CLIENT_METRICS, *LISTED]
    kinds = list(dict.fromkeys(kinds))
    if any(kind not in (CLIENT_METRICS, *LISTED) for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    image = parts.metadata.image
    names = {
        CLIENT_METRICS: list(image.client_metrics),
        TOPIC: list(image.topics),
        BROKER: [str(broker) for broker in image.brokers],
        LOGGERS: [str(broker) for broker in image.brokers],
        GROUP: list(image.group_configs),
    }
    resources = []
    for kind in kinds:
        for name in names[kind]:
            resources.append(ConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)
