"""Guards a SASL listener: until a client is authenticated, only the requests needed for the login are allowed.

Until then frames must be small, and there is a time limit. Afterwards the connection is like any other: its frames
go straight to the dispatcher, unless the login must be renewed later (connections.max.reauth.ms).
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.errors import Hangup
from ottla.net.answer import Deferred
from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.net.answer import Answer
    from ottla.net.connection import Connection, ConnectionLimits
    from ottla.net.dispatch import Dispatch
    from ottla.security.login import Login

log = logging.getLogger("ottla.net")

KEY = Struct(">h")
SIZE = Struct(">i")
LOGIN_S = 30.0  # time limit of the login, from the start of the connection


class LoginGate:
    """The gate of one listener."""

    def __init__(
        self,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        make_login: Callable[[Callable[[Login], None]], Login],
    ) -> None:
        self._dispatch = dispatch
        self._limits = limits  # of authenticated clients
        self._make_login = make_login
        self._timers: dict[Connection, asyncio.TimerHandle] = {}  # of clients that are not authenticated yet

    def receive(self, connection: Connection) -> None:
        """Start the login of a new connection."""

        def enter(login: Login) -> None:
            assert login.principal is not None
            connection.principal = login.principal
            self.forget(connection)
            connection.enter(self if login.renewable else self._dispatch, self._limits)

        connection.login = self._make_login(enter)
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(LOGIN_S, self._give_up, connection)

    def forget(self, connection: Connection) -> None:
        """Stop the timer: the client is authenticated or gone."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, connection: Connection) -> None:
        connection.hang_up(f"it did not authenticate within {LOGIN_S:g} s")

    def __call__(self, connection: Connection, frame: memoryview) -> Answer:
        login = connection.login
        assert login is not None
        if login.bare and not login.failed:
            return self._respond_bare(connection, login, bytes(frame))
        if len(frame) < KEY.size:
            raise Hangup("a frame without a header")
        (key,) = KEY.unpack_from(frame)
        if not login.allows(key):
            raise Hangup(
                f"API {key} before the end of the login" if login.principal is None else "its login has expired"
            )
        return self._dispatch(connection, frame)

    def _respond_bare(self, connection: Connection, login: Login, token: bytes) -> Answer:
        """Answer a SASL token in a frame without a header. Such a frame cannot report a failure: the connection is
        closed."""
        try:
            said, _ = login.respond(token)
        except LoginError as error:
            log.info("a login from %s failed: %s", connection.host, error)
            late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(login.delay_s, finish, late)
            return Deferred(late, end, exclusive=True)
        return [SIZE.pack(len(said)) + said]


def finish(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def end(future: asyncio.Future[Any]) -> None:
    raise Hangup("its login failed")
