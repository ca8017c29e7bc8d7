"""A large frame is in memory once while it arrives, and once more when it is decoded.

A frame without records beyond the size limit of such requests is never received. Groups keep only as much as they can
write.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from coord.groups.stage import RULES, Stage
from handlers.conftest import port_of as port_of_broker
from handlers.wired import Wired
from net.test_connection import answer, frame, play

from ottla.coord.groups.joining import METADATA_FACTOR_MAX
from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.net.connection import PLAIN_SIZE_MAX
from ottla.wire import codec
from ottla.wire.frame import request_header
from ottla.wire.messages.groups import FindCoordinatorRequest, JoinGroupRequest, JoinGroupRequestProtocol

if TYPE_CHECKING:
    from ottla.net.answer import Answer
    from ottla.net.connection import Connection
    from ottla.net.listener import Listener

SIZE = 48 << 20
PIECE = bytes(1 << 20)
STATUS = Path("/proc/self/status")


class Peak:
    """The most bytes by which this process has grown since this object was created."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    def grown(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        return next(int(line.split()[1]) << 10 for line in STATUS.read_text().splitlines() if line.startswith(name))


def test_a_frame_that_arrives_is_held_once() -> None:
    def handle(_: Connection, data: memoryview) -> Answer:
        return [frame(b"%d" % len(data))]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peak = Peak()
        writer.write(struct.pack(">i", SIZE))
        for _ in range(SIZE // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
        assert await answer(reader) == b"%d" % SIZE
        assert peak.grown() < 1.3 * SIZE

    play(handle, story, frame_size_max=2 * SIZE)


@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
def test_what_is_declared_costs_nothing(size: int) -> None:
    async def story(_: Listener, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peak = Peak()
        writer.write(struct.pack(">i", 20 * SIZE))
        for _ in range(size // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
        await asyncio.sleep(0.1)
        assert peak.grown() < 3 * size + (4 << 20)

    play(lambda *_: None, story, frame_size_max=20 * SIZE)


def test_a_large_frame_comes_as_it_was_sent() -> None:
    """Pieces of odd sizes, another frame in the last of them, and one that waits until the first is answered."""
    wanted = [bytes(range(256)) * 50_000, b"small", b"\1" * 9_000_000, b"\2" * 1_200_000]

    def handle(_: Connection, data: memoryview) -> Answer:
        return [frame(bytes(data))]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = b"".join(map(frame, wanted))
        for position in range(0, len(sent), 77_777):
            writer.write(sent[position : position + 77_777])
            await asyncio.sleep(0)
        assert [await answer(reader) for _ in wanted] == wanted

    play(handle, story, unsent_size_max=1)


def join(size: int, instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )


def large_join(size: int) -> bytes:
    """All of the frame but its last `size` bytes, which are the metadata."""
    head = request_header(11, 5, 1, "test") + codec.encode(join(0), 5)
    return struct.pack(">i", len(head) + size) + head[:-4] + struct.pack(">i", size)


@pytest.mark.parametrize("size", [12 << 20, SIZE])
def test_a_join_that_no_group_can_keep(size: int, tmp_path: Path) -> None:
    """Up to a limit it is read, and refused as Kafka does when it writes the group; beyond, it is not received."""
    with BrokerThread(data=tmp_path) as broker, Wired(port_of_broker(broker)) as wired:
        wired.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        with socket.create_connection(("127.0.0.1", port_of_broker(broker))) as raw:
            peak = Peak()
            try:
                raw.sendall(large_join(size))
                for _ in range(size // len(PIECE)):
                    raw.sendall(PIECE)
                answer = raw.recv(14)
            except ConnectionError:
                answer = b""
            if size < PLAIN_SIZE_MAX:
                assert struct.unpack(">iiih", answer)[3] == ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                assert answer == b""
        assert peak.grown() < 2.5 * min(size, PLAIN_SIZE_MAX)


@pytest.mark.parametrize("first", [4, 5, 6])
def test_a_frame_is_refused_for_its_api(first: int) -> None:
    """It is refused as soon as the API is known, however its first bytes arrive."""

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = large_join(PLAIN_SIZE_MAX)[:6]
        for piece in (sent[:first], sent[first:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert await reader.read() == b""

    play(lambda *_: None, story, frame_size_max=2 * SIZE)


def test_an_assignment_that_no_group_can_keep_is_not_copied() -> None:
    stage = Stage(RULES._replace(record_size_max=1000))
    member, join = stage.admitted()
    stage.advance(RULES.initial_delay_ms)
    written = len(stage.journal)
    sync = stage.sync(member, stage.answer(join).generation_id, {member: bytes(1001)})
    assert stage.code(sync) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(stage.journal) == written
    assert stage.heartbeat(member, stage.answer(join).generation_id) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_keeps_no_more_than_it_can_write() -> None:
    stage = Stage(RULES._replace(record_size_max=1000))
    offer = {"range": bytes(1000)}
    joins = [stage.join(instance=f"i{at}", protocols=offer) for at in range(METADATA_FACTOR_MAX)]
    assert all(stage.waits(one) for one in joins)
    assert stage.code(stage.join(instance="more", protocols=offer)) is ErrorCode.UNKNOWN_SERVER_ERROR
    again = stage.join(instance="i0", protocols=offer)
    assert stage.waits(again), "it says what it has said"
    assert stage.code(joins[0]) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.waits(stage.join(instance="i1", protocols={"range": b""}))
    assert stage.waits(stage.join(instance="more", protocols=offer)), "there is room again"
