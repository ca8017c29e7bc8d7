"""DescribeProducers: who has written to a partition."""

from pathlib import Path

from confluent_kafka import Producer
from handlers.conftest import port_of
from handlers.test_topics import create
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.wire.messages.transactions import DescribeProducersRequest, TopicRequest


def test_an_idempotent_producer_is_seen_with_its_last_sequence(tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        create(wired, "t")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(3):
            producer.produce("t", b"%d" % number)
        producer.flush(20)
        response = wired.ask(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]), 0)
        (partition,) = response.topics[0].partitions
        (active,) = partition.active_producers
        assert (partition.error_code, active.producer_epoch, active.last_sequence) == (0, 0, 2)
        assert active.last_timestamp > 1_600_000_000_000
        assert active.current_txn_start_offset == -1
