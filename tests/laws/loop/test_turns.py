"""A connection gets a time slice, not the loop; long requests run one after the other; short requests go first."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from net.test_connection import answer, frame, listener, port_of
from waiting import WAIT_S, until

from ottla.net.turns import TURN_S, Lane, Turns

if TYPE_CHECKING:
    from collections.abc import Generator

    from ottla.net.answer import Answer
    from ottla.net.connection import Connection

CONNECTIONS, FRAMES = 8, 100
COST_S = 0.0005


def spend(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_frames_that_were_sent_in_advance_do_not_hold_up_others() -> None:
    """Counts how many frames of other connections are handled between a request and its response."""
    handled, seen, gaps = 0, 0, list[int]()

    def handle(_: Connection, data: memoryview) -> Answer:
        nonlocal handled, seen
        if data == b"good":
            gaps.append(handled - seen)
            seen = handled
        else:
            handled += 1
            spend(COST_S)
        return [frame(bytes(data))]

    async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while handled < CONNECTIONS * FRAMES:
            writer.write(frame(b"good"))
            await answer(reader)

    async def greedy(port: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(frame(b"%d" % number) for number in range(FRAMES)))
        answers = [await answer(reader) for _ in range(FRAMES)]
        writer.close()
        return answers

    async def scene() -> None:
        opened = listener(handle)
        opened.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(opened))
        others = asyncio.gather(*(greedy(port_of(opened)) for _ in range(CONNECTIONS)))
        await good(reader, writer)
        assert await others == [[b"%d" % number for number in range(FRAMES)]] * CONNECTIONS, "in order"
        writer.close()
        opened.stop_accepting()
        await opened.drain(1)

    asyncio.run(scene())
    # A round serves each connection at most once, and a connection's first turn comes when its bytes arrive.
    assert max(gaps) <= 2 * CONNECTIONS * TURN_S / COST_S
    assert len(gaps) > CONNECTIONS


def test_those_who_wait_get_a_turn_each() -> None:
    order: list[str] = []

    async def scene() -> None:
        turns = Turns()

        def turn(name: str, times: int) -> None:
            order.append(name)
            spend(TURN_S)
            if times:
                turns.add(lambda: turn(name, times - 1))

        turns.add(lambda: turn("a", 3))
        turns.add(lambda: turn("b", 3))
        await until(lambda: not len(turns))

    asyncio.run(scene())
    assert order == ["a", "b"] * 4


def test_a_turn_that_fails_is_one_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> int:
        turns, done = Turns(), list[int]()
        turns.add(lambda: [][0])
        turns.add(lambda: done.append(1))
        await until(lambda: not len(turns))
        return len(done)

    assert asyncio.run(scene()) == 1
    assert "a turn failed" in caplog.text


def counting(name: str, log: list[str], waits_for: asyncio.Future[None] | None = None) -> Generator[Any, None, str]:
    for _ in range(20):
        log.append(name)
        spend(COST_S)
        yield
    if waits_for is not None:
        yield waits_for
    return name


def test_long_requests_go_one_after_the_other_and_the_loop_between() -> None:
    async def scene() -> None:
        lane, log = Lane(), list[str]()
        a, b = lane.add(counting("a", log)), lane.add(counting("b", log))
        rounds = 0
        while not (a.done() and b.done()):
            await asyncio.sleep(0)
            rounds += 1
        assert (a.result(), b.result()) == ("a", "b")
        assert log == ["a"] * 20 + ["b"] * 20
        assert rounds > 2

    asyncio.run(scene())


def test_one_that_waits_lets_the_next_go_first_and_one_that_nobody_wants_is_given_up() -> None:
    async def scene() -> None:
        lane, log = Lane(), list[str]()
        event: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        a, b = lane.add(counting("a", log, event)), lane.add(counting("b", log))
        c, d = lane.add(counting("c", log)), lane.add(counting("d", log, never))
        c.cancel()
        assert await b == "b"
        assert not a.done()
        event.set_result(None)
        assert await a == "a"
        d.cancel()
        await asyncio.sleep(0)
        assert "c" not in log
        assert never.cancelled(), "what is waited for in vain is given up as well"

    asyncio.run(scene())


def test_a_long_request_that_fails_is_one_request() -> None:
    def failing() -> Generator[Any, None, None]:
        yield
        raise RuntimeError("a bug")

    async def scene() -> None:
        lane, log = Lane(), list[str]()
        a, b = lane.add(failing()), lane.add(counting("b", log))
        assert await b == "b"
        with pytest.raises(RuntimeError, match="a bug"):
            await a

    asyncio.run(scene())


class Panic(BaseException):
    """As PyO3 reports a panic of native code: no Exception."""


@pytest.mark.parametrize("strict", [True, False])
def test_a_long_request_that_panics_is_one_request(*, strict: bool) -> None:
    def panicking() -> Generator[Any, None, None]:
        yield
        raise Panic

    async def scene() -> None:
        lane, log, told = Lane(strict=strict), list[str](), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        a, b = lane.add(panicking()), lane.add(counting("b", log))
        assert await asyncio.wait_for(b, WAIT_S) == "b"
        assert a.cancelled()
        assert [type(one) for one in told] == [Panic]

    asyncio.run(scene())


@pytest.mark.parametrize("fails", [True, False])
def test_a_long_request_whose_connection_is_closed_by_its_last_step_is_one_request(*, fails: bool) -> None:
    def closing() -> Generator[Any, None, None]:
        yield
        futures[0].cancel()
        if fails:
            raise RuntimeError("a bug")

    async def scene() -> None:
        lane, log = Lane(), list[str]()
        futures.append(lane.add(closing()))
        assert await asyncio.wait_for(lane.add(counting("b", log)), WAIT_S) == "b"

    futures: list[asyncio.Future[Any]] = []
    asyncio.run(scene())


def test_a_half_frame_behind_many_waits_with_them() -> None:
    """Received bytes are kept across turns, also an incomplete frame at their end."""

    def handle(_: Connection, data: memoryview) -> Answer:
        spend(COST_S)
        return [frame(bytes(data))]

    async def scene() -> None:
        opened = listener(handle)
        opened.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(opened))
        whole = b"".join(frame(b"%d" % number) for number in range(50))
        last = frame(b"the last" * 1000)
        writer.write(whole + last[:17])
        assert [await answer(reader) for _ in range(50)] == [b"%d" % number for number in range(50)]
        writer.write(last[17:] + struct.pack(">i", -1))
        assert await answer(reader) == b"the last" * 1000
        assert await reader.read() == b"", "an impossible length after it"
        writer.close()
        opened.stop_accepting()
        await opened.drain(1)

    asyncio.run(scene())
