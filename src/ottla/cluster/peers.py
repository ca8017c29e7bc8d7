"""Requests to other brokers, on the event loop: the interface `Peers`, and `Connections`, its implementation over TCP.

There is one connection per broker and channel, opened when first needed. A channel is one stream of requests: they are
pipelined, and answered in the order in which they were sent. Requests that must not wait behind others use a channel of
their own.

Any failure closes the connection, and every request on it fails with `PeerError`: the other broker may or may not have
carried it out. A timeout also closes the connection, because a late response would be mistaken for the next one. The
next request connects again, after a backoff that grows with each failure.

Responses are decoded from the buffer they were received into: records are views of it.

TLS and SASL login, if the listener requires them, are part of connecting. A login with a limited lifetime is renewed on
the same connection; requests wait meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.cluster.frames import ANSWER_SIZE_MAX, Frames
from ottla.errors import OutsideError
from ottla.wire import codec, frame
from ottla.wire.apis import BY_KEY
from ottla.wire.messages.auth import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import spec

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from ottla.cluster.image import Broker
    from ottla.wire.apis import Api

__all__ = ["Connections", "PeerError", "Peers", "UnsupportedError"]

logger = logging.getLogger("ottla.peers")

# What encoding raises for a message with an invalid value in a field.
UNENCODABLE = (AttributeError, TypeError, ValueError, OverflowError, struct.error)
TIMEOUT_S: Final = 30.0
DIAL_TIMEOUT_S: Final = 10.0  # Kafka's socket.connection.setup.timeout.ms
LOGIN_TIMEOUT_S: Final = 10.0
RENEWAL_SHARE: Final = 0.85  # of the lifetime of a login
BACKOFF_S: Final = 0.05  # Kafka's reconnect.backoff.ms, doubled with each failure
BACKOFF_S_MAX: Final = 1.0  # Kafka's reconnect.backoff.max.ms
UNSENT_SIZE_MAX: Final = 64 << 20  # per connection; beyond it the other side has stopped reading
SMALL_SIZE: Final = 16 << 10  # responses up to this size are decoded in one step
TURN_S: Final = 0.01  # time slice for decoding a larger one


class PeerError(OutsideError):
    """No response: no connection, connection lost, or timeout. The request may or may not have been carried out."""


class UnsupportedError(PeerError):
    """The other broker supports no usable version of the request. It was not sent."""


class Proof(Protocol):
    """One login by SASL."""

    def begin(self) -> bytes: ...

    def respond(self, token: bytes) -> bytes | None:
        """The next token to send; None when the exchange is complete. May be slow."""


class Credentials(Protocol):
    """How this broker proves who it is."""

    mechanism: str  # of SASL; empty: there is no login

    def context(self) -> ssl.SSLContext | None:
        """The TLS context; None: no TLS. May read files."""

    def proof(self) -> Proof: ...


class Peers(Protocol):
    async def ask(
        self,
        broker: Broker,
        request: Any,
        *,
        version: int | None = None,
        least: int = 0,
        timeout_s: float = TIMEOUT_S,
        client_id: str = "",
        channel: str = "",
    ) -> Any:
        """The response. Without `version`, uses the newest that both sides support, which must be at least `least`."""

    def close_channel(self, broker_id: int, channel: str) -> None:
        """Close the connection of a channel. Pending requests on it fail with PeerError."""


class Connections:
    def __init__(
        self, listener: str, credentials: Credentials | None = None, *, answer_size_max: int = ANSWER_SIZE_MAX
    ) -> None:
        self._listener = listener  # the inter-broker listener of the other brokers
        self._credentials = credentials
        self._answer_size_max = answer_size_max
        self._lines: dict[tuple[int, str], ChannelConnection] = {}
        self._closed = False

    async def ask(
        self,
        broker: Broker,
        request: Any,
        *,
        version: int | None = None,
        least: int = 0,
        timeout_s: float = TIMEOUT_S,
        client_id: str = "",
        channel: str = "",
    ) -> Any:
        if self._closed:
            raise PeerError("the broker is stopping")
        line = self._line(broker, channel)
        asked = PeerRequest(request, version, least, client_id)
        return await line.ask(asked, timeout_s)

    def _line(self, broker: Broker, channel: str) -> ChannelConnection:
        address = broker.endpoints.get(self._listener)
        if address is None:
            raise PeerError(f"broker {broker.id} has no listener {self._listener}")
        line = self._lines.get((broker.id, channel))
        if line is not None and (line.address != address or not same_life(line.epoch, broker.epoch)):
            line.end(f"broker {broker.id} was started again")
            line = None
        if line is None:
            line = ChannelConnection(broker.id, address, broker.epoch, self._answer_size_max, self._credentials)
            self._lines[broker.id, channel] = line
        return line

    def close_channel(self, broker_id: int, channel: str) -> None:
        line = self._lines.pop((broker_id, channel), None)
        if line is not None:
            line.end("the channel was closed")

    async def close(self) -> None:
        self._closed = True
        dials = [line.dial for line in self._lines.values() if line.dial is not None]
        for line in self._lines.values():
            line.end("the broker is stopping")
        self._lines.clear()
        await asyncio.gather(*dials, return_exceptions=True)


def same_life(one: int, other: int) -> bool:
    """Whether two broker epochs may belong to the same registration; a negative one is unknown."""
    return one == other or one < 0 or other < 0


class PeerRequest:
    """One pending request. Its future gets the response bytes and their version."""

    __slots__ = ("api", "client_id", "correlation", "future", "least", "request", "timer", "version")

    def __init__(self, request: Any, version: int | None, least: int, client_id: str) -> None:
        key = spec(type(request)).key
        assert key is not None, "only a request can be sent"
        self.api: Api = BY_KEY[key]
        self.request = request
        self.version = version
        self.least = max(least, self.api.versions[0])
        self.client_id = client_id
        self.correlation = 0
        self.future: asyncio.Future[tuple[bytearray, int]] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None


class ChannelConnection:
    """The connection of one channel, and its pending requests."""

    def __init__(
        self,
        broker_id: int,
        address: tuple[str, int],
        epoch: int,
        answer_size_max: int,
        credentials: Credentials | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.address = address
        self.epoch = epoch
        self.dial: asyncio.Task[None] | None = None
        self._answer_size_max = answer_size_max
        self._credentials = credentials
        self._logging_in = False  # requests wait meanwhile
        self._renewal: asyncio.TimerHandle | None = None
        self._frames: Frames | None = None
        self._versions: Mapping[int, tuple[int, int]] | None = None  # supported by the other side, once known
        self._asking_versions = False
        self._unsent: deque[PeerRequest] = deque()
        self._sent: deque[PeerRequest] = deque()
        self._count = 0
        self._failures = 0  # since the last response
        self._dial_at = 0.0  # loop time before which not to connect again
        self._ended = False

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {self.address[0]}:{self.address[1]}"

    async def ask(self, asked: PeerRequest, timeout_s: float) -> Any:
        loop = asyncio.get_running_loop()
        asked.timer = loop.call_later(timeout_s, self._late, asked, timeout_s)
        self._unsent.append(asked)
        self._flush()
        data, version = await asked.future
        try:
            return await decode_answer(asked, version, data)
        except codec.DecodeError as error:
            reason = f"its answer to {asked.api.name} cannot be read: {error}"
            self._fail(reason)
            raise PeerError(f"{self}: {reason}") from None

    def end(self, reason: str) -> None:
        """Close for good."""
        self._ended = True
        if self.dial is not None:
            self.dial.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        self._fail(reason)

    def _late(self, asked: PeerRequest, timeout_s: float) -> None:
        """A request timed out. If it was not sent, only it fails. Otherwise the response order is lost and all fail."""
        reason = f"no answer to {asked.api.name} within {timeout_s:g} s"
        if (self._frames is None or self._logging_in) and asked in self._unsent:
            self._unsent.remove(asked)
            refuse(asked, PeerError(f"{self}: {reason}"))
        else:
            self._fail(reason)

    # Sending.

    def _flush(self) -> None:
        """Send what can be sent now, in order; connect if there is no connection."""
        while self._unsent:
            if self._unsent[0].future.done():  # cancelled by the caller
                settle(self._unsent.popleft())
                continue
            if self._frames is None:
                if self.dial is None:
                    self.dial = asyncio.get_running_loop().create_task(self._connect())
                return
            if self._logging_in:
                return
            if self._unsent[0].version is None and self._versions is None:
                self._ask_versions()
                return
            self._send(self._unsent.popleft())

    def _ask_versions(self) -> None:
        if self._asking_versions:
            return
        self._asking_versions = True
        first = self._unsent[0]
        asking = PeerRequest(ApiVersionsRequest(), 0, 0, first.client_id)
        asking.future.add_done_callback(self._learn_versions)
        self._send(asking)

    def _learn_versions(self, future: asyncio.Future[tuple[bytearray, int]]) -> None:
        self._asking_versions = False
        if future.cancelled() or future.exception() is not None:
            return
        data, _ = future.result()
        try:
            answer = codec.decode(ApiVersionsResponse, 0, memoryview(data)[4:])
        except codec.DecodeError as error:
            self._fail(f"its answer to ApiVersions cannot be read: {error}")
            return
        if answer.error_code:
            self._fail(f"it refuses ApiVersions with error {answer.error_code}")
            return
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        self._flush()

    def _send(self, asked: PeerRequest) -> None:
        assert self._frames is not None
        try:
            version = self._version(asked)
        except UnsupportedError as error:
            refuse(asked, error)
            return
        if self._frames.unsent_size > UNSENT_SIZE_MAX:
            self._fail("it does not read what it is sent")
            refuse(asked, PeerError(f"{self} does not read what it is sent"))
            return
        asked.version = version
        asked.correlation = self._count = (self._count + 1) & 0x7FFFFFFF
        head = frame.request_header(asked.api.key, version, asked.correlation, asked.client_id)
        try:
            body: list[Any] = codec.encoder(asked.api.request, version)(asked.request)
        except UNENCODABLE as error:  # our bug: only this request fails, not those behind it
            refuse(asked, error)
            return
        asked.request = None
        self._sent.append(asked)
        self._frames.send([head, *body])

    def _version(self, asked: PeerRequest) -> int:
        if asked.version is not None:
            return asked.version
        assert self._versions is not None
        low, high = self._versions.get(asked.api.key, (0, -1))
        chosen = min(high, asked.api.versions[1])
        if chosen < max(low, asked.least):
            raise UnsupportedError(f"{self} supports no usable version of {asked.api.name}")
        return chosen

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._dial_at - loop.time())
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                context = None if self._credentials is None else await asyncio.to_thread(self._credentials.context)
                host = None if context is None else self.address[0]
                transport, frames = await loop.create_connection(
                    self._make_frames, *self.address, ssl=context, server_hostname=host
                )
        except (OSError, UnicodeError) as error:
            self.dial = None
            timed_out = isinstance(error, TimeoutError)
            self._fail(f"no connection ({'no answer' if timed_out else error})")
            return
        self._logging_in = self._credentials is not None and bool(self._credentials.mechanism)
        if not self._logging_in:
            self.dial = None
        if frames.reason is not None:  # already closed
            self._fail(frames.reason)
            return
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._frames = frames
        if self._logging_in:
            await self._log_in()
            self.dial = None
        self._flush()

    async def _log_in(self) -> None:
        """Log in on a new connection, or on one whose login is about to expire."""
        self._logging_in = True
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                lifetime_ms = await self._prove()
        except (TimeoutError, OutsideError, codec.DecodeError) as error:
            self._fail(f"no login ({'no answer' if isinstance(error, TimeoutError) else error})")
        else:
            if lifetime_ms > 0:
                delay_s = RENEWAL_SHARE * lifetime_ms / 1000
                self._renewal = asyncio.get_running_loop().call_later(delay_s, self._renew, self._frames)
        finally:
            self._logging_in = False

    async def _prove(self) -> int:
        """Run the SASL exchange. Returns the lifetime of the login in milliseconds; 0: unlimited."""
        assert self._credentials is not None
        shaken = await self._say(SaslHandshakeRequest(mechanism=self._credentials.mechanism), 1)
        if shaken.error_code:
            raise PeerError(f"it refuses {self._credentials.mechanism} with error {shaken.error_code}")
        proof = self._credentials.proof()
        token: bytes | None = proof.begin()
        while token is not None:
            answer = await self._say(SaslAuthenticateRequest(auth_bytes=token), 1)
            if answer.error_code:
                raise PeerError(f"it refuses us with error {answer.error_code}: {answer.error_message}")
            token = await asyncio.to_thread(proof.respond, bytes(answer.auth_bytes))
        lifetime_ms: int = answer.session_lifetime_ms
        return lifetime_ms

    async def _say(self, request: Any, version: int) -> Any:
        """Send a request ahead of the waiting ones."""
        if self._frames is None:
            raise PeerError("connection lost")
        asked = PeerRequest(request, version, version, "")
        self._send(asked)
        data, _ = await asked.future
        return await decode_answer(asked, version, data)

    def _renew(self, frames: Frames | None) -> None:
        """The login is about to expire."""
        if frames is self._frames and self.dial is None and not self._ended:
            self._logging_in = True
            self.dial = asyncio.get_running_loop().create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        await self._log_in()
        self.dial = None
        self._flush()

    def _make_frames(self) -> Frames:
        made = Frames(self._take, lambda reason: self._on_loss(made, reason), self._answer_size_max)
        return made

    # Receiving.

    def _take(self, data: bytearray) -> None:
        if not self._sent:
            self._fail("it sent an answer to no request")
            return
        asked = self._sent[0]
        assert asked.version is not None
        try:
            correlation, _ = frame.parse_response_header(asked.api.key, asked.version, data)
        except codec.DecodeError as error:
            self._fail(str(error))
            return
        if correlation != asked.correlation:
            self._fail(f"it answered request {correlation} instead of {asked.correlation}")
            return
        self._sent.popleft()
        if not self._logging_in:  # so that repeatedly rejected logins back off
            self._failures = 0
        settle(asked)
        if not asked.future.done():
            asked.future.set_result((data, asked.version))

    def _on_loss(self, frames: Frames, reason: str) -> None:
        if self._logging_in:  # a rejection received just before the close is more informative: process it first
            asyncio.get_running_loop().call_soon(self._finish, frames, reason)
        else:
            self._finish(frames, reason)

    def _finish(self, frames: Frames, reason: str) -> None:
        if frames is self._frames:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Close the connection and fail all pending requests."""
        frames, self._frames = self._frames, None
        self._versions = None
        outstanding = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        if frames is not None:
            frames.abort(reason)
        if outstanding and not self._ended:
            backoff_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(self._failures, 10))
            self._dial_at = asyncio.get_running_loop().time() + backoff_s
            self._failures += 1
            logger.debug("%s: %s", self, reason)
        for asked in outstanding:
            refuse(asked, PeerError(f"{self}: {reason}"))


def settle(asked: PeerRequest) -> None:
    if asked.timer is not None:
        asked.timer.cancel()


def refuse(asked: PeerRequest, error: Exception) -> None:
    settle(asked)
    if not asked.future.done():
        asked.future.set_exception(error)


async def decode_answer(asked: PeerRequest, version: int, data: bytearray) -> Any:
    """Decode a response. A large one is decoded in several time slices."""
    _, position = frame.parse_response_header(asked.api.key, version, data)
    if len(data) <= SMALL_SIZE:
        message, end = codec.decoder(asked.api.response, version)(data, position)
    else:
        loop, steps = asyncio.get_running_loop(), codec.slicing_decoder(asked.api.response, version)(data, position)
        until = loop.time() + TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as done:
                message, end = done.value
                break
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + TURN_S
    if end != len(data):
        raise codec.DecodeError(f"{len(data) - end} bytes are left")
    return message
