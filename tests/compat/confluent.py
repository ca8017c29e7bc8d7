"""librdkafka through confluent-kafka, as its users call it; with `settings` also as the librdkafka of older brokers."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from compat.clients import EARLIEST, LATEST, TIMEOUT_S, Client, Record, Refused, Stored
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future


def refused(error: KafkaError) -> Refused:
    """librdkafka's own errors are negative numbers, a broker's are Kafka's codes."""
    assert error.code() > 0, f"librdkafka failed by itself: {error}"
    return Refused(error.code(), error.str())


def outcome(futures: Iterable[Future[Any]]) -> Any:
    """The result of the only future of an admin call."""
    (future,) = futures
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as failure:
        raise refused(failure.args[0]) from failure


class Confluent(Client):
    def __init__(
        self,
        bootstrap: str,
        *,
        name: str = "confluent-kafka",
        settings: Mapping[str, str | bool | int] | None = None,
    ) -> None:
        self.name = name
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 2, **(settings or {})}
        self._producer = cache(self._make_producer)
        self._consumer = Consumer({**self._settings, "group.id": "no-group", "enable.auto.commit": False,
                                   "fetch.wait.max.ms": 50})  # fmt: skip
        self._admin = AdminClient(dict(self._settings))

    def _make_producer(self, codec: str, acks: str, idempotent: bool) -> Producer:
        return Producer({**self._settings, "compression.codec": codec, "acks": acks, "enable.idempotence": idempotent,
                         "linger.ms": 20, "message.max.bytes": 2_000_000})  # fmt: skip

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = self._producer(codec, acks, idempotent)
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset())  # type: ignore[arg-type]
            else:
                errors.append(error)

        for record in records:
            more: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
            if record.headers:
                more["headers"] = list(record.headers)
            send = partial(producer.produce, topic, record.value, record.key, partition=partition, on_delivery=report)
            try:
                send(**more)
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                # A partition younger than what the producer knows of the topic.
                producer.list_topics(topic, TIMEOUT_S)
                send(**more)
        assert producer.flush(TIMEOUT_S) == 0, "messages left in the queue"
        if errors:
            raise refused(errors[0])
        return offsets

    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[Stored]:
        start = OFFSET_BEGINNING if offset == EARLIEST else offset
        self._consumer.list_topics(topic, TIMEOUT_S)  # else librdkafka looks for a topic's leader once a second only
        self._consumer.assign([TopicPartition(topic, partition, start)])
        stored: list[Stored] = []
        while len(stored) < count:
            messages = self._consumer.consume(count - len(stored), TIMEOUT_S)
            assert messages, f"{len(stored)} of {count} records within {TIMEOUT_S} s"
            stored += [self._stored(message) for message in messages]
        self._consumer.unassign()
        return stored

    @staticmethod
    def _stored(message: Message) -> Stored:
        if (error := message.error()) is not None:
            raise refused(error)
        kind, moment = message.timestamp()
        offset, headers = message.offset(), tuple(message.headers() or ())
        assert offset is not None
        timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else moment
        return Stored(offset, Record(timestamp, message.key(), message.value(), headers))  # type: ignore[arg-type]

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition, timestamp)
        if timestamp in (EARLIEST, LATEST):
            low, high = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
            return low if timestamp == EARLIEST else high
        (found,) = self._consumer.offsets_for_times([place], TIMEOUT_S)
        if found.error is not None:
            raise refused(found.error)
        return found.offset if found.offset >= 0 else None

    def partitions(self, topic: str) -> int:
        found = self._admin.list_topics(topic, TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise refused(found.error)
        return len(found.partitions)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        outcome(self._admin.create_topics([new]).values())

    def delete(self, topic: str) -> None:
        outcome(self._admin.delete_topics([topic]).values())

    def grow(self, topic: str, total: int) -> None:
        outcome(self._admin.create_partitions([NewPartitions(topic, total)]).values())

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = outcome(self._admin.describe_configs([resource]).values())
        return {name: entry.value for name, entry in found.items()}

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        outcome(self._admin.incremental_alter_configs([resource]).values())

    def trim(self, topic: str, offset: int, *, partition: int = 0) -> int:
        deleted = outcome(self._admin.delete_records([TopicPartition(topic, partition, offset)]).values())
        return int(deleted.low_watermark)

    def close(self) -> None:
        self._consumer.close()
