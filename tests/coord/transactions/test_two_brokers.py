"""Transactions whose coordinator, partitions and groups are on different brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from coord.pair import on_loop, pair, parts_of, port_of
from handlers.test_transactions import add, end, init, produce, read
from handlers.wired import Wired
from waiting import wait_until

from ottla.errors import ErrorCode
from ottla.wire.messages.commits import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import BrokerThread

WAIT_S = 10.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[BrokerThread, BrokerThread]]:
    with pair() as both:
        yield both


@pytest.fixture
def wires(brokers: tuple[BrokerThread, BrokerThread]) -> Iterator[tuple[Wired, Wired]]:
    with Wired(port_of(brokers[0])) as first, Wired(port_of(brokers[1])) as second:
        yield first, second


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("newer", [True, False])
def test_markers_reach_a_partition_that_another_broker_leads(
    wires: tuple[Wired, Wired], name: str, *, newer: bool, commit: bool
) -> None:
    """In the newer protocol the leader adds the partition to the transaction when the first batch arrives."""
    near, far = wires
    before = read(far, "far", committed=True)
    producer = (init(near, name).producer_id, 0)
    if not newer:
        assert add(near, name, producer, "far") == ErrorCode.NONE
    assert produce(far, name, producer, "far", name.encode(), 0, 12 if newer else 9).error_code == ErrorCode.NONE
    assert read(far, "far", committed=True) == before, "it is open"
    assert end(near, name, producer, 5 if newer else 3, commit=commit).error_code == ErrorCode.NONE
    if commit:
        wait_until(lambda: read(far, "far", committed=True) == [*before, name.encode()])
    else:
        wait_until(lambda: init(near, name).error_code == ErrorCode.NONE)
        assert read(far, "far", committed=True) == before


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_batch_that_belongs_to_no_transaction_is_refused_by_a_leader_who_has_to_ask(
    wires: tuple[Wired, Wired], name: str, version: int, code: ErrorCode
) -> None:
    near, far = wires
    producer = (init(near, name).producer_id, 0)
    before = read(far, "far", committed=False)
    assert produce(far, name, producer, "far", b"stray", 0, version).error_code == code
    stale = (producer[0], 7)
    assert produce(far, name, stale, "far", b"stray", 0, 12).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert read(far, "far", committed=False) == before


def test_what_a_connection_sends_stays_in_order_behind_a_batch_that_waits(
    wires: tuple[Wired, Wired], name: str
) -> None:
    """The first batch waits for the other broker. The second one, of the same size, must not overtake it."""
    near, far = wires
    producer = (init(near, name).producer_id, 0)
    assert add(near, name, producer, "far") == ErrorCode.NONE
    before = len(read(far, "far", committed=False))
    for sequence in range(5):
        send_one(far, name, producer, b"%d" % sequence, sequence)
    codes = [far.receive().responses[0].partition_responses[0].error_code for _ in range(5)]
    assert codes == [0] * 5
    assert read(far, "far", committed=False)[before:] == [b"%d" % sequence for sequence in range(5)]
    assert end(near, name, producer, commit=True).error_code == ErrorCode.NONE


def send_one(wired: Wired, name: str, producer: tuple[int, int], value: bytes, sequence: int) -> None:
    class Sending:
        def ask(self, request: Any, version: int) -> Any:
            wired.send(request, version)
            raise StopIteration

    with pytest.raises(StopIteration):
        produce(Sending(), name, producer, "far", value, sequence)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_a_group_elsewhere_are_committed_with_the_transaction(
    wires: tuple[Wired, Wired], name: str, version: int
) -> None:
    near, far = wires
    producer = (init(near, name).producer_id, 0)
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name="near",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
                ],
            )
        ],
    )
    if version < 5:
        assert far.ask(request, version).topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
        added = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=name
        )
        assert near.ask(added, 3).error_code == ErrorCode.NONE
    assert far.ask(request, version).topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = OffsetFetchRequest(
        group_id=name, topics=[OffsetFetchRequestTopic(name="near", partition_indexes=[0])], require_stable=True
    )
    assert far.ask(wanted, 7).topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert end(near, name, producer, 5 if version >= 5 else 3, commit=True).error_code == ErrorCode.NONE
    wait_until(lambda: far.ask(wanted, 7).topics[0].partitions[0].committed_offset == 7)


def test_both_brokers_tell_of_both(brokers: tuple[BrokerThread, BrokerThread], wires: tuple[Wired, Wired]) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="far")], allow_auto_topic_creation=False)
    for wired in wires:
        answer = wired.ask(asked, 9)
        assert {one.node_id: one.port for one in answer.brokers} == {1: port_of(brokers[0]), 2: port_of(brokers[1])}
        assert answer.topics[0].partitions[0].leader_id == 2


def test_a_client_copies_exactly_once_over_both(brokers: tuple[BrokerThread, BrokerThread]) -> None:
    bootstrap = {"bootstrap.servers": brokers[0].bootstrap}
    producer = Producer(bootstrap | {"transactional.id": "copier"})
    producer.init_transactions(10)
    group = Consumer(bootstrap | {"group.id": "copiers", "enable.auto.commit": False})
    for round_ in range(6):
        producer.begin_transaction()
        for topic in ("near", "far"):
            producer.produce(topic, b"copied %d" % round_, key=b"copier")
        member = group.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("near", 0, round_ + 1)], member, 10)
        if round_ % 2:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)
    found = group.committed([TopicPartition("near", 0)], 10)
    assert found[0].offset == 6
    group.close()
    for topic in ("near", "far"):
        reader = Consumer(
            bootstrap | {"group.id": "r", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        )
        reader.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < 3:
            message = reader.poll(WAIT_S)
            assert message is not None
            assert not message.error()
            if message.key() == b"copier":
                values.append(message.value())
        assert values == [b"copied 1", b"copied 3", b"copied 5"]
        reader.close()


def test_a_coordinator_that_does_not_answer_costs_a_retry_not_a_hanging_transaction(
    brokers: tuple[BrokerThread, BrokerThread], wires: tuple[Wired, Wired], name: str
) -> None:
    near, far = wires
    producer = (init(near, name).producer_id, 0)
    assert add(near, name, producer, "far") == ErrorCode.NONE
    parts = parts_of(brokers[1])
    image = parts.metadata.image

    def lose() -> None:
        alone = {2: image.brokers[2]}
        parts.metadata.publish(image._replace(brokers=alone))

    on_loop(brokers[1], lose)
    before = read(far, "far", committed=False)
    assert produce(far, name, producer, "far", b"x", 0).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert read(far, "far", committed=False) == before
    on_loop(brokers[1], lambda: parts.metadata.publish(image))
    assert produce(far, name, producer, "far", b"x", 0).error_code == ErrorCode.NONE
    assert end(near, name, producer, commit=True).error_code == ErrorCode.NONE
