"""Ottla joins a running cluster of Apache Kafka, takes over, and Kafka goes: under load, and nothing is lost.

The whole story is told at Kafka's own `inter.broker.protocol.version`; the shorter ones show the older versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from compat.raw import Raw, init_producer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from mixed.load import KEYS, TOPIC, Load
from mixed.mixed import Mixed
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("mixed")
AGAIN = ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "_TIMED_OUT")
INTERNAL = ("__consumer_offsets", "__transaction_state")


def create(mixed: Mixed, topic: str, *replicas: list[int], **configs: str) -> None:
    wish = NewTopic(topic, len(replicas), replica_assignment=list(replicas), config=configs)
    decided(mixed, "TOPIC_ALREADY_EXISTS", lambda admin: admin.create_topics([wish])[topic])


def delete(mixed: Mixed, topic: str) -> None:
    decided(mixed, "UNKNOWN_TOPIC_OR_PART", lambda admin: admin.delete_topics([topic])[topic])
    wait_until(lambda: topic not in mixed.topics() and not any(mixed.folders(topic)), lambda: mixed.folders(topic))


def decided(mixed: Mixed, done: str, ask: Callable[[AdminClient], Any]) -> None:
    """Ask until there is an answer: the client does not look for another controller by itself."""
    said: list[str] = []

    def answered() -> bool:
        admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
        try:
            ask(admin).result(60)
        except KafkaException as error:
            said.append(error.args[0].name())
            if said[-1] not in (done, *AGAIN):
                raise
            return said[-1] == done and len(said) > 1
        return True

    wait_until(answered, lambda: said)


def lead(mixed: Mixed, *replicas: list[int]) -> None:
    """Move the partitions of the loaded topic; the first replica of each leads."""
    mixed.reassign(dict(zip(KEYS, replicas, strict=True)))
    mixed.elect_preferred(*KEYS)


def write_transaction(mixed: Mixed, topic: str, value: str) -> None:
    """One transaction, of the producer `mover`, that also commits an offset."""
    group = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": "moved"})
    # The group has a coordinator before the producer looks for it: librdkafka may wait for ever for a late one.
    group.committed([TopicPartition(topic, 0)], timeout=60)
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": "mover"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    offset = TopicPartition(topic, 0, len(value))
    producer.send_offsets_to_transaction([offset], group.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    assert group.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == len(value)
    group.close()


def read_committed(mixed: Mixed, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value().decode() for message in consumer.consume(count, 60)]
    consumer.close()
    return values


def producer_ids(mixed: Mixed) -> set[int]:
    """One from every broker; each takes them from a block that the controller, of either kind, has given it."""
    found = [init_producer(Raw(int(broker.bootstrap.rpartition(":")[2])))[0] for broker in mixed.brokers.values()]
    assert len(set(found)) == len(found)
    return set(found)


def restart_kafka(mixed: Mixed, number: int) -> None:
    mixed.stop(number)
    wait_until(lambda: number not in mixed.live())
    mixed.start_kafka(number)
    wait_until(lambda: in_sync(mixed), lambda: mixed.describe(KEYS))


def kill_ottla(mixed: Mixed, number: int) -> None:
    mixed.ottla[number].kill()
    mixed.start_ottla(number)
    wait_until(lambda: in_sync(mixed), lambda: mixed.describe(KEYS))


def kill_kafka(mixed: Mixed, load: Load, number: int) -> None:
    """Nobody is told: others find out when its session ends."""
    mixed.kafka[number].stop(kill=True)
    wait_until(lambda: number not in mixed.live() and mixed.controller() not in (number, -1))
    load.go_on()
    mixed.start_kafka(number)
    wait_until(lambda: in_sync(mixed), lambda: mixed.describe(KEYS))


def in_sync(mixed: Mixed) -> bool:
    return all(
        set(mixed.state(topic, index)["isr"]) == set(replicas)
        for topic in mixed.topics()
        for index, replicas in mixed.replicas(topic).items()
    )


def retire_kafka(mixed: Mixed) -> None:
    """Everything moves to the brokers that stay, a different one first each time; then Kafka stops."""
    staying = sorted(mixed.ottla)
    partitions = [(topic, index) for topic in mixed.topics() for index in mixed.replicas(topic)]
    mixed.reassign({key: staying[at % 2 :] + staying[: at % 2] for at, key in enumerate(partitions)})
    mixed.elect_preferred(*partitions)
    for number in list(mixed.kafka):
        mixed.stop(number)
    wait_until(lambda: mixed.live() == set(staying))


@pytest.mark.timeout(600)
def test_ottla_joins_apache_kafka_and_takes_over(tmp_path: Path) -> None:
    with Mixed(tmp_path) as mixed:
        mixed.start_kafka(1, 2)
        create(mixed, TOPIC, [1, 2], [2, 1], [1, 2])
        create(mixed, "money", [1, 2])
        write_transaction(mixed, "money", "a")
        with Load(mixed) as load:
            mixed.start_ottla(11, 12)
            assert mixed.controller() in mixed.kafka, "who comes takes no office"
            ids = producer_ids(mixed)

            lead(mixed, [11, 1], [12, 2], [2, 11])
            load.go_on()
            kill_ottla(mixed, 12)
            load.go_on()

            mixed.elect_controller(11)
            lead(mixed, [1, 11], [2, 12], [12, 1])
            load.go_on()
            create(mixed, "new", [1, 12], [12, 2])
            mixed.reassign({("money", 0): [12, 2]})
            mixed.elect_preferred(("money", 0))
            write_transaction(mixed, "money", "bb")
            restart_kafka(mixed, 2)
            assert ids.isdisjoint(producer_ids(mixed))
            delete(mixed, "new")

            mixed.elect_controller(1)
            lead(mixed, [12, 1], [11, 2], [1, 12])
            mixed.reassign(
                {("money", 0): [2, 12], **{(topic, index): [11, 2] for topic in INTERNAL for index in (0, 1)}}
            )
            mixed.elect_preferred(("money", 0), *((topic, index) for topic in INTERNAL for index in (0, 1)))
            write_transaction(mixed, "money", "ccc")
            kill_kafka(mixed, load, 1)

            mixed.elect_controller(12)
            retire_kafka(mixed)
            load.go_on()
        write_transaction(mixed, "money", "dddd")
        assert read_committed(mixed, "money", 4) == ["a", "bb", "ccc", "dddd"]
        assert all(set(replicas) == {11, 12} for topic in INTERNAL for replicas in mixed.replicas(topic).values())
        load.check()
        assert mixed.faults() == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["2.8", "2.3"])
def test_older_protocol_versions(tmp_path: Path, protocol: str) -> None:
    with Mixed(tmp_path, protocol=protocol) as mixed:
        mixed.start_kafka(1)
        create(mixed, TOPIC, [1], [1], [1])
        with Load(mixed) as load:
            mixed.start_ottla(11, 12)
            lead(mixed, [11, 1], [12, 1], [1, 11])
            kill_ottla(mixed, 12)
            load.go_on()
            mixed.elect_controller(11)
            lead(mixed, [1, 11], [11, 1], [12, 1])
            load.go_on()
            mixed.elect_controller(1)
            kill_ottla(mixed, 11)
            lead(mixed, [11, 1], [1, 12], [12, 11])
            load.go_on()
            mixed.elect_controller(12)
            retire_kafka(mixed)
            load.go_on()
        load.check()
        assert mixed.faults() == []
