"""One connection of a simulated client: uses the real codec; responses arrive in the order of the requests.

Brokers connect to each other through the real `cluster/peers.py`, which shares no code with this.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.wire import apis, codec, frame
from ottla.wire.schema import spec

if TYPE_CHECKING:
    from ottla.sim.loop import SimLoop
    from ottla.sim.net import SimSocket

LENGTH = struct.Struct(">i")


class LinkError(Exception):
    """There is no response, and it is unknown whether the request was carried out."""


class SimConnection:
    """One connection to a broker. It cannot be used any more after an error."""

    def __init__(self, loop: SimLoop, socket: SimSocket) -> None:
        self.closed = False
        self._loop = loop
        self._socket = socket
        self._data = bytearray()
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._count = 0
        loop.add_reader(socket.fd, self._on_readable)

    def send(self, request: object, version: int, client_id: str = "sim") -> asyncio.Future[Any]:
        """A future of the response; LinkError if there will be none."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            future.set_exception(LinkError("the connection is closed"))
            return future
        key = spec(type(request)).key
        assert key is not None
        self._count += 1
        body = frame.request_header(key, version, self._count, client_id) + codec.encode(request, version)
        try:
            self._socket.send(LENGTH.pack(len(body)) + body)
        except OSError as error:
            self.close()
            future.set_exception(LinkError(str(error)))
            return future
        self._waiting.append((key, version, self._count, future))
        return future

    async def ask(self, request: object, version: int, *, timeout_s: float = 30.0, client_id: str = "sim") -> Any:
        """The response. If it takes too long the connection is closed, since the outcome is unknown."""
        future = self.send(request, version, client_id)
        try:
            return await asyncio.wait_for(asyncio.shield(future), timeout_s)
        except TimeoutError:
            self.close()
            future.exception()
            raise LinkError("no answer in time") from None

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._data += data
        while len(self._data) >= 4:
            (length,) = LENGTH.unpack_from(self._data)
            if len(self._data) < 4 + length:
                return
            answer = bytes(self._data[4 : 4 + length])
            del self._data[: 4 + length]
            self._on_answer(answer)

    def _on_answer(self, answer: bytes) -> None:
        key, version, count, future = self._waiting.popleft()
        correlation, position = frame.parse_response_header(key, version, answer)
        assert correlation == count, "an answer to another request"
        response, end = codec.decoder(apis.BY_KEY[key].response, version)(answer, position)
        assert end == len(answer), "an answer is read to its end"
        if not future.done():
            future.set_result(response)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket.fd)
        self._socket.close()
        for *_, future in self._waiting:
            if not future.done():
                future.set_exception(LinkError("the connection was lost"))
                future.exception()  # mark as retrieved: the caller may be gone
        self._waiting.clear()
