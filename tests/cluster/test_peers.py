"""Requests to other brokers: to a real one, and to servers that misbehave in every way."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
import uvloop
from waiting import until

from ottla.cluster import peers as module
from ottla.cluster.image import Broker
from ottla.cluster.peers import Connections, PeerError, UnsupportedError
from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.wire import codec, frame
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.raft import VoteRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

LISTENER = "PLAINTEXT"
METADATA = 3


def broker_at(port: int, *, epoch: int = 7, broker_id: int = 2) -> Broker:
    return Broker(broker_id, {LISTENER: ("127.0.0.1", port)}, None, epoch)


def play(story: Awaitable[None], *, loop: str = "uvloop") -> None:
    async def scene() -> None:
        await asyncio.wait_for(story, 120)

    if loop == "uvloop":
        uvloop.run(scene())
    else:
        asyncio.run(scene())


@asynccontextmanager
async def connected(**limits: int) -> AsyncIterator[Connections]:
    connections = Connections(LISTENER, **limits)
    try:
        yield connections
    finally:
        await connections.close()
        left = [task for task in asyncio.all_tasks() if "Line._connect" in repr(task.get_coro())]
        assert not left, "no dial outlives the connections"


@asynccontextmanager
async def fake(serve: Any) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def request_from(reader: asyncio.StreamReader) -> tuple[frame.Header, bytes]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return frame.parse_header(data), data


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answer_to(header: frame.Header, message: object) -> bytes:
    head = frame.response_header(header.key, header.version, header.correlation_id)
    return framed(head + codec.encode(message, header.version))


def empty_metadata(cluster_id: str = "c") -> MetadataResponse:
    return MetadataResponse(brokers=[], cluster_id=cluster_id, controller_id=1, topics=[])


ANY = MetadataRequest(topics=[])


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_real_broker_answers_in_the_version_asked_for_and_in_the_newest(loop: str) -> None:
    async def story(port: int) -> None:
        async with connected() as peers:
            there = broker_at(port)
            answers = await asyncio.gather(
                peers.ask(there, MetadataRequest(topics=[]), version=1),
                peers.ask(there, DescribeClusterRequest(include_cluster_authorized_operations=False)),
                peers.ask(there, MetadataRequest(topics=None), channel="another"),
            )
            assert [type(answer).__name__ for answer in answers] == [
                "MetadataResponse",
                "DescribeClusterResponse",
                "MetadataResponse",
            ]
            assert answers[0].cluster_id is None, "version 1 has none"
            assert answers[1].brokers[0].port == port
            assert answers[2].cluster_id
            with pytest.raises(UnsupportedError):
                await peers.ask(there, VoteRequest(cluster_id=None, topics=[]))
            assert (await peers.ask(there, ANY)).brokers, "the connection goes on"

    with BrokerThread() as broker:
        play(story(int(broker.bootstrap.rpartition(":")[2])), loop=loop)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_records_of_a_large_fetch_are_views_of_one_buffer(loop: str) -> None:
    records = batch.build([batch.Record(0, 5, None, b"x" * 900_000, ())])

    async def story(port: int) -> None:
        async with connected() as peers:
            there = broker_at(port)
            await peers.ask(there, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version=4)
            for _ in range(8):
                data = PartitionProduceData(index=0, records=memoryview(records))
                topic = TopicProduceData(name="t", partition_data=[data])
                sent = await peers.ask(there, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), version=9)
                assert sent.responses[0].partition_responses[0].error_code == 0
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
            fetched = await peers.ask(
                there,
                FetchRequest(
                    replica_id=-1,
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=50 << 20,
                    topics=[FetchTopic(topic="t", partitions=[wanted])],
                ),
                version=11,
            )
            found = fetched.responses[0].partitions[0].records
            assert isinstance(found, memoryview)
            assert len(found) == 8 * len(records)
            assert bytes(found[-900:-1]) == b"x" * 899

    with BrokerThread() as broker:
        play(story(int(broker.bootstrap.rpartition(":")[2])), loop=loop)


def test_a_request_that_cannot_be_encoded_is_its_own_trouble() -> None:
    """It is encoded once the connection is open, so no caller is there to get the exception."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = (await request_from(reader))[0]
        writer.write(answer_to(header, empty_metadata("c")))

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            there, broken = broker_at(port), MetadataRequest(topics=cast("Any", [5]))
            asked = [peers.ask(there, one, version=4, timeout_s=5) for one in (broken, MetadataRequest(topics=[]))]
            refused, answered = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(refused, AttributeError)
            assert answered.cluster_id == "c"

    play(story())


