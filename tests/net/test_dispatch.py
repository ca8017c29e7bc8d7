"""From a frame to a response, and how every error in between is handled."""

from __future__ import annotations

import asyncio
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla import handlers
from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.call import REGISTRY, TELEMETRY, Registration, select_apis
from ottla.net.answer import Deferred
from ottla.net.dispatch import Dispatch, Route
from ottla.wire import codec
from ottla.wire.codec import encode
from ottla.wire.frame import request_header
from ottla.wire.messages.configs import ListConfigResourcesRequest
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.peers import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.transactions import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.net.connection import Connection

handlers.load()


class Peer:
    host, listener, dialled = "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092)
    arrived = begun = 0.0

    def __init__(self) -> None:
        self.unsent: list[Any] = []


PEER = cast("Connection", Peer())
END = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)


def framed(request: object, key: int, version: int, correlation: int = 7) -> memoryview:
    return memoryview(request_header(key, version, correlation, "client") + encode(request, version))


@contextmanager
def instead(key: int, function: Callable[..., Any]) -> Iterator[Dispatch]:
    """A dispatcher with another handler for one API."""
    before = REGISTRY[key]
    REGISTRY[key] = Registration(key, before.request, before.versions, function)
    try:
        yield Dispatch(cast("Any", None))
    finally:
        REGISTRY[key] = before


def error_of(answer: Any) -> int:
    """The code in an EndTxn response of version 3: after length, correlation id, tags and throttle time."""
    size, correlation = struct.unpack_from(">ii", answer[0])
    assert (size, correlation) == (len(answer[0]) - 4, 7)
    (code,) = struct.unpack_from(">h", answer[0], 13)
    return int(code)


def test_a_broker_error_and_an_unexpected_one_become_codes(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: Any) -> Any:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)

    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    with instead(26, refuse) as dispatch:
        assert error_of(dispatch(PEER, framed(END, 26, 3))) == ErrorCode.PRODUCER_FENCED
    assert not caplog.records
    with instead(26, fail) as dispatch:
        assert error_of(dispatch(PEER, framed(END, 26, 3))) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a bug" in caplog.text


def test_an_error_that_the_answer_has_no_place_for_ends_the_connection() -> None:
    def refuse(*_: Any) -> Any:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    with instead(0, refuse) as dispatch, pytest.raises(Hangup, match="KAFKA_STORAGE_ERROR"):
        dispatch(PEER, framed(request, 0, 7))


def test_an_answer_that_cannot_be_encoded_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    with (
        instead(26, lambda *_: EndTxnResponse(error_code=1 << 20)) as dispatch,
        pytest.raises(Hangup, match="cannot be encoded"),
    ):
        dispatch(PEER, framed(END, 26, 3))
    assert "EndTxnResponse" in caplog.text


def test_late_answers_and_late_errors() -> None:
    async def scene() -> None:
        async def answer(*_: Any) -> EndTxnResponse:
            await asyncio.sleep(0)
            return EndTxnResponse(error_code=0)

        async def refuse(*_: Any) -> EndTxnResponse:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)

        for function, code in ((answer, 0), (refuse, ErrorCode.INVALID_TXN_STATE)):
            with instead(26, function) as dispatch:
                late = dispatch(PEER, framed(END, 26, 3))
                assert isinstance(late, Deferred)
                await asyncio.wait((late.future,))
                assert error_of(late.encode(late.future)) == code

    asyncio.run(scene())


def test_work_goes_on_when_the_client_that_asked_for_it_leaves() -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def change(*_: Any) -> EndTxnResponse:
            await asyncio.sleep(0.01)
            done.set()
            return EndTxnResponse(error_code=0)

        with instead(26, change) as dispatch:
            late = dispatch(PEER, framed(END, 26, 3))
            assert isinstance(late, Deferred)
            late.future.cancel()
            await asyncio.wait_for(done.wait(), 5)

    asyncio.run(scene())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\0",
        struct.pack(">hhih", 26, 3, 7, 500) + b"x",
        struct.pack(">hhih", 26, 3, 7, 2) + b"\xff\xfe\0",
        struct.pack(">hhih", 999, 0, 7, 0),
        struct.pack(">hhih", 26, 99, 7, 0),
        struct.pack(">hhih", 26, -1, 7, 0),
        struct.pack(">hhih", 26, 3, 7, 0) + b"\0\x7f",
    ],
)
def test_what_cannot_be_read_or_is_not_served_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(Hangup):
        Dispatch(cast("Any", None))(PEER, memoryview(frame))


