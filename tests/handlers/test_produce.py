"""Produce on the wire: acknowledgements, errors per partition, what clients may not write to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.records import batch, legacy
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import BrokerThread

NEWEST = 13


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(port_of(broker)) as connected:
        yield connected


@pytest.fixture
def topic(wired: Wired, request: pytest.FixtureRequest) -> tuple[str, bytes]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    wanted = MetadataRequestTopic(topic_id=bytes(16), name=name)
    answer = wired.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 12)
    return name, answer.topics[0].topic_id


def records(*keys: bytes | None) -> bytes:
    now_ms = SystemClock().now_ms()
    return batch.build([batch.Record(at, now_ms, key, b"value", ()) for at, key in enumerate(keys)])


def old_records() -> bytes:
    return legacy.build([batch.Record(0, -1, b"k", b"value", ())], magic=0)


def request(topic: tuple[str, bytes], *data: tuple[int, bytes | None], acks: int = 1) -> ProduceRequest:
    partitions = [
        PartitionProduceData(index=index, records=None if one is None else memoryview(one)) for index, one in data
    ]
    wanted = TopicProduceData(name=topic[0], topic_id=topic[1], partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[wanted])


def ask(wired: Wired, *args: Any, version: int = NEWEST, **more: Any) -> list[Any]:
    found: list[Any] = wired.ask(request(*args, **more), version).responses[0].partition_responses
    return found


@pytest.mark.parametrize("version", range(NEWEST + 1))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_is_told_where_its_records_went(
    wired: Wired, topic: tuple[str, bytes], version: int, acks: int
) -> None:
    data = records(b"k") if version >= 3 else old_records()
    for offset in range(2):
        (answer,) = ask(wired, topic, (0, data), version=version, acks=acks)
        assert (answer.index, answer.error_code, answer.base_offset) == (0, 0, offset)


def test_partitions_fail_one_by_one(wired: Wired, topic: tuple[str, bytes]) -> None:
    good, missing, empty, broken = ask(
        wired, topic, (0, records(b"k")), (9, records(b"k")), (0, None), (0, records(b"k")[:-1] + b"?")
    )
    assert [one.error_code for one in (good, missing, empty, broken)] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert (good.base_offset, missing.base_offset) == (0, -1)


def test_an_old_client_may_send_nothing(wired: Wired, topic: tuple[str, bytes]) -> None:
    assert ask(wired, topic, (0, b""), version=2)[0].error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acknowledgements_do_not_exist(wired: Wired, topic: tuple[str, bytes], acks: int) -> None:
    answers = ask(wired, topic, (0, records(b"k")), acks=acks)
    assert [one.error_code for one in answers] == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert ask(wired, topic, (0, records(b"k")))[0].base_offset == 0, "nothing was written"


def test_without_acknowledgement_there_is_no_answer_and_an_error_ends_the_connection(
    wired: Wired, topic: tuple[str, bytes]
) -> None:
    wired.send(request(topic, (0, records(b"k")), acks=0), NEWEST)
    wired.forget()
    assert ask(wired, topic, (0, records(b"k")))[0].base_offset == 1, "the first answer is for the second request"
    wired.send(request(topic, (9, records(b"k")), acks=0), NEWEST)
    with pytest.raises(ConnectionError):
        ask(wired, topic, (0, records(b"k")))


def test_the_records_to_blame_are_named(wired: Wired) -> None:
    made = CreatableTopic(
        name="compacted",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
    )
    assert wired.ask(CreateTopicsRequest(topics=[made], timeout_ms=1), 4).topics[0].error_code == 0
    (answer,) = ask(wired, ("compacted", bytes(16)), (0, records(b"k", None, b"k", None)), version=9)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [1, 3]
    assert answer.log_start_offset == 0


@pytest.mark.parametrize(("kind", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_what_coordinators_keep_is_not_for_clients(wired: Wired, kind: int, name: str) -> None:
    wired.ask(FindCoordinatorRequest(key="anybody", key_type=kind), 1)
    (answer,) = ask(wired, (name, bytes(16)), (0, records(b"k")), version=9)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_by_an_id_that_is_not_known(wired: Wired) -> None:
    (answer,) = ask(wired, ("", b"x" * 16), (0, records(b"k")))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
