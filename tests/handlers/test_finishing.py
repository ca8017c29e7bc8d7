"""A handler's response of any kind is finished, and an error while finishing it reaches the waiting caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from waiting import WAIT_S

from ottla.handlers.finishing import STEPS_AT_ONCE, finish_later

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.handlers.call import Steps


def at_once() -> list[str]:
    return ["handled"]


def in_steps() -> Steps[list[str]]:
    yield
    return at_once()


async def from_coroutine() -> list[str]:
    await asyncio.sleep(0)
    return at_once()


def in_future() -> asyncio.Future[list[str]]:
    future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, at_once())
    return future


def future_after_steps() -> Generator[None, None, asyncio.Future[list[str]]]:
    yield
    return in_future()


KINDS = [at_once, in_steps, from_coroutine, in_future, future_after_steps]


def finish(answer: list[str]) -> list[str]:
    return [*answer, "finished"]


def finish_in_steps(answer: list[str]) -> Steps[list[str]]:
    for _ in range(3 * STEPS_AT_ONCE):
        yield
    return finish(answer)


async def bring_to_end(answer: Any) -> Any:
    """As the dispatcher does."""
    async with asyncio.timeout(WAIT_S):
        if hasattr(answer, "__next__"):
            try:
                while True:
                    next(answer)
            except StopIteration as end:
                answer = end.value
        return await answer if asyncio.isfuture(answer) or asyncio.iscoroutine(answer) else answer


@pytest.mark.parametrize("how", [finish, finish_in_steps])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_is_finished(kind: Callable[[], Any], how: Callable[[list[str]], Any]) -> None:
    async def scene() -> None:
        assert await bring_to_end(finish_later(kind(), how)) == ["handled", "finished"]

    asyncio.run(scene())


def fail(answer: list[str]) -> list[str]:
    raise RuntimeError("a bug")


def fail_in_steps(answer: list[str]) -> Steps[list[str]]:
    yield
    raise RuntimeError("a bug")


@pytest.mark.parametrize("how", [fail, fail_in_steps])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_while_it_is_finished_is_the_answers(kind: Callable[[], Any], how: Callable[[list[str]], Any]) -> None:
    async def scene() -> None:
        with pytest.raises(RuntimeError, match="a bug"):
            await bring_to_end(finish_later(kind(), how))

    asyncio.run(scene())


def test_a_client_that_leaves_waits_for_nothing() -> None:
    async def scene() -> None:
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
        finish_later(first, finish).cancel()
        await asyncio.sleep(0)
        assert first.cancelled()
        finished = finish_later(second, finish)
        second.cancel()
        await asyncio.wait([finished], timeout=WAIT_S)
        assert finished.cancelled()

    asyncio.run(scene())


def test_an_error_of_the_handler_is_not_finished() -> None:
    async def failing() -> None:
        raise LookupError

    async def scene() -> None:
        for answer in (failing(), asyncio.ensure_future(failing())):
            with pytest.raises(LookupError):
                await bring_to_end(finish_later(answer, fail))

    asyncio.run(scene())
