"""What stands in front of a handler on a broker with an authorizer.

    @guards(DeleteRecordsRequest)
    def delete_records(guard: Guard, request: DeleteRecordsRequest) -> Steps[Finish | None]: ...

A gate takes out of the request what its sender may not do, and returns a function that puts the refusals into the
answer; or None, if nothing was taken out. BrokerError refuses the whole request. `Reply` is an answer without the
handler. A gate is a generator that yields after each element: long lists are checked in slices.

Handlers know nothing of this: without an authorizer no gate is ever called. `UNGUARDED` names
the APIs that are open to all who are connected; every other must have a gate, which `tests/handlers/gates` checks.
"""

from __future__ import annotations

import asyncio
import inspect
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.security.acl import CLUSTER_NAME
from ottla.wire import apis
from ottla.wire.access import Operation, ResourceType
from ottla.wire.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ottla.handlers.call import Call, Parts, Steps
    from ottla.security.authorizer import Authorizer
    from ottla.wire.schema import Spec

    Finish: TypeAlias = Callable[[Any], Any]
    Handler: TypeAlias = Callable[[Parts, Call, Any], Any]

T = TypeVar("T")
Gate = TypeVar("Gate", bound="Callable[..., Any]")
GATES: dict[int, Callable[..., Steps[Any]]] = {}
# SASL, versions, a client's own metrics, and descriptions of a cluster that tell no names: for everybody.
UNGUARDED: Final = frozenset((17, 18, 36, 38, 39, 40, 41, 71, 72))
STEPS_AT_ONCE: Final = 200
REFUSED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Reply(NamedTuple):
    """The answer, without asking the handler."""

    response: Any


class Guard:
    """Who asks, and what they may do."""

    __slots__ = ("_authorizer", "call", "host", "parts", "principal")

    def __init__(self, authorizer: Authorizer, parts: Parts, call: Call) -> None:
        self._authorizer = authorizer
        self.parts = parts
        self.call = call
        self.principal = str(call.principal)
        self.host = call.host

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._authorizer.allows(self.principal, self.host, operation, kind, name)

    def allows_topic(self, operation: Operation, name: str) -> bool:
        return self._authorizer.allows(self.principal, self.host, operation, ResourceType.TOPIC, name)

    def allows_cluster(self, operation: Operation) -> bool:
        return self._authorizer.allows(self.principal, self.host, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some_topic(self, operation: Operation) -> bool:
        return self._authorizer.allows_some(self.principal, self.host, operation, ResourceType.TOPIC)

    def demand(self, operation: Operation, kind: ResourceType, name: str) -> None:
        if not self.allows(operation, kind, name):
            raise BrokerError(REFUSED[kind])

    def demand_cluster(self, operation: Operation) -> None:
        self.demand(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, kind: ResourceType, name: str) -> int:
        return self._authorizer.operations(self.principal, self.host, kind, name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.parts.metadata.image.names_by_id.get(topic_id)


def guards(request: type) -> Callable[[Gate], Gate]:
    """Register the decorated function as the gate of this request's API."""

    def register(gate: Gate) -> Gate:
        spec: Spec = request.__wire__  # type: ignore[attr-defined]
        assert spec.key is not None, f"{request.__name__} is no request"
        assert spec.key not in GATES, f"two gates of API {spec.key}"
        GATES[spec.key] = gate
        return gate

    return register


def put_behind_gate(key: int, handler: Handler, authorizer: Authorizer) -> Handler:
    """The handler behind its gate."""
    gate = GATES.get(key)
    if gate is None:
        assert key in UNGUARDED, f"API {key} has no gate"
        return handler

    response = apis.BY_KEY[key].response

    def handle(parts: Parts, call: Call, request: Any) -> Any:
        steps = check(gate(Guard(authorizer, parts, call), request), response)
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as end:
            return proceed(handler, parts, call, request, end.value)
        return proceed_slowly(handler, parts, call, request, steps)

    return handle


def check(steps: Steps[Finish | Reply | None], response: type) -> Steps[Finish | Reply | None]:
    """The outcome of a gate; a request that it refuses as a whole is answered with the error and nothing else."""
    try:
        return (yield from steps)
    except BrokerError as error:
        return Reply(refuse(response, error))


def refuse(response: type, error: BrokerError) -> Any:
    known = fields(response)
    values: dict[str, Any] = {
        field.name: None if field.nullable else [] if field.array else field.default
        for field in known
        if field.required
    }
    values["error_code"] = error.code
    if any(field.name == "error_message" for field in known):
        values["error_message"] = error.message or None
    return response(**values)


def proceed(handler: Handler, parts: Parts, call: Call, request: Any, outcome: Finish | Reply | None) -> Any:
    if isinstance(outcome, Reply):
        return outcome.response
    response = handler(parts, call, request)
    return response if outcome is None else finish_later(response, outcome)


def proceed_slowly(
    handler: Handler, parts: Parts, call: Call, request: Any, steps: Steps[Finish | Reply | None]
) -> Steps[Any]:
    response = proceed(handler, parts, call, request, (yield from steps))
    if response.__class__ is GeneratorType:
        response = yield from response
    return response


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
    return finish_later((yield from steps), finish)


async def finish_coroutine(response: Coroutine[None, None, Any], finish: Finish) -> Any:
    return finish(await response)


def finish_future(response: asyncio.Future[Any], finish: Finish) -> asyncio.Future[Any]:
    """A future that is cancelled with the other, either way: a client that has left waits for nothing."""
    finished: asyncio.Future[Any] = response.get_loop().create_future()

    def settle(done: asyncio.Future[Any]) -> None:
        if finished.done():
            return
        if done.cancelled():
            finished.cancel()
        elif (error := done.exception()) is not None:
            finished.set_exception(error)
        else:
            try:
                finished.set_result(finish(done.result()))
            except Hangup as hangup:
                finished.set_exception(hangup)

    response.add_done_callback(settle)
    finished.add_done_callback(lambda done: response.cancel() if done.cancelled() else None)
    return finished


def sift(
    guard: Guard, operation: Operation, items: list[T], kind: ResourceType, name_of: Callable[[T], str]
) -> Steps[tuple[list[T], list[T]]]:
    """The items that the client may do this with, and those that it may not."""
    kept: list[T] = []
    refused: list[T] = []
    for item in items:
        (kept if guard.allows(operation, kind, name_of(item)) else refused).append(item)
        yield
    return kept, refused


def extend(field: str, refusals: list[Any]) -> Finish | None:
    """Put refusals behind what is in this field of the answer."""

    def finish(response: Any) -> Any:
        getattr(response, field).extend(refusals)
        return response

    return finish if refusals else None
