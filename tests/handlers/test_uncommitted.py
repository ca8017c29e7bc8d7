"""Coordinators' responses wait for a follower: records it has not fetched may be lost, so no client may see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coord.pair import on_loop, parts_of, port_of
from handlers.test_transactions import add, end, init, produce
from handlers.wired import Wired

from ottla import BrokerThread
from ottla.clock import SystemClock, steady_ms
from ottla.errors import ErrorCode
from ottla.replica.leader import Leader
from ottla.replica.partition import Site
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest
from ottla.wire.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
Connect = Callable[[], Wired]


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    options = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with BrokerThread(options=options) as started:
        yield started


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(port_of(broker)) as connected:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        assert connected.ask(asked, 9).topics[0].error_code == 0
        for kind in (0, 1):
            connected.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]), 4)
        yield connected


class Follower:
    """Broker 99, an in-sync replica that fetches when the test says so."""

    def __init__(self, broker: BrokerThread, topic: str) -> None:
        self._broker = broker
        self._partition = parts_of(broker).replicas.require_led(topic, 0)
        on_loop(broker, self._join)

    def _join(self) -> None:
        partition, clock = self._partition, SystemClock()
        followers = Leader(
            1,
            replicas=(1, 99),
            isr=(1, 99),
            epoch=partition.epoch,
            version=0,
            end=partition.log.end,
            high=partition.log.end,
            now_ms=steady_ms(clock),
            lag_ms=10**6,
            epoch_of=lambda _: -1,
        )
        partition.lead(partition.epoch, followers, Site(clock, lambda _: None))

    def fetch(self) -> None:
        on_loop(self._broker, lambda: self._partition.note_fetch(99, self._partition.log.end, 0, -1, epoch_known=True))


def is_silent(wired: Wired) -> bool:
    """Whether no response arrives within 0.1 s. A slower one goes unnoticed, so this never fails a correct broker."""
    wired._socket.settimeout(0.1)
    try:
        wired._socket.recv(1, 2)  # MSG_PEEK
    except TimeoutError:
        return True
    finally:
        wired._socket.settimeout(60)
    return False


def held(broker: BrokerThread, follower: Follower, request: Any, version: int) -> Any:
    """The response to a request, which must not arrive before the follower has fetched."""
    with Wired(port_of(broker)) as own:
        own.send(request, version)
        assert is_silent(own)
        follower.fetch()
        return own.receive()


def commit(offset: int) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)


READS: list[tuple[Any, int, Callable[[Any], Any], Any]] = [
    (
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        5,
        lambda answer: answer.topics[0].partitions[0].committed_offset,
        8,
    ),
    (DescribeGroupsRequest(groups=["g"]), 5, lambda answer: answer.groups[0].group_state, "Empty"),
    (ListGroupsRequest(), 3, lambda answer: [one.group_id for one in answer.groups], ["g"]),
    (
        ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        0,
        lambda answer: answer.groups[0].error_code,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
]


@pytest.mark.parametrize(("request_", "version", "seen", "expected"), READS, ids=lambda one: type(one).__name__)
def test_what_is_read_of_groups_is_committed(
    broker: BrokerThread, wired: Wired, request_: Any, version: int, seen: Callable[[Any], Any], expected: Any
) -> None:
    assert wired.ask(commit(7), 5).topics[0].partitions[0].error_code == 0
    follower = Follower(broker, OFFSETS)
    assert wired.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code == 0, "nothing is in doubt yet"
    wired.send(commit(8), 5)
    assert is_silent(wired)
    assert seen(held(broker, follower, request_, version)) == expected
    assert wired.receive().topics[0].partitions[0].error_code == 0


def a_verification(producer: tuple[int, int]) -> AddPartitionsToTxnRequest:
    asked = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


def test_what_is_read_of_transactions_is_committed(broker: BrokerThread, wired: Wired) -> None:
    producer = (init(wired, "x").producer_id, 0)
    follower = Follower(broker, STATE)
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    with Wired(port_of(broker)) as adding:
        adding.send(asked, 3)
        assert is_silent(adding)
        described = held(broker, follower, DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        assert described.transaction_states[0].transaction_state == "Ongoing"
        assert adding.receive().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    verified = wired.ask(a_verification(producer), 5).results_by_transaction[0].topic_results[0]
    assert verified.results_by_partition[0].partition_error_code == 0
    everything = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    assert wired.ask(everything, 0).transaction_states[0].transaction_state == "Ongoing"


def test_an_end_is_carried_out_when_it_is_committed(broker: BrokerThread, wired: Wired) -> None:
    producer = (init(wired, "x").producer_id, 0)
    assert add(wired, "x", producer, "t") == 0
    assert produce(wired, "x", producer, "t", b"v", 0).error_code == 0
    follower, log = Follower(broker, STATE), parts_of(broker).replicas.require_led("t", 0).log
    before = log.end

    class Sending:
        def ask(self, request: Any, version: int) -> Any:
            wired.send(request, version)

    end(Sending(), "x", producer, commit=True)  # type: ignore[arg-type]
    assert is_silent(wired)
    assert log.end == before, "no marker"
    follower.fetch()
    assert wired.receive().error_code == 0
    on_loop(broker, lambda: None)
    assert log.end == before + 1


@pytest.mark.parametrize("topic", ["t", OFFSETS])
def test_a_marker_for_another_broker_is_committed_when_it_is_answered(
    broker: BrokerThread, wired: Wired, topic: str
) -> None:
    follower = Follower(broker, topic)
    marker = WritableTxnMarker(
        producer_id=5,
        producer_epoch=0,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=[0]),
            WritableTxnMarkerTopic(name="gone", partition_indexes=[0]),
        ],
    )
    answer = held(broker, follower, WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics
    codes = {one.name: one.partitions[0].error_code for one in answer}
    assert codes == {topic: ErrorCode.NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_waits_until_its_transaction_is_committed(broker: BrokerThread, wired: Wired, version: int) -> None:
    """In the newer protocol the batch itself begins the transaction; in the older one AddPartitionsToTxn did before."""
    producer = (init(wired, "x").producer_id, 0)
    follower = Follower(broker, STATE)
    with Wired(port_of(broker)) as adding:
        if version < 12:
            asked = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            adding.send(asked, 3)
            assert is_silent(adding)

        class Sending:
            def ask(self, request: Any, version: int) -> Any:
                wired.send(request, version)
                raise StopIteration

        with pytest.raises(StopIteration):
            produce(Sending(), "x", producer, "t", b"v", 0, version)  # type: ignore[arg-type]
        assert is_silent(wired)
        follower.fetch()
        assert wired.receive().responses[0].partition_responses[0].error_code == 0
