"""One connection to one broker: requests, and answers in the same order. Blocking, in one thread.

    connection = Connection(("localhost", 9092))
    answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse)

`send` and `receive` are the two halves of `ask`, for callers that pipeline requests. The first request asks for the
broker's versions, and each request is sent in the newest version that both know.

An answer is received into one buffer and decoded in place, and a request is sent as a list of parts, so records are
never copied (channel.py). Any error closes the connection: after an incomplete answer the stream is useless.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from ottla.client.channel import Channel, Part
from ottla.client.failure import Failed, Refused, Unreachable, check
from ottla.client.security import PLAIN
from ottla.wire import codec, frame
from ottla.wire.apis import BY_KEY
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import spec

if TYPE_CHECKING:
    from ottla.client.security import Security

API_VERSIONS: Final = 18
FEATURES_SINCE: Final = 3  # version of ApiVersions whose answer has features
TIMEOUT_S: Final = 30.0

Address = tuple[str, int]
Answer = TypeVar("Answer")


class PendingRequest(NamedTuple):
    """A request whose answer has not been taken yet."""

    correlation: int
    key: int
    version: int
    wait_s: float  # how long the broker may wait before it answers


class Uncopied:
    """Records in a request that are sent without a copy."""

    __slots__ = ("data",)

    def __init__(self, data: Part) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)


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
        self._asked: deque[PendingRequest] = deque()
        self._waiting: deque[bytearray] = deque()  # answers received before `receive` was called
        self._renew_at: float | None = None  # when to authenticate again
        self._features: dict[str, int] | None = None
        self._versions = {API_VERSIONS: (0, 0)}
        self._channel = Channel(self._open(), timeout_s)
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
        except UnicodeError:
            raise Failed(f"{self.address[0]} is not a valid host name: correct the address") from None
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
            raise Failed(f"the broker at {self.name} is too old or too new: no version of {api.name} fits")
        return chosen

    def knows(self, key: int) -> bool:
        """Whether the broker has this API at all."""
        return key in self._versions

    def features(self) -> dict[str, int]:
        """The finalized features of the cluster, such as transaction.version, with their levels."""
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
        """Whether no answer is outstanding."""
        return not self._asked

    def ask(self, request: object, answer: type[Answer], *, newest: int | None = None) -> Answer:
        """Send a request and wait for its answer."""
        assert not self._asked, "the answers of earlier requests have not been taken"
        self.send(request, newest=newest)
        return self.receive(answer)

    def send(self, request: object, *, newest: int | None = None, answered: bool = True, wait_s: float = 0.0) -> int:
        """Send a request and return its correlation id. `wait_s` is how long the broker may wait before it answers."""
        key = spec(type(request)).key
        assert key is not None, "only a request can be sent"
        if self._renew_at is not None and time.monotonic() > self._renew_at:
            self._renew()
        version = self.version(key, newest)
        self._count += 1
        head = frame.request_header(key, version, self._count, self._client_id)
        made = codec.encoder(type(request), version)(request)
        body = (part.data if isinstance(part, Uncopied) else cast("bytes", part) for part in made)
        try:
            if not self.alive:
                raise ConnectionError("connection closed")
            self._channel.send([head, *body])
        except OSError as error:
            raise self._hang_up(error) from None
        except BaseException:  # interrupted: it is unknown how much was sent
            self.close()
            raise
        if answered:
            self._asked.append(PendingRequest(self._count, key, version, wait_s))
        return self._count

    def receive(self, answer: type[Answer]) -> Answer:
        """The answer to the oldest outstanding request."""
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
            raise self._hang_up(error) from None
        except codec.DecodeError as error:
            raise self._reject(answer, error) from None
        except BaseException:  # interrupted: the rest of the answer may still come
            self.close()
            raise
        return response

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether an answer has begun to arrive, or the connection has ended, within this time."""
        return bool(self._waiting) or not self.alive or self._channel.ready(timeout_s)

    def _take(self, wait_s: float) -> bytearray:
        if not self.alive:
            raise ConnectionError("connection closed")
        return self._channel.receive(wait_s)

    def _authenticate(self) -> None:
        lifetime_ms = self._security.authenticate(self)
        self._renew_at = time.monotonic() + 0.85 * lifetime_ms / 1000 if lifetime_ms > 0 else None

    def _renew(self) -> None:
        """Authenticate again before the broker ends the session. Outstanding answers are kept."""
        self._renew_at = None
        try:
            while len(self._waiting) < len(self._asked):
                self._waiting.append(self._take(self._asked[len(self._waiting)].wait_s))
        except OSError as error:
            raise self._hang_up(error) from None
        except codec.DecodeError as error:
            raise self._reject(object, error) from None
        asked, waiting = self._asked, self._waiting
        self._asked, self._waiting = deque(), deque()
        try:
            self._authenticate()
        finally:
            self._asked, self._waiting = asked, waiting

    def _hang_up(self, error: OSError) -> Unreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return Unreachable(f"the broker at {self.name} does not answer")
        doubt = self._security.doubt() if self._taken <= 1 else ""  # it closed the connection on the first request
        return Unreachable(f"the broker at {self.name} went away ({error.strerror or error}){doubt}")

    def _reject(self, answer: type, error: codec.DecodeError) -> Failed:
        self.close()
        text = f"the broker at {self.name} answered with something other than {answer.__name__}: {error}"
        return Failed(text + self._security.doubt())

    def close(self) -> None:
        self.alive = False
        self._channel.close()


__all__ = ["Address", "Connection", "Failed", "Refused", "Unreachable"]
