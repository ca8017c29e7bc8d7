"""Coordinators that are killed in the middle: offsets are kept, transactions are all or nothing."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from scenarios import raw
from waiting import wait_until

from ottla.client.cluster import GROUP, TRANSACTION

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from scenarios.stage import Stage


def coordinator_of(stage: Stage, name: str, kind: int) -> int:
    def ask() -> int:
        running = next(number for number, broker in stage.cluster.brokers.items() if broker.running)
        return max(0, raw.coordinator(stage.broker(running), name, kind))

    return wait_until(ask, f"the coordinator of {name}")


def test_offsets_outlive_their_coordinator(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3])
    stage.write(topic, range(10))
    group = f"{topic}-group"
    consumer = stage.consumer(group_id=group)
    for offset in (3, 7):
        wait_until(lambda offset=offset: commit(consumer, TopicPartition(topic, 0, offset)), "it can be committed")
        former = coordinator_of(stage, group, GROUP)
        stage.kill(former)
        wait_until(lambda former=former: coordinator_of(stage, group, GROUP) != former)
        (kept,) = stage.consumer(group_id=group).committed([TopicPartition(topic, 0)], timeout=60)
        assert kept.offset == offset
        stage.ready()
    consumer.close()


def commit(consumer: Consumer, offset: TopicPartition) -> bool:
    """Whether the coordinator has taken it; the client does not always try again when that has changed."""
    try:
        consumer.commit(offsets=[offset], asynchronous=False)
    except KafkaException as error:
        if not error.args[0].retriable():
            raise
        return False
    return True


def test_two_consumers_go_on_when_their_coordinator_dies(stage: Stage) -> None:
    """Both stay members, or come back; each record is read, and after the last commit nothing is read again."""
    topic = stage.topic(*([[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]]))
    group = f"{topic}-group"
    found: Counter[str] = Counter()
    members = [Member(stage, topic, group, found) for _ in range(2)]
    for member in members:
        member.start()
    wait_until(lambda: all(member.partitions == 2 for member in members), "both have partitions")
    written = []
    for index in range(4):
        written += stage.write(topic, [f"{index} {count}" for count in range(20)], partition=index)
    former = coordinator_of(stage, group, GROUP)
    stage.kill(former)
    for index in range(4):
        written += stage.write(topic, [f"{index} {count}" for count in range(20, 40)], partition=index)
    wait_until(lambda: set(found) == set(written), lambda: f"{len(found)} of {len(written)} read")
    wait_until(lambda: coordinator_of(stage, group, GROUP) != former)
    places = [TopicPartition(topic, index) for index in range(4)]
    asking = stage.consumer(group_id=group)
    wait_until(
        lambda: [place.offset for place in asking.committed(places, timeout=60)] == [40] * 4,
        lambda: asking.committed(places, timeout=60),
    )
    asking.close()
    for member in members:
        member.end()


class Member(threading.Thread):
    """A member of a group that commits what it has read."""

    def __init__(self, stage: Stage, topic: str, group: str, found: Counter[str]) -> None:
        super().__init__(daemon=True)
        self.partitions = 0
        self._found = found
        self._ending = threading.Event()
        self._consumer = stage.consumer(group_id=group, session_timeout_ms=10_000, enable_auto_commit=True)
        self._consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self.partitions = len(partitions)

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(10, 0.1):
                if message.error() is None:
                    self._found[message.value().decode()] += 1
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join(60)
        assert not self.is_alive()


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_transaction_is_all_or_nothing_when_its_coordinator_dies(stage: Stage, ending: str) -> None:
    topic = stage.topic([1, 2, 3], [2, 3, 1])
    name = f"{topic}-transaction"
    producer = stage.producer(transactional_id=name, transaction_timeout_ms=60_000)
    producer.init_transactions(60)
    for _ in range(2):  # before the end is asked for, and after it
        producer.begin_transaction()
        for count in range(20):
            producer.produce(topic, str(count), partition=count % 2)
        producer.flush(30)
        killer = threading.Thread(target=stage.kill, args=(coordinator_of(stage, name, TRANSACTION),))
        killer.start()
        if ending == "commit":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
        killer.join()
        stage.ready()
    for index in range(2):
        expected = [str(count) for count in range(index, 20, 2)] * 2 if ending == "commit" else []
        assert stage.read(topic, partition=index, isolation_level="read_committed") == expected
        stage.in_sync(topic, index, (1, 2, 3))
        stage.identical(topic, index)


def test_a_transaction_is_all_or_nothing_when_a_leader_dies(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3], [2, 3, 1])
    producer = stage.producer(transactional_id=f"{topic}-transaction", transaction_timeout_ms=60_000)
    producer.init_transactions(60)
    for turn in range(2):
        producer.begin_transaction()
        for count in range(10):
            producer.produce(topic, f"{turn} {count}", partition=count % 2)
        if turn == 1:
            stage.kill(2)
        for count in range(10, 20):
            producer.produce(topic, f"{turn} {count}", partition=count % 2)
        producer.commit_transaction(60)
    for index in range(2):
        expected = [f"{turn} {count}" for turn in range(2) for count in range(index, 20, 2)]
        assert stage.read(topic, partition=index, isolation_level="read_committed") == expected
    stage.ready()
    for index in range(2):
        stage.in_sync(topic, index, (1, 2, 3))
        stage.identical(topic, index)


def test_a_transaction_that_nobody_ends_is_aborted_by_the_next_coordinator(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3])
    name = f"{topic}-transaction"
    producer = stage.producer(transactional_id=name, transaction_timeout_ms=4000)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "never")
    producer.flush(30)
    stage.kill(coordinator_of(stage, name, TRANSACTION))
    after = stage.write(topic, ("after",))
    wait_until(lambda: stage.read(topic, isolation_level="read_committed") == after, "the transaction has timed out")
