"""Topics for the tests of streams: created, filled, trimmed and deleted by librdkafka, not by our own client."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WAIT_S = 90.0
_numbers = itertools.count()


class Topics:
    """One cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.producer = self._producer()

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5})

    def make(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic of this name. If the name ends with a dash, it is completed to a new one."""
        name = f"{name}{next(_numbers)}" if name.endswith("-") else name
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        self.admin.create_topics([topic])[name].result(WAIT_S)
        wait_until(lambda: name in self.admin.list_topics(timeout=WAIT_S).topics)
        return name

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(WAIT_S)
        wait_until(lambda: len(self.admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == partitions)
        self.producer = self._producer()  # the old one would not know of them for minutes

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(WAIT_S)
        wait_until(lambda: name not in self.admin.list_topics(timeout=WAIT_S).topics)
        self.producer = self._producer()

    def cut(self, name: str, partition: int, before: int) -> None:
        """Delete the records before an offset."""
        place = TopicPartition(name, partition, before)
        self.admin.delete_records([place])[place].result(WAIT_S)

    def fill(self, name: str, values: Sequence[str], partition: int | None = None) -> None:
        """One record each, round robin over the partitions or all into one."""
        partitions = len(self.admin.list_topics(name, timeout=WAIT_S).topics[name].partitions)
        for number, value in enumerate(values):
            place = number % partitions if partition is None else partition
            self.producer.produce(name, value.encode(), partition=place, on_delivery=delivered)
            self.producer.poll(0)
        assert self.producer.flush(WAIT_S) == 0


def delivered(error: object, message: object) -> None:
    assert error is None, error


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


def letters(bootstrap: str, topic: str) -> list[tuple[int, int, str, bytes]]:
    """Dead letters of records that could not be read: where each came from, why it is here, its value; in order."""
    found = []
    for message in committed(bootstrap, topic):
        headers = dict(message.headers())
        place = (int(headers["ottla.dead.partition"]), int(headers["ottla.dead.offset"]))
        found.append((*place, headers["ottla.dead.reason"].decode(), message.value()))
    return sorted(found)


def committed(bootstrap: str, topic: str) -> list[Any]:
    """Every record of a topic that was committed, partition by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{topic} does not end"
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
