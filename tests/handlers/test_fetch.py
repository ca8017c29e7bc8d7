"""Fetch on the wire: limits, waiting, sessions, epochs, old versions, and what happens to waiting fetches."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import DeleteTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import BrokerThread

NO_ID = bytes(16)
NEWEST = 18


def connect(broker: BrokerThread) -> Wired:
    return Wired(port_of(broker))


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with connect(broker) as connected:
        yield connected


class Topic:
    def __init__(self, wired: Wired, name: str) -> None:
        self.name, self._wired, self._sequence = name, wired, 0
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=NO_ID, name=name)], allow_auto_topic_creation=True
        )
        self.id: bytes = wired.ask(asked, 12).topics[0].topic_id

    def produce(self, *values: bytes) -> int:
        now_ms = SystemClock().now_ms()
        data = batch.build([batch.Record(at, now_ms, None, value, ()) for at, value in enumerate(values)])
        topic = TopicProduceData(
            name=self.name,
            topic_id=NO_ID,
            partition_data=[PartitionProduceData(index=0, records=memoryview(data))],
        )
        response = self._wired.ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9)
        result = response.responses[0].partition_responses[0]
        assert result.error_code == 0
        base: int = result.base_offset
        return base

    def wanted(self, offset: int = 0, *, index: int = 0, size_max: int = 1 << 20, **more: Any) -> FetchTopic:
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size_max, **more)
        return FetchTopic(topic=self.name, topic_id=self.id, partitions=[partition])


@pytest.fixture
def topic(wired: Wired, request: pytest.FixtureRequest) -> Topic:
    return Topic(wired, "".join(c if c.isalnum() else "-" for c in request.node.name)[:200])


def ask(wired: Wired, *topics: FetchTopic, version: int = NEWEST, wait_ms: int = 0, **more: Any) -> Any:
    settings = {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1, "topics": list(topics), **more}
    return wired.ask(FetchRequest(**settings), version)


def values(data: Any) -> list[bytes | None]:
    found = bytes(data.records)
    return [record.value for entry in batch.entries(found) for record in batch.iterate(found, entry.position)]


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_every_version_gets_the_records(wired: Wired, topic: Topic, version: int) -> None:
    topic.produce(b"a", b"b")
    topic.produce(b"c")
    answer = ask(wired, topic.wanted(), version=version).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 3, [b"a", b"b", b"c"])
    magics = {entry.magic for entry in batch.entries(bytes(answer.records))}
    assert magics == {0 if version < 2 else 1 if version < 4 else 2}


def consume(broker: BrokerThread, topic: Topic, **more: Any) -> tuple[threading.Thread, list[Any]]:
    """Start a waiting fetch in a thread; return the thread and the list that its response goes into."""
    answers: list[Any] = []

    def wait() -> None:
        with connect(broker) as other:
            answers.append(ask(other, topic.wanted(), wait_ms=20_000, **more))

    waiting = threading.Thread(target=wait)
    waiting.start()
    return waiting, answers


def test_a_fetch_waits_for_records_and_gets_them_when_they_come(
    broker: BrokerThread, wired: Wired, topic: Topic
) -> None:
    waiting, answers = consume(broker, topic)
    topic.produce(b"at last")
    waiting.join(20)
    assert values(answers[0].responses[0].partitions[0]) == [b"at last"]


def test_a_fetch_whose_time_is_over_answers_with_nothing(wired: Wired, topic: Topic) -> None:
    answer = ask(wired, topic.wanted(), wait_ms=30).responses[0].partitions[0]
    assert (answer.error_code, bytes(answer.records)) == (0, b"")


def test_a_fetch_that_wants_more_than_comes_waits_on(broker: BrokerThread, wired: Wired, topic: Topic) -> None:
    waiting, answers = consume(broker, topic, min_bytes=500)
    topic.produce(b"x" * 100)
    topic.produce(b"x" * 100)
    assert not answers
    topic.produce(b"x" * 400)
    waiting.join(20)
    assert len(values(answers[0].responses[0].partitions[0])) == 3


def test_a_topic_that_is_deleted_wakes_those_who_wait_for_it(broker: BrokerThread, wired: Wired, topic: Topic) -> None:
    waiting, answers = consume(broker, topic)
    deleted = DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=1000)
    assert wired.ask(deleted, 3).responses[0].error_code == 0
    waiting.join(20)
    assert answers[0].responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 2, 10**15])
def test_an_offset_outside_of_the_log_is_told_at_once(wired: Wired, topic: Topic, offset: int) -> None:
    topic.produce(b"only one")
    answer = ask(wired, topic.wanted(offset), wait_ms=20_000).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, 0)])
def test_a_client_with_another_leader_in_mind_is_told(wired: Wired, topic: Topic, epoch: int, code: int) -> None:
    topic.produce(b"x")
    answer = ask(wired, topic.wanted(current_leader_epoch=epoch), wait_ms=20_000).responses[0].partitions[0]
    assert answer.error_code == code


def test_unknown_topics_and_partitions_by_name_and_by_id(wired: Wired, topic: Topic) -> None:
    assert ask(wired, topic.wanted(index=9)).responses[0].partitions[0].error_code == 3
    unknown = FetchTopic(topic="no-such", topic_id=b"x" * 16, partitions=topic.wanted().partitions)
    assert ask(wired, unknown).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    named = ask(wired, unknown, version=12).responses[0].partitions[0]
    assert named.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nobody_may_fetch_as_a_replica(wired: Wired, topic: Topic) -> None:
    topic.produce(b"x")
    answer = ask(wired, topic.wanted(), version=11, replica_id=5).responses[0].partitions[0]
    assert (answer.error_code, bytes(answer.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


def test_the_first_batch_is_whole_however_small_the_bounds_and_the_next_fits_or_stays(
    wired: Wired, topic: Topic
) -> None:
    for letter in b"abc":
        topic.produce(bytes([letter]) * 1000)
    first = ask(wired, topic.wanted(size_max=10)).responses[0].partitions[0]
    assert values(first) == [b"a" * 1000]
    whole = ask(wired, topic.wanted(), max_bytes=10).responses[0].partitions[0]
    assert values(whole) == [b"a" * 1000]
    two = ask(wired, topic.wanted(size_max=2200)).responses[0].partitions[0]
    assert values(two) == [b"a" * 1000, b"b" * 1000]
    old = ask(wired, topic.wanted(size_max=10), version=2).responses[0].partitions[0]
    assert len(bytes(old.records)) == 10, "before version 3 the bound is hard"


def test_a_bound_for_the_whole_answer_leaves_nothing_for_the_second_partition(wired: Wired, topic: Topic) -> None:
    other = Topic(wired, topic.name + "-2")
    for one in (topic, other):
        one.produce(b"x" * 1000)
    answer = ask(wired, topic.wanted(), other.wanted(), max_bytes=100)
    assert [len(values(one.partitions[0])) for one in answer.responses] == [1, 0]


class TestSessions:
    def test_only_news_is_told_and_only_changes_are_asked_for(self, wired: Wired, topic: Topic) -> None:
        other = Topic(wired, topic.name + "-2")
        topic.produce(b"a")
        full = ask(wired, topic.wanted(), other.wanted(), session_epoch=0)
        assert (len(full.responses), full.session_id > 0) == (2, True)
        session = full.session_id
        quiet = ask(wired, topic.wanted(1), session_id=session, session_epoch=1)
        assert quiet.responses == []
        other.produce(b"b")
        news = ask(wired, session_id=session, session_epoch=2)
        assert [one.topic_id for one in news.responses] == [other.id]
        assert values(news.responses[0].partitions[0]) == [b"b"]
        forget = ForgottenTopic(topic=other.name, topic_id=other.id, partitions=[0])
        topic.produce(b"c")
        rest = ask(wired, session_id=session, session_epoch=3, forgotten_topics_data=[forget])
        assert [one.topic_id for one in rest.responses] == [topic.id]

    def test_a_session_that_is_not_known_or_out_of_step_is_refused(self, wired: Wired, topic: Topic) -> None:
        session = ask(wired, topic.wanted(), session_epoch=0).session_id
        unknown = ask(wired, session_id=session + 1, session_epoch=1)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert ask(wired, session_id=session, session_epoch=5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        named = ask(wired, session_id=session, session_epoch=1, version=12)
        assert named.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_an_error_is_told_again_until_it_is_over(self, wired: Wired, topic: Topic) -> None:
        session = ask(wired, topic.wanted(7), session_epoch=0).session_id
        for epoch in (1, 2):
            again = ask(wired, session_id=session, session_epoch=epoch)
            assert again.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        well = ask(wired, topic.wanted(0), session_id=session, session_epoch=3)
        assert well.responses[0].partitions[0].error_code == 0
