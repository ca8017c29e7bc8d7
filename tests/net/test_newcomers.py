"""Work for new clients gets a share of the loop's time; clients that are known are served in between."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from net.listening import port_of
from net.test_connection import answer, echo, frame, listener
from waiting import until

from ottla.net import newcomers, turns
from ottla.net.connection import READS_WHILE_NEW
from ottla.net.newcomers import ROUND_S_MIN, SAVED_S_MAX, SHARE, Newcomers
from ottla.net.turns import ROUND_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ottla.net.listener import Listener


MORE = 1.001  # so that rounding does not matter


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float, done: list[str], name: str) -> Callable[[], None]:
        def work() -> None:
            self.now += seconds
            done.append(name)

        return work


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    for module in (newcomers, turns):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


def test_work_is_done_at_once_while_the_share_lasts_and_in_slices_afterwards(time: Time) -> None:
    async def scene() -> list[str]:
        line, done = Newcomers(), list[str]()
        at_once = [line.serve(time.spend(ROUND_S_MIN / 2 * MORE, done, f"new {at}")) for at in range(10)]
        first = sum(at_once)
        assert 0 < first < 6, "the saved time is enough for a few"
        assert at_once == [True] * first + [False] * (10 - first)
        assert len(line) == 10 - first
        while len(line):
            done.append("known")
            await asyncio.sleep(0)
        return done[first:]

    rounds = " ".join(asyncio.run(scene())).split("known")
    assert all(work.count("new") <= 2 for work in rounds), "a slice holds two"
    numbers = [int(word) for work in rounds for word in work.split() if word != "new"]
    assert numbers == sorted(numbers), "first come, first served"


def test_the_share_comes_back_with_time_and_is_not_saved_up_for_long(time: Time) -> None:
    async def scene() -> None:
        line, done = Newcomers(), list[str]()
        assert line.serve(time.spend(SAVED_S_MAX * 2, done, "a long one"))
        assert not line.serve(time.spend(0.0, done, "waits"))
        await asyncio.sleep(0)
        assert done == ["a long one", "waits"]
        assert not line.serve(time.spend(0.0, done, "too early"))
        await asyncio.sleep(0)
        time.now += 3600
        assert line.serve(time.spend(SAVED_S_MAX * MORE, done, "an hour later"))
        assert not line.serve(time.spend(0.0, done, "an hour saves no more than a moment"))
        await asyncio.sleep(0)
        time.now += ROUND_S_MIN / SHARE
        assert line.serve(time.spend(0.0, done, "again"))

    asyncio.run(scene())


def test_new_clients_get_their_share_of_a_busy_loop(time: Time) -> None:
    async def scene() -> list[int]:
        line, done, served = Newcomers(), list[str](), list[int]()
        for _ in range(100):
            line.serve(time.spend(ROUND_S_MIN, done, "new"))
        while len(line):
            before = len(done)
            time.now += 100 * ROUND_S_MIN  # work for other clients
            await asyncio.sleep(0)
            served.append(len(done) - before)
        return served

    served = asyncio.run(scene())
    assert len(served) > 3
    assert {count - 100 * SHARE for count in served[:-1]} <= {0, 1}, "a quarter of the time of the others"


def test_a_long_stop_does_not_make_a_slice_long(time: Time) -> None:
    async def scene() -> int:
        line, done = Newcomers(), list[str]()
        for _ in range(100):
            line.serve(time.spend(ROUND_S / 10 * MORE, done, "new"))
        before = len(done)
        time.now += 60  # the process was stopped, or something held the loop
        await asyncio.sleep(0)
        return len(done) - before

    assert asyncio.run(scene()) == 10


def test_a_piece_that_fails_in_line_does_not_stop_the_others(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        line, done = Newcomers(), list[str]()
        assert line.serve(time.spend(1.0, done, "a long one"))

        def fail() -> None:
            raise ValueError("broken")

        line.serve(fail)
        line.serve(time.spend(0.0, done, "the next"))
        await asyncio.sleep(0)
        assert done == ["a long one", "the next"]

    asyncio.run(scene())
    assert "a turn failed" in caplog.text


class Panic(BaseException):
    """As PyO3 reports a panic of native code: no Exception."""


def test_a_piece_that_panics_does_not_stop_the_line(time: Time) -> None:
    async def scene() -> None:
        line, done, told = Newcomers(), list[str](), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        assert line.serve(time.spend(1.0, done, "a long one"))

        def fail() -> None:
            raise Panic

        line.serve(fail)
        line.serve(time.spend(0.0, done, "the next"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert done == ["a long one", "the next"]
        assert [type(one) for one in told] == [Panic]

    asyncio.run(scene())


class Held(Newcomers):
    """A line that moves only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def serve(self, work: Callable[[], None]) -> bool:
        if self.closed:
            self._line.append(work)
            return False
        work()
        return True

    def release(self) -> None:
        self.closed = False
        self._round()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, Held]]:
    """A listener whose new clients wait when the test says so."""
    opened, held = listener(echo), Held()
    opened._receiver.newcomers = held
    opened.open()
    yield opened, held
    opened.stop_accepting()
    await opened.drain(1)


async def connect(opened: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(opened))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(frame(text))
    return await answer(reader)


def test_a_known_client_is_served_while_new_ones_wait() -> None:
    async def scene() -> None:
        async with listening() as (opened, held):
            known, new = await connect(opened), await connect(opened)
            for _ in range(READS_WHILE_NEW):
                await ask(*known, b"hello")
            held.closed = True
            new[1].write(frame(b"new"))
            await until(lambda: len(held) == 1, "the new client waits")
            late = await connect(opened)
            await until(lambda: len(held) == 2, "and so does one that connects")
            for _ in range(3):
                assert await ask(*known, b"known") == b"known"
            assert len(held) == 2, "a client that waits is not called again and again"
            assert len(opened.connections) == 2
            held.release()
            assert await answer(new[0]) == b"new"
            assert await ask(*late, b"late") == b"late"
            assert await ask(*new, b"again") == b"again"
            for one in (known, new, late):
                one[1].close()

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_clients_and_listeners_that_end_while_they_wait_are_left_alone() -> None:
    async def scene() -> None:
        async with listening() as (opened, held):
            closed, muted = await connect(opened), await connect(opened)
            await until(lambda: len(opened.connections) == 2, "both are accepted")
            first, second = opened.connections
            held.closed = True
            closed[1].write(frame(b"closed"))
            muted[1].write(frame(b"muted"))
            late = await connect(opened)
            await until(lambda: len(held) == 3, "all wait")
            first.close()
            second.mute(60.0, "a quota")
            opened.stop_accepting()
            held.release()
            await asyncio.sleep(0.01)
            assert not second._backlog, "a muted client is not read"
            second.unmute()
            assert await answer(muted[0]) == b"muted"
            for one in (closed, muted, late):
                one[1].close()

    asyncio.run(asyncio.wait_for(scene(), 20))
