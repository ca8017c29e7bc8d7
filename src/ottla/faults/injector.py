"""Injects faults into a running broker.

The first fault of an API wraps its handler in a function, and the last one removes it. So requests of other APIs, and
those of a broker without faults, have no overhead.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections import deque
from contextlib import suppress
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ottla.errors import Hangup
from ottla.faults.fault import Fault
from ottla.handlers.call import select_apis
from ottla.wire import apis
from ottla.wire.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker import Broker
    from ottla.handlers.call import Call, Parts, Steps

PRODUCE = 0
METADATA = 3
REASSIGN_FOLDERS = 34  # AlterReplicaLogDirs: its response has another order than its request


class Injector:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._faults: dict[int, deque[list[Any]]] = {}  # by API: the fault, and how often it still happens
        self._cleared = asyncio.Event()  # when set, delays that wait for it end

    def obey(self, order: Fault | str) -> dict[str, int]:
        if isinstance(order, Fault):
            self._add(order)
        elif order == "clear":
            self.clear()
        return {apis.BY_KEY[key].name: sum(left for _, left in queue) for key, queue in self._faults.items()}

    def _add(self, fault: Fault) -> None:
        name = apis.BY_KEY[fault.key].name
        if fault.key not in select_apis(self._broker.parts):
            raise ValueError(f"{name}: this broker does not serve it")
        if fault.code and fault.key == REASSIGN_FOLDERS:
            raise ValueError(f"{name}: can be delayed and dropped, but not answered with an error")
        if fault.key not in self._faults:
            self._faults[fault.key] = deque()
            self._broker.intercept(fault.key, lambda handler: self._around(fault.key, handler))
        self._faults[fault.key].append([fault, fault.times])

    def clear(self) -> None:
        for key in list(self._faults):
            self._broker.intercept(key, None)
        self._faults.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    def _around(self, key: int, handler: Callable[..., Any]) -> Callable[..., Any]:
        response_type = apis.BY_KEY[key].response

        def handle(parts: Parts, call: Call, request: Any) -> Any:
            queue = self._faults.get(key)
            if not queue:
                return handler(parts, call, request)
            fault: Fault = queue[0][0]
            answer = None
            if fault.code:
                answer = refuse(key, response_type, request, call.version, fault.code)
                if answer is None:
                    return handler(parts, call, request)
            self._count_down(key, queue)
            unanswered = key == PRODUCE and request.acks == 0  # then the connection is closed to report the failure
            if (fault.drop and not fault.handled) or (fault.code and unanswered):
                raise Hangup("dropped on purpose")
            if answer is None:
                return self._finish_late(fault, handler(parts, call, request))
            return with_brokers(handler(parts, call, no_topics(request)), answer) if key == METADATA else answer

        return handle

    def _count_down(self, key: int, queue: deque[list[Any]]) -> None:
        queue[0][1] -= 1
        if not queue[0][1]:
            queue.popleft()
        if not queue:
            del self._faults[key]
            self._broker.intercept(key, None)

    def _finish_late(self, fault: Fault, response: Any) -> Any:
        if response.__class__ is not GeneratorType:
            return self._late(fault, response)

        def steps() -> Steps[Any]:
            return self._late(fault, (yield from response))

        return steps()

    async def _late(self, fault: Fault, response: Any) -> Any:
        if inspect.isawaitable(response):
            response = await response
        if fault.drop:
            raise Hangup("its answer is dropped on purpose")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._cleared.wait(), fault.seconds)
        return response


def no_topics(request: Any) -> Any:
    """The same Metadata request, for brokers only."""
    bare = copy.copy(request)
    bare.topics = []
    return bare


def with_brokers(response: Any, answer: Any) -> Steps[Any]:
    """The topics of one response with the brokers of another: clients forget brokers that are missing."""
    if response.__class__ is GeneratorType:
        response = yield from response
    response.topics = answer.topics
    return response
