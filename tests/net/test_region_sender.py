"""The thread that sends the rest of large answers: order, errors, cancelling, and a system without it."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import random
import socket as sockets
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until, wait_until

from ottla.net.region_sender import RegionSender
from ottla.records.native import sender_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from socket import socket

    Story = Callable[[RegionSender], Awaitable[None]]

NATIVE = sender_class()
SIZE = 3 << 20  # more than the buffers of both sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux" or NATIVE is None, reason="needs the native part")


def play(story: Story, start: Callable[[], Any] | None = NATIVE) -> None:
    async def scene() -> None:
        sender = RegionSender(asyncio.get_running_loop(), start)
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
        piece = await loop.sock_recv(theirs, min(1 << 16, size - len(data)))
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


def test_cancelled_jobs_send_nothing_to_the_next_owners_of_their_descriptors(content: tuple[int, bytes]) -> None:
    """Many at once, so that the thread knows already that they are ready while it is at work on one of them."""
    slowly: list[Any] = [(content[0], 0, 1)] * 1000

    async def story(sender: RegionSender) -> None:
        ends: list[object] = []
        for _ in range(10):
            clients, jobs = [sockets.socketpair() for _ in range(40)], list[int | None]()
            for ours, _ in clients:
                ours.setblocking(False)
                jobs.append(sender.send(ours.fileno(), slowly, ends.append))
            numbers, closed = {ours.fileno() for ours, _ in clients}, list[int]()
            for job, (ours, _) in zip(jobs, clients, strict=True):
                assert job is not None
                sender.cancel(job, lambda ours=ours, closed=closed: (ours.close(), closed.append(1)))
            await until(lambda closed=closed: len(closed) == 40)
            kind = sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK
            following = [sockets.socketpair(sockets.AF_UNIX, kind) for _ in clients]
            opened = [one for pair in following for one in pair]
            assert numbers <= {one.fileno() for one in opened}, "they get the same numbers"
            probe, reads = sockets.socketpair()
            passed: list[object] = []
            sender.send(probe.fileno(), [b"x"], passed.append)
            await until(lambda passed=passed: passed)  # until then it has forgotten the jobs before
            for one in opened:
                with pytest.raises(BlockingIOError):
                    one.recv(1)
            for one in (probe, reads, *opened, *(theirs for _, theirs in clients)):
                one.close()
        assert ends == [], "nobody waits for a cancelled job"

    play(story)


def test_a_job_that_is_at_work_is_released_when_the_thread_is_done(
    pair: tuple[socket, socket],
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

    play(story, lambda: native)


def test_without_the_native_part_the_caller_sends_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(sender: RegionSender) -> None:
        for _ in range(3):
            assert sender.send(1, [b"x"], print) is None

    play(story, None)
    assert not caplog.records


def test_the_caller_sends_everything_until_the_thread_can_be_started(
    caplog: pytest.LogCaptureFixture, pair: tuple[socket, socket]
) -> None:
    assert NATIVE is not None
    errors = [OSError(24, "Too many open files")] * 3

    def start() -> object:
        if errors:
            raise errors.pop()
        return NATIVE()

    async def story(sender: RegionSender) -> None:
        for _ in range(3):
            assert sender.send(pair[0].fileno(), [b"x"], print) is None
        assert len(caplog.records) == 1, "it says so once"
        assert sender.send(pair[0].fileno(), [b"x"], lambda _: None) is not None
        assert await receive(pair[1], 1) == b"x"

    play(story, start)


def test_a_socket_that_cannot_be_watched_is_left_to_the_caller(content: tuple[int, bytes]) -> None:
    async def story(sender: RegionSender) -> None:
        assert sender.send(content[0], [b"x"], print) is None, "a file is no socket"

    play(story)


def test_a_job_that_is_unfinished_at_the_end_was_not_sent(
    pair: tuple[socket, socket], content: tuple[int, bytes]
) -> None:
    """Whoever believed that it was would send what follows it."""

    async def story(sender: RegionSender) -> None:
        ends: list[OSError | None] = []
        sender.send(pair[0].fileno(), [(content[0], 0, SIZE)], ends.append)
        sender.close()
        assert [type(end) for end in ends] == [OSError]

    play(story)


def threads() -> dict[int, str]:
    """The threads of this process that send."""
    found = {}
    for number in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):  # it has just ended
            found[int(number)] = Path(f"/proc/self/task/{number}/comm").read_text().strip()
    return {number: name for number, name in found.items() if name == "ottla-sender"}


def test_nothing_is_left_of_a_thread_that_was_stopped(content: tuple[int, bytes]) -> None:
    """Whether its jobs are finished, unfinished or cancelled, and whether it was closed or forgotten."""
    assert NATIVE is not None
    open_before = len(os.listdir("/proc/self/fd"))
    for closes in (True, False):
        for turn in range(20):
            sender, (ours, theirs) = NATIVE(), sockets.socketpair()
            with ours, theirs:
                ours.setblocking(False)
                job = sender.send(ours.fileno(), [(content[0], 0, SIZE)])
                wait_until(threads)
                theirs.recv(1 << 16)
                if turn % 2:
                    sender.cancel(job)
                if closes:
                    sender.stop()
                del sender
    assert threads() == {}
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_forked_process_may_forget_a_thread_that_it_does_not_have(pair: tuple[socket, socket]) -> None:
    assert NATIVE is not None
    sender = NATIVE()
    child = os.fork()
    if child == 0:
        sender.stop()
        del sender
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    sender.send(pair[0].fileno(), [b"still here"])
    assert select([pair[1]], [], [], 60)[0], "the parent's thread goes on"
    assert pair[1].recv(100) == b"still here"
    sender.stop()


def refuse_to_send_files() -> None:
    """From now on `sendfile` fails in this thread, and in those that it starts, as if there was no memory for sockets:
    they can be written to, but take nothing."""
    number = {"x86_64": 40, "aarch64": 71}[platform.machine()]
    load, equals, result = 0x20, 0x15, 0x06
    rules = [
        (load, 0, 0, 0),
        (equals, 0, 1, number),
        (result, 0, 0, 0x50000 | errno.EAGAIN),
        (result, 0, 0, 0x7FFF0000),
    ]
    steps = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(rules), ctypes.addressof(steps)))
    system = ctypes.CDLL(None, use_errno=True)
    for order in ((38, 1, 0, 0, 0), (22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)):
        assert system.prctl(*order) == 0, os.strerror(ctypes.get_errno())


def waits(thread: int) -> int:
    """How often this thread has waited for something."""
    lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))


def test_a_socket_that_takes_nothing_although_it_is_ready_does_not_keep_the_thread_busy(
    pair: tuple[socket, socket], content: tuple[int, bytes]
) -> None:
    other, reads = sockets.socketpair()

    async def story(sender: RegionSender) -> None:
        told: list[str] = []
        job = sender.send(pair[0].fileno(), [(content[0], 0, SIZE)], lambda _: told.append("sent"))
        assert job is not None
        (thread,) = await until(threads)
        before = waits(thread)
        await until(lambda: waits(thread) > before + 3, "it tried again and again without a pause", 30)
        other.setblocking(False)
        reads.setblocking(False)
        sender.send(other.fileno(), [b"others are not affected"], lambda _: told.append("other"))
        assert await receive(reads, 23) == b"others are not affected"
        await until(lambda: told)
        sender.cancel(job, lambda: told.append("released"))
        await until(lambda: told == ["other", "released"])
        again = sender.send(pair[0].fileno(), [b"the next one"], lambda _: told.append("next"))
        assert again is not None
        assert await receive(pair[1], 12) == b"the next one"
        await until(lambda: told[2:] == ["next"])

    def live() -> None:
        refuse_to_send_files()
        play(story)

    with other, reads, ThreadPoolExecutor(1) as own_thread:
        own_thread.submit(live).result()


def test_cancelled_at_any_moment_nothing_reaches_another_client(content: tuple[int, bytes]) -> None:
    """Clients come and go while the thread sends to them: each gets its own bytes, from the first one on, whoever had
    the number of its descriptor before."""
    file, data = content
    choose = random.Random(5)

    async def one_client(sender: RegionSender, number: int) -> None:
        for turn in range(40):
            ours, theirs = sockets.socketpair()
            with theirs:
                ours.setblocking(False)
                theirs.setblocking(False)
                head, start = b"%d-%d" % (number, turn), choose.randrange(SIZE // 2)
                ends: list[object] = []
                pieces: list[Any] = [(file, start, 100_000), head, (file, start, SIZE // 2)]
                job = sender.send(ours.fileno(), pieces, ends.append)
                assert job is not None
                expected = data[start : start + 100_000] + head + data[start : start + SIZE // 2]
                size = choose.choice([0, 1, 50_000, 400_000, len(expected)])
                assert await receive(theirs, size) == expected[:size]
                if size == len(expected):
                    await until(lambda ends=ends: ends)
                    assert ends == [None]
                    ours.close()
                    continue
                released = asyncio.Event()
                sender.cancel(job, lambda ours=ours, released=released: (ours.close(), released.set()))
                await released.wait()
                assert ends == []

    async def story(sender: RegionSender) -> None:
        await asyncio.gather(*(one_client(sender, number) for number in range(8)))
        assert not sender._ended

    play(story)
