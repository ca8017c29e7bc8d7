"""aiokafka as its users call it, on an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, for_code
from compat.clients import EARLIEST, LATEST, TIMEOUT_S, Client, Record, Refused, Stored

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence


def check(code: int, message: str | None = None) -> None:
    if code:
        raise Refused(code, message or for_code(code).__name__)


class AioKafka(Client):
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._producers: dict[tuple[str, str, bool], AIOKafkaProducer] = {}
        self._run(self._open())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    async def _open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50
        )
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await self._consumer.start()
        await self._admin.start()

    async def _producer(self, codec: str, acks: str, idempotent: bool) -> AIOKafkaProducer:
        made = self._producers.get((codec, acks, idempotent))
        if made is None:
            made = self._producers[codec, acks, idempotent] = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=20,
                max_request_size=2_000_000,
            )
            await made.start()
        return made

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
        async def send() -> list[int]:
            producer = await self._producer(codec, acks, idempotent)
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            done = [await future for future in futures]
            return [-1 if found is None else found.offset for found in done]

        offsets = self._run(send())
        assert isinstance(offsets, list)
        return offsets

    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[Stored]:
        async def receive() -> list[Stored]:
            place = TopicPartition(topic, partition)
            self._consumer.assign([place])
            if offset == EARLIEST:
                await self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek(place, offset)
            stored: list[Stored] = []
            while len(stored) < count:
                found = await self._consumer.getone(place)
                record = Record(found.timestamp, found.key, found.value, tuple(found.headers))
                stored.append(Stored(found.offset, record))
            return stored

        stored = self._run(receive())
        assert isinstance(stored, list)
        return stored

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        if timestamp == EARLIEST:
            return int(self._run(self._consumer.beginning_offsets([place]))[place])
        if timestamp == LATEST:
            return int(self._run(self._consumer.end_offsets([place]))[place])
        found = self._run(self._consumer.offsets_for_times({place: timestamp}))[place]
        return None if found is None else int(found.offset)

    def partitions(self, topic: str) -> int:
        (found,) = self._run(self._admin.describe_topics([topic]))
        check(found["error_code"])
        return len(found["partitions"])

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        for _, code, *message in self._run(self._admin.create_topics([new])).topic_errors:
            check(code, *message)

    def delete(self, topic: str) -> None:
        for _, code in self._run(self._admin.delete_topics([topic])).topic_error_codes:
            check(code)

    def grow(self, topic: str, total: int) -> None:
        for _, code, message in self._run(self._admin.create_partitions({topic: NewPartitions(total)})).topic_errors:
            check(code, message)

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._run(self._admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = answer.resources
        check(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        for answer in self._run(self._admin.alter_configs([resource])):
            for code, message, *_ in answer.resources:
                check(code, message)

    def trim(self, topic: str, offset: int, *, partition: int = 0) -> int:
        place = TopicPartition(topic, partition)
        return int(self._run(self._admin.delete_records({place: RecordsToDelete(offset)}))[place])

    def close(self) -> None:
        async def stop() -> None:
            await self._consumer.stop()
            await self._admin.close()
            for producer in self._producers.values():
                await producer.stop()

        self._run(stop())
        self._loop.close()
