"""Post-processes the answer of a handler, now or later. Used by gates and by quotas.

An answer may be immediate, in steps, from a coroutine or a future; all are finished in the same way. An error while
finishing becomes an error of the answer.
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

    Finish: TypeAlias = Callable[[Any], Any]  # turns an answer into the finished one, or into steps to it

STEPS_AT_ONCE: Final = 200


def finish_later(response: Any, finish: Finish) -> Any:
    """The same kind of answer (immediate, in steps, or a future), finished."""
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
    """Run the steps of an answer to their end, in turns with other work."""
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
    """A future of the finished answer. Cancelling either future cancels the other, as nobody waits for it any more."""
    loop = response.get_loop()
    finished: asyncio.Future[Any] = loop.create_future()
    tasks: list[asyncio.Task[Any]] = []  # keeps a reference until the task is done

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
            except Exception as failure:  # otherwise the client would wait forever
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
