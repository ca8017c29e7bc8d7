"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords on the wire."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla import BrokerThread
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN_MS = 1_750_000_000_000  # record n has the timestamp BEGIN_MS + 10 n, but the fifth is an hour ahead


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(port_of(broker)) as connected:
        yield connected


def produce(wired: Wired, name: str, times: list[int]) -> None:
    records = [batch.Record(at, time, b"k", b"v", ()) for at, time in enumerate(times)]
    topic = TopicProduceData(
        name=name,
        topic_id=bytes(16),
        partition_data=[PartitionProduceData(index=0, records=memoryview(batch.build(records)))],
    )
    answer = wired.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def topic(wired: Wired, request: pytest.FixtureRequest) -> str:
    """Ten records in four batches."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    wired.ask(
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name=name)], allow_auto_topic_creation=True), 9
    )
    times = [BEGIN_MS + 10 * n + (3_600_000 if n == 5 else 0) for n in range(10)]
    for start, stop in ((0, 3), (3, 6), (6, 7), (7, 10)):
        produce(wired, name, times[start:stop])
    return name


def ask(wired: Wired, topic: str, timestamp: int, version: int = 11, *, index: int = 0, **more: Any) -> Any:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, max_num_offsets=10, **more)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return wired.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_the_ends(wired: Wired, topic: str, version: int) -> None:
    assert ask(wired, topic, -2, version).offset == 0
    assert ask(wired, topic, -1, version).offset == 10


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (0, 0, BEGIN_MS),
        (BEGIN_MS, 0, BEGIN_MS),
        (BEGIN_MS + 11, 2, BEGIN_MS + 20),
        (BEGIN_MS + 41, 5, BEGIN_MS + 3_600_050),
        (BEGIN_MS + 60, 5, BEGIN_MS + 3_600_050),
        (BEGIN_MS + 3_600_051, -1, -1),
        (-3, 5, BEGIN_MS + 3_600_050),
        (-4, 0, -1),
        (-5, -1, -1),
        (-6, -1, -1),
    ],
)
def test_the_first_record_at_or_after_a_time(wired: Wired, topic: str, timestamp: int, offset: int, found: int) -> None:
    answer = ask(wired, topic, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
def test_a_special_time_that_the_version_does_not_know_is_refused(
    wired: Wired, topic: str, timestamp: int, version: int
) -> None:
    assert ask(wired, topic, timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_errors_of_single_partitions(wired: Wired, topic: str) -> None:
    assert ask(wired, topic, -1, index=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(wired, topic, -1, current_leader_epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=twice)])
    codes = [one.error_code for one in wired.ask(request, 5).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_the_oldest_version_answers_with_segment_boundaries(wired: Wired, topic: str) -> None:
    assert ask(wired, topic, -1, 0).old_style_offsets == [10, 0]
    assert ask(wired, topic, -2, 0).old_style_offsets == [0]
    assert ask(wired, topic, 1, 0).old_style_offsets == [], "nothing was written in 1970"
    assert ask(wired, topic, 2**62, 0).old_style_offsets == [10, 0]
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    assert wired.ask(request, 0).topics[0].partitions[0].old_style_offsets == [10]


def delete(wired: Wired, topic: str, offset: int, version: int = 2, index: int = 0) -> tuple[int, int]:
    one = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=1000)
    answer = wired.ask(request, version).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(wired: Wired, topic: str, version: int) -> None:
    assert delete(wired, topic, 4, version) == (0, 4)
    assert ask(wired, topic, -2).offset == 4
    assert delete(wired, topic, 2, version) == (0, 4), "what is gone stays gone"
    assert delete(wired, topic, 11, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(wired, topic, -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(wired, topic, -1, version) == (0, 10)
    assert (ask(wired, topic, -2).offset, ask(wired, topic, -1).offset) == (10, 10)
    assert delete(wired, topic, 1, version, index=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(wired: Wired) -> None:
    config = CreatableTopicConfig(name="cleanup.policy", value="compact")
    made = CreatableTopic(
        name="keeps-its-records", num_partitions=1, replication_factor=1, assignments=[], configs=[config]
    )
    assert wired.ask(CreateTopicsRequest(topics=[made], timeout_ms=1), 4).topics[0].error_code == 0
    assert delete(wired, "keeps-its-records", -1)[0] == ErrorCode.POLICY_VIOLATION


def epoch_end(wired: Wired, topic: str, epoch: int, version: int, *, current: int = -1) -> tuple[int, int, int]:
    one = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[one])])
    answer = wired.ask(request, version).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


def forget_good_order(folder: Path) -> None:
    """Make the stop look like a crash: after a clean stop, leaders keep their epochs."""
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)


def test_a_clean_stop_does_not_end_an_epoch(tmp_path: Path) -> None:
    for _ in range(3):
        with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
            wanted = MetadataRequestTopic(topic_id=bytes(16), name="t")
            wired.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 9)
            produce(wired, "t", [BEGIN_MS] * 2)
            assert epoch_end(wired, "t", 1, 4) == (0, -1, -1), "it is the same epoch"


def test_an_empty_partition_has_an_epoch_too(tmp_path: Path) -> None:
    """Otherwise a consumer would detect log truncation after a restart of the broker."""
    for life in range(2):
        forget_good_order(tmp_path)
        with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
            wanted = MetadataRequestTopic(topic_id=bytes(16), name="t")
            wired.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 9)
            for epoch in range(life + 1):
                assert epoch_end(wired, "t", epoch, 4) == (0, epoch, 0)


@pytest.mark.parametrize("version", range(5))
def test_where_an_epoch_ended_is_known_over_restarts(tmp_path: Path, version: int) -> None:
    """Every start after a crash is an election, so each one begins a new epoch."""
    for life in range(3):
        forget_good_order(tmp_path)
        with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
            wanted = MetadataRequestTopic(topic_id=bytes(16), name="t")
            wired.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 9)
            assert epoch_end(wired, "t", life + 1, version) == (0, -1, -1), "not yet"
            produce(wired, "t", [BEGIN_MS] * 2)
            for epoch in range(life + 1):
                known = epoch if version >= 1 else -1
                assert epoch_end(wired, "t", epoch, version) == (0, known, 2 * epoch + 2)
            if version >= 2:
                assert epoch_end(wired, "t", 0, version, current=9)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_disk_that_refuses_a_search_is_that_partitions_trouble(
    wired: Wired, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search may have to open a file, and there may be no descriptor left."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("ottla.log.log.first_since", refuse)
    assert ask(wired, topic, BEGIN_MS).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert ask(wired, topic, BEGIN_MS).error_code == ErrorCode.NONE
