"""Which groups there are. Every broker knows those that it coordinates, so all are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import check
from ottla.wire.messages.groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster


class ListedGroup(NamedTuple):
    coordinator: int
    protocol: str  # "consumer", "connect", ...; empty: offsets only
    state: str
    kind: str  # "classic", "consumer", "share", ...


def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    def attempt() -> dict[str, ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for broker, connection in cluster.brokers().items():
            answer = connection.ask(ListGroupsRequest(), ListGroupsResponse)
            check(f"listing the groups of broker {broker}", answer.error_code)
            for one in answer.groups:
                kind = one.group_type.lower()
                found[one.group_id] = ListedGroup(broker, one.protocol_type, one.group_state, kind)
        return found

    return cluster.retrying(attempt, what="listing the groups")
