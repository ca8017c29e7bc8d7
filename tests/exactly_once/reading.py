"""What a reader sees of a partition: committed records, all records, where each of the two ends; how far groups are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from waiting import wait_until

if TYPE_CHECKING:
    from exactly_once.conftest import Mortal, MortalKafka

READ_S = 60.0
MOVING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")

ELECTING = ("UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "_NOENT")  # after a restart


def read(broker: Mortal | MortalKafka, topic: str, isolation: str, partition: int = 0) -> list[bytes]:
    """Every value up to the end that a reader of this isolation sees."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "isolation.level": isolation, "enable.partition.eof": True, "log_level": 2,
                         "fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 10})  # fmt: skip
    consumer.list_topics(topic, READ_S)  # else librdkafka looks for the leader half a second later
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    values: list[bytes] = []
    deadline = time.monotonic() + READ_S
    while True:
        assert time.monotonic() < deadline, f"no end of {topic} in {READ_S} s"
        for message in consumer.consume(500, 0.05):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                consumer.close()
                return values
            values.append(message.value())


def read_committed(broker: Mortal | MortalKafka, topic: str, partition: int = 0) -> list[bytes]:
    return read(broker, topic, "read_committed", partition)


def read_everything(broker: Mortal | MortalKafka, topic: str, partition: int = 0) -> list[bytes]:
    return read(broker, topic, "read_uncommitted", partition)


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The offsets of the group that are not in an open transaction.

    A consumer asks, because librdkafka 2.16 crashes when an admin client asks a coordinator that is still loading.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted",
                         "log_level": 2})  # fmt: skip
    places = [TopicPartition(topic, index) for index in range(partitions)]
    deadline = time.monotonic() + READ_S
    while True:
        try:
            found = consumer.committed(places, READ_S)
        except KafkaException as failure:
            if failure.args[0].name() not in MOVING or time.monotonic() > deadline:
                raise
        else:
            consumer.close()
            return {place.partition: place.offset for place in found if place.offset >= 0}


def last_stable(broker: Mortal | MortalKafka, topic: str, partition: int = 0) -> int:
    """The end that ListOffsets tells a reader of committed records."""
    return _end(broker, topic, partition, IsolationLevel.READ_COMMITTED)


def high_watermark(broker: Mortal | MortalKafka, topic: str, partition: int = 0) -> int:
    return _end(broker, topic, partition, IsolationLevel.READ_UNCOMMITTED)


def _end(broker: Mortal | MortalKafka, topic: str, partition: int, isolation: IsolationLevel) -> int:
    place = TopicPartition(topic, partition)

    def attempt() -> tuple[int] | None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        (future,) = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation).values()
        try:
            return (int(future.result(READ_S).offset),)
        except KafkaException as failure:
            if failure.args[0].name() not in ELECTING:
                raise
            return None

    return wait_until(attempt, f"{place} has no leader")[0]
