"""In front of a SASL listener's requests: until a client has proved who it is, only the calls that it needs for that.

Frames are small until then, and there is an end to the time. Afterwards the connection is like any other: its frames
go straight to the dispatcher, unless its login has to be renewed some day.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.errors import Hangup
from ottla.net.connection import Deferred
from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.net.connection import Answer, Connection, Limits
    from ottla.net.dispatch import Dispatch
    from ottla.security.login import Login

log = logging.getLogger("ottla.net")

KEY = Struct(">h")
SIZE = Struct(">i")
LOGIN_S = 30.0  # from the connection to the end of the login


class LoginGate:
    """Of one listener."""

    def __init__(
        self,
        dispatch: Dispatch,
        limits: Limits,
        make_login: Callable[[Callable[[Login], None]], Login],
    ) -> None:
        self._dispatch = dispatch
        self._limits = limits  # of those who are in
        self._make_login = make_login
        self._timers: dict[Connection, asyncio.TimerHandle] = {}  # of those who are not in yet

    def receive(self, connection: Connection) -> None:
        """A client has come."""

        def enter(login: Login) -> None:
            assert login.principal is not None
            connection.principal = login.principal
            self.forget(connection)
            connection.enter(self if login.renewable else self._dispatch, self._limits)

        connection.login = self._make_login(enter)
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(LOGIN_S, self._give_up, connection)

    def forget(self, connection: Connection) -> None:
        """It is in, or gone."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, connection: Connection) -> None:
        connection.hang_up(f"it has not proved who it is within {LOGIN_S:g} s")

    def __call__(self, connection: Connection, frame: memoryview) -> Answer:
        login = connection.login
        assert login is not None
        if login.bare and not login.failed:
            return self._respond_bare(connection, login, bytes(frame))
        if len(frame) < KEY.size:
            raise Hangup("a frame without a header")
        (key,) = KEY.unpack_from(frame)
        if not login.allows(key):
            raise Hangup(f"API {key} before the login is over" if login.principal is None else "its login has expired")
        return self._dispatch(connection, frame)

    def _respond_bare(self, connection: Connection, login: Login, token: bytes) -> Answer:
        """A token in a frame of its own, answered in one. A failure has no place there: the connection is closed."""
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
