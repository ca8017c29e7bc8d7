"""The check in front of a handler on a broker with an authorizer.

    @guards(DeleteRecordsRequest)
    def delete_records(guard: Guard, request: DeleteRecordsRequest) -> Steps[Finish | None]: ...

A gate removes from the request what the client may not do, and returns a function that adds the refusals to the answer;
or None, if nothing was removed. BrokerError refuses the whole request. `EarlyReply` is an answer without the handler.
A gate that iterates over a list is a generator that yields after each element, and so is the function that iterates
over the list of an answer: long lists are checked in slices. Other gates are plain functions.

Handlers do not know about gates: without an authorizer none is called. `UNGUARDED` names the APIs that every connected
client may use; all others must have a gate, which `tests/handlers/gates` checks.
"""

from __future__ import annotations

import copy
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.finishing import STEPS_AT_ONCE, finish_later
from ottla.security.acl import CLUSTER_NAME
from ottla.wire import apis, refusal
from ottla.wire.access import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from ottla.handlers.call import Call, Parts, Steps
    from ottla.handlers.finishing import Finish
    from ottla.security.authorizer import Authorizer
    from ottla.wire.schema import Spec

    Outcome: TypeAlias = Finish | "EarlyReply" | None
    Handler: TypeAlias = Callable[[Parts, Call, Any], Any]

T = TypeVar("T")
Made = TypeVar("Made")
Gate = TypeVar("Gate", bound="Callable[..., Any]")
GATES: dict[int, Callable[..., Steps[Any]]] = {}
# SASL, ApiVersions, delegation tokens (their handlers check permissions themselves) and telemetry.
UNGUARDED: Final = frozenset((17, 18, 36, 38, 39, 40, 41, 71, 72))
REFUSED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class EarlyReply(NamedTuple):
    """An answer in place of the handler's."""

    response: Any


class Guard:
    """The client, and what it may do."""

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

    def refuse(self, request: Any, code: ErrorCode) -> Steps[Any]:
        """An answer with this error for everything in the request."""
        key = self.call.key
        response = apis.BY_KEY[key].response
        return refusal.refuse_in_steps(key, response, request, self.call.version, code, silent=True)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.parts.metadata.image.names_by_id.get(topic_id)


def guards(request: type) -> Callable[[Gate], Gate]:
    """Register the decorated function as the gate of this request's API."""

    def register(gate: Gate) -> Gate:
        spec: Spec = request.__wire__  # type: ignore[attr-defined]
        assert spec.key is not None, f"{request.__name__} is not a request"
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

    def handle(parts: Parts, call: Call, request: Any) -> Any:
        steps = check(gate, Guard(authorizer, parts, call), request)
        try:
            for _ in range(STEPS_AT_ONCE):
                next(steps)
        except StopIteration as end:
            return proceed(handler, parts, call, request, end.value)
        return proceed_slowly(handler, parts, call, request, steps)

    return handle


def check(gate: Callable[[Guard, Any], Any], guard: Guard, request: Any) -> Steps[Outcome]:
    """The outcome of a gate. If it refuses the whole request, the answer has the error and nothing else."""
    try:
        outcome = gate(guard, request)
        if outcome.__class__ is GeneratorType:
            outcome = yield from outcome
    except BrokerError as error:
        return EarlyReply((yield from guard.refuse(request, error.code)))
    result: Outcome = outcome
    return result


def proceed(handler: Handler, parts: Parts, call: Call, request: Any, outcome: Outcome) -> Any:
    if isinstance(outcome, EarlyReply):
        return outcome.response
    response = handler(parts, call, request)
    return response if outcome is None else finish_later(response, outcome)


def proceed_slowly(handler: Handler, parts: Parts, call: Call, request: Any, steps: Steps[Outcome]) -> Steps[Any]:
    response = proceed(handler, parts, call, request, (yield from steps))
    if response.__class__ is GeneratorType:
        response = yield from response
    return response


def at_once(steps: Steps[T]) -> T:
    """Run the steps to their end without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def make_each(make: Callable[[T], Made], items: Iterable[T]) -> Steps[list[Made]]:
    """Call `make` for each item, in slices."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def sift(
    guard: Guard, operation: Operation, items: list[T], kind: ResourceType, name_of: Callable[[T], str]
) -> Steps[tuple[list[T], list[T]]]:
    """The items for which the client has this permission, and those for which it has not."""
    kept: list[T] = []
    refused: list[T] = []
    for item in items:
        (kept if guard.allows(operation, kind, name_of(item)) else refused).append(item)
        yield
    return kept, refused


def sift_list(
    guard: Guard,
    request: Any,
    operation: Operation,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    of: str = "topics",
    into: str = "topics",
    name_of: Callable[[Any], str] = lambda item: str(item.name),
) -> Steps[Finish | None]:
    """Remove what is not allowed from a list of the request, and add the refusals to the same list of the answer."""
    kept, refused = yield from sift(guard, operation, getattr(request, of), kind, name_of)
    setattr(request, of, kept)
    return extend(into, (yield from list_refusals(guard, request, refused, REFUSED[kind], of=of, into=into)))


def list_refusals(
    guard: Guard, request: Any, refused: list[Any], code: ErrorCode, *, of: str = "topics", into: str = "topics"
) -> Steps[list[Any]]:
    """The refusals of these elements of the request's list."""
    if not refused:
        return []
    only = copy.copy(request)
    setattr(only, of, refused)
    answer = yield from guard.refuse(only, code)
    refusals: list[Any] = getattr(answer, into)
    return refusals


def extend(field: str, refusals: list[Any]) -> Finish | None:
    """Append refusals to this field of the answer."""

    def finish(response: Any) -> Any:
        getattr(response, field).extend(refusals)
        return response

    return finish if refusals else None
