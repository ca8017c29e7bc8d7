"""Large batches do not block the loop: those that decompress to a lot, or have many records, in produce and in fetch.

Time is CPU time of the thread. The bound is a small part of what each of these once took: seconds to minutes.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from laws.loop.gaps import HELD_MAX
from laws.yardstick import least, spent
from records.malformed import record, wrap
from records.oracle import NOW, topic

from ottla.embed import BrokerThread
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers import produce as handler
from ottla.records import aside, batch, legacy, native
from ottla.records.batch import Record, varint
from ottla.records.compress import Codec, compress
from ottla.records.validate import LargeError, RefusedError, validate
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.config import TopicConfig


def held(work: Callable[[], object]) -> float:
    """CPU time of this thread until the work is done or refused."""

    def done() -> None:
        with suppress(BrokerError):
            work()

    return least(lambda: spent(done), HELD_MAX)


def check(data: memoryview, config: TopicConfig) -> object:
    return validate(data, config, base=0, epoch=0, now_ms=NOW, produce_version=9)


def tiny(count: int, *, key: bytes = varint(-1), number: bool = True) -> bytes:
    """`count` empty records."""
    return b"".join(record(delta=at if number else 0, key=key, value=varint(-1)) for at in range(count))


@pytest.fixture(scope="module")
def many() -> dict[int, bytes]:
    """Ten million records of the same seven bytes in a kilobyte or so, by codec."""
    one = tiny(1, number=False) * 1_000_000
    return {codec: wrap(compress(codec, one * 10), NOW, codec=codec, count=10_000_000) for codec in (1, 4)}


@pytest.fixture(scope="module")
def sound() -> bytes:
    """300,000 records with correct offsets."""
    return compress(Codec.GZIP, tiny(300_000))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cleanup_policy": "compact"},
        {"compression_type": "lz4"},
        {"message_timestamp_before_max_ms": 1000},
        {"message_timestamp_type": "LogAppendTime"},
    ],
)
def test_ten_million_records_in_a_kilobyte(many: dict[int, bytes], options: dict[str, Any]) -> None:
    for data in many.values():
        for fields in ({}, {"base_timestamp": -5, "max_timestamp": -5}):
            view = memoryview(wrap(data[61:], NOW, codec=data[22], count=10_000_000, **fields))
            assert held(partial(check, view, topic(**options))) < HELD_MAX


def test_many_records_without_keys_are_refused_and_a_thousand_are_named() -> None:
    data = wrap(compress(Codec.ZSTD, tiny(5_000)), NOW, codec=Codec.ZSTD, count=5_000)
    with pytest.raises(RefusedError) as caught:
        validate(memoryview(data), topic(cleanup_policy="compact"), base=0, epoch=0, now_ms=NOW, produce_version=9)
    assert len(caught.value.record_errors) == 1_000
    assert caught.value.message.startswith("5000 of 5000")


def test_what_inflates_to_a_lot_is_not_inflated_on_the_loop() -> None:
    bomb = wrap(compress(Codec.ZSTD, bytes(200 << 20)), NOW, codec=Codec.ZSTD)
    assert held(partial(check, memoryview(bomb), topic())) < HELD_MAX


def test_old_messages_are_not_opened_without_end() -> None:
    inside = legacy.build([Record(at, NOW, None, b"") for at in range(3_000)], magic=1)
    data = legacy._message(0, NOW, None, compress(Codec.GZIP, inside), 1, Codec.GZIP)
    with pytest.raises(LargeError):
        validate(memoryview(data), topic(), base=0, epoch=0, now_ms=NOW, produce_version=2)
    accepted = validate(memoryview(data), topic(), base=0, epoch=0, now_ms=NOW, produce_version=2, thorough=True)
    assert accepted.last == 2_999


def test_converting_down_goes_in_portions(sound: bytes) -> None:
    """41 kB of gzip took 50 s for each fetch."""
    data = wrap(sound, NOW, codec=Codec.GZIP, count=300_000)
    seen = 0
    for _ in range(3):
        answers: list[bytes] = []
        assert held(lambda: answers.append(legacy.down_convert(data, 1, seen))) < HELD_MAX  # noqa: B023
        if not native.is_built():
            assert answers == [], "so much is more than Python looks through"
            return
        offsets = [record.offset for record in batch.iterate(answers[0])]
        assert offsets == list(range(seen, seen + legacy.PORTION.records))
        seen += len(offsets)


def test_a_batch_that_inflates_to_too_much_is_not_converted() -> None:
    data = wrap(compress(Codec.GZIP, bytes(40 << 20)), NOW, codec=Codec.GZIP)
    with pytest.raises(BrokerError) as caught:
        legacy.down_convert(data, 1)
    assert caught.value.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)


# With a broker.


def produce(*records: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=at, records=memoryview(one)) for at, one in enumerate(records)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="law", partition_data=data)])


@pytest.fixture
def wired(tmp_path: Path) -> Any:
    with BrokerThread(data=tmp_path) as broker, Wired(int(broker.bootstrap.rpartition(":")[2])) as wired:
        law = CreatableTopic(name="law", num_partitions=3, replication_factor=1, assignments=[], configs=[])
        wired.ask(CreateTopicsRequest(topics=[law], timeout_ms=30_000), 5)
        yield wired


def results(answer: Any) -> list[tuple[int, int]]:
    return [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]


def large(first: bytes = b"a") -> bytes:
    """A valid batch that is too large to decompress on the loop."""
    value = varint(5 << 20) + first * (5 << 20)
    return wrap(compress(Codec.LZ4, record(value=value)), NOW, codec=Codec.LZ4)


def test_a_large_batch_is_stored_and_what_follows_it_on_its_connection_stays_behind(wired: Wired) -> None:
    small = wrap(record(), NOW)
    wired.send(produce(large(), small, large()), 9)
    wired.send(produce(small, small, small), 9)
    assert results(wired.receive()) == [(0, 0), (0, 0), (0, 0)]
    assert results(wired.receive()) == [(0, 1), (0, 1), (0, 1)]


def test_a_large_batch_that_is_wrong_is_refused_by_name(wired: Wired) -> None:
    value = varint(5 << 20) + b"a" * (5 << 20)
    wrong = wrap(compress(Codec.LZ4, record(value=value) + b"!"), NOW, codec=Codec.LZ4)
    small = wrap(record(), NOW)
    assert results(wired.ask(produce(small, wrong, small), 9)) == [(0, 0), (87, -1), (0, 0)]


def test_an_answer_is_owed_for_each_request_in_order(wired: Wired) -> None:
    wired.send(produce(large()), 9)
    wired.send(MetadataRequest(topics=[]), 9)
    assert results(wired.receive()) == [(0, 0)]
    assert wired.receive().brokers


def test_large_batches_that_want_no_answer(wired: Wired) -> None:
    request = produce(large(), wrap(record(), NOW))
    request.acks = 0
    wired.send(request, 9)
    wired.forget()
    assert results(wired.ask(produce(large(), large()), 9)) == [(0, 1), (0, 1)]


def test_a_request_of_many_batches_goes_on_in_slices(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "TURN_S", 0.0)
    put_off: list[int] = []
    genuine = handler.Work.put_off

    def seen(work: handler.Work) -> Any:
        put_off.append(len(work.results))
        return genuine(work)

    monkeypatch.setattr(handler.Work, "put_off", seen)
    small = wrap(record(), NOW)
    assert results(wired.ask(produce(small, small, small), 9)) == [(0, 0), (0, 0), (0, 0)]
    assert put_off == [1], "the first batch at once, the others after others had their turn"


def test_too_much_that_waits_is_turned_away(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "WAITING_SIZE_MAX", 0)
    monkeypatch.setattr(aside.run.__self__, "_size", 1)
    assert results(wired.ask(produce(large()), 9)) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]


def test_a_search_by_time_in_many_records(wired: Wired) -> None:
    body = tiny(299_999) + record(delta=299_999, time=5, value=varint(4 << 20) + b"x" * (4 << 20))
    data = wrap(compress(Codec.GZIP, body), NOW, codec=Codec.GZIP, count=300_000, max_timestamp=NOW + 5)
    stored = results(wired.ask(produce(data), 9))
    if not native.is_built():
        assert stored == [(ErrorCode.RECORD_LIST_TOO_LARGE, -1)], "so much is more than Python looks through"
        return
    assert stored == [(0, 0)]
    asked = ListOffsetsPartition(partition_index=0, timestamp=NOW + 3)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="law", partitions=[asked])])
    found = wired.ask(request, 5).topics[0].partitions[0]
    assert (found.error_code, found.timestamp, found.offset) == (0, NOW + 5, 299_999)