def test_requests_of_a_channel_are_sent_in_order_and_without_waiting_for_answers() -> None:
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = [(await request_from(reader))[0] for _ in range(5)]  # all have arrived before one is answered
        seen.extend(header.version for header in headers)
        for header in headers:
            writer.write(answer_to(header, empty_metadata(f"c{header.version}")))

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            asked = [peers.ask(broker_at(port), MetadataRequest(topics=[]), version=v) for v in (4, 2, 8, 3, 12)]
            answers = await asyncio.gather(*asked)
            assert seen == [4, 2, 8, 3, 12]
            assert [answer.cluster_id for answer in answers] == ["c4", "c2", "c8", "c3", "c12"]

    play(story())


def garbage(header: frame.Header) -> bytes:
    return framed(struct.pack(">i", header.correlation_id) + b"\xff" * 40)


def wrong_correlation(header: frame.Header) -> bytes:
    return answer_to(header._replace(correlation_id=header.correlation_id + 1), empty_metadata())


def too_short(header: frame.Header) -> bytes:
    return framed(b"\0")


def bytes_left(header: frame.Header) -> bytes:
    whole = answer_to(header, empty_metadata())[4:] + b"\0\0"
    return framed(whole)


def huge(header: frame.Header) -> bytes:
    return struct.pack(">i", 0x7FFFFFFF) + b"\0" * 1000


def negative(header: frame.Header) -> bytes:
    return struct.pack(">i", -5) + b"\0" * 1000


def half(header: frame.Header) -> bytes:
    return answer_to(header, empty_metadata())[:-3]


@pytest.mark.parametrize(
    "nonsense", [garbage, wrong_correlation, too_short, bytes_left, huge, negative, half], ids=lambda one: one.__name__
)
def test_nonsense_ends_the_connection_and_the_next_request_dials_again(nonsense: Any) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        header, _ = await request_from(reader)
        if connections == 1:
            writer.write(nonsense(header))
            if nonsense is half:
                writer.close()
            else:
                await reader.read()  # until the peer closes the connection
        else:
            writer.write(answer_to(header, empty_metadata("good")))

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            with pytest.raises(PeerError, match="broker 2"):
                await peers.ask(broker_at(port), ANY, version=4)
            assert (await peers.ask(broker_at(port), ANY, version=4)).cluster_id == "good"

    play(story())


def test_a_declared_size_costs_nothing_and_a_trickle_ends_with_the_time_of_the_request() -> None:
    sent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_from(reader)
        writer.write(struct.pack(">i", 500 << 20))
        while not writer.is_closing():
            writer.write(b"\0" * 100)
            sent.set()
            await asyncio.sleep(0.01)

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            asking = asyncio.ensure_future(peers.ask(broker_at(port), ANY, version=4, timeout_s=2))
            behind = asyncio.ensure_future(peers.ask(broker_at(port), ANY, version=4, timeout_s=100))
            await sent.wait()
            await asyncio.sleep(0.05)
            line = next(iter(peers._lines.values()))
            assert line._frames is not None
            assert len(line._frames._frame or b"") <= 2 << 20
            with pytest.raises(PeerError, match="no answer to Metadata within"):
                await asking
            with pytest.raises(PeerError):
                await behind  # its response would follow one that nobody waits for

    play(story())


@pytest.mark.parametrize("version", [4, None])
def test_silence_is_waited_for_no_longer_than_the_time_of_the_request(version: int | None) -> None:
    """Without a version, ApiVersions is the request that gets no response."""
    dialled = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        await reader.read()

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            for at in (1, 2):
                with pytest.raises(PeerError, match="no answer"):
                    await peers.ask(broker_at(port), ANY, version=version, timeout_s=1)
                assert dialled == at, "a silent connection is not used again"

    play(story())


