"""What the tests of tools have in common: files that tools read, and what ZooKeeper knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoNodeError
from waiting import wait_until

from ottla.cluster import znodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ottla.testing import Cluster


def plan(folder: Path, wishes: Mapping[tuple[str, int], Sequence[int]]) -> str:
    """The file of kafka-reassign-partitions."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)} for (topic, index), replicas in wishes.items()
    ]
    return written(folder / "plan.json", {"version": 1, "partitions": partitions})


def topics_file(folder: Path, *topics: str) -> str:
    return written(folder / "topics.json", {"version": 1, "topics": [{"topic": topic} for topic in topics]})


def written(file: Path, content: object) -> str:
    file.write_text(json.dumps(content))
    return str(file)


def read_node(cluster: Cluster, path: str) -> Any:
    with cluster.store() as store:
        try:
            return json.loads(store.get(path)[0])
        except NoNodeError:
            return None


def replicas_of(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    node = read_node(cluster, znodes.topic_path(topic))
    return {int(index): replicas for index, replicas in (node or {"partitions": {}})["partitions"].items()}


def wait_moved(cluster: Cluster, topic: str, index: int, replicas: Sequence[int]) -> None:
    def moved() -> bool:
        state = cluster.state(topic, index)
        in_sync = state is not None and set(state["isr"]) == set(replicas)
        return in_sync and replicas_of(cluster, topic)[index] == list(replicas)

    wait_until(moved, lambda: (replicas_of(cluster, topic), cluster.state(topic, index)))


def wait_led(cluster: Cluster, topic: str, *leaders: int) -> None:
    """Partition 0, 1, ... are led by these."""
    wait_until(
        lambda: [cluster.leader(topic, index) for index in range(len(leaders))] == list(leaders),
        lambda: [cluster.state(topic, index) for index in range(len(leaders))],
    )


def knows(cluster: Cluster, number: int, topic: str, partition: int) -> bool:
    """Whether a broker was told who leads: a client that asks one that was not takes the partition for none."""
    told = AdminClient({"bootstrap.servers": cluster.addresses(number)}).list_topics(topic, timeout=60).topics[topic]
    return partition in told.partitions and told.partitions[partition].leader > 0


def produce(cluster: Cluster, topic: str, count: int, *, partition: int = 0, size: int = 0, first: int = 0) -> None:
    running = [number for number, broker in cluster.brokers.items() if broker.running]
    wait_until(lambda: all(knows(cluster, number, topic, partition) for number in running), f"{topic} is not known")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures: list[Any] = []
    for number in range(first, first + count):
        value = str(number).rjust(size, "0")
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == [None] * count
