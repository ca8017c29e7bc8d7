"""MirrorMaker 2, unmodified, from Apache Kafka to Ottla and back: records, their order, options, offsets of groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import judge
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from exactly_once.apache import program
from exactly_once.reading import committed
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from exactly_once.conftest import Mortal, MortalKafka

pytestmark = pytest.mark.xdist_group("apache-programs")

MIRROR: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
PARTITIONS: Final = 2
COUNT: Final = 300  # of each of two fillings, over the partitions
NOW_MS: Final = int(time.time() * 1000) - 3_600_000


class Found(NamedTuple):
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int


def properties(kafka: str, ottla: str) -> dict[str, str]:
    common = {
        "clusters": "kafka, ottla",
        "kafka.bootstrap.servers": kafka,
        "ottla.bootstrap.servers": ottla,
        "replication.factor": "1",
        "tasks.max": "1",
        "dedicated.mode.enable.internal.rest": "false",
        "refresh.topics.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
        "sync.topic.configs.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.heartbeats.enabled": "false",
        "offset.lag.max": "0",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    factors = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage",
               "config.storage")  # fmt: skip
    common |= {f"{name}.replication.factor": "1" for name in factors}
    for way, topic in (("kafka->ottla", "orders"), ("ottla->kafka", "trades")):
        common |= {f"{way}.enabled": "true", f"{way}.topics": topic, f"{way}.groups": "clerks"}
    return common


def fill(bootstrap: str, topic: str, start: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for at in range(start, start + COUNT):
        producer.produce(topic, b"value %d" % at, b"key %d" % at, at % PARTITIONS, headers=[("at", b"%d" % at)],
                         timestamp=NOW_MS + at)  # fmt: skip
    assert producer.flush(60) == 0


def content(bootstrap: str, topic: str) -> list[list[Found]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "log_level": 2})  # fmt: skip
    known = consumer.list_topics(timeout=10).topics
    found: list[list[Found]] = [[] for _ in range(PARTITIONS)]
    if topic in known and len(known[topic].partitions) == PARTITIONS:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        open_ends = set(range(PARTITIONS))
        while open_ends:
            for message in consumer.consume(500, 0.1):
                if message.error() is not None:
                    open_ends.discard(message.partition())
                else:
                    one = Found(message.key(), message.value(), message.headers(), message.timestamp()[1])
                    found[message.partition()].append(one)
    consumer.close()
    return found


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """As a member of the group would; MirrorMaker asks the broker who is in it and how far it has come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    consumer.commit(offsets=[TopicPartition(topic, index, offset) for index in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def described(bootstrap: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items()}


class Way(NamedTuple):
    """From here to there, under another name."""

    here: str
    there: str
    topic: str
    mirrored: str

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.here, "log_level": 2})
        new = NewTopic(self.topic, PARTITIONS, 1, config={"max.message.bytes": "123456"})
        admin.create_topics([new])[self.topic].result(30)
        fill(self.here, self.topic, 0)

    def wait(self) -> None:
        wanted = content(self.here, self.topic)
        wait_until(lambda: content(self.there, self.mirrored) == wanted, f"{self.mirrored} is there", 120)

    def check(self) -> None:
        self.wait()
        ends = [len(values) for values in content(self.there, self.mirrored)]
        assert ends == [COUNT, COUNT], "both fillings, in both partitions"
        assert described(self.there, self.mirrored)["max.message.bytes"] == "123456", "options travel too"
        commit(self.here, "clerks", self.topic, COUNT)
        wanted = dict(enumerate(ends))
        wait_until(
            lambda: committed(self.there, "clerks", self.mirrored, PARTITIONS) == wanted, f"clerks of {self.mirrored}"
        )


def test_topics_and_groups_are_mirrored_both_ways(own_broker: Mortal | MortalKafka, tmp_path: Path) -> None:
    with judge.Kafka(tmp_path / "kafka") as kafka:
        ways = (
            Way(kafka.bootstrap, own_broker.bootstrap, "orders", "kafka.orders"),
            Way(own_broker.bootstrap, kafka.bootstrap, "trades", "ottla.trades"),
        )
        for way in ways:
            way.prepare()
        settings = tmp_path / "mirror.properties"
        lines = properties(kafka.bootstrap, own_broker.bootstrap).items()
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines))
        with program("connect", MIRROR, [str(settings)], tmp_path / "mirror.log"):
            for way in ways:
                way.wait()
                fill(way.here, way.topic, COUNT)
            for way in ways:
                way.check()
