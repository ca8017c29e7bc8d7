"""Clients that work while brokers are restarted or killed: what reaches them, and what the replicas have in the end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError
from waiting import wait_until

if TYPE_CHECKING:
    from scenarios.stage import Stage

PARTITIONS = 3
RATE = 200  # records in a second
# A connection that ends is not an error: clients dial again, and say so in their log.
CONNECTING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


class Load:
    """An idempotent producer and a member of a group, and every error that they are told of."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.errors: Counter[str] = Counter()
        self.written: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.read: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._stage = stage
        self._topic = topic
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._consume)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: sum(map(len, self.read)) > RATE, "the load has begun")
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(240)
            assert not thread.is_alive()

    def _told(self, error: Any) -> None:
        if error.code() not in CONNECTING:
            self.errors[f"client {error.name()}"] += 1

    def _write(self) -> None:
        producer = self._stage.producer(enable_idempotence=True, error_cb=self._told, linger_ms=5)
        count = 0
        while not self._ending.wait(1 / RATE):
            partition, count = count % PARTITIONS, count + 1
            producer.produce(self._topic, str(count), partition=partition, on_delivery=self._delivered)
            producer.poll(0)
        assert producer.flush(120) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written[message.partition()].append(message.value().decode())
        else:
            self.errors[f"delivery {error.name()}"] += 1

    def _consume(self) -> None:
        settings = {"group_id": f"{self._topic}-group", "error_cb": self._told, "session_timeout_ms": 45_000}
        consumer = self._stage.consumer(enable_auto_commit=True, **settings)
        consumer.subscribe([self._topic])
        while self._threads[0].is_alive() or any(set(read) != set(written) for read, written in self.pairs):
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    self.read[message.partition()].append(message.value().decode())
                else:
                    self.errors[f"consumer {message.error().name()}"] += 1
        consumer.close()

    @property
    def pairs(self) -> list[tuple[list[str], list[str]]]:
        return list(zip(self.read, self.written, strict=True))

    def examine(self) -> None:
        """Everything was read in its order, and the replicas have it once each, in the same bytes."""
        for index, (read, written) in enumerate(self.pairs):
            assert list(dict.fromkeys(read)) == written
            assert self._stage.read(self._topic, partition=index) == written
            self._stage.in_sync(self._topic, index, (1, 2, 3))
            self._stage.identical(self._topic, index)


def topic_of(stage: Stage) -> str:
    return stage.topic([1, 2, 3], [2, 3, 1], [3, 1, 2], min_insync_replicas="2")


def test_no_error_reaches_a_client_when_brokers_are_restarted_one_by_one(stage: Stage) -> None:
    topic = topic_of(stage)
    with Load(stage, topic) as load:
        for number in (1, 2, 3):
            stage.cluster.restart(number)
            for index in range(PARTITIONS):
                stage.in_sync(topic, index, (1, 2, 3))
    assert load.errors == {}
    load.examine()
    for read, written in load.pairs:
        assert read == written, "nothing was read twice"


def test_nothing_is_lost_or_doubled_when_leaders_are_killed(stage: Stage) -> None:
    topic = topic_of(stage)
    with Load(stage, topic) as load:
        for number in (2, 3):
            stage.kill(number)
            stage.led_by(topic, number - 1, lambda leader, dead=number: leader not in (None, dead))
            stage.cluster.start(number)
            stage.in_sync(topic, 0, (1, 2, 3))
    assert load.errors == {}, "an idempotent producer tries again until it is acknowledged"
    load.examine()
