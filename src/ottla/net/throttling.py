"""Wraps the handlers of a broker with quotas: measures each request, sets the throttle time in its answer, and mutes
the connection for that time.

produce     the size of the request counts as soon as it is handled: the next request on this connection waits, even
            while the answer waits for other brokers
fetch       the size of the answer counts. An answer that exceeds the quota is not sent: the client gets an empty one
            and fetches again. A single batch that is larger than a whole window is sent if the client has no debt, and
            the client is throttled for it afterwards. Kafka never sends such a batch
all others  the time in the handler counts. Produce with acks=0 has no answer, so its time does not count, as in Kafka

Requests between brokers, fetches of followers and logins are not measured. Two APIs are used by clients and by brokers:
these are not measured on a listener that only brokers use.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import monotonic, steady_ms
from ottla.handlers.finishing import finish_later
from ottla.quota.entity import FETCH, PRODUCE, REQUEST
from ottla.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Self

    from ottla.clock import Clock
    from ottla.handlers.call import Call, Parts, Steps
    from ottla.net.connection import Connection
    from ottla.quota.quotas import Quotas, Throttle

    Handler = Callable[[Parts, Call, Any], Any]
    Finish = Callable[[Any, float], Any]  # the answer, and the seconds spent on it

PRODUCE_KEY, FETCH_KEY = 0, 1
# APIs between brokers (those that only members serve are exempt, too), and logins.
EXEMPT: Final = frozenset((4, 5, 6, 7, 17, 27, 36, 56, 67))
ALSO_OF_BROKERS: Final = frozenset((18, 24))  # ApiVersions and AddPartitionsToTxn
PARTITION_SIZE: Final = 60  # size of a partition in a fetch response, without its records
SHARE_OF_RECORDS: Final = 0.95  # share of the records in a fetch response of the largest allowed size


class Throttling:
    def __init__(self, quotas: Quotas, clock: Clock, brokers_only: str = "") -> None:
        """`brokers_only`: the inter-broker listener, if clients use another one."""
        self.quotas = quotas
        self._clock = clock
        self._brokers_only = brokers_only

    def put_around(self, key: int, handler: Handler) -> Handler:
        if key in EXEMPT:
            return handler
        handle = {PRODUCE_KEY: self._produce, FETCH_KEY: self._fetch}.get(key, self._handle)
        return lambda parts, call, request: handle(handler, parts, call, request)

    def _now(self) -> int:
        return steady_ms(self._clock)

    def _handle(self, handler: Handler, parts: Parts, call: Call, request: Any) -> Any:
        if call.listener == self._brokers_only and call.key in ALSO_OF_BROKERS:
            return handler(parts, call, request)
        who = call.principal.name, call.client_id

        def finish(response: Any, spent_s: float) -> Any:
            throttle = self.quotas.record(REQUEST, who, spent_s * 100, self._now())
            self._apply(call, response, longest(throttle, getattr(call, "throttle", None)))
            return response

        return run(handler, parts, call, request, finish)

    def _produce(self, handler: Handler, parts: Parts, call: Call, request: Any) -> Any:
        who = call.principal.name, call.client_id
        throttle = self.quotas.record(PRODUCE, who, getattr(call, "size", 0), self._now())
        self._mute(call, throttle)
        answered = request.acks != 0  # do not keep the request while its answer is pending

        def finish(response: Any, spent_s: float) -> Any:
            timed = None
            if answered:
                timed = self.quotas.record(REQUEST, who, spent_s * 100, self._now())
            longer = longest(throttle, timed)
            if response is not None and longer is not None:
                response.throttle_time_ms = longer.ms
            if longer is not throttle:
                self._mute(call, longer)
            return response

        return run(handler, parts, call, request, finish)

    def _fetch(self, handler: Handler, parts: Parts, call: Call, request: Any) -> Any:
        if max(request.replica_id, request.replica_state.replica_id) >= 0:
            return handler(parts, call, request)
        who, opens_session = (call.principal.name, call.client_id), request.session_epoch <= 0
        room = self.quotas.room(FETCH, who)
        if room is not None:  # a larger answer would be withheld
            request.max_bytes = int(min(request.max_bytes, max(room * SHARE_OF_RECORDS, 1)))
            request.min_bytes = min(request.min_bytes, request.max_bytes)

        def finish(response: Any, spent_s: float) -> Any:
            now_ms, size = self._now(), 0 if response is None else size_of(response)
            timed = self.quotas.record(REQUEST, who, spent_s * 100, now_ms)
            throttle = longest(self.quotas.record(FETCH, who, size, now_ms), timed)
            if throttle is None or response is None:
                return response
            owed = self.quotas.take_back(FETCH, who, size, now_ms)
            if room is not None and size > room and not owed and timed is None:
                self.quotas.record(FETCH, who, size, now_ms)
            else:
                response = withhold(parts, response, opens_session=opens_session)
            self._apply(call, response, throttle)
            return response

        return run(handler, parts, call, request, finish)

    def _apply(self, call: Call, response: Any, throttle: Throttle | None) -> None:
        if throttle is not None:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle.ms
            self._mute(call, throttle)

    def _mute(self, call: Call, throttle: Throttle | None) -> None:
        if throttle is not None:
            self.quotas.note(throttle.key, throttle.ms)
            if call.peer is not None:
                call.peer.mute(throttle.ms / 1000, (throttle, call.client_id))

    def release(self, connections: Iterable[Connection]) -> None:
        """Quotas have changed: unmute connections whose quota is a different one now. The new quota applies to them."""
        for connection in connections:
            if connection.muted_by is not None:
                throttle, client_id = connection.muted_by
                if self.quotas.limits.find(throttle.key, connection.principal.name, client_id) != throttle.limit:
                    connection.unmute()


def longest(one: Throttle | None, other: Throttle | None) -> Throttle | None:
    if one is None or other is None:
        return one or other
    return one if one.ms >= other.ms else other


def size_of(response: FetchResponse) -> int:
    """The approximate size of the answer."""
    size = 0
    for topic in response.responses:
        size += len(topic.topic) + PARTITION_SIZE
        for data in topic.partitions:
            records = data.records
            size += PARTITION_SIZE
            if records:
                size += records.size if hasattr(records, "size") else len(records)
    return size


def withhold(parts: Parts, response: FetchResponse, *, opens_session: bool) -> FetchResponse:
    """Replace an answer that exceeds the quota by an empty one. The client gets its content with a later fetch.

    A session that this fetch would have opened is dropped: a client that gets an empty answer opens a new one.
    """
    session = parts.sessions.find(response.session_id)
    session_id = response.session_id
    if session is not None and opens_session:
        parts.sessions.close(session.id)
        session_id = 0
    elif session is not None:
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id if session.by_id else topic.topic, data.partition_index)
                watched = session.watched.get(key)
                if watched is not None:
                    watched.high = -1
    return FetchResponse(session_id=session_id, error_code=response.error_code, responses=[])


def run(handler: Handler, parts: Parts, call: Call, request: Any, finish: Finish) -> Any:
    """Run the handler, whatever it returns (an answer, steps, a coroutine or a future), and finish it with the time
    spent."""
    started = monotonic()
    try:
        response = handler(parts, call, request)
    except Exception:
        finish(None, monotonic() - started)
        raise
    spent_s = monotonic() - started
    if response.__class__ is GeneratorType:
        return run_steps(response, spent_s, finish)
    if inspect.iscoroutine(response):
        return run_coroutine(response, spent_s, finish)
    return finish_later(response, lambda answer: finish(answer, spent_s))


def run_steps(steps: Steps[Any], spent_s: float, finish: Finish) -> Steps[Any]:
    try:
        while True:
            started = monotonic()
            try:
                awaited = next(steps)
            except StopIteration as end:
                response = end.value
                break
            finally:
                spent_s += monotonic() - started
            yield awaited
    except Exception:
        finish(None, spent_s)
        raise
    if inspect.iscoroutine(response):
        return run_coroutine(response, spent_s, finish)
    return finish_later(response, lambda answer: finish(answer, spent_s))


async def run_coroutine(work: Coroutine[Any, Any, Any], spent_s: float, finish: Finish) -> Any:
    timed = Timed(work)
    response = await timed
    return finish(response, spent_s + timed.spent_s)


class Timed(Generator[Any, Any, Any]):
    """Measures the running time of a coroutine, without the time that it waits."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.spent_s = 0.0

    def __await__(self) -> Self:
        return self

    def send(self, value: Any) -> Any:
        started = monotonic()
        try:
            return self._work.send(value)
        finally:
            self.spent_s += monotonic() - started

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)
