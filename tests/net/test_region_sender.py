"""The thread that sends the rest of large answers: order, errors, cancelling, and a system without it."""

from __future__ import annotations

import asyncio
import os
import socket as sockets
import sys
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from ottla.net import region_sender
from ottla.net.region_sender import RegionSender
from ottla.records.native import sender_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path
    from socket import socket

    Story = Callable[[RegionSender], Awaitable[None]]

SIZE = 3 << 20  # more than the buffers of both sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux" or sender_class() is None, reason="needs the native part")


def play(story: Story) -> None:
    async def scene() -> None:
        sender = RegionSender(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(story(sender), 60)
        finally:
            sender.close()

    asyncio.run(scene())


@pytest.fixture
def pair() -> Iterator[tuple[socket, socket]]:
    ours, theirs = sockets.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


@pytest.fixture
def content(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    data = os.urandom(SIZE)
    (tmp_path / "log").write_bytes(data)
    with (tmp_path / "log").open("rb") as file:
        yield file.fileno(), data


async def receive(theirs: socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        piece = await loop.sock_recv(theirs, 1 << 16)
        if not piece:
            break
        data += piece
    return data


def test_pieces_arrive_in_order_and_the_end_is_told_once(
    pair: tuple[socket, socket], content: tuple[int, bytes]
) -> None:
    (ours, theirs), (file, data) = pair, content

    async def story(sender: RegionSender) -> None:
        ends: list[OSError | None] = []
        pieces: list[Any] = [b"head", (file, 10, SIZE - 10), b"", (file, 0, 0), b"between", (file, 5, 7), b"tail"]
        job = sender.send(ours.fileno(), pieces, ends.append)
        assert job is not None
        expected = b"head" + data[10:] + b"between" + data[5:12] + b"tail"
        assert sender.left(job) <= len(expected)
        assert await receive(theirs, len(expected)) == expected
        await until(lambda: ends)
        assert ends == [None]
        assert sender.left(job) == 0
        again = sender.send(ours.fileno(), [b"more"], ends.append)
        assert again not in (None, job)
        assert await receive(theirs, 4) == b"more"

    play(story)


def test_a_slow_client_does_not_stop_another(content: tuple[int, bytes], pair: tuple[socket, socket]) -> None:
    (slow, silent), (file, data) = pair, content
    quick, reads = sockets.socketpair()

    async def story(sender: RegionSender) -> None:
        reads.setblocking(False)
        quick.setblocking(False)
        ends: list[str] = []
        first = sender.send(slow.fileno(), [(file, 0, SIZE)], lambda _: ends.append("slow"))
        sender.send(quick.fileno(), [(file, 0, SIZE)], lambda _: ends.append("quick"))
        assert await receive(reads, SIZE) == data
        await until(lambda: ends)
        assert ends == ["quick"]
        assert first is not None
        assert 0 < sender.left(first) < SIZE
        assert await receive(silent, SIZE) == data

    with quick, reads:
        play(story)


@pytest.mark.parametrize("fault", ["closed", "short", "no such file"])
def test_a_failed_job_is_told_with_its_error(
    fault: str, pair: tuple[socket, socket], content: tuple[int, bytes]
) -> None:
    (ours, theirs), (file, _) = pair, content

    async def story(sender: RegionSender) -> None:
        ends: list[OSError | None] = []
        region = {"closed": (file, 0, SIZE), "short": (file, SIZE, 1), "no such file": (-1, 0, 1)}[fault]
        if fault == "closed":
            theirs.close()
        sender.send(ours.fileno(), [region], ends.append)
        await until(lambda: ends)
        assert isinstance(ends[0], OSError)
        assert ends[0].errno

    play(story)


def test_a_cancelled_job_sends_nothing_to_the_next_owner_of_its_descriptor(content: tuple[int, bytes]) -> None:
    file, _ = content

    async def story(sender: RegionSender) -> None:
        ends: list[object] = []
        for _ in range(200):
            ours, theirs = sockets.socketpair()
            ours.setblocking(False)
            job = sender.send(ours.fileno(), [(file, 0, SIZE)], ends.append)
            assert job is not None
            released = asyncio.Event()
            number = ours.fileno()
            sender.cancel(job, lambda ours=ours, released=released: (ours.close(), released.set()))
            await released.wait()
            theirs.close()
            next_ours, next_theirs = sockets.socketpair()  # gets the same numbers
            assert number in (next_ours.fileno(), next_theirs.fileno())
            with next_ours, next_theirs:
                for one in (next_ours, next_theirs):
                    one.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        one.recv(1)
        assert ends == [], "nobody waits for a cancelled job"

    play(story)


def test_a_job_that_is_at_work_is_released_when_the_thread_is_done(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket, socket]
) -> None:
    """Such as one that reads from a slow disk: the loop must not wait for it."""

    class AtWork:
        def __init__(self) -> None:
            self.read, self.write = os.pipe()
            self.ends: list[tuple[int, int]] = []

        def fileno(self) -> int:
            return self.read

        def send(self, socket: int, pieces: object) -> int:
            return 1

        def cancel(self, job: int) -> bool:
            return False

        def take_ends(self) -> list[tuple[int, int]]:
            os.read(self.read, 1)
            return self.ends

        def stop(self) -> None: ...

    native = AtWork()
    monkeypatch.setattr(region_sender, "sender_class", lambda: lambda: native)

    async def story(sender: RegionSender) -> None:
        told: list[str] = []
        job = sender.send(pair[0].fileno(), [b"x"], lambda _: told.append("ended"))
        assert job is not None
        sender.cancel(job, lambda: told.append("released"))
        assert told == []
        native.ends = [(1, 0)]
        os.write(native.write, b".")
        await until(lambda: told)
        assert told == ["released"]

    play(story)


def test_without_the_thread_the_caller_sends_everything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(24, "Too many open files")

    async def story(sender: RegionSender) -> None:
        for _ in range(3):
            assert sender.send(1, [b"x"], print) is None

    monkeypatch.setattr(region_sender, "sender_class", lambda: None)
    play(story)
    assert not caplog.records
    monkeypatch.setattr(region_sender, "sender_class", lambda: fail)
    play(story)
    assert len(caplog.records) == 1, "it says so once"


def test_a_socket_that_cannot_be_watched_is_left_to_the_caller(content: tuple[int, bytes]) -> None:
    async def story(sender: RegionSender) -> None:
        assert sender.send(content[0], [b"x"], print) is None, "a file is no socket"

    play(story)
