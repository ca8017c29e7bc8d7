"""A small HTTP/1.1 server for scrapers, on the broker's event loop. Limits keep one client from harming others:

    head          8 kB at most (431), within 5 s (closed); no bodies (400)
    methods       GET and HEAD (405)
    Host          an IP address, localhost, the machine's name, or an allowed name (403), against DNS rebinding: a web
                  page must not read metrics through a name of its own that resolves to this address
    response      must be read within 30 s, else the connection is closed; then the next request is handled
    connections   32; a further one replaces the connection that was idle for longest, or is closed itself

`HttpServer` takes a function from a path to an `Answer`. It does not depend on metrics.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from socket import socket

log = logging.getLogger("ottla.metrics")

HEAD_SIZE_MAX: Final = 8192
HEAD_S_MAX: Final = 5.0
IDLE_S_MAX: Final = 120.0
SEND_S_MAX: Final = 30.0
CONNECTIONS_MAX: Final = 32
PLAIN: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    keeps: bool  # whether the connection stays open


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = PLAIN


class BadRequest(Exception):
    """A request that is refused; its connection is closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.answer = Answer(status, f"{reason}\n".encode())


class HttpServer:
    def __init__(self, respond: Callable[[Request], Awaitable[Answer]], names: Collection[str]) -> None:
        self._respond = respond
        self._names = frozenset(name.lower() for name in names)
        self._connections: dict[HttpExchange, None] = {}  # in the order of their last request
        self._server: asyncio.Server | None = None

    async def open(self, bound: socket) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: HttpExchange(self), sock=bound)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for one in list(self._connections):
            one.cut()
        await asyncio.sleep(0)

    def admit(self, one: HttpExchange) -> bool:
        """Whether there is room for a connection. May close the one that was idle for longest."""
        if len(self._connections) >= CONNECTIONS_MAX:
            idle = next((other for other in self._connections if other.idle), None)
            if idle is None:
                return False
            idle.cut()
            self._connections.pop(idle, None)
        self._connections[one] = None
        return True

    def touch(self, one: HttpExchange) -> None:
        if one in self._connections:
            self._connections[one] = self._connections.pop(one)

    def forget(self, one: HttpExchange) -> None:
        self._connections.pop(one, None)

    async def answer(self, request: Request) -> Answer:
        if not is_allowed(request.headers["host"], self._names):
            return Answer(403, b"this name is not one of ottla.metrics.hosts\n")
        if request.method not in ("GET", "HEAD"):
            return Answer(405, b"GET or HEAD\n")
        try:
            return await self._respond(request)
        except Exception:  # the outermost frame of a request
            log.exception("cannot answer %s", request.path)
            return Answer(500, b"failed, see the broker's log\n")


class HttpExchange(asyncio.Protocol):
    """One connection. Handles one request at a time."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def idle(self) -> bool:
        return self._task is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's transport has another base class
        transport.set_write_buffer_limits(high=0)  # so that `resume_writing` is called when everything is sent
        if self._server.admit(self):
            self._wait(HEAD_S_MAX)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._buffer and self._task is None:
            self._wait(HEAD_S_MAX)  # counts from the first byte of a head
        self._buffer += data
        if self._task is None:
            self._next()
        elif len(self._buffer) > HEAD_SIZE_MAX and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _wait(self, seconds: float) -> None:
        """Close the connection after this time, unless the timer is reset."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.cut)

    def _next(self) -> None:
        """Start to answer when a head is complete."""
        if self._transport is None:
            return
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_SIZE_MAX)
        if end < 0 and len(self._buffer) < HEAD_SIZE_MAX:
            return
        try:
            if end < 0:
                raise BadRequest(431, "the request head is too long")
            request = parse(self._buffer[:end])
        except BadRequest as error:
            self._buffer = b""
            self._send(error.answer, keep=False, head_only=False)
            return
        self._buffer = self._buffer[end + 4 :]
        self._server.touch(self)
        self._wait(SEND_S_MAX)
        self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        answer = await self._server.answer(request)
        self._send(answer, keep=request.keeps, head_only=request.method == "HEAD")
        await self._drained.wait()  # the timer closes connections that take too long
        self._task = None
        if self._transport is not None and request.keeps:
            self._wait(IDLE_S_MAX)
            self._transport.resume_reading()
            if self._buffer:
                self._wait(HEAD_S_MAX)
                self._next()

    def _send(self, answer: Answer, *, keep: bool, head_only: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            f"{'Allow: GET, HEAD' + chr(13) + chr(10) if answer.status == 405 else ''}"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if head_only else answer.body))
        if not keep:
            self._transport.close()  # after everything is sent
            self._wait(SEND_S_MAX)


def parse(head: bytes) -> Request:
    """Parse a request head. BadRequest if it is invalid, or the request has a body."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError:
        raise BadRequest(400, "not an HTTP/1.1 request") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(505, "only HTTP/1.1 is supported")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or name.lower() in headers:
            raise BadRequest(400, "malformed header")
        headers[name.lower()] = value.strip()
    if "host" not in headers:
        raise BadRequest(400, "the Host header is missing")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(400, "request bodies are not supported")
    keeps = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Request(method, target.partition("?")[0], headers, keeps)


def is_allowed(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header is an address or an allowed name, and not the name of a web page (DNS rebinding)."""
    from ipaddress import ip_address  # imported late, for a fast start

    if "*" in names:
        return True
    name = host.lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name in names
    return True