def test_a_caller_who_gives_up_does_not_shift_the_answers_of_others() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = [(await request_from(reader))[0] for _ in range(2)]
        for at, header in enumerate(headers):
            writer.write(answer_to(header, empty_metadata(f"c{at}")))

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            first = asyncio.ensure_future(peers.ask(broker_at(port), ANY, version=4))
            await until(lambda: peers._lines and next(iter(peers._lines.values()))._sent)
            first.cancel()
            assert (await peers.ask(broker_at(port), ANY, version=4)).cluster_id == "c1"

    play(story())


def test_who_asks_again_at_once_does_not_dial_at_once() -> None:
    """Refused connections, and those closed after a request: each failure delays the next attempt."""
    dialled = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        await request_from(reader)
        writer.close()

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            dial_at = [asyncio.get_running_loop().time()]
            for _ in range(4):
                with pytest.raises(PeerError):
                    await peers.ask(broker_at(port), ANY, version=4)
                line = next(iter(peers._lines.values()))
                dial_at.append(line._dial_at)
            assert dialled == 4
            waits = [later - earlier for earlier, later in pairwise(dial_at)]
            assert all(wait > 0.8 * module.BACKOFF_S * 2**at for at, wait in enumerate(waits))
        async with connected() as peers:
            for _ in range(3):
                with pytest.raises(PeerError, match="no connection"):
                    await peers.ask(broker_at(port), ANY, version=4)
            line = next(iter(peers._lines.values()))
            line._failures = 1000
            line._fail("now")
            assert line._dial_at - asyncio.get_running_loop().time() <= module.BACKOFF_S_MAX

    play(story())


def test_a_broker_that_came_back_elsewhere_or_with_another_epoch_gets_a_new_connection() -> None:
    dialled = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        while True:
            try:
                header, _ = await request_from(reader)
            except asyncio.IncompleteReadError:
                return
            writer.write(answer_to(header, empty_metadata()))

    async def story() -> None:
        async with fake(serve) as port, fake(serve) as other, connected() as peers:
            for there, expected in [
                (broker_at(port), 1),
                (broker_at(port), 1),
                (broker_at(port, epoch=-1), 1),  # unknown: no reason to doubt it
                (broker_at(port, epoch=8), 2),
                (broker_at(other, epoch=8), 3),
            ]:
                await peers.ask(there, ANY, version=4)
                assert dialled == expected
            peers.close_channel(2, "")
            await peers.ask(broker_at(other, epoch=8), ANY, version=4)
            assert dialled == 4

    play(story())


def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def story() -> None:
        async with fake(serve) as port:
            peers = Connections(LISTENER)
            waiting = asyncio.ensure_future(peers.ask(broker_at(port), ANY, version=4))
            dialling = asyncio.ensure_future(peers.ask(broker_at(port, broker_id=3), ANY, version=4))
            await asyncio.sleep(0.05)
            await peers.close()
            for one in (waiting, dialling, peers.ask(broker_at(port), ANY, version=4)):
                with pytest.raises(PeerError, match="stopping"):
                    await one
        with pytest.raises(PeerError, match="no listener"):
            await Connections("OTHER").ask(broker_at(port), ANY)

    play(story())


def test_versions_that_do_not_meet_are_told_before_anything_is_sent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await request_from(reader)
        spoken = [ApiVersion(api_key=METADATA, min_version=0, max_version=5)]
        writer.write(answer_to(header, ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=spoken)))
        header, _ = await request_from(reader)
        writer.write(answer_to(header, empty_metadata(f"v{header.version}")))

    async def story() -> None:
        async with fake(serve) as port, connected() as peers:
            with pytest.raises(UnsupportedError):
                await peers.ask(broker_at(port), ANY, least=6)
            assert (await peers.ask(broker_at(port), ANY, least=5)).cluster_id == "v5"

    play(story())
