"""Builds the entrances of a broker's listeners from its options and keeps their certificates up to date: `Doors`.

Certificates are checked every few seconds, and reloaded when a file or an option has changed. If one cannot be read,
this is logged once and the previous certificate stays in use.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.net.connection import ConnectionLimits
from ottla.net.entrance import Entrance
from ottla.net.login_gate import LoginGate
from ottla.security.certificates import Certificates
from ottla.security.handshake import Handshakes
from ottla.security.keys import Keys
from ottla.security.login import Login
from ottla.security.mechanisms import mechanisms
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.config import BrokerConfig, Listener
    from ottla.net.dispatch import Dispatch
    from ottla.security.decoys import Stored
    from ottla.security.login import LoginExchange
    from ottla.security.scram import Tokens, Users

log = logging.getLogger("ottla.net")

LOOK_S: Final = 5.0  # how often the files are checked


class Doors:
    def __init__(self, config: BrokerConfig, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self.handshakes = Handshakes()
        self._config = config
        self._clock = clock
        self._random_bytes = random_bytes
        self._steps = Steps("ottla.net")
        self._changed = asyncio.Event()
        # Read now, so that a missing file stops the broker before it starts.
        self._certificates = {one.name: Certificates(one) for one in config.opened if one.encrypted}
        self._keys = {one.name: keys_of(one) for one in config.opened if wants_keys(one)}
        self._read_at = dict.fromkeys(self._keys, float("-inf"))
        for one in config.opened:
            if one.authenticated:
                self._mechanisms(one, lambda name: {}, lambda name, mechanism: None, dict)

    def entrance(
        self,
        listener: Listener,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        users: Users,
        tokens: Tokens,
        everybody: Callable[[], Stored],
    ) -> Entrance:
        delay_s = self._config.connection_failed_authentication_delay_ms / 1000
        known = self._mechanisms(listener, users, tokens, everybody) if listener.authenticated else {}
        gate = self._gate(listener, dispatch, limits, known, delay_s) if listener.authenticated else None
        return Entrance(self.handshakes, certificates=self._certificates.get(listener.name), gate=gate, delay_s=delay_s)

    def _gate(
        self,
        listener: Listener,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        known: dict[str, Callable[[], LoginExchange]],
        delay_s: float,
    ) -> LoginGate:
        make_login = partial(Login, known, self._clock.monotonic, listener.security.connections_max_reauth_ms, delay_s)
        return LoginGate(dispatch, limits, make_login)

    def _mechanisms(
        self, listener: Listener, users: Users, tokens: Tokens, everybody: Callable[[], Stored]
    ) -> dict[str, Callable[[], LoginExchange]]:
        keys = self._keys.get(listener.name)
        return mechanisms(listener, users, tokens, keys, self._clock.now_ms, self._random_bytes, everybody)

    def limits(self, listener: Listener, limits: ConnectionLimits) -> ConnectionLimits:
        """The limits before the login."""
        size_max = min(limits.frame_size_max, listener.security.sasl_server_max_receive_size)
        if not listener.authenticated:
            return limits
        return ConnectionLimits(size_max, limits.requests_max, limits.unsent_size_max, fits_buffers=limits.fits_buffers)

    async def watch(self, config: Callable[[], BrokerConfig]) -> None:
        """Follow changes of the certificate files and of the options that name them."""
        while True:
            await self._read_keys()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_S)
            self._changed.clear()
            await self.renew(config())

    async def _read_keys(self) -> None:
        """Read the OAUTHBEARER keys that are due. After a failure they are tried again at the next check."""
        for listener in self._config.opened:
            keys, now = self._keys.get(listener.name), self._clock.monotonic()
            period_s = listener.security.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
            if keys is not None and now - self._read_at[listener.name] >= period_s:
                with self._steps.attempt("reading keys", keys):
                    await asyncio.to_thread(keys.read)
                    self._read_at[listener.name] = now

    def look(self) -> None:
        """Options have changed: check now."""
        self._changed.set()

    async def renew(self, config: BrokerConfig) -> None:
        for listener in config.opened:
            certificates = self._certificates.get(listener.name)
            if certificates is None:
                continue
            with self._steps.attempt("reading certificates", certificates):
                if await asyncio.to_thread(certificates.renew, listener.security):
                    log.info("reloaded the certificates of %s", listener.name)

    async def close(self) -> None:
        self.handshakes.close()


def wants_keys(listener: Listener) -> bool:
    return listener.authenticated and "OAUTHBEARER" in listener.security.sasl_enabled_mechanisms


def keys_of(listener: Listener) -> Keys:
    address = listener.security.sasl_oauthbearer_jwks_endpoint_url
    assert address is not None, "the options were checked"
    keys = Keys(address)
    if keys.is_local:  # a remote one may be unreachable for the moment
        keys.read()
    return keys
