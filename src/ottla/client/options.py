"""Changes options of topics and brokers at runtime; other options keep their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.failure import check, detail
from ottla.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Cluster

TOPIC: Final = 2  # resource types in config requests
BROKER: Final = 4
SET: Final = 0
DELETE: Final = 1

Resource = tuple[int, str]  # kind and name; the broker "" is all of them


def alter_options(cluster: Cluster, options: Mapping[Resource, Mapping[str, str | None]]) -> None:
    """Set options; None deletes one, so that its default applies.

    Options of a single broker go to that broker; all others go to the controller, in one request.
    """
    own = {resource for resource in options if resource[0] == BROKER and resource[1]}
    common = [_resource(resource, options[resource]) for resource in options if resource not in own]
    if common:
        _ask(cluster, common, None)
    for resource in sorted(own):
        _ask(cluster, [_resource(resource, options[resource])], int(resource[1]))


def _resource(resource: Resource, values: Mapping[str, str | None]) -> IncrementalAlterConfigsResource:
    configs = [
        IncrementalAlterableConfig(name=option, config_operation=DELETE if value is None else SET, value=value)
        for option, value in values.items()
    ]
    return IncrementalAlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)


def _ask(cluster: Cluster, resources: list[IncrementalAlterConfigsResource], broker: int | None) -> None:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)

    def attempt() -> None:
        connection = cluster.controller() if broker is None else cluster.broker(broker)
        for one in connection.ask(request, IncrementalAlterConfigsResponse).responses:
            what = f"{'broker' if one.resource_type == BROKER else 'topic'} {one.resource_name}"
            check(what, one.error_code, detail(one.error_message))

    cluster.retrying(attempt, what="changing options")
