"""Requests between brokers about transactions: Apache Kafka 3.9 and Ottla give the same answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import judge
from coord.pair import port_of

from ottla import BrokerThread
from ottla.cluster.image import Broker
from ottla.cluster.peers import Connections
from ottla.errors import ErrorCode
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    InitProducerIdRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = {"transaction.state.log.num.partitions": "2", "transaction.state.log.replication.factor": "1"}
OPTIONS |= {"transaction.state.log.min.isr": "1", "offsets.topic.num.partitions": "1"}
LISTENER = "ANY"
WAIT_S = 60.0


class Story:
    def __init__(self, port: int) -> None:
        self._broker = Broker(1, {LISTENER: ("127.0.0.1", port)}, None, -1)
        self._peers = Connections(LISTENER)
        self.told: list[Any] = []

    async def run(self) -> list[Any]:
        try:
            await asyncio.wait_for(self._play(), WAIT_S)
        finally:
            await self._peers.close()
        return self.told

    async def ask(self, request: Any, version: int | None) -> Any:
        return await self._peers.ask(self._broker, request, version=version)

    async def until(self, request: Any, version: int, ready: Callable[[Any], bool]) -> Any:
        while not ready(answer := await self.ask(request, version)):
            await asyncio.sleep(0.1)
        return answer

    async def _play(self) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        find = FindCoordinatorRequest(key="x", key_type=1)
        await self.until(find, 1, lambda answer: answer.error_code == ErrorCode.NONE)
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        made = await self.until(init, 4, lambda answer: answer.error_code == ErrorCode.NONE)
        producer = (made.producer_id, made.producer_epoch)
        await self._add(producer)
        await self._verify(producer)
        await self._mark()

    async def _add(self, producer: tuple[int, int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )

        def code(answer: Any) -> int:
            found: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return found

        self.told.append(code(await self.until(request, 3, lambda answer: code(answer) == ErrorCode.NONE)))

    async def _verify(self, producer: tuple[int, int]) -> None:
        def of(name: str, producer: tuple[int, int], *, only: bool = True) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=only,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
            )

        for asked in (
            [of("x", producer), of("y", producer)],
            [of("x", (producer[0], producer[1] + 1))],
            [of("x", (producer[0] + 1, producer[1]))],
            [of("x", producer, only=False)],
            [of("x", producer)],
        ):
            for version in (4, 5, None):
                answer = await self.ask(AddPartitionsToTxnRequest(transactions=asked), version)
                codes = {
                    (one.transactional_id, topic.name, index.partition_index): ErrorCode(index.partition_error_code)
                    for one in answer.results_by_transaction
                    for topic in one.topic_results
                    for index in topic.results_by_partition
                }
                self.told.append((answer.error_code, sorted(codes.items())))

    async def _mark(self) -> None:
        for version in (0, 1):
            for producer_epoch, coordinator_epoch in ((5, 5), (5, 6), (5, 4), (4, 6), (6, 6)):
                marker = WritableTxnMarker(
                    producer_id=4444 + version,
                    producer_epoch=producer_epoch,
                    transaction_result=False,
                    coordinator_epoch=coordinator_epoch,
                    topics=[
                        WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9]),
                        WritableTxnMarkerTopic(name="gone", partition_indexes=[0]),
                    ],
                )
                answer = await self.ask(WriteTxnMarkersRequest(markers=[marker]), version)
                codes = {
                    (topic.name, one.partition_index): ErrorCode(one.error_code)
                    for topic in answer.markers[0].topics
                    for one in topic.partitions
                }
                self.told.append((answer.markers[0].producer_id, sorted(codes.items())))


def test_brokers_are_told_the_same_by_kafka_and_by_ottla() -> None:
    with judge.Kafka(version=judge.ZOOKEEPER, settings=OPTIONS) as kafka:
        theirs = asyncio.run(Story(int(kafka.bootstrap.rpartition(":")[2])).run())
    with BrokerThread(options=OPTIONS) as broker:
        ours = asyncio.run(Story(port_of(broker)).run())
    for one, other in zip(ours, theirs, strict=True):
        assert one == other
