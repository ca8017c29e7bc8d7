"""A connection on a real socket: framing, order, limits, file regions and closing."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from net.listening import limited, port_of
from waiting import until

from ottla.errors import Hangup
from ottla.net.answer import Answer, Deferred
from ottla.net.connection import Connection, ConnectionLimits
from ottla.net.listener import Listener, bind
from ottla.net.outbox import COPY_SIZE_MAX
from ottla.net.receiver import RECEIVE_SIZE, Receiver
from ottla.net.region_sender import RegionSender
from ottla.records.native import sender_class

if TYPE_CHECKING:
    from pathlib import Path

Story = Callable[[Listener, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Handle = Callable[[Connection, memoryview], Answer]


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(_: Connection, data: memoryview) -> Answer:
    return [frame(bytes(data))]


class FileRegion:
    def __init__(self, path: Path, position: int, size: int) -> None:
        self._file = path.open("rb")
        self.position, self.size = position, size

    @property
    def fd(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        return os.pread(self.fd, self.size, self.position)


def listener(handle: Handle, **changes: Any) -> Listener:
    limits = ConnectionLimits(
        changes.pop("frame_size_max", 1 << 24),
        changes.pop("requests_max", 1000),
        changes.pop("unsent_size_max", 1 << 20),
    )
    receiver = Receiver(None, changes.pop("sender", None))
    settings: dict[str, Any] = {
        "admission": limited(1000, 1000, {}),
        "connections_max": None,
        "idle_s_max": 0.0,
        "send_buffer_size": 0,
        "receive_buffer_size": 0,
    }
    return Listener(
        "PLAINTEXT", bind("127.0.0.1", 0, 50), handle=handle, receiver=receiver, limits=limits, **settings | changes
    )


def play(handle: Handle, story: Story, **changes: Any) -> None:
    async def scene() -> None:
        opened = listener(handle, **changes)
        opened.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(opened), limit=1 << 26)
        try:
            await asyncio.wait_for(story(opened, reader, writer), 20)
        finally:
            writer.close()
            opened.stop_accepting()
            await opened.drain(1)

    asyncio.run(scene())


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


class Gathering:
    """Handles frames that begin with the same byte together, but not those that begin with `-`."""

    def __init__(self) -> None:
        self.gathered: list[int] = []

    def __call__(self, _: Connection, data: memoryview) -> Answer:
        return [frame(bytes(data))]

    def gather(self, _: Connection, frames: list[memoryview]) -> list[Answer]:
        found: list[Answer] = []
        for one in frames:
            if not one or one[:1] != frames[0][:1] or one[:1] == b"-":
                break
            found.append([frame(bytes(one))])
        self.gathered.append(len(found))
        return found


def test_frames_that_came_together_may_be_handled_at_once_and_are_answered_in_order() -> None:
    payloads = [
        *(b"aaaa%d" % at for at in range(200)),
        b"-",
        b"",
        b"b1",
        b"-2",
        b"b2",
        b"b3",
        bytes(100_000),
        b"c1",
        b"c2",
    ]
    handle = Gathering()

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = b"".join(map(frame, payloads))
        for size in (len(stream), 900, 7):
            for start in range(0, len(stream), size):
                writer.write(stream[start : start + size])
                await asyncio.sleep(0)
            assert [await answer(reader) for _ in payloads] == payloads

    play(handle, story)
    assert max(handle.gathered) > 1


def test_frames_may_arrive_in_any_pieces() -> None:
    payloads = [b"", b"a", b"bc" * 50, os.urandom(5000)]
    stream = b"".join(map(frame, payloads))

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in (1, 3, 4, 7, 1000, len(stream)):
            for start in range(0, len(stream), size):
                writer.write(stream[start : start + size])
                await asyncio.sleep(0)
            for payload in payloads:
                assert await answer(reader) == payload

    play(echo, story)


def test_a_frame_larger_than_the_receive_buffer_comes_whole() -> None:
    payload = os.urandom(3 * RECEIVE_SIZE + 17)

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"before") + frame(payload) + frame(b"after"))
        assert await answer(reader) == b"before"
        assert await answer(reader) == payload
        assert await answer(reader) == b"after"

    play(echo, story)


def test_answers_leave_in_request_order_whenever_they_are_ready() -> None:
    futures: list[asyncio.Future[bytes]] = []

    def handle(_: Connection, data: memoryview) -> Answer:
        kept = bytes(data)
        if kept.startswith(b"now"):
            return [frame(kept)]
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        futures.append(future)
        return Deferred(future, lambda done: [frame(kept + done.result())])

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(map(frame, (b"late-a", b"now-b", b"late-c", b"now-d"))))
        await until(lambda: len(futures) >= 2)
        futures[1].set_result(b"!")
        await asyncio.sleep(0.01)
        futures[0].set_result(b"?")
        assert [await answer(reader) for _ in range(4)] == [b"late-a?", b"now-b", b"late-c!", b"now-d"]

    play(handle, story)


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_an_impossible_length_ends_the_connection(length: int) -> None:
    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"fine") + struct.pack(">i", length))
        assert await answer(reader) == b"fine"
        assert await reader.read() == b""

    play(echo, story, frame_size_max=1000)


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    async def story(opened: Listener, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", 100_000_000) + bytes(10_000))
        held = None
        while held is None or next(iter(opened.connections))._held_size < 10_004:
            await asyncio.sleep(0.001)
            held = next(iter(opened.connections))._held if opened.connections else None
        assert len(held) <= 2 * 10_004

    play(echo, story, frame_size_max=200_000_000)


@pytest.mark.parametrize("size", [1, COPY_SIZE_MAX, COPY_SIZE_MAX + 1, 5_000_000])
def test_regions_of_files_are_sent_between_bytes(size: int, tmp_path: Path) -> None:
    content = os.urandom(size + 20)
    path = tmp_path / "log"
    path.write_bytes(content)

    def handle(_: Connection, data: memoryview) -> Answer:
        return [struct.pack(">i", size + 4), FileRegion(path, 10, size), b"tail"]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"a") + frame(b"b"))
        assert await answer(reader) == content[10 : 10 + size] + b"tail"
        assert await answer(reader) == content[10 : 10 + size] + b"tail"

    play(handle, story)


def test_a_slow_reader_stops_being_read_and_loses_nothing(tmp_path: Path) -> None:
    handled = 0
    path = tmp_path / "log"
    path.write_bytes(os.urandom(200_000))
    whole = path.read_bytes()

    def handle(_: Connection, data: memoryview) -> Answer:
        nonlocal handled
        handled += 1
        return [struct.pack(">i", 200_002), bytes(data), FileRegion(path, 0, 200_000)]

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"".join(frame(b"%02d" % number) for number in range(90)))
        await asyncio.sleep(0.3)
        assert handled < 60, "handling stops when too much is unsent"
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(90):
            assert await answer(reader) == b"%02d" % number + whole

    play(handle, story, unsent_size_max=300_000, send_buffer_size=10_000)


async def open_clients(opened: Listener, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await asyncio.open_connection("127.0.0.1", port_of(opened), limit=1 << 16) for _ in range(count)]


def large_answers(path: Path, size: int) -> Handle:
    """Answers of two regions of a file, around bytes that name the request."""

    def handle(_: Connection, data: memoryview) -> Answer:
        region, rest = FileRegion(path, 0, size), FileRegion(path, size, 100)
        return [struct.pack(">i", size + len(data) + 100), region, bytes(data), rest]

    return handle


@pytest.mark.parametrize("threaded", [True, False])
def test_several_slow_readers_of_large_answers_get_every_byte(tmp_path: Path, *, threaded: bool) -> None:
    size, path = 3_000_000, tmp_path / "log"
    whole = os.urandom(size + 100)
    path.write_bytes(whole)

    async def scene() -> None:
        sender = RegionSender(asyncio.get_running_loop(), sender_class()) if threaded else None
        opened = listener(large_answers(path, size), sender=sender)
        opened.open()
        clients = await open_clients(opened, 4)

        async def read(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for turn in range(3):
                writer.write(frame(b"%d-%d-a" % (number, turn)) + frame(b"%d-%d-b" % (number, turn)))
                for letter in (b"a", b"b"):
                    expected = whole[:size] + b"%d-%d-" % (number, turn) + letter + whole[size:]
                    assert await answer(reader) == expected

        await asyncio.gather(*(read(number, *client) for number, client in enumerate(clients)))
        assert opened._receiver.senders == 0
        for _, writer in clients:
            writer.close()
        opened.stop_accepting()
        await opened.drain(5)
        if sender is not None:
            assert sender._native is not None or sender_class() is None
            sender.close()

    asyncio.run(scene())


def test_a_client_that_goes_away_in_the_middle_of_a_large_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    size, path = 3_000_000, tmp_path / "log"
    path.write_bytes(bytes(size + 100))

    async def scene() -> None:
        sender = RegionSender(asyncio.get_running_loop(), sender_class())
        opened = listener(large_answers(path, size), sender=sender)
        opened.open()
        for ending in ("the client closes", "the broker closes"):
            clients = await open_clients(opened, 3)
            for _, writer in clients:
                writer.write(frame(b"x") * 3)
            await until(lambda: opened._receiver.senders == 3)
            for _, writer in clients:
                writer.transport.abort() if ending == "the client closes" else None
            for connection in list(opened.connections) if ending == "the broker closes" else ():
                connection.close()
            await until(lambda: not opened.connections)
            assert opened._receiver.senders == 0
            await until(lambda: not sender._ended)
            for _, writer in clients:
                writer.close()
        opened.stop_accepting()
        sender.close()

    asyncio.run(scene())


def test_a_client_that_reads_slowly_is_not_idle_and_one_that_reads_nothing_is(tmp_path: Path) -> None:
    size, path = 30_000_000, tmp_path / "log"
    path.write_bytes(bytes(size + 100))

    async def scene() -> None:
        sender = RegionSender(asyncio.get_running_loop(), sender_class())
        opened = listener(large_answers(path, size), sender=sender)  # without a sweeper: the test is one
        opened.open()
        (reads, _), (silent, _) = clients = await open_clients(opened, 2)
        silent._transport.pause_reading()  # type: ignore[attr-defined]
        for _, writer in clients:
            writer.write(frame(b"x"))
        await until(lambda: opened._receiver.senders == 2)
        await until(lambda: sender_class() is None or sender._ended)
        for connection in opened.connections:
            connection.note_progress()
        marks = {connection.port: connection.active_at for connection in opened.connections}
        await reads.readexactly(10_000_000)
        for connection in opened.connections:
            connection.note_progress()
        later = {connection.port for connection in opened.connections if connection.active_at > marks[connection.port]}
        assert later == {clients[0][1].get_extra_info("sockname")[1]}
        for _, writer in clients:
            writer.transport.abort()
        opened.stop_accepting()
        await opened.drain(5)
        sender.close()

    asyncio.run(scene())


def test_a_client_with_too_many_unanswered_requests_is_not_read_until_one_is_answered() -> None:
    futures: list[asyncio.Future[bytes]] = []

    def handle(_: Connection, data: memoryview) -> Answer:
        kept, future = bytes(data), asyncio.get_running_loop().create_future()
        futures.append(future)
        return Deferred(future, lambda _: [frame(kept)])

    async def story(_: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        payloads = [os.urandom(300) for _ in range(50)]
        writer.write(b"".join(map(frame, payloads)))
        await asyncio.sleep(0.05)
        assert len(futures) == 4
        for number, payload in enumerate(payloads):
            await until(lambda number=number: len(futures) > number)
            assert len(futures) <= number + 4
            futures[number].set_result(b"")
            assert await answer(reader) == payload

    play(handle, story, requests_max=4)


def test_a_request_that_breaks_the_protocol_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def handle(connection: Connection, data: memoryview) -> Answer:
        if data == b"bad":
            raise Hangup("nonsense")
        return echo(connection, data)

    async def story(opened: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other = await asyncio.open_connection("127.0.0.1", port_of(opened))
        writer.write(frame(b"bad") + frame(b"good"))
        assert await reader.read() == b""
        other.write(frame(b"good"))
        assert await answer(other_reader) == b"good"
        other.close()

    play(handle, story)
    assert "nonsense" in caplog.text


def test_drain_sends_what_is_owed_and_closes() -> None:
    future: asyncio.Future[bytes] | None = None

    def handle(_: Connection, data: memoryview) -> Answer:
        nonlocal future
        future = asyncio.get_running_loop().create_future()
        return Deferred(future, lambda done: [frame(done.result())])

    async def story(opened: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"ask"))
        await until(lambda: future is not None)
        draining = asyncio.ensure_future(opened.drain(10))
        await asyncio.sleep(0.01)
        assert not draining.done()
        future.set_result(b"the answer")
        assert await answer(reader) == b"the answer"
        assert await reader.read() == b""
        await draining

    play(handle, story)


def test_a_closed_connection_cancels_what_it_waited_for() -> None:
    futures: list[asyncio.Future[bytes]] = []

    def handle(_: Connection, data: memoryview) -> Answer:
        futures.append(asyncio.get_running_loop().create_future())
        return Deferred(futures[-1], lambda _: [])

    async def story(opened: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"ask"))
        await until(lambda: futures)
        writer.close()
        await until(lambda: not opened.connections)
        assert futures[0].cancelled()

    play(handle, story)


@pytest.mark.parametrize("before", [0, 3])
def test_an_error_of_ours_ends_its_connection_instead_of_leaving_it_without_an_answer(before: int) -> None:
    """Frames that were read and not handled are lost: a client would wait for their responses for ever."""

    def handle(_: Connection, data: memoryview) -> Answer:
        if bytes(data) == b"bad":
            raise MemoryError
        return [frame(bytes(data))]

    async def story(opened: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"good") * before + frame(b"bad") + frame(b"later"))
        for _ in range(before):
            assert await answer(reader) == b"good"
        assert await reader.read() == b""
        assert not opened.connections

    play(handle, story)
