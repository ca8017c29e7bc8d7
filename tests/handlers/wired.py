"""A connection that sends and receives messages: for tests that send exact requests to a broker, Ottla or Kafka."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.wire import apis, codec, frame
from ottla.wire.schema import fields, spec

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Wired:
    def __init__(
        self, port: int, *, timeout_s: float = 60.0, source: str = "127.0.0.1", client_id: str = "test"
    ) -> None:
        """`source` is the local address of the connection."""
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s, source_address=(source, 0))
        self._count = 0
        self._unanswered: deque[tuple[int, int, int]] = deque()  # (key, version, correlation id)

    def ask(self, request: object, version: int) -> Any:
        """Send a request and wait for its response."""
        self.send(request, version)
        return self.receive()

    def send(self, request: object, version: int) -> None:
        key = spec(type(request)).key
        assert key is not None
        self._count += 1
        body = frame.request_header(key, version, self._count, self._client_id) + codec.encode(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        self._unanswered.append((key, version, self._count))

    def forget(self) -> None:
        """Expect no response to the last request."""
        self._unanswered.pop()

    def receive(self) -> Any:
        """The response to the oldest unanswered request."""
        key, version, count = self._unanswered.popleft()
        answer = self._take(struct.unpack(">i", self._take(4))[0])
        correlation, position = frame.parse_response_header(key, version, answer)
        assert correlation == count, "an answer to another request"
        response, end = codec.decoder(apis.BY_KEY[key].response, version)(answer, position)
        assert end == len(answer), "an answer is read to its end"
        return response

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def plain(value: Any) -> Any:
    """A message as dictionaries and lists; lists are sorted, since brokers may answer in any order."""
    if isinstance(value, list):
        return sorted(map(plain, value), key=repr)
    if hasattr(value, "__wire__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(type(value))}
    return value
