"""From a frame to its answer: header, decode, handler, encode.

A route (handler, decoder, encoder of one API at one version) is built on first use and kept. What no handler turned
into a Kafka error code is turned into one here: a `BrokerError`, or an unexpected exception, which is logged with its
traceback and answered as UNKNOWN_SERVER_ERROR. Bytes that do not parse, unknown APIs and unsupported versions end the
connection, as Kafka does; ApiVersions alone is answered at version 0, so that a newer client can step down.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.call import REGISTRY, Call
from ottla.net.connection import Deferred
from ottla.wire import apis, codec
from ottla.wire.codec import DecodeError
from ottla.wire.frame import parse_header, response_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Parts
    from ottla.net.connection import Answer, Connection
    from ottla.net.outbox import Part

log = logging.getLogger("ottla.dispatch")

API_VERSIONS = 18
ANSWER = Struct(">ii")  # length, correlation id
ANSWER_FLEXIBLE = Struct(">iix")  # the same, and no tagged fields


class Route:
    """One API at one version."""

    __slots__ = ("decode", "encode", "handler", "prefix", "response")

    def __init__(
        self,
        handler: Callable[..., Any],
        decode: Callable[[memoryview, int], tuple[Any, int]],
        encode: Callable[[Any], list[Part]],
        response: type,
        prefix: Struct,
    ) -> None:
        self.handler = handler
        self.decode = decode
        self.encode = encode
        self.response = response
        self.prefix = prefix


class Dispatch:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def __call__(self, connection: Connection, frame: memoryview) -> Answer:
        try:
            key, version, correlation, client_id, position = parse_header(frame)
            route = self._routes.get(key << 16 | (version & 0xFFFF)) or self._route(key, version)
            if route is None:
                return self._step_down(correlation)
            request, _ = route.decode(frame, position)
        except DecodeError as error:
            raise Hangup(f"a request that cannot be read: {error}") from None
        call = Call(key, version, client_id or "", connection.host, connection.listener, connection.dialled)
        try:
            response = route.handler(self._parts, call, request)
        except Exception as error:
            response = failure(route, request, error)
        if response.__class__ is route.response:
            return self._encode(route, correlation, response)
        if response is None:
            return None
        return self._later(route, correlation, request, response)

    def _later(self, route: Route, correlation: int, request: Any, response: Any) -> Deferred:
        if not asyncio.isfuture(response):
            assert inspect.iscoroutine(response), f"a handler answered with {type(response)}"
            task = asyncio.get_running_loop().create_task(response)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # A client that leaves gives up its answer, not the work: a change that is half written must be finished.
            response = asyncio.shield(task)

        def finish(future: asyncio.Future[Any]) -> list[Part] | None:
            if future.cancelled():
                raise Hangup("the broker is stopping")
            error = future.exception()
            value = future.result() if error is None else failure(route, request, error)
            return None if value is None else self._encode(route, correlation, value)

        return Deferred(response, finish)

    def _encode(self, route: Route, correlation: int, response: Any) -> list[Part]:
        try:
            parts = route.encode(response)
        except Exception:  # a handler put something into its answer that the wire has no place for
            log.exception("cannot encode %s", route.response.__name__)
            raise Hangup(f"{route.response.__name__} cannot be encoded") from None
        prefix = route.prefix
        if len(parts) == 1:
            body = parts[0]
            return [prefix.pack(prefix.size - 4 + len(body), correlation) + body]
        size = prefix.size - 4
        for part in parts:
            size += len(part) if part.__class__ is bytes else part.size
        parts[0] = prefix.pack(size, correlation) + parts[0]
        return parts

    def _route(self, key: int, version: int) -> Route | None:
        """Build the route; None for an ApiVersions request that must step down to version 0."""
        registered = REGISTRY.get(key)
        if registered is None:
            raise Hangup(f"API {key} is not served")
        low, high = registered.versions
        if not low <= version <= high:
            if key == API_VERSIONS:
                return None
            raise Hangup(f"API {key} is served from version {low} to {high}, asked for was {version}")
        api = apis.BY_KEY[key]
        self._routes[key << 16 | version] = route = Route(
            registered.function,
            codec.decoder(api.request, version),
            codec.encoder(api.response, version),
            api.response,
            ANSWER if len(response_header(key, version, 0)) == 4 else ANSWER_FLEXIBLE,
        )
        return route

    def _step_down(self, correlation: int) -> list[Part]:
        from ottla.handlers.versions import unsupported

        route = self._routes.get(API_VERSIONS << 16) or self._route(API_VERSIONS, 0)
        assert route is not None
        return self._encode(route, correlation, unsupported())

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def failure(route: Route, request: Any, error: BaseException) -> Any:
    """The response that reports this error; a response with no place for it ends the connection."""
    if isinstance(error, Hangup):
        raise error
    if isinstance(error, BrokerError):
        code = error.code
    else:
        log.error("a handler failed on %s", type(request).__name__, exc_info=error)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    try:
        response = route.response(error_code=code)
    except TypeError:
        raise Hangup(f"{type(request).__name__} failed: {code.name}") from None
    if hasattr(response, "error_message") and isinstance(error, BrokerError):
        response.error_message = error.message or None
    return response
