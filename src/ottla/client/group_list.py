"""List the groups and their committed offsets. Each broker knows the groups it coordinates, so all are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.failure import Refused, check, passes
from ottla.client.groups import Committed, fetch_committed
from ottla.wire.messages.groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster, TopicPartition

GROUPS_AT_ONCE: Final = 100


class ListedGroup(NamedTuple):
    coordinator: int
    protocol: str  # "consumer", "connect", ...; empty: offsets only
    state: str
    kind: str  # "classic", "consumer", "share", ...


class GroupOffsets(NamedTuple):
    listed: ListedGroup
    committed: dict[TopicPartition, Committed]
    refused: Refused | None = None  # why the offsets are unknown


def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    return cluster.retrying(lambda: _list(cluster), what="listing the groups")


def list_committed(cluster: Cluster) -> dict[str, GroupOffsets]:
    """All groups with their committed offsets, one request per hundred groups of one coordinator.

    Does not wait for open transactions.
    """

    def attempt() -> dict[str, GroupOffsets]:
        listed = _list(cluster)
        brokers = cluster.brokers()
        names: dict[int, list[str]] = {}
        for name, group in listed.items():
            names.setdefault(group.coordinator, []).append(name)
        found = {}
        for coordinator, here in names.items():
            for first in range(0, len(here), GROUPS_AT_ONCE):
                some = here[first : first + GROUPS_AT_ONCE]
                for name, offsets in fetch_committed(brokers[coordinator], some, stable=False).items():
                    if not isinstance(offsets, Refused):
                        found[name] = GroupOffsets(listed[name], offsets)
                    elif passes(offsets):  # its coordinator has moved, or is loading
                        raise offsets
                    else:
                        found[name] = GroupOffsets(listed[name], {}, offsets)
        return found

    return cluster.retrying(attempt, what="reading the offsets of the groups")


def _list(cluster: Cluster) -> dict[str, ListedGroup]:
    found: dict[str, ListedGroup] = {}
    for broker, connection in cluster.brokers().items():
        answer = connection.ask(ListGroupsRequest(), ListGroupsResponse)
        check(f"listing the groups of broker {broker}", answer.error_code)
        for one in answer.groups:
            found[one.group_id] = ListedGroup(broker, one.protocol_type, one.group_state, one.group_type.lower())
    return found
