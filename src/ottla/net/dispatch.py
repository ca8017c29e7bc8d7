"""From a frame to its answer: header, decode, handler, encode.

A route (handler, decoder and encoder of one API at one version) is built on first use and kept. Errors of handlers are
mapped to Kafka error codes here: a `BrokerError` has its own code; any other exception is logged with its traceback and
answered with UNKNOWN_SERVER_ERROR. Bytes that do not parse, unknown APIs and unsupported versions close the connection,
as in Kafka. The exception is ApiVersions: it is answered at version 0, so that a newer client can step down.

A small request is decoded, handled and encoded in one go. A large frame is decoded in slices, and a handler that is a
generator runs in slices. The answer is encoded in slices if the request was large or the handler was interrupted.

When a client disconnects, its answer is dropped but the work is finished: a request that has arrived and changes
something is carried out, because a producer with acks=0 may close its connection as soon as its bytes are sent. Only
read requests are dropped.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ottla.clock import monotonic
from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.call import Call, select_apis
from ottla.net.answer import Deferred
from ottla.net.connection import is_own
from ottla.net.counts import Counts, fault_finder, faults
from ottla.net.turns import TURN_S, Lane, walk
from ottla.wire import apis, codec
from ottla.wire.codec import DecodeError
from ottla.wire.decoding import MEMBERS_ELEMENTS_MAX, RECORDS_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, has_records
from ottla.wire.frame import parse_header, response_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.handlers.call import Parts, Steps
    from ottla.net.answer import Answer
    from ottla.net.connection import Connection
    from ottla.net.outbox import Part
    from ottla.net.throttling import Throttling
    from ottla.security.authorizer import Authorizer

log = logging.getLogger("ottla.dispatch")

API_VERSIONS = 18
# Requests that change nothing (fetches, lists, descriptions). They are dropped when their client disconnects.
READING = frozenset((1, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 41, 46, 48, 50, 60, 61, 65, 66, 69, 74, 75))
# Large change requests, which mostly wait for this broker and its disk. Each set has a lane of its own, so that clients
# do not wait behind administrators, and offset commits do not wait behind the transactions they belong to.
CHANGING = (
    frozenset((8, 13, 28, 47)),  # group offsets and members
    frozenset((24, 27)),  # transaction partitions and markers
    frozenset((19, 20, 21, 30, 31, 33, 34, 37, 38, 39, 40, 42, 43, 44, 45, 49, 51)),  # topics, configs and the like
)
LOGIN = frozenset((17, 36))  # the frames after these may need another handler
ROUTE = Struct(">I")  # API key and version: the key of a route
ANSWER = Struct(">ii")  # length, correlation id
ANSWER_FLEXIBLE = Struct(">iix")  # the same, with an empty tagged-field section


LARGE_SIZE = 16 * 1024  # a frame up to this size is decoded in one go
LARGE_CHANGE_SIZE = 4 * 1024  # the same for changes: the decoded request stays in memory until the change is done
SMALL_CHANGE_SIZE = 1024  # a connection may have several smaller ones in progress
FRAME_SIZE_MAX = 0x7FFFFFFF


class Route:
    """One API at one version."""

    __slots__ = (
        "counts",
        "decode",
        "elements_max",
        "encode",
        "exclusive_size",
        "faulty",
        "handler",
        "lane",
        "large_size",
        "prefix",
        "reading",
        "request",
        "response",
        "shortcut",
        "version",
    )

    def __init__(self, key: int, version: int, handler: Callable[..., Any], *, for_members: bool = False) -> None:
        api = apis.BY_KEY[key]
        self.version = version
        self.counts = Counts(key, version)
        self.faulty = fault_finder(key)
        self.reading = key in READING
        self.handler = handler
        self.shortcut: Any = None  # see `handlers.shortcut`
        self.request = api.request
        self.response = api.response
        self.decode: Callable[..., tuple[Any, int]] = codec.decoder(api.request, version)
        self.encode: Callable[[Any], list[Part]] = self._encode_first
        self.prefix = ANSWER if len(response_header(key, version, 0)) == 4 else ANSWER_FLEXIBLE
        # Records are views of the frame, and the frame is valid for one turn only. So decode it in one go, however
        # large.
        records = has_records(api.request, version)
        self.large_size = FRAME_SIZE_MAX if records else LARGE_SIZE
        self.exclusive_size = FRAME_SIZE_MAX  # from this size on, the connection handles no other request meanwhile
        self.lane = next((at for at, keys in enumerate(CHANGING, 1) if key in keys), 0)
        if self.lane:
            self.large_size, self.exclusive_size = LARGE_CHANGE_SIZE, SMALL_CHANGE_SIZE
        if key in LOGIN:
            self.exclusive_size = 0
        self.elements_max = RECORDS_ELEMENTS_MAX if records else REQUEST_ELEMENTS_MAX
        if for_members:
            self.elements_max = MEMBERS_ELEMENTS_MAX

    def _encode_first(self, response: Any) -> list[Part]:
        """The encoder is compiled for the first answer. Hostile requests mostly get none."""
        self.encode = codec.encoder(self.response, self.version)
        return self.encode(response)


class Dispatch:
    def __init__(self, parts: Parts, authorizer: Authorizer | None = None) -> None:
        self._parts = parts
        self._authorizer = authorizer
        self.errors: Counter[tuple[int, int]] = Counter()  # in answers, by API key and error code
        self._routes: dict[int, Route] = {}
        self._throttling: Throttling | None = None
        self._around: dict[int, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}  # see `intercept`
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start
        # For large requests, which may take long. In a strict lane (changes) the next request starts when the previous
        # one is done, because its task keeps the whole decoded request in memory.
        self._lanes = [Lane(), *(Lane(strict=True) for _ in CHANGING)]
        self._short_lane = Lane()  # for small requests with a large answer; they do not wait behind the others

    def list_counts(self) -> list[Counts]:
        """The counts of each API and version that was requested."""
        return [route.counts for route in self._routes.values()]

    def __call__(self, connection: Connection, frame: memoryview) -> Answer:
        known = self._routes.get(ROUTE.unpack_from(frame)[0]) if len(frame) >= ROUTE.size else None
        if known is not None and known.shortcut is not None:
            answer = self._take_shortcut(known, connection, frame)
            if answer is not None:
                return answer
        try:
            key, version, correlation, client_id, position = parse_header(frame)
            route = self._routes.get(key << 16 | (version & 0xFFFF)) or self._route(key, version)
            if route is None:
                return self._step_down(correlation)
            call = Call(
                key, version, client_id or "", connection.host, connection.listener, connection.dialled, connection
            )
            if self._throttling is not None:
                call.size = len(frame)
            if len(frame) > route.large_size:
                kept = frame if is_own(frame) else bytes(frame)
                steps = self._decode_and_answer(route, call, correlation, kept, position)
                return count_when_sent(route, connection, self._slice(route, steps, self._lanes[route.lane]))
            request, _ = route.decode(frame, position, route.elements_max)
        except DecodeError as error:
            raise unreadable(error) from None
        except Hangup:
            raise
        except Exception:  # a bug, or out of memory: close this connection only
            log.exception("cannot read a request")
            raise Hangup("a request could not be read") from None
        try:
            response = route.handler(self._parts, call, request)
        except Exception as error:
            response = failure(route, error)
        return self._conclude(route, connection, correlation, len(frame), response)

    def _take_shortcut(self, route: Route, connection: Connection, frame: memoryview) -> Answer:
        """The answer of the shortcut; None if the request is not one for it. Then nothing was done."""
        try:
            answer = route.shortcut(connection, frame)
        except Exception as error:
            log.error("a handler failed on %s", route.request.__name__, exc_info=error)
            raise Hangup(f"{route.request.__name__} failed") from None
        if answer.__class__ is list or answer.__class__ is bytes:
            self._count(route, connection)
            return answer if answer.__class__ is list else [answer]
        if answer is None:
            return None
        return self._conclude(route, connection, answer.correlation, len(frame), answer.response)

    def gather(self, connection: Connection, frames: list[memoryview]) -> list[Answer]:
        """The answers to the first of these frames, if some of them can be handled together; else an empty list."""
        route = self._routes.get(ROUTE.unpack_from(frames[0])[0]) if len(frames[0]) >= ROUTE.size else None
        if route is None or route.shortcut is None:
            return []
        try:
            found = route.shortcut.gather(connection, frames)
        except Exception as error:
            log.error("a handler failed on %s", route.request.__name__, exc_info=error)
            raise Hangup(f"{route.request.__name__} failed") from None
        answers: list[Answer] = []
        for frame, answer in zip(frames, found, strict=False):
            if answer.__class__ is bytes:
                self._count(route, connection)
                answers.append([answer])
            else:
                concluded = self._conclude(route, connection, answer.correlation, len(frame), answer.response)
                answers.append(concluded)
        return answers

    def _count(self, route: Route, connection: Connection) -> None:
        """Count a request that is answered at once."""
        counts = route.counts
        counts.requests += 1
        if not counts.requests & counts.untimed:
            weight = counts.untimed + 1
            connection.unsent.append((counts, connection.arrived, connection.begun, monotonic(), 0.0, weight))

    def _conclude(self, route: Route, connection: Connection, correlation: int, size: int, response: Any) -> Answer:
        """The answer to a frame of this size: what the handler returned, or a Deferred.

        Neither the frame nor the request is kept in memory while the answer is pending.
        """
        if response.__class__ is route.response:
            parts = self._encode(route, correlation, response)
            self._count(route, connection)
            return parts
        answer: Answer = None
        if response.__class__ is GeneratorType:
            steps = self._answer(route, correlation, response, large=False)
            answer = self._slice(route, steps, self._short_lane)
        elif response is not None:
            answer = self._later(route, correlation, response, exclusive=size >= route.exclusive_size)
        return count_when_sent(route, connection, answer)

    def _slice(self, route: Route, steps: Steps[list[Part] | None], lane: Lane) -> Answer:
        """The answer, if it takes at most one turn; else a Deferred that is worked out in slices."""
        try:
            awaited = None if lane.strict and lane else walk(steps, monotonic() + TURN_S)
        except StopIteration as end:
            parts: list[Part] | None = end.value
            return parts
        future = lane.add(steps, awaited)
        future.add_done_callback(ignore_failure)
        return Deferred(future if route.reading else asyncio.shield(future), take_parts, exclusive=True)

    def _decode_and_answer(
        self, route: Route, call: Call, correlation: int, frame: bytes | memoryview, position: int
    ) -> Steps[list[Part] | None]:
        decode = codec.slicing_decoder(route.request, route.version)
        try:
            request, _ = yield from decode(frame, position, route.elements_max)
        except DecodeError as error:
            raise unreadable(error) from None
        del frame  # do not keep it: the handler may wait for long
        try:
            response = route.handler(self._parts, call, request)
        except Exception as error:
            response = failure(route, error)
        del request  # the same
        return (yield from self._answer(route, correlation, response, large=True))

    def _answer(self, route: Route, correlation: int, response: Any, *, large: bool) -> Steps[list[Part] | None]:
        """Run the handler to its end and encode its result."""
        try:
            if response.__class__ is GeneratorType:
                started = monotonic()
                response = yield from response
                large = large or monotonic() - started >= TURN_S / 2
            if response.__class__ is bytes:  # from a shortcut
                return [response]
            if response is not None and response.__class__ is not route.response:
                future = self._future(response)
                yield future
                response = future.result()
        except Exception as error:
            response = failure(route, error)
        if response is None:
            return None
        if not large:
            return self._encode(route, correlation, response)
        return add_prefix(route, correlation, (yield from self._encode_slowly(route, response)))

    def _future(self, response: Any) -> asyncio.Future[Any]:
        if asyncio.isfuture(response):
            return response
        assert inspect.iscoroutine(response), f"a handler answered with {type(response)}"
        task = asyncio.get_running_loop().create_task(response)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        # When a client disconnects, its answer is dropped but the work goes on: a half-written change must be finished.
        return asyncio.shield(task)

    def _later(self, route: Route, correlation: int, response: Any, *, exclusive: bool) -> Deferred:
        def finish(future: asyncio.Future[Any]) -> list[Part] | None:
            if future.cancelled():
                raise Hangup("the broker is stopping")
            error = future.exception()
            value = future.result() if error is None else failure(route, error)
            return None if value is None else self._encode(route, correlation, value)

        return Deferred(self._future(response), finish, exclusive=exclusive)

    def _encode(self, route: Route, correlation: int, response: Any) -> list[Part]:
        try:
            parts = route.encode(response)
            if route.faulty(response):
                self._note(route, response)
        except Exception:  # the handler returned a value that the schema cannot encode
            raise unencodable(route) from None
        if len(parts) > 1:
            return add_prefix(route, correlation, parts)
        prefix, body = route.prefix, parts[0]
        return [prefix.pack(prefix.size - 4 + len(body), correlation) + body]

    def _encode_slowly(self, route: Route, response: Any) -> Steps[list[Part]]:
        try:
            parts: list[Part] = yield from codec.slicing_encoder(route.response, route.version)(response)
            if route.faulty(response):
                self._note(route, response)
        except Exception:
            raise unencodable(route) from None
        return parts

    def _note(self, route: Route, response: Any) -> None:
        key = route.counts.key
        for code in faults(response, key):
            self.errors[key, code] += 1

    def _route(self, key: int, version: int) -> Route | None:
        """Build the route; None for an ApiVersions request that must step down to version 0."""
        registered = select_apis(self._parts).get(key)
        if registered is None:
            raise Hangup(f"API {key} is not supported")
        low, high = registered.versions
        if not low <= version <= high:
            if key == API_VERSIONS:
                return None
            raise Hangup(f"API {key} supports versions {low} to {high}, not {version}")
        route = Route(key, version, self._find_handler(key), for_members=registered.for_members)
        route.shortcut = self._find_shortcut(route)
        self._routes[key << 16 | version] = route
        return route

    def _find_handler(self, key: int) -> Callable[..., Any]:
        """The handler of an API, wrapped in its ACL gate, its quota check and an injected fault, if it has them."""
        handler = select_apis(self._parts)[key].function
        if self._authorizer is not None:
            from ottla.handlers.gates.gate import put_behind_gate  # only needed with an authorizer

            handler = put_behind_gate(key, handler, self._authorizer)
        if self._throttling is not None and not select_apis(self._parts)[key].for_members:
            handler = self._throttling.put_around(key, handler)
        around = self._around.get(key)
        return handler if around is None else around(handler)

    def _find_shortcut(self, route: Route) -> Any:
        """The shortcut that skips decoding, unless a fault is injected: that needs the decoded message."""
        key = route.counts.key
        make = select_apis(self._parts)[key].shortcut
        if make is None or key in self._around:
            return None
        quotas = None if self._throttling is None else self._throttling.quotas
        return make(self._parts, route.version, self._authorizer, quotas)

    def intercept(self, key: int, around: Callable[[Callable[..., Any]], Callable[..., Any]] | None) -> None:
        """Wrap the handler of an API to inject faults; None removes the wrapper."""
        if around is None:
            self._around.pop(key, None)
        else:
            self._around[key] = around
        handler = self._find_handler(key)
        for route in self._routes.values():
            if route.counts.key == key:
                route.handler = handler
                route.shortcut = self._find_shortcut(route)

    def measure(self, throttling: Throttling | None) -> None:
        """Use these quotas from now on; None: no quotas."""
        before, self._throttling = self._throttling, throttling
        for route in self._routes.values():
            if throttling is not before:
                route.handler = self._find_handler(route.counts.key)
            route.shortcut = self._find_shortcut(route)

    def _step_down(self, correlation: int) -> list[Part]:
        from ottla.handlers.versions import refuse_version

        route = self._routes.get(API_VERSIONS << 16) or self._route(API_VERSIONS, 0)
        assert route is not None
        return self._encode(route, correlation, refuse_version(self._parts))

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def count_when_sent(route: Route, connection: Connection, answer: Answer) -> Answer:
    """Count a request when its answer is sent, or now if there is no answer."""
    now = monotonic()
    route.counts.requests += 1
    times = route.counts, connection.arrived, connection.begun, now, 0.0, 1
    if answer is None:
        route.counts.add(times, now)
    elif isinstance(answer, Deferred):
        answer.times = times
    else:
        connection.unsent.append(times)
    return answer


def add_prefix(route: Route, correlation: int, parts: list[Part]) -> list[Part]:
    """The parts of an answer with the length and correlation id in front."""
    prefix = route.prefix
    size = prefix.size - 4
    for part in parts:
        size += len(part) if part.__class__ is bytes else part.size
    parts[0] = prefix.pack(size, correlation) + parts[0]
    return parts


def ignore_failure(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved. Otherwise asyncio logs it if the client is gone."""
    if not future.cancelled():
        future.exception()


def take_parts(future: asyncio.Future[Any]) -> list[Part] | None:
    """The parts of the answer to a sliced request."""
    if future.cancelled():
        raise Hangup("the broker is stopping")
    error = future.exception()
    if error is None:
        parts: list[Part] | None = future.result()
        return parts
    if not isinstance(error, Hangup):
        log.error("a request failed", exc_info=error)
        raise Hangup("a request failed")
    raise error


def unreadable(error: DecodeError) -> Hangup:
    return Hangup(f"cannot parse the request: {error}")


def unencodable(route: Route) -> Hangup:
    log.exception("cannot encode %s", route.response.__name__)
    return Hangup(f"{route.response.__name__} cannot be encoded")


def failure(route: Route, error: BaseException) -> Any:
    """The response that reports this error. Closes the connection if the response has no error field."""
    if isinstance(error, Hangup):
        raise error
    if isinstance(error, BrokerError):
        code = error.code
    else:
        log.error("a handler failed on %s", route.request.__name__, exc_info=error)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    try:
        response = route.response(error_code=code)
    except TypeError:
        raise Hangup(f"{route.request.__name__} failed: {code.name}") from None
    if hasattr(response, "error_message") and isinstance(error, BrokerError):
        response.error_message = error.message or None
    return response
