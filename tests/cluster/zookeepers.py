"""Helpers for tests with a real ZooKeeper: a separate store for each test, and session expiry."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, BinaryIO

from waiting import wait_until

from ottla.cluster.zookeeper import ZooKeeper, ZooKeeperSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from ottla.testing.zookeeper import ZooKeeperServer

WAIT_S = 60
SHORT_MS = 2000  # for sessions that are meant to expire
SESSION_MS = 30_000  # a session that a test keeps must not expire on a busy machine
CLOSE = -11  # the type of a request that closes a session
EXPIRED = 0  # instead of the id of a session that has ended


def run(story: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * WAIT_S))


@asynccontextmanager
async def opened(
    server: ZooKeeperServer, root: str | None = None, *, session_ms: int = SESSION_MS, **settings: object
) -> AsyncIterator[ZooKeeper]:
    """A client with an empty tree, or with that of `root`."""
    place = f"{server.address}/test-{secrets.token_hex(8)}" if root is None else f"{server.address}{root}"
    store = ZooKeeper(ZooKeeperSettings(place, session_timeout_ms=session_ms, **settings))  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def expire(store: ZooKeeper, server: ZooKeeperServer) -> None:
    """End a session as the server would: a second client takes it over and closes it.

    The store takes its session back as soon as it can, perhaps before the second client has closed it. So this tries
    until the server has confirmed the end.
    """
    session, password = store._client.client_id
    wait_until(lambda: close_session(server, session, password), "the session could not be closed")


def close_session(server: ZooKeeperServer, session: int, password: bytes) -> bool:
    """Connect with this session and close it; whether the server has confirmed it. The format is ZooKeeper's."""
    connect = struct.pack(">iqiqi", 0, 0, SESSION_MS, session, len(password)) + password
    close = struct.pack(">ii", 1, CLOSE)
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in (connect, close)))
        try:
            found = struct.unpack_from(">iiq", read_frame(answers))[2]
            assert found in (session, EXPIRED), "the server has given us another session"
            return found == EXPIRED or struct.unpack(">iqi", read_frame(answers))[::2] == (1, 0)
        except (ConnectionError, EOFError):  # the store was faster
            return False


def read_frame(answers: BinaryIO) -> bytes:
    size = answers.read(4)
    if len(size) < 4:
        raise EOFError
    return answers.read(*struct.unpack(">i", size))
