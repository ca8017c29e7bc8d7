"""Memory follows the bytes that were sent: waiting responses, responses to repeated requests, what is kept of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from net.test_connection import answer, frame, play
from waiting import until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.handlers.repeats import REPEATS_MAX
from ottla.net.answer import Answer, Deferred
from ottla.wire.codec import DecodeError, decode, decoder
from ottla.wire.decoding import REQUEST_ELEMENTS_MAX
from ottla.wire.encoding import VARINT
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.net.connection import Connection
    from ottla.net.listener import Listener


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        yield wired


def test_answers_behind_a_late_one_count_as_unsent() -> None:
    """The first request is answered last; responses to the others accumulate up to the limit, not beyond."""
    late: list[asyncio.Future[bytes]] = []
    handled = 0

    def handle(_: Connection, data: memoryview) -> Answer:
        nonlocal handled
        handled += 1
        if data == b"late":
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            late.append(future)
            return Deferred(future, lambda done: [frame(done.result())])
        return [frame(b"x" * 10_000)]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"late") + frame(b"now") * 500)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert handled <= 1 + 100_000 // 10_000 + 1
        late[0].set_result(b"at last")
        assert await answer(reader) == b"at last"
        for _ in range(500):
            assert await answer(reader) == b"x" * 10_000
        assert handled == 501

    play(handle, story, unsent_size_max=100_000)


def test_late_answers_behind_a_late_one_count_as_well() -> None:
    late: list[asyncio.Future[bytes]] = []

    def handle(_: Connection, data: memoryview) -> Answer:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        late.append(future)
        if data == b"soon":
            future.set_result(b"x" * 10_000)
        return Deferred(future, lambda done: [frame(done.result())])

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"late"))
        for _ in range(100):
            writer.write(frame(b"soon"))
            await asyncio.sleep(0.001)
        assert len(late) <= 20
        late[0].set_result(b"at last")
        assert await answer(reader) == b"at last"
        assert {await answer(reader) for _ in range(100)} == {b"x" * 10_000}

    play(handle, story, unsent_size_max=100_000)


def test_an_answer_that_is_worked_out_holds_back_the_next_request() -> None:
    late: list[asyncio.Future[bytes]] = []

    def handle(_: Connection, data: memoryview) -> Answer:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        late.append(future)
        return Deferred(future, lambda done: [frame(done.result())], exclusive=True)

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"request") * 3)
        for number in range(3):
            await until(lambda number=number: len(late) > number)
            await asyncio.sleep(0.005)
            assert len(late) == number + 1
            late[number].set_result(b"%d" % number)
            assert await answer(reader) == b"%d" % number

    play(handle, story)


def test_the_same_is_told_a_few_times_only(wired: Wired) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    results = wired.ask(DescribeConfigsRequest(resources=[resource] * 100), 4).results
    assert len(results) == 100
    assert [len(one.configs) > 50 for one in results].count(True) == 1 + REPEATS_MAX
    assert results[-1].error_code == ErrorCode.INVALID_REQUEST
    groups = wired.ask(DescribeGroupsRequest(groups=["a", *["b"] * 100, "c"]), 5).groups
    assert [one.group_id for one in groups] == ["a", *["b"] * 100, "c"]
    assert groups[-2].error_code == ErrorCode.INVALID_REQUEST
    assert groups[-1].error_code == groups[0].error_code != ErrorCode.INVALID_REQUEST


def test_numbers_count_as_elements() -> None:
    def request(count: int) -> bytes:
        head = b"\x02x" + bytes(8) + bytes(2) + b"\x02" + b"\x02t"
        return head + VARINT[count + 1] + bytes(4 * count) + b"\0\0"

    read = decoder(AddPartitionsToTxnRequest, 3)
    assert len(read(request(1000), 0, 1001)[0].v3_and_below_topics[0].partitions) == 1000
    with pytest.raises(DecodeError, match="elements"):
        read(request(REQUEST_ELEMENTS_MAX), 0, REQUEST_ELEMENTS_MAX)


def test_tagged_fields_count_as_elements() -> None:
    body = b"\0\0\0\0" + VARINT[5000] + b"\x07\0" * 5000
    assert decoder(MetadataRequest, 9)(body, 0, 5000)[0].topics is None
    with pytest.raises(DecodeError, match="tagged fields"):
        decoder(MetadataRequest, 9)(body, 0, 4999)


def test_a_string_is_no_longer_than_kafkas() -> None:
    def request(size: int) -> bytes:
        return b"\x02" + VARINT[size + 1] + b"x" * size + b"\0" + b"\0\0\0\0"

    assert decode(MetadataRequest, 9, request(0x7FFF)).topics
    with pytest.raises(DecodeError, match="longer than"):
        decode(MetadataRequest, 9, request(0x8000))


def test_a_join_with_more_than_a_record_can_hold_is_refused(wired: Wired) -> None:
    def join(size: int, count: int = 1) -> int:
        protocols = [JoinGroupRequestProtocol(name=f"p{at}", metadata=bytes(size)) for at in range(count)]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        return int(wired.ask(request, 5).error_code)

    wired.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert join(1000) == ErrorCode.MEMBER_ID_REQUIRED
    assert join(2 << 20) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert join(900 << 10, count=6) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert join(1, count=2000) == ErrorCode.UNKNOWN_SERVER_ERROR
