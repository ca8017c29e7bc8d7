"""Pipelined requests, and fetches that wait behind an open transaction, on a whole broker."""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from laws.loop.gaps import HELD_MAX, held

from ottla.embed import BrokerThread
from ottla.records import batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS, REQUESTS = 40, 400


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(data=tmp_path_factory.mktemp("broker")) as broker, Wired(port_of(broker)) as wired:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=False), 5)
        wired.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        yield broker


def test_many_connections_with_many_requests_each(broker: BrokerThread) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    peers = [Wired(port_of(broker)) for _ in range(CONNECTIONS)]

    def ask() -> None:
        released = threading.Event()
        assert broker._loop is not None
        broker._loop.call_soon_threadsafe(released.wait)  # block the loop until all requests have arrived
        for peer in peers:
            for _ in range(REQUESTS):
                peer.send(request, 9)
        released.set()
        for peer in peers:
            for _ in range(REQUESTS):
                assert peer.receive().topics[0].error_code == 0

    try:
        assert held(broker, ask) < HELD_MAX
    finally:
        for peer in peers:
            peer.__exit__(None, None, None)


def test_a_reader_of_committed_records_sleeps_while_a_transaction_is_open(broker: BrokerThread) -> None:
    with Wired(port_of(broker)) as writer, Wired(port_of(broker)) as reader:
        producer = writer.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 3)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        writer.ask(added, 3)

        def produce(sequence: int) -> None:
            data = batch.build(
                [batch.Record(0, 0, None, b"value", ())],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            partition = PartitionProduceData(index=0, records=memoryview(data))
            topic = TopicProduceData(name="t", partition_data=[partition])
            request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=1, topic_data=[topic])
            assert writer.ask(request, 9).responses[0].partition_responses[0].error_code == 0

        produce(0)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_wait_ms=20_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
            forgotten_topics_data=[],
        )
        reader.send(fetch, 11)
        for sequence in range(1, 30):
            produce(sequence)
        assert not select.select([reader._socket], [], [], 0.05)[0], "there is nothing to tell"
        end = EndTxnRequest(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        assert writer.ask(end, 3).error_code == 0
        (found,) = reader.receive().responses[0].partitions
        assert found.records
        assert found.last_stable_offset == found.high_watermark == 31


def test_a_short_question_does_not_wait_behind_long_lists(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for all topics is short, and its response takes more than one time slice."""
    monkeypatch.setattr("ottla.net.dispatch.TURN_S", 0.0)
    names = [MetadataRequestTopic(name=f"none-{number}") for number in range(10_000)]
    long = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    peers = [Wired(port_of(broker)) for _ in range(4)]
    try:
        with Wired(port_of(broker)) as wired:
            for peer in peers:
                peer.send(long, 9)
            select.select([peers[0]._socket], [], [], 60)  # the first is answered: the others have arrived and wait
            assert wired.ask(MetadataRequest(topics=None), 9).topics
            assert not select.select([peers[-1]._socket], [], [], 0)[0]
        for peer in peers:
            assert len(peer.receive().topics) == len(names)
    finally:
        for peer in peers:
            peer.__exit__(None, None, None)
