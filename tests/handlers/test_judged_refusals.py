"""Requests that no sound client sends, and what remains of them: Apache Kafka and Ottla refuse the same ones alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired, plain
from waiting import wait_until

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.records import batch, legacy
from ottla.wire.messages.commits import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC, GROUP, TRANSACTION = "orders", "shoppers", "till"
LONGEST = "x" * 32767
NOW_MS = SystemClock().now_ms()


class Scene:
    """A broker with a topic of two partitions, a coordinator of each kind, and a transactional producer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wired = Wired(port)
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        self.wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        ends = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(2)]
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=ends)])
        wait_until(lambda: all(not one.error_code for one in self.wired.ask(asked, 6).topics[0].partitions))
        for kind, name in ((0, GROUP), (1, TRANSACTION)):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            self._until_it_is_good(find, 4, lambda answer: answer.coordinators[0].error_code)
        self._until_it_is_good(DescribeGroupsRequest(groups=[GROUP]), 5, lambda answer: answer.groups[0].error_code)
        init = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
        made = self._until_it_is_good(init, 4, lambda answer: answer.error_code)
        self.producer = (made.producer_id, made.producer_epoch)

    def _until_it_is_good(self, request: object, version: int, code: Callable[[Any], int]) -> Any:
        answers: list[Any] = []

        def good() -> bool:
            answers.append(self.wired.ask(request, version))
            return not code(answers[-1])

        wait_until(good)
        return answers[-1]

    def add(self, *indexes: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(indexes))],
        )

        def code(answer: Any) -> int:
            found: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return found

        self._until_it_is_good(request, 3, code)

    def in_transaction(self, sequence: int) -> bytes:
        return batch.build(
            [batch.Record(0, NOW_MS, b"k", b"v")],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            transactional=True,
        )

    def produce(
        self, data: bytes, *, index: int = 0, name: str | None = None, version: int = 9, wired: Wired | None = None
    ) -> Any:
        data_of_one = PartitionProduceData(index=index, records=memoryview(data))
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data_of_one])],
        )
        return (wired or self.wired).ask(request, version).responses[0].partition_responses[0]


def transactional_batches(scene: Scene) -> Iterator[Any]:
    first, second = scene.in_transaction(0), scene.in_transaction(1)
    yield scene.produce(first)
    yield scene.produce(first, name=TRANSACTION)
    scene.add(0)
    yield scene.produce(first)
    yield scene.produce(first, name=TRANSACTION)
    yield scene.produce(second)
    yield scene.produce(first, index=1, name=TRANSACTION)
    yield scene.produce(first, index=1, name="another")
    yield scene.produce(second, name=TRANSACTION)


def former_formats(scene: Scene) -> Iterator[Any]:
    for stamp in (0x00, 0x10):  # the timestamp is where a newer batch has its attributes
        data = legacy.build([batch.Record(0, stamp << 24, b"k", b"v")], magic=1)
        answer = scene.produce(data)
        yield answer.error_code, answer.log_start_offset


def offsets_without_group(scene: Scene) -> Iterator[Any]:
    offsets = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")]
    for version in (0, 3, 5):
        request = TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id="",
            producer_id=scene.producer[0],
            producer_epoch=scene.producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=offsets)],
        )
        yield scene.wired.ask(request, version)
    yield scene.wired.ask(DescribeGroupsRequest(groups=[""]), 5)
    yield scene.wired.ask(ConsumerGroupDescribeRequest(group_ids=[""], include_authorized_operations=False), 1)


def records_of_coordinators(scene: Scene) -> Iterator[Any]:
    before = [DeleteRecordsPartition(partition_index=0, offset=0)]
    for name in ("__consumer_offsets", "__transaction_state"):
        topic = DeleteRecordsTopic(name=name, partitions=before)
        yield scene.wired.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)


def markers_of_nobody(scene: Scene) -> Iterator[Any]:
    for producer_id, epoch in ((-1, 0), (4444, -1), (4444, 0)):
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            coordinator_epoch=0,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1])],
        )
        yield scene.wired.ask(WriteTxnMarkersRequest(markers=[marker]), 1)


def ids_that_cannot_be_told(scene: Scene) -> Iterator[Any]:
    """The id of a new member begins with its instance id or its client id, and has to fit into a string."""
    for instance, client in ((LONGEST, "test"), (None, LONGEST)):
        request = JoinGroupRequest(
            group_id=f"{GROUP}-{instance is None}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5000,
            member_id="",
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        with Wired(scene.port, client_id=client) as wired:
            answer = wired.ask(request, 9)
        yield answer.error_code


def fetches_of_missing_partitions(scene: Scene) -> Iterator[Any]:
    """They are told so with the next records of the others: a consumer would not ask less often otherwise."""
    name = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=1, timestamp=-1)])
    for version, session_epoch in ((4, -1), (12, -1), (12, 0)):
        end = scene.wired.ask(ListOffsetsRequest(replica_id=-1, topics=[name]), 6).topics[0].partitions[0].offset
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=index, fetch_offset=end, partition_max_bytes=1000)],
            )
            for topic, index in ((TOPIC, 1), (TOPIC, 9), ("missing", 0))
        ]
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, max_bytes=10_000, session_epoch=session_epoch, topics=topics
        )
        scene.wired.send(request, version)
        with Wired(scene.port) as other:
            scene.produce(batch.build([batch.Record(0, NOW_MS, b"k", b"v")]), index=1, wired=other)
        partitions = [
            (topic.topic, one.partition_index, one.error_code, len(one.records))
            for topic in scene.wired.receive().responses
            for one in topic.partitions
        ]
        yield sorted(partitions)


STORIES = [
    fetches_of_missing_partitions,
    transactional_batches,
    former_formats,
    offsets_without_group,
    records_of_coordinators,
    markers_of_nobody,
    ids_that_cannot_be_told,
]


@pytest.fixture(scope="module")
def scenes(kafka: int, ottla: int) -> Iterator[tuple[Scene, Scene]]:
    them, us = Scene(kafka), Scene(ottla)
    with them.wired, us.wired:
        yield them, us


@pytest.mark.parametrize("story", STORIES)
def test_apache_kafka_and_ottla_refuse_the_same(
    story: Callable[[Scene], Iterator[Any]], scenes: tuple[Scene, Scene]
) -> None:
    theirs, ours = ([comparable(plain(answer)) for answer in story(scene)] for scene in scenes)
    assert ours == theirs


def comparable(value: Any) -> Any:
    """An answer without the words for people, which only have to be there."""
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, dict):
        return {name: bool(one) if name == "error_message" else comparable(one) for name, one in value.items()}
    return value


def test_a_long_name_can_be_told_in_an_error(ottla: int) -> None:
    """The admin client of Apache Kafka ends at a string of more than 32767 bytes."""
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id=LONGEST,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
    )
    topic = CreatableTopic(name=LONGEST, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with Scene(ottla).wired as wired:
        wait_until(lambda: not wired.ask(commit, 8).topics[0].partitions[0].error_code)
        told = ConsumerGroupDescribeRequest(group_ids=[LONGEST], include_authorized_operations=False)
        assert wired.ask(told, 1).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        another = DescribeGroupsRequest(groups=[LONGEST[1:]])
        assert wired.ask(another, 6).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        made = wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0]
        assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "the length of 'xxx" in made.error_message
