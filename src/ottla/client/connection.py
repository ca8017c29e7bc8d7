"""One connection to one broker: requests out, answers back in the order of the requests, blocking, in one thread.

    connection = Connection(("localhost", 9092))
    answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse)

`send` and `receive` are the two halves of `ask`, for callers that keep several requests on their way. The broker is
asked first what it speaks, and each request goes out in the newest version that both know.

An answer is received into one buffer and decoded in place: records come out as a view of it and are copied nowhere.
Whatever goes wrong ends the connection, for what comes after a torn answer cannot be told apart from its rest. All
waiting has an end: an answer must begin within `timeout_s` and must not trickle.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.client.failure import Failed, Refused, Unreachable, check
from ottla.client.security import PLAIN
from ottla.wire import codec, frame
from ottla.wire.apis import BY_KEY
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import spec

if TYPE_CHECKING:
    from ottla.client.security import Security

API_VERSIONS: Final = 18
FEATURES_SINCE: Final = 3  # the version of ApiVersions whose answer tells them
ANSWER_SIZE_MAX: Final = 512 << 20  # more than any broker may send for what is asked here; a length beyond it is none
PIECE: Final = 16 << 20  # allocated at once; beyond it memory follows what arrives, not what a broker claims will
RATE_MIN: Final = 64 << 10  # bytes a second: what comes slower than this does not count as an answer
JOIN_MAX: Final = 1 << 16  # a header is joined to a body of this size; a larger one is sent by itself, uncopied
TIMEOUT_S: Final = 30.0

Address = tuple[str, int]
Answer = TypeVar("Answer")


class Asked(NamedTuple):
    """A request whose answer has not been taken yet."""

    correlation: int
    key: int
    version: int
    wait_s: float  # what the broker may take before it answers


class Connection:
    def __init__(
        self,
        address: Address,
        timeout_s: float = TIMEOUT_S,
        *,
        security: Security = PLAIN,
        client_id: str = "ottla",
    ) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self.alive = True
        self._timeout_s = timeout_s
        self._security = security
        self._client_id = client_id
        self._count = 0
        self._taken = 0  # answers
        self._asked: deque[Asked] = deque()
        self._waiting: deque[bytearray] = deque()  # answers received before somebody asked for them
        self._renew_at: float | None = None  # when to prove again who we are
        self._features: dict[str, int] | None = None
        self._versions = {API_VERSIONS: (0, 0)}
        self._socket = self._open()
        try:
            spoken = self.ask(ApiVersionsRequest(), ApiVersionsResponse)
            check(f"the broker at {self.name}", spoken.error_code)
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in spoken.api_keys}
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def _open(self) -> socket.socket:
        try:
            plain = socket.create_connection(self.address, timeout=self._timeout_s)
        except TimeoutError:
            raise Unreachable(f"no connection to the broker at {self.name} (no answer)") from None
        except OSError as error:
            raise Unreachable(f"no connection to the broker at {self.name} ({error.strerror or error})") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            return self._security.wrap(plain, self.address[0], self.name)
        except BaseException:
            plain.close()
            raise

    def version(self, key: int, newest: int | None = None) -> int:
        """The newest version of an API that both sides know, and that the caller can use."""
        api = BY_KEY[key]
        low, high = self._versions.get(key, (0, -1))
        chosen = min(high, api.versions[1] if newest is None else newest)
        if chosen < max(low, api.versions[0]):
            raise Failed(f"the broker at {self.name} is too old or too new: it does not take {api.name} as we send it")
        return chosen

    def features(self) -> dict[str, int]:
        """What the cluster has agreed to use, such as transaction.version, with its level."""
        if self._features is None:
            answer: ApiVersionsResponse | None = None
            if self._versions.get(API_VERSIONS, (0, 0))[1] >= FEATURES_SINCE:
                request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
                answer = self.ask(request, ApiVersionsResponse)
                check(f"the broker at {self.name}", answer.error_code)
            self._features = {one.name: one.max_version_level for one in answer.finalized_features} if answer else {}
        return self._features

    @property
    def idle(self) -> bool:
        """Whether every answer has been taken."""
        return not self._asked

    def ask(self, request: object, answer: type[Answer], *, newest: int | None = None) -> Answer:
        """Send a request and wait for its answer."""
        assert not self._asked, "the answers of earlier requests have not been taken"
        self.send(request, newest=newest)
        return self.receive(answer)

    def send(self, request: object, *, newest: int | None = None, answered: bool = True, wait_s: float = 0.0) -> int:
        """Send a request and return its correlation id. `wait_s` is what the broker may take before it answers."""
        key = spec(type(request)).key
        assert key is not None, "only a request can be sent"
        if self._renew_at is not None and time.monotonic() > self._renew_at:
            self._renew()
        version = self.version(key, newest)
        self._count += 1
        head = frame.request_header(key, version, self._count, self._client_id)
        body = codec.encode(request, version)
        head = struct.pack(">i", len(head) + len(body)) + head
        try:
            if not self.alive:
                raise ConnectionError("connection closed")
            if len(body) <= JOIN_MAX:
                self._socket.sendall(head + body)
            else:
                self._socket.sendall(head)
                self._socket.sendall(body)
        except OSError as error:
            raise self._lost(error) from None
        except BaseException:  # interrupted: nobody knows how much was sent
            self.close()
            raise
        if answered:
            self._asked.append(Asked(self._count, key, version, wait_s))
        return self._count

    def receive(self, answer: type[Answer]) -> Answer:
        """The answer to the oldest request that has had none."""
        asked = self._asked[0]
        try:
            data = self._waiting.popleft() if self._waiting else self._take(asked.wait_s)
            self._asked.popleft()
            self._taken += 1
            correlation, position = frame.parse_response_header(asked.key, asked.version, data)
            if correlation != asked.correlation:
                raise codec.DecodeError(f"an answer to request {correlation} instead of {asked.correlation}")
            response, end = codec.decoder(answer, asked.version)(data, position)
            if end != len(data):
                raise codec.DecodeError(f"{len(data) - end} bytes are left")
        except OSError as error:
            raise self._lost(error) from None
        except codec.DecodeError as error:
            raise self._nonsense(answer, error) from None
        except BaseException:  # interrupted: the rest of the answer may still come
            self.close()
            raise
        return response

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether an answer has begun to arrive, or the connection has ended, within this time."""
        if self._waiting or not self.alive:
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        waiting = select.poll()  # select itself fails in programs with a thousand open files
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(timeout_s * 1000))

    def _take(self, wait_s: float) -> bytearray:
        """The next frame, in a buffer of its own. Time counts from now: who asked long ago may have been busy since."""
        if not self.alive:
            raise ConnectionError("connection closed")
        prefix = bytearray(4)
        self._fill(prefix, 0, time.monotonic() + self._timeout_s + wait_s)
        (size,) = struct.unpack(">i", prefix)
        if not 4 <= size <= ANSWER_SIZE_MAX:
            raise codec.DecodeError(f"a length of {size} bytes")
        data = bytearray(min(size, PIECE))
        deadline = time.monotonic() + self._timeout_s + size / RATE_MIN
        self._fill(data, 0, deadline)
        while (filled := len(data)) < size:
            data += bytes(min(filled, size - filled))
            self._fill(data, filled, deadline)
        return data

    def _fill(self, data: bytearray, position: int, deadline: float) -> None:
        size = len(data)
        with memoryview(data) as view:
            while position < size:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                count = self._socket.recv_into(view[position:])
                if not count:
                    raise ConnectionError("connection closed")
                position += count
                if position < size and time.monotonic() > deadline:
                    raise TimeoutError
        self._socket.settimeout(self._timeout_s)

    def _authenticate(self) -> None:
        lifetime_ms = self._security.authenticate(self)
        self._renew_at = time.monotonic() + 0.85 * lifetime_ms / 1000 if lifetime_ms > 0 else None

    def _renew(self) -> None:
        """Prove again who we are, before the broker ends the session; answers that are on their way are kept."""
        self._renew_at = None
        try:
            while len(self._waiting) < len(self._asked):
                self._waiting.append(self._take(self._asked[len(self._waiting)].wait_s))
        except OSError as error:
            raise self._lost(error) from None
        except codec.DecodeError as error:
            raise self._nonsense(object, error) from None
        asked, waiting = self._asked, self._waiting
        self._asked, self._waiting = deque(), deque()
        try:
            self._authenticate()
        finally:
            self._asked, self._waiting = asked, waiting

    def _lost(self, error: OSError) -> Unreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return Unreachable(f"the broker at {self.name} does not answer")
        doubt = self._security.doubt() if self._taken <= 1 else ""  # it hung up when it was first asked for something
        return Unreachable(f"the broker at {self.name} went away ({error.strerror or error}){doubt}")

    def _nonsense(self, answer: type, error: codec.DecodeError) -> Failed:
        self.close()
        text = f"the broker at {self.name} answered with something else than {answer.__name__}: {error}"
        return Failed(text + self._security.doubt())

    def close(self) -> None:
        self.alive = False
        with contextlib.suppress(OSError):
            self._socket.close()


__all__ = ["Address", "Connection", "Failed", "Refused", "Unreachable"]
