"""Transactions on the wire: both protocols, what is written to the log, and the responses of each version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.wire.messages.commits import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import BrokerThread


SETTINGS = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(port_of(broker)) as connected:
        yield connected


@pytest.fixture
def topic(wired: Wired, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=bytes(16), name=name)], allow_auto_topic_creation=True
    )
    assert wired.ask(asked, 9).topics[0].error_code == 0
    return name


def init(wired: Wired, name: str | None, version: int = 4, **more: Any) -> Any:
    wired.ask(FindCoordinatorRequest(key=name or "", key_type=1), 1)
    while True:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, **more)
        response = wired.ask(request, version)
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return response


def add(wired: Wired, name: str, producer: tuple[int, int], topic: str, version: int = 3) -> int:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    response = wired.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        ),
        version,
    )
    code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


def produce(
    wired: Wired, name: str | None, producer: tuple[int, int], topic: str, value: bytes, sequence: int, version: int = 9
) -> Any:
    data = batch.build(
        # Current timestamps: a marker that is a week newer would begin a new segment.
        [batch.Record(0, SystemClock().now_ms(), None, value, ())],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=True,
    )
    return (
        wired.ask(
            ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        topic_id=bytes(16),
                        partition_data=[PartitionProduceData(index=0, records=memoryview(data))],
                    )
                ],
            ),
            version,
        )
        .responses[0]
        .partition_responses[0]
    )


def end(wired: Wired, name: str, producer: tuple[int, int], version: int = 3, *, commit: bool) -> Any:
    return wired.ask(
        EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit),
        version,
    )


def read(wired: Wired, topic: str, *, committed: bool) -> list[bytes | None]:
    """The values a consumer returns: without control records, and with `committed` without aborted records."""
    answer = (
        wired.ask(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=int(committed),
                topics=[
                    FetchTopic(
                        topic=topic,
                        topic_id=bytes(16),
                        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                    )
                ],
            ),
            11,
        )
        .responses[0]
        .partitions[0]
    )
    data, values, dead = bytes(answer.records), [], set()
    first = {(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()}
    for entry in batch.entries(data):
        head = batch.header(data, entry.position)
        if (head.producer_id, head.base_offset) in first:
            dead.add(head.producer_id)
        if head.control:
            dead.discard(head.producer_id)
        elif head.producer_id not in dead:
            values += [record.value for record in batch.iterate(data, entry.position)]
    return values


def test_committed_records_are_read_and_aborted_ones_are_not(wired: Wired, topic: str) -> None:
    producer = (init(wired, topic).producer_id, 0)
    for number, commit in enumerate((True, False, True)):
        assert add(wired, topic, producer, topic) == 0
        assert produce(wired, topic, producer, topic, b"%d" % number, number).error_code == 0
        assert read(wired, topic, committed=True) == [b"0"][:number], "an open transaction is not seen"
        assert end(wired, topic, producer, commit=commit).error_code == 0
    assert read(wired, topic, committed=True) == [b"0", b"2"]
    assert read(wired, topic, committed=False) == [b"0", b"1", b"2"]


def test_in_the_newer_protocol_produce_adds_the_partition_and_every_end_raises_the_epoch(
    wired: Wired, topic: str
) -> None:
    producer = (init(wired, topic, 5).producer_id, 0)
    for number, commit in enumerate((True, False, True)):
        assert produce(wired, topic, producer, topic, b"%d" % number, 0, version=12).error_code == 0
        ended = end(wired, topic, producer, 5, commit=commit)
        assert (ended.error_code, ended.producer_epoch) == (0, producer[1] + 1)
        again = end(wired, topic, producer, 5, commit=commit)
        assert (again.error_code, again.producer_epoch) == (0, producer[1] + 1), "a retry"
        assert produce(wired, topic, producer, topic, b"late", 1, version=12).error_code != 0
        producer = (ended.producer_id, ended.producer_epoch)
    assert read(wired, topic, committed=True) == [b"0", b"2"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_batch_of_a_transaction_that_does_not_know_the_partition_is_refused(
    wired: Wired, topic: str, version: int, code: ErrorCode
) -> None:
    producer = (init(wired, topic).producer_id, 0)
    assert produce(wired, topic, producer, topic, b"x", 0, version).error_code == code
    nameless = produce(wired, None, producer, topic, b"x", 0, version)
    assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert read(wired, topic, committed=False) == []


@pytest.mark.parametrize("version", range(7))
def test_the_second_producer_fences_the_first_and_each_version_hears_it_in_its_words(
    wired: Wired, topic: str, version: int
) -> None:
    old = (init(wired, topic, version).producer_id, 0)
    assert add(wired, topic, old, topic) == 0
    assert produce(wired, topic, old, topic, b"zombie", 0).error_code == 0
    new = init(wired, topic, version)
    assert (new.error_code, new.producer_id) == (0, old[0])
    assert new.producer_epoch > old[1]
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(wired, topic, old, min(version, 4), commit=True).error_code == fenced
    assert add(wired, topic, old, topic, min(version, 3)) == fenced
    offsets = AddOffsetsToTxnRequest(transactional_id=topic, producer_id=old[0], producer_epoch=old[1], group_id="g")
    assert wired.ask(offsets, min(version, 4)).error_code == fenced
    assert read(wired, topic, committed=True) == []


@pytest.mark.parametrize("version", [9, 11, 12])
def test_records_with_a_stale_epoch_end_the_transaction_not_the_producer(
    wired: Wired, topic: str, version: int
) -> None:
    producer = init(wired, topic)
    for sequence in (0, 5):
        stale = produce(wired, topic, (producer.producer_id, 7), topic, b"x", sequence, version)
        assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_cannot_overtake_the_first_of_its_transaction(wired: Wired, topic: str) -> None:
    producer = (init(wired, topic, 5).producer_id, 0)
    early = produce(wired, topic, producer, topic, b"second", 1, version=12)
    assert early.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wired, topic, producer, topic, b"first", 0, version=12).error_code == 0


def test_requests_that_arrive_together_are_handled_in_their_order(wired: Wired, topic: str) -> None:
    name, rounds = f"{topic}-together", 5
    made = init(wired, name)
    producer = made.producer_id, made.producer_epoch
    for _ in range(rounds):
        wired.send(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
            3,
        )
        wired.send(
            EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=True),
            3,
        )
    for _ in range(rounds):
        added = wired.receive().results_by_topic_v3_and_below[0].results_by_partition[0]
        assert (added.partition_error_code, wired.receive().error_code) == (0, 0)


def test_partitions_that_do_not_exist_are_told_apart_from_those_that_were_not_tried(wired: Wired, topic: str) -> None:
    producer = init(wired, topic)
    wanted = [AddPartitionsToTxnTopic(name=topic, partitions=[0, 9])]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=wanted,
    )
    results = wired.ask(request, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert [one.partition_error_code for one in results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_leader_asks_for_many_transactions_at_once(wired: Wired, topic: str) -> None:
    producer = init(wired, topic)
    assert add(wired, topic, (producer.producer_id, 0), topic) == 0
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=0,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        for name in (topic, "nobody-" + topic)
    ]
    answers = wired.ask(AddPartitionsToTxnRequest(transactions=asked), 5).results_by_transaction
    codes = [one.topic_results[0].results_by_partition[0].partition_error_code for one in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [2, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_their_transaction_is_committed(
    wired: Wired, topic: str, version: int, commit: bool
) -> None:
    group, producer = "group-" + topic, (init(wired, topic).producer_id, 0)
    if version < 5:
        offsets = AddOffsetsToTxnRequest(
            transactional_id=topic, producer_id=producer[0], producer_epoch=0, group_id=group
        )
        assert wired.ask(offsets, 3).error_code == 0
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="m")
    committed = wired.ask(
        TxnOffsetCommitRequest(
            transactional_id=topic,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
        ),
        version,
    )
    assert committed.topics[0].partitions[0].error_code == 0

    def fetch(*, stable: bool) -> Any:
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        answer = wired.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 8)
        return answer.groups[0].topics[0].partitions[0]

    assert fetch(stable=False).committed_offset == -1
    assert fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert end(wired, topic, producer, 5 if version == 5 else 3, commit=commit).error_code == 0
    assert fetch(stable=True).committed_offset == (42 if commit else -1)


def test_transactions_can_be_listed_described_and_ended_by_hand(wired: Wired, topic: str) -> None:
    producer = init(wired, topic)
    assert add(wired, topic, (producer.producer_id, 0), topic) == 0
    assert produce(wired, topic, (producer.producer_id, 0), topic, b"hangs", 0).error_code == 0
    described = wired.ask(DescribeTransactionsRequest(transactional_ids=[topic, "nobody", ""]), 0).transaction_states
    assert [one.error_code for one in described] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    assert (described[0].transaction_state, described[0].topics[0].topic) == ("Ongoing", topic)

    def listed(**filters: Any) -> list[str]:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        return [one.transactional_id for one in wired.ask(request, 2).transaction_states]

    assert topic in listed(state_filters=["Ongoing"], producer_id_filters=[producer.producer_id])
    assert topic not in listed(state_filters=["Empty"])
    assert listed(transactional_id_pattern=topic[:-1] + ".") == [topic]
    assert topic not in listed(duration_filter=3_600_000)
    unknown = wired.ask(ListTransactionsRequest(state_filters=["Odd"], producer_id_filters=[]), 0)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Odd"], [])
    bad = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert wired.ask(bad, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in (topic, "no-such-topic")],
        coordinator_epoch=99,
    )
    results = wired.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics
    assert [one.partitions[0].error_code for one in results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    marker.coordinator_epoch = 5
    results = wired.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers[0].topics
    assert results[0].partitions[0].error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert read(wired, topic, committed=True) == []


def test_a_prepared_transaction_outlives_its_producer_and_is_committed_by_the_next(wired: Wired, topic: str) -> None:
    producer = (init(wired, topic, 6, enable_2pc=True).producer_id, 0)
    assert produce(wired, topic, producer, topic, b"prepared", 0, version=12).error_code == 0
    new = init(wired, topic, 6, enable_2pc=True, keep_prepared_txn=True)
    assert (new.ongoing_txn_producer_id, new.ongoing_txn_producer_epoch) == producer
    assert end(wired, topic, producer, 5, commit=False).error_code == ErrorCode.PRODUCER_FENCED
    assert end(wired, topic, (new.producer_id, new.producer_epoch), 5, commit=True).error_code == 0
    assert read(wired, topic, committed=True) == [b"prepared"]


@pytest.mark.parametrize(
    "odd", [{"producer_id": 5}, {"producer_epoch": 5}, {"keep_prepared_txn": True}], ids=["id", "epoch", "keep"]
)
def test_init_with_halves_of_an_identity_is_refused(wired: Wired, topic: str, odd: dict[str, Any]) -> None:
    assert init(wired, topic, 6, **odd).error_code == ErrorCode.INVALID_REQUEST
    if "keep_prepared_txn" not in odd:
        assert init(wired, None, 6, **odd).error_code == ErrorCode.INVALID_REQUEST
    assert init(wired, "", 4).error_code == ErrorCode.INVALID_REQUEST
