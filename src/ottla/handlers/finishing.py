"""What is done to an answer that a handler has given, or gives later: by a gate, or by who measures the request.

An answer comes at once, in steps, from a coroutine or as a future, and is finished in the same way. An error of what
finishes it is an error of the answer: whoever waits for it hears of it.
"""

from __future__ import annotations

import asyncio
import inspect
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ottla.handlers.call import Steps

    Finish: TypeAlias = Callable[[Any], Any]  # of an answer: the finished one, or the steps to it

STEPS_AT_ONCE: Final = 200


def finish_later(response: Any, finish: Finish) -> Any:
    """The same kind of answer (at once, in steps, or a future), finished."""
    if response.__class__ is GeneratorType:
        return finish_steps(response, finish)
    if inspect.iscoroutine(response):
        return finish_coroutine(response, finish)
    if asyncio.isfuture(response):
        return finish_future(response, finish)
    return finish(response)


def finish_steps(steps: Steps[Any], finish: Finish) -> Steps[Any]:
    response = finish_later((yield from steps), finish)
    if response.__class__ is GeneratorType:
        response = yield from response
    return response


async def finish_coroutine(response: Coroutine[None, None, Any], finish: Finish) -> Any:
    return await complete(finish(await response))


async def complete(response: Any) -> Any:
    """Bring the steps to an answer to their end, in turns with everybody else."""
    if response.__class__ is not GeneratorType:
        return response
    while True:
        try:
            for _ in range(STEPS_AT_ONCE):
                next(response)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)


def finish_future(response: asyncio.Future[Any], finish: Finish) -> asyncio.Future[Any]:
    """A future that is cancelled with the other, either way: a client that has left waits for nothing."""
    loop = response.get_loop()
    finished: asyncio.Future[Any] = loop.create_future()
    tasks: list[asyncio.Task[Any]] = []  # so that one is not lost before it is done

    def settle(done: asyncio.Future[Any], finish: Finish) -> None:
        if finished.done():
            return
        if done.cancelled():
            finished.cancel()
            return
        error, answer = done.exception(), None
        if error is None:
            try:
                answer = finish(done.result())
            except Exception as failure:  # else the client would wait for ever
                error = failure
        if error is not None:
            finished.set_exception(error)
        elif answer.__class__ is GeneratorType:
            tasks.append(loop.create_task(complete(answer)))
            tasks[0].add_done_callback(lambda done: settle(done, lambda same: same))
        else:
            finished.set_result(answer)

    response.add_done_callback(lambda done: settle(done, finish))
    finished.add_done_callback(lambda done: response.cancel() if done.cancelled() else None)
    return finished
