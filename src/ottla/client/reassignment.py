"""Moves replicas between brokers: start, list, cancel, and throttle.

A throttle is four options, as Kafka's own tool sets them: the rates on every broker that takes part, and the throttled
replicas on every topic. They stay until `lift_throttle` removes them.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.failure import Refused, Unreachable, check, detail
from ottla.client.options import BROKER, TOPIC, alter_options
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.cluster import Cluster
    from ottla.client.options import Resource
    from ottla.client.placement import Place, ReplicaChange

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


class OngoingMove(NamedTuple):
    """A partition whose replicas are being moved."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def start(cluster: Cluster, plan: Mapping[Place, Sequence[int]]) -> dict[Place, Refused]:
    """Start moving these partitions. Returns those that the controller refused, with the reason."""
    return _alter(cluster, {place: list(replicas) for place, replicas in plan.items()})


def cancel(cluster: Cluster, places: Iterable[Place]) -> dict[Place, Refused]:
    """Cancel the moves of these partitions. Returns those that the controller refused, with the reason."""
    return _alter(cluster, dict.fromkeys(places))


def _alter(cluster: Cluster, wanted: Mapping[Place, list[int] | None]) -> dict[Place, Refused]:
    if not wanted:
        return {}
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, index), replicas in wanted.items():
        topics[topic].append(ReassignablePartition(partition_index=index, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(cluster.timeout_s * 1000),
        topics=[ReassignableTopic(name=topic, partitions=some) for topic, some in topics.items()],
    )

    def attempt() -> dict[Place, Refused]:
        answer = cluster.controller().ask(request, AlterPartitionReassignmentsResponse)
        check("reassignment", answer.error_code, detail(answer.error_message))
        return {
            (topic.name, one.partition_index): Refused(
                f"{topic.name} partition {one.partition_index}", one.error_code, detail(one.error_message)
            )
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        }

    return cluster.retrying(attempt, what="reassignment")


def ongoing(cluster: Cluster) -> dict[Place, OngoingMove]:
    """All partitions being moved now."""
    request = ListPartitionReassignmentsRequest(timeout_ms=int(cluster.timeout_s * 1000), topics=None)

    def attempt() -> dict[Place, OngoingMove]:
        answer = cluster.controller().ask(request, ListPartitionReassignmentsResponse)
        check("listing reassignments", answer.error_code, detail(answer.error_message))
        return {
            (topic.name, one.partition_index): OngoingMove(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    return cluster.retrying(attempt, what="listing reassignments")


def throttle(cluster: Cluster, changes: Iterable[ReplicaChange], bytes_per_s: int) -> None:
    """Limit the copy rate of these changes on each broker. Brokers that are down copy nothing and are skipped."""
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    brokers: set[int] = set()
    for change in changes:
        topic, index = change.place
        leaders[topic] |= {f"{index}:{broker}" for broker in change.old}
        followers[topic] |= {f"{index}:{broker}" for broker in change.added}
        brokers |= {*change.old, *change.new}
    for broker in sorted(brokers.intersection(cluster.nodes())):
        with suppress(Unreachable):
            alter_options(cluster, {(BROKER, str(broker)): dict.fromkeys(RATES, str(bytes_per_s))})
    options: dict[Resource, dict[str, str | None]] = {}
    for topic in leaders:
        options[TOPIC, topic] = {LEADERS: ",".join(sorted(leaders[topic]))}
        if followers[topic]:
            options[TOPIC, topic][FOLLOWERS] = ",".join(sorted(followers[topic]))
    alter_options(cluster, options)


def lift_throttle(cluster: Cluster, topics: Iterable[str], brokers: Iterable[int] | None = None) -> None:
    """Remove the throttles of these topics, and of these brokers or all."""
    options: dict[Resource, dict[str, str | None]] = {
        (BROKER, str(broker)): dict.fromkeys(RATES) for broker in (cluster.nodes() if brokers is None else brokers)
    }
    options |= {(TOPIC, topic): {LEADERS: None, FOLLOWERS: None} for topic in cluster.topics(topics)}
    alter_options(cluster, options)
