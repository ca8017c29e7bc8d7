"""The SASL exchange of one connection: its mechanism, its state, and the authenticated principal.

    SaslHandshake     the client names a mechanism; version 0: its tokens follow as bare frames, without a header
    SaslAuthenticate  a token of the client, and the broker's; as many as the mechanism needs

Until it ends only ApiVersions is served besides. A login with a limited lifetime is renewed on the same connection, by
the same exchange: with the same mechanism, and for the same principal.

Messages to the client are Kafka's. They never reveal whether the name or the password is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ErrorCode
from ottla.security.principal import Principal, user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

API_VERSIONS: Final = 18
HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
RENEWAL_S_MIN: Final = 1.0  # Kafka's: renewing more often only keeps the broker busy


class LoginError(Exception):
    """Authentication failed. `told` is sent to the client; the text itself is for the log."""

    def __init__(self, reason: str, *, told: str = "") -> None:
        super().__init__(reason)
        self.told = told


class LoginExchange(Protocol):
    """The exchange of a mechanism with one client."""

    user: str | None  # the user, once authenticated
    expires_s: float | None  # the lifetime of the login in seconds, if the mechanism limits it
    by_token: bool  # whether it was a login with a delegation token

    def respond(self, token: bytes) -> bytes:
        """The response to this token. LoginError: authentication failed."""


class Login:
    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], LoginExchange]],
        clock: Callable[[], float],
        lifetime_ms_max: int,
        delay_s: float,
        entered: Callable[[Login], None],
    ) -> None:
        self.mechanisms = mechanisms
        self.principal: Principal | None = None
        self.by_token = False  # whether it was a login with a delegation token
        self.bare = False  # whether tokens come in frames without a header
        self.failed = False
        self.delay_s = delay_s  # delay of the answer to a failure, and of closing the connection
        self._clock = clock
        self._lifetime_ms_max = lifetime_ms_max
        self._entered = entered
        self._exchange: LoginExchange | None = None
        self._mechanism = ""
        self._proved_at = 0.0
        self._expires_at: float | None = None  # of the current login

    def allows(self, key: int) -> bool:
        """Whether a request of this API is allowed now."""
        if self.failed:
            return False
        if self._exchange is not None:
            return key in (AUTHENTICATE, HANDSHAKE)
        if self.principal is None:
            return key in (API_VERSIONS, HANDSHAKE)
        return key == HANDSHAKE or self._expires_at is None or self._clock() < self._expires_at

    @property
    def renewable(self) -> bool:
        return self._expires_at is not None

    def choose(self, mechanism: str, version: int) -> ErrorCode:
        """The client's choice of a mechanism."""
        if self._exchange is not None or self.failed:
            self.failed = True
            return ErrorCode.ILLEGAL_SASL_STATE
        if self.principal is not None and not (
            self.renewable and self._clock() - self._proved_at >= RENEWAL_S_MIN and mechanism == self._mechanism
        ):
            return ErrorCode.ILLEGAL_SASL_STATE
        made = self.mechanisms.get(mechanism)
        if made is None:
            self.failed = True
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism, self._exchange, self.bare = mechanism, made(), version == 0
        return ErrorCode.NONE

    @property
    def under_way(self) -> bool:
        return self._exchange is not None

    def respond(self, token: bytes) -> tuple[bytes, int]:
        """The response to a token, and the lifetime of the login in milliseconds; 0: unlimited, or the exchange is not
        finished. LoginError ends it."""
        assert self._exchange is not None, "the gate refuses tokens before the handshake"
        exchange = self._exchange
        try:
            said = exchange.respond(token)
            if exchange.user is None:
                return said, 0
            principal = user(exchange.user)
            if self.principal not in (None, principal):
                raise LoginError(
                    "the principal changed",
                    told=f"Cannot change principals during re-authentication from {self.principal} to {principal}",
                )
        except LoginError as error:
            self.failed = True
            error.told = error.told or (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism
            )
            raise
        self.principal, self._exchange, self.bare = principal, None, False
        self.by_token = exchange.by_token
        self._proved_at = self._clock()
        lifetime_ms = self._lifetime_ms(exchange)
        self._expires_at = self._proved_at + lifetime_ms / 1000 if lifetime_ms else None
        self._entered(self)
        return said, lifetime_ms

    def close(self) -> None:
        """Drop the callback. It refers to the connection: with it, both would wait for the garbage collector, which
        holds the loop the longer the more of them there are."""
        self._entered = ignore

    def _lifetime_ms(self, exchange: LoginExchange) -> int:
        limits = [self._lifetime_ms_max] if self._lifetime_ms_max > 0 else []
        if exchange.expires_s is not None:
            limits.append(max(1, round(exchange.expires_s * 1000)))
        return min(limits, default=0)


def ignore(_: Login) -> None:
    """A login of a closed connection has no effect."""
