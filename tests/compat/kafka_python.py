"""kafka-python as its users call it."""

from __future__ import annotations

import re
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from compat.clients import EARLIEST, LATEST, TIMEOUT_S, Client, Record, Refused, Stored
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import BrokerResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def asked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


class KafkaPython(Client):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = cache(self._make_producer)
        self._producers: list[KafkaProducer] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def _make_producer(self, codec: str, acks: str, idempotent: bool) -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=2_000_000,
        )
        self._producers.append(producer)
        return producer

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
        futures = [
            producer.send(
                topic,
                record.value,
                record.key,
                list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        return [asked(partial(future.get, TIMEOUT_S)).offset for future in futures]

    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[Stored]:
        place = TopicPartition(topic, partition)
        self._consumer.assign([place])
        if offset == EARLIEST:
            self._consumer.seek_to_beginning(place)
        else:
            self._consumer.seek(place, offset)
        stored: list[Stored] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(stored) < count:
            assert time.monotonic() < deadline, f"{len(stored)} of {count} records within {TIMEOUT_S} s"
            batches = self._consumer.poll(timeout_ms=1000, max_records=count - len(stored))
            stored += [
                Stored(found.offset, Record(found.timestamp, found.key, found.value, tuple(found.headers)))
                for found in batches.get(place, [])
            ]
        return stored

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        if timestamp == EARLIEST:
            return int(self._consumer.beginning_offsets([place])[place])
        if timestamp == LATEST:
            return int(self._consumer.end_offsets([place])[place])
        found = self._consumer.offsets_for_times({place: timestamp})[place]
        return None if found is None else int(found.offset)

    def partitions(self, topic: str) -> int:
        (found,) = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"])
        return len(found["partitions"])

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        asked(lambda: self._admin.create_topics({topic: wanted}))

    def delete(self, topic: str) -> None:
        asked(lambda: self._admin.delete_topics([topic]))

    def grow(self, topic: str, total: int) -> None:
        asked(lambda: self._admin.create_partitions({topic: total}))

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = asked(lambda: self._admin.describe_configs([resource], config_filter="all"))
        return {name: value["value"] for name, value in found["topic"][topic].items()}

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        said = asked(lambda: self._admin.alter_configs([resource]))["topic"][topic]
        if found := re.match(r"\[Error (\d+)\]", said):  # this call hands errors over as text
            raise Refused(int(found[1]), said)
        assert said == "OK", said

    def trim(self, topic: str, offset: int, *, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        found = asked(lambda: self._admin.delete_records({place: offset}))[place]
        if found["error_code"]:
            raise Refused(found["error_code"])
        return int(found["low_watermark"])

    def close(self) -> None:
        for producer in self._producers:
            producer.close(timeout=1)
        self._consumer.close()
        self._admin.close()