def test_an_encoder_is_compiled_for_the_first_answer_and_not_for_what_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[tuple[type, int]] = []

    def counted(cls: type, version: int) -> Any:
        compiled.append((cls, version))
        return make(cls, version)

    make = codec.encoder
    monkeypatch.setattr(codec, "encoder", counted)
    with instead(26, lambda parts, call, request: EndTxnResponse(error_code=5)) as dispatch:
        for _ in range(2):
            with pytest.raises(Hangup):
                dispatch(PEER, memoryview(struct.pack(">hhih", 26, 3, 7, 0) + b"\0\x7f"))
        assert not compiled
        frame = framed(END, 26, 3)
        compiled.clear()  # that was the client's
        for _ in range(2):
            assert error_of(dispatch(PEER, frame)) == 5
        assert compiled == [(EndTxnResponse, 3)]


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_a_client_that_is_too_new_is_told_in_a_version_it_can_read(version: int) -> None:
    frame = memoryview(struct.pack(">hhih", 18, version, 7, 0) + b"\0\0\0\0")
    answer = Dispatch(cast("Any", None))(PEER, frame)
    assert isinstance(answer, list)
    size, correlation, code, count = struct.unpack_from(">iihi", answer[0])
    assert (size, correlation, code) == (len(answer[0]) - 4, 7, ErrorCode.UNSUPPORTED_VERSION)
    rows = [struct.unpack_from(">hhh", answer[0], 14 + 6 * row) for row in range(count)]
    known = sorted(select_apis(cast("Any", None)).values(), key=lambda one: one.key)
    assert {one.key for one in known} == {one.key for one in REGISTRY.values() if not one.for_members} - TELEMETRY
    assert rows == [(one.key, *one.versions) for one in known]


def test_api_versions_never_has_tags_in_its_header() -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answer = Dispatch(cast("Any", None))(PEER, framed(request, 18, 3))
    assert isinstance(answer, list)
    _, correlation, code = struct.unpack_from(">iih", answer[0])
    assert (correlation, code) == (7, 0)


@pytest.mark.parametrize("name", ["", "-x", "a b", "x-", "ä"])
def test_a_client_must_call_itself_something_readable(name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    answer = Dispatch(cast("Any", None))(PEER, framed(request, 18, 3))
    assert isinstance(answer, list)
    assert struct.unpack_from(">h", answer[0], 8)[0] == ErrorCode.INVALID_REQUEST


def test_a_controller_may_tell_of_a_large_cluster_in_one_request() -> None:
    """Each partition's replicas count as elements, too: the limit for clients would be reached at 9,000 partitions."""
    key, version = 6, 8
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=1, isr=[1, 2, 3], zk_version=1, replicas=[1, 2, 3]
    )
    topic = UpdateMetadataTopicState(topic_name="t", partition_states=[state] * 50_000)
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_brokers=[])
    route = Route(key, version, REGISTRY[key].function, for_members=REGISTRY[key].for_members)
    told, _ = route.decode(memoryview(encode(request, version)), 0, route.elements_max)
    assert len(told.topic_states[0].partition_states) == 50_000


def test_every_served_api_is_declared_at_every_version_it_is_served_at() -> None:
    assert REGISTRY
    for key, one in REGISTRY.items():
        assert one.request.__wire__.key == key
        low, high = one.request.__wire__.versions
        assert low <= one.versions[0] <= one.versions[1] <= high
    assert ListConfigResourcesRequest in {one.request for one in REGISTRY.values()}


def test_of_many_quick_answers_one_in_eight_is_timed_and_all_are_counted() -> None:
    dispatch, peer = Dispatch(cast("Any", None)), Peer()
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    for _ in range(5000):
        dispatch(cast("Connection", peer), framed(request, 18, 3))
        for times in peer.unsent:
            times[0].add(times, 0.0)
        peer.unsent.clear()
    (counts,) = dispatch.list_counts()
    assert counts.requests == 5000
    assert 4990 <= sum(counts.buckets) <= 5010
