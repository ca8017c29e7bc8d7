"""Helpers for tests with a real ZooKeeper: a separate store for each test, and session expiry."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from ottla.cluster.zookeeper import ZooKeeper, ZooKeeperSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from ottla.testing.zookeeper import ZooKeeperServer

WAIT_S = 60
SHORT_MS = 2000  # for sessions that are meant to expire
SESSION_MS = 30_000  # a session that a test keeps must not expire on a busy machine


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
    """End a session as the server would: a second client takes it over and closes it."""
    session = (store._client._session_id, store._client._session_passwd)
    thief = KazooClient(server.address, client_id=session)
    thief.start()
    thief.stop()
    thief.close()
