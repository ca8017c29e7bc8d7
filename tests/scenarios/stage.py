"""The stage of the scenarios: one cluster of real processes, and the things that they all do with it.

Topics are made with the replicas that the scenario names, so that it knows who leads. Before each scenario every broker
runs and is known; what a scenario breaks it need not mend.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from scenarios import raw
from waiting import wait_until

from ottla.client.connection import Connection
from ottla.cluster import znodes
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.testing import Cluster

SESSION_MS = 6000  # long enough for a busy machine
QUIET: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000}
counter = itertools.count()


class Stage:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.settings = {"bootstrap.servers": cluster.bootstrap, **QUIET}
        self.admin = AdminClient(self.settings)
        self._open: dict[tuple[int, int], Connection] = {}  # by number and process

    # Brokers.

    def ready(self) -> None:
        """Every broker runs and is registered."""
        self.dismiss()
        for number, broker in self.cluster.brokers.items():
            if broker.running:
                broker.resume()
            else:
                broker.kill()
                self.cluster.start(number)
        wait_until(lambda: self.registered() >= set(self.cluster.numbers), "every broker is registered")

    def registered(self) -> set[int]:
        with self.cluster.store() as store:
            return {int(name) for name in store.get_children(znodes.BROKERS)}

    def kill(self, number: int) -> None:
        """A broker dies, and its session ends at once; `cluster.kill` leaves it to end by itself."""
        self.cluster.kill(number, expire=True)

    def broker(self, number: int) -> Connection:
        """A connection to this very broker."""
        life = (number, self.cluster.brokers[number].pid)
        known = self._open.get(life)
        if known is None or not known.alive:
            known = self._open[life] = Connection(("127.0.0.1", self.cluster.port(number)))
        return known

    def dismiss(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    # Topics.

    def topic(self, *replicas: Sequence[int], **configs: str) -> str:
        """A new topic with these replicas, the leader first; all of them are in sync when it is returned."""
        name = f"scenario-{next(counter)}"
        self.create(name, *replicas, **configs)
        for index, wanted in enumerate(replicas):
            self.in_sync(name, index, wanted)
        wait_until(lambda: all(self.is_known(name, number) for number in self.cluster.numbers), f"{name} is known")
        return name

    def is_known(self, topic: str, number: int) -> bool:
        """Whether a broker was told of a topic."""
        told = raw.metadata_of(self.broker(number), topic)
        return told.error_code == ErrorCode.NONE and all(one.leader_id >= 0 for one in told.partitions)

    def create(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        wish = NewTopic(
            name,
            len(replicas),
            replica_assignment=[list(one) for one in replicas],
            config=named(configs),
        )
        self.decided(lambda: self.admin.create_topics([wish])[name].result(60))

    def delete(self, name: str) -> None:
        self.decided(lambda: self.admin.delete_topics([name])[name].result(60))

    def set_config(self, topic: str, key: str, value: str) -> None:
        change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def decided(self, ask: Callable[[], Any]) -> Any:
        """The controller's answer. The client does not ask another one by itself when the controller has changed."""
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(ask())
            except KafkaException as error:
                if error.args[0].code() != ErrorCode.NOT_CONTROLLER:
                    raise
                self.admin.list_topics(timeout=10)
                return False
            return True

        wait_until(answered, "the controller answers")
        return answers[0]

    def in_sync(self, topic: str, index: int, wanted: Iterable[int]) -> None:
        """Wait until these and no others are in sync."""
        expected = set(wanted)
        wait_until(
            lambda: (state := self.cluster.state(topic, index)) is not None and set(state["isr"]) == expected,
            lambda: f"{expected} in sync for {topic}-{index}: {self.cluster.state(topic, index)}",
        )

    def led_by(self, topic: str, index: int, allowed: Callable[[int | None], bool]) -> int | None:
        """Wait until ZooKeeper says so, and who it is."""

        def look() -> tuple[int | None] | None:
            leader = self.cluster.leader(topic, index)
            return (leader,) if allowed(leader) else None

        return wait_until(look, lambda: f"the leader of {topic}-{index}: {self.cluster.state(topic, index)}")[0]

    # Records.

    def producer(self, **settings: Any) -> Producer:
        return Producer({**self.settings, "linger.ms": 0, **named(settings)})

    def write(self, topic: str, values: Iterable[object], *, partition: int = 0, acks: int | str = "all") -> list[str]:
        """Write one by one, each when the one before is acknowledged; all of them must be."""
        producer = self.producer(acks=acks)
        failed: list[Any] = []
        done = []
        for value in values:
            producer.produce(
                topic, str(value), partition=partition, on_delivery=lambda error, _: error and failed.append(error)
            )
            assert producer.flush(60) == 0
            done.append(str(value))
        assert not failed, failed
        return done

    def read(self, topic: str, *, partition: int = 0, **settings: Any) -> list[str]:
        """Everything that a consumer sees in a partition, once its end is known."""
        consumer = self.consumer(**settings)
        try:
            where = TopicPartition(topic, partition)

            def ask() -> tuple[int, int] | None:
                try:
                    return consumer.get_watermark_offsets(where, timeout=5)
                except KafkaException:
                    return None

            low, high = wait_until(ask, f"the end of {topic}-{partition}")
            consumer.assign([TopicPartition(topic, partition, low)])
            found = []
            deadline = time.monotonic() + 60
            while True:
                (position,) = consumer.position([where])
                if max(position.offset, low) >= high:
                    return found
                assert time.monotonic() < deadline, f"{topic}-{partition} cannot be read to {high}: {len(found)}"
                messages = consumer.consume(1000, 0.2)
                found += [message.value().decode() for message in messages if message.error() is None]
        finally:
            consumer.close()

    def consumer(self, **settings: Any) -> Consumer:
        defaults = {"group.id": "reader", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}
        return Consumer({**self.settings, **defaults, "enable.auto.commit": False, **named(settings)})

    # Files.

    def identical(self, topic: str, index: int = 0) -> None:
        """Every replica has the same bytes in its segments; a follower may need a moment for the last ones."""
        state = self.cluster.state(topic, index)
        assert state is not None

        def contents() -> dict[int, tuple[tuple[str, bytes], ...]]:
            return {number: self.content(number, topic, index) for number in state["isr"]}

        def sizes() -> str:
            found = {number: [(name, len(data)) for name, data in files] for number, files in contents().items()}
            return f"{topic}-{index} differs: {found}"

        wait_until(lambda: len(set(contents().values())) == 1, sizes)
        assert all(contents().values()), f"{topic}-{index} has no files"

    def content(self, number: int, topic: str, index: int) -> tuple[tuple[str, bytes], ...]:
        """The segments of one replica: their names and bytes."""
        folder = self.cluster.folder / f"broker-{number}" / f"{topic}-{index}"
        return tuple((path.name, path.read_bytes()) for path in sorted(folder.glob("*.log")))


def named(settings: dict[str, Any]) -> dict[str, Any]:
    """As Kafka spells them; callbacks have underscores in their names."""
    return {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in settings.items()}
