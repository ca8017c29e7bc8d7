"""Describe one consumer group, commit offsets for it, and delete its offsets.

`facts` returns what `ottla groups describe --json` prints; programs rely on its field names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupListing

from ottla.client.cluster import GROUP, Cluster
from ottla.client.failure import check
from ottla.tools.lag import PEEK_SIZE_MAX, Lag, Place, lags, read_commits, spans
from ottla.tools.output import warn
from ottla.tools.reader import new_consumer
from ottla.tools.reset import OffsetMove
from ottla.tools.session import TIMEOUT_S, Failed, settle
from ottla.wire.messages.commits import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

# Kafka's names of the states; the library spells them differently.
STATES = {
    state.name.title().replace("_", "").replace("Rebalancing", "Rebalance"): state for state in ConsumerGroupState
}


def facts(cluster: AdminClient, name: str, bootstrap: str, properties: Sequence[str]) -> dict[str, Any]:
    group = look_up(cluster, name)
    commits = read_commits(bootstrap, properties, name)
    if group is None and not commits:
        raise Failed(f"{name}: there is no such group")
    owners = {
        (part.topic, part.partition): member
        for member in (group.members if group else [])
        for part in member.assignment.topic_partitions
    }
    places = sorted(commits.keys() | owners.keys())
    modest: dict[str, Any] = {"fetch.message.max.bytes": PEEK_SIZE_MAX}
    consumer = new_consumer(bootstrap, properties, **modest)
    try:
        found = lags(consumer, commits, spans(cluster, places), places)
    finally:
        consumer.close()
    return {
        "group": name,
        "state": state_of(group),
        "type": group.type.name.lower() if group else None,
        "assignor": (group.partition_assignor if group else None) or None,
        "coordinator": node(group),
        "members": [member(one) for one in (group.members if group else [])],
        "partitions": [partition(place, lag, owners.get(place)) for place, lag in found.items()],
        "lag": sum(lag.records or 0 for lag in found.values()),
        "lag_seconds": max((lag.seconds or 0.0 for lag in found.values()), default=0.0),
    }


def look_up(cluster: AdminClient, name: str) -> ConsumerGroupDescription | None:
    futures = cluster.describe_consumer_groups([name], request_timeout=TIMEOUT_S)
    group = settle(futures, fine=[KafkaError.GROUP_ID_NOT_FOUND]).get(name)
    return None if group is None or group.state == ConsumerGroupState.DEAD else group


def state_of(group: ConsumerGroupDescription | ConsumerGroupListing | None) -> str:
    return next((name for name, state in STATES.items() if group and state == group.state), "Dead")


def node(group: ConsumerGroupDescription | None) -> dict[str, Any] | None:
    if group is None or group.coordinator is None:
        return None
    return {"id": group.coordinator.id, "host": group.coordinator.host, "port": group.coordinator.port}


def member(one: Any) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for part in sorted(one.assignment.topic_partitions, key=lambda part: (part.topic, part.partition)):
        topics.setdefault(part.topic, []).append(part.partition)
    return {
        "member": one.member_id,
        "instance": one.group_instance_id,
        "client": one.client_id,
        "host": one.host.removeprefix("/"),  # Java prints addresses with a slash
        "assignment": topics,
    }


def partition(place: Place, lag: Lag, owner: Any) -> dict[str, Any]:
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": lag.committed,
        "start": lag.start,
        "end": lag.end,
        "lag": lag.records,
        "lag_seconds": lag.seconds,
        "member": owner.member_id if owner else None,
        "client": owner.client_id if owner else None,
        "host": owner.host.removeprefix("/") if owner else None,
    }


def choose_partitions(cluster: AdminClient, topics: Mapping[str, list[int] | None]) -> list[Place]:
    """The partitions that `parse_topics` returned; fails if one does not exist."""
    found: list[Place] = []
    for topic, indexes in topics.items():
        answer = settle(cluster.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S))[topic]
        there = [part.id for part in answer.partitions]
        if missing := sorted(set(indexes or ()) - set(there)):
            raise Failed(f"{topic} has no partition {', '.join(map(str, missing))}")
        found += ((topic, index) for index in indexes or there)
    return found


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Parse `topic` and `topic:0,2`; a topic with None means all its partitions."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, indexes = text.partition(":")
        try:
            wanted = [int(index) for index in indexes.split(",")] if colon else None
        except ValueError:
            raise typer.BadParameter(f"--topic {text}: expected topic or topic:0,1,2") from None
        before = found.get(topic, [])
        found[topic] = None if wanted is None or before is None else list(dict.fromkeys(before + wanted))
    return found


def commit(cluster: AdminClient, name: str, moves: Iterable[OffsetMove]) -> None:
    parts = [TopicPartition(one.topic, one.partition, one.new, metadata=one.metadata or "") for one in moves]
    wanted = [ConsumerGroupTopicPartitions(name, parts)]
    answer = settle(cluster.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S))[name]
    refused = [part for part in answer.topic_partitions or [] if part.error]
    for part in refused:
        warn(f"{part.topic} partition {part.partition}: {part.error.str()} ({part.error.name()})")
    if refused:
        raise Failed(f"{name}: {len(refused)} of {len(parts)} offsets not accepted")


def forget(brokers: Cluster, name: str, places: Iterable[Place]) -> None:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=name,
        topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )

    def attempt() -> None:
        answer = brokers.coordinator(name, GROUP).ask(request, OffsetDeleteResponse)
        check(name, answer.error_code)
        for found in answer.topics:
            for part in found.partitions:
                check(f"{name}: {found.name} partition {part.partition_index}", part.error_code)

    brokers.retrying(attempt, what=f"deleting offsets of {name}")
