"""The simulated loop: time that stands still or jumps, processes that are killed and paused, the same for each seed."""

from __future__ import annotations

import asyncio
import gc
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.sim.clock import SimClock
from ottla.sim.loop import Deadlock, SimLoop, make_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine


def started(loop: SimLoop, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    _, context = loop.process(name)
    return loop.create_task(work, context=context)


def test_time_jumps_to_what_is_due() -> None:
    loop = make_loop(Random(1))
    began = loop.time()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == began + 3600


def test_a_time_limit_passes_in_virtual_time() -> None:
    async def wait() -> None:
        async with asyncio.timeout(50):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        make_loop(Random(1)).run_until_complete(wait())


def test_work_for_a_thread_is_done_here_and_later() -> None:
    loop = make_loop(Random(1))
    done: list[float] = []

    async def work() -> int:
        return await asyncio.to_thread(lambda: done.append(loop.time()) or 7)

    began = loop.time()
    assert loop.run_until_complete(work()) == 7
    assert done[0] > began


def test_who_waits_for_nothing_is_found() -> None:
    with pytest.raises(Deadlock):
        make_loop(Random(1)).run_until_complete(asyncio.Event().wait())


def test_who_goes_round_in_circles_is_found() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Deadlock, match="circles"):
        make_loop(Random(1)).run_until_complete(spin())


def test_a_killed_process_does_nothing_more() -> None:
    loop = make_loop(Random(1))
    steps: list[str] = []
    process, context = loop.process("p")

    async def work() -> None:
        try:
            while True:
                steps.append("step")
                await asyncio.sleep(1)
        finally:
            steps.append("cleared up")

    async def story() -> list[str]:
        loop.create_task(work(), context=context)
        await asyncio.sleep(2.5)
        loop.kill(process)
        await asyncio.sleep(10)
        return list(steps)

    assert loop.run_until_complete(story()) == ["step"] * 3
    loop.close()


@pytest.mark.parametrize("first", ["kill", "begin"])
def test_a_task_begun_in_a_killed_process_never_runs_and_is_no_fault(first: str) -> None:
    loop = make_loop(Random(1))
    steps: list[str] = []
    process, context = loop.process("p")

    async def work() -> None:
        steps.append("step")

    async def story() -> None:
        if first == "kill":
            loop.kill(process)
        loop.create_task(work(), context=context)
        loop.kill(process)
        await asyncio.sleep(1)
        gc.collect()

    loop.run_until_complete(story())
    assert (steps, loop.faults) == ([], [])
    loop.close()


def test_a_task_that_nobody_keeps_is_a_fault_in_a_live_process() -> None:
    loop = make_loop(Random(1))

    async def work() -> None:
        await loop.create_future()

    async def story() -> None:
        loop.create_task(work())
        await asyncio.sleep(1)
        gc.collect()

    loop.run_until_complete(story())
    assert "destroyed" in loop.faults[0]


def test_a_paused_process_goes_on_where_it_was() -> None:
    loop = make_loop(Random(1))
    steps: list[float] = []
    process, context = loop.process("p")

    async def work() -> None:
        while True:
            await asyncio.sleep(1)
            steps.append(loop.time() - 1000)

    async def story() -> None:
        loop.create_task(work(), context=context)
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(10)
        loop.resume(process)
        await asyncio.sleep(1.2)

    loop.run_until_complete(story())
    assert steps == [1.0, 11.5, 12.5]
    loop.close()


def test_callbacks_of_one_process_keep_their_order_and_those_of_two_do_not() -> None:
    def order(seed: int) -> str:
        loop = make_loop(Random(seed))
        seen: list[str] = []

        async def work(name: str) -> None:
            for number in range(5):
                loop.call_soon(seen.append, f"{name}{number} ")
            await asyncio.sleep(1)

        async def story() -> None:
            await asyncio.gather(started(loop, "a", work("a")), started(loop, "b", work("b")))

        loop.run_until_complete(story())
        assert [one for one in seen if one[0] == "a"] == [f"a{number} " for number in range(5)]
        return "".join(seen)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(10)}) > 5


def test_a_callback_that_fails_is_remembered() -> None:
    loop = make_loop(Random(1))

    async def story() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop.run_until_complete(story())
    assert "ZeroDivisionError" in loop.faults[0]


def test_the_wall_clock_jumps_and_durations_do_not() -> None:
    loop = make_loop(Random(1))
    clock = SimClock(loop)
    wall, steady = clock.now_ms(), clock.monotonic()
    clock.jump(-3_600_000)
    assert clock.now_ms() == wall - 3_600_000
    assert clock.monotonic() == steady
