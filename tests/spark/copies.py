"""The contents of two clusters, read by librdkafka (read_committed), to be compared record by record."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.cluster import TopicPartition as Where
from ottla.client.fetching import fetch
from ottla.client.offsets import earliest, latest
from ottla.records import batch

if TYPE_CHECKING:
    from judge import Kafka
    from process import Ottla

    Broker = Ottla | Kafka

WAIT_S: Final = 90.0

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def content(broker: Broker, topic: str) -> dict[int, list[Content]]:
    """Partition → (timestamp, key, value, headers) of every committed record, in order."""
    return {index: [one[1] for one in some] for index, some in placed(broker, topic).items()}


def placed(broker: Broker, topic: str, **settings: Any) -> dict[int, list[tuple[int, Content]]]:
    """The same with their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "log_level": 2,
            **settings,
        }
    )
    partitions = len(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[tuple[int, Content]]] = {index: [] for index in range(partitions)}
    left, deadline = set(found), time.monotonic() + WAIT_S
    while left:
        assert time.monotonic() < deadline, f"no end of {topic} partitions {left}"
        for message in consumer.consume(1000, 0.1):
            index = message.partition()
            assert index is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(index)
                continue
            kind, moment = message.timestamp()
            moment = -1 if kind == TIMESTAMP_NOT_AVAILABLE else moment  # as the newer formats say it
            headers = tuple(message.headers() or ())
            found[index].append((message.offset(), (moment, message.key(), message.value(), headers)))  # type: ignore[arg-type]
    consumer.close()
    return found


def codecs(broker: Broker, topic: str) -> list[list[int]]:
    """The codec of each batch of records, partition by partition."""
    found = []
    with Cluster(broker.bootstrap) as cluster:
        for index in range(cluster.topics([topic])[topic].partitions):
            where = Where(topic, index)
            start, stop = earliest(cluster, [where])[where], latest(cluster, [where])[where]
            heads = [
                batch.header(piece.data, entry.position)
                for piece in fetch(cluster, where, start=start, stop=stop)
                for entry in batch.entries(piece.data)
            ]
            found.append([head.codec for head in heads if not head.control])
    return found
