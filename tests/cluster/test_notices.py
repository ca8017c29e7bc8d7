"""Change notifications: read once, removed when they are old, and not trusted after an anomaly."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from cluster.zookeepers import run
from waiting import WAIT_S, until

from ottla.clock import SystemClock
from ottla.cluster import notices
from ottla.cluster.metadata_store import Create, SessionEvent, Unavailable
from ottla.cluster.notices import Notices
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

PARENTS = ("/one", "/other")
EVERYTHING = "everything"


class Follower:
    """Records what was read, in order; a name in `failing` cannot be read once."""

    def __init__(self, store: SqliteStore) -> None:
        self.read: list[str] = []
        self.failing: set[str] = set()
        self.notices = Notices(
            store,
            SystemClock(),
            Steps("test"),
            PARENTS,
            what="changes",
            decode=bytes.decode,
            read=self._read,
            read_all=self._read_all,
        )

    async def _read(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.failing:
                self.failing.remove(name)
                raise Unavailable
            self.read.append(name)

    async def _read_all(self) -> None:
        self.read.append(EVERYTHING)


@asynccontextmanager
async def followed(*earlier: str) -> AsyncIterator[tuple[SqliteStore, Follower]]:
    store = SqliteStore(MEMORY)
    await store.open()
    await store.multi([Create(path) for path in PARENTS])
    for name in earlier:
        await tell(store, name)
    follower = Follower(store)
    await follower.notices.start()
    yield store, follower
    await follower.notices.close()
    await store.close()


async def tell(store: SqliteStore, *names: str, parent: str = "/one") -> None:
    await store.multi([Create(f"{parent}/notice_", name.encode(), sequential=True) for name in names])


async def list_notices(store: SqliteStore) -> list[str]:
    return [name for parent in PARENTS for name in await store.children(parent)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "RETRY_S", 0.001)


def test_what_is_named_is_read_once() -> None:
    async def story() -> None:
        async with followed("before") as (store, follower):
            await tell(store, "a", "a", "b")
            await until(lambda: follower.read == [EVERYTHING, "a", "b"], lambda: follower.read)
            await tell(store, "a", parent="/other")
            await until(lambda: follower.read == [EVERYTHING, "a", "b", "a"], lambda: follower.read)
            assert len(await list_notices(store)) == 5, "others may have to read them"

    run(story())


def test_old_notices_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with followed("before") as (store, follower):
            monkeypatch.setattr(notices, "KEPT_S", -1.0)
            await tell(store, "a", parent="/other")
            async with asyncio.timeout(WAIT_S):
                while await list_notices(store):
                    await asyncio.sleep(0)
            assert follower.read == [EVERYTHING, "a"], "read, then removed"

    run(story())


def test_a_notice_that_another_has_removed_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with followed() as (store, follower):
            paths = await store.multi([Create("/one/notice_", b"a", sequential=True)])
            await store.delete(paths[0])
            await tell(store, "b")
            await until(lambda: follower.read[-1] == "b", lambda: follower.read)

    run(story())
    assert not caplog.records


def test_after_a_notice_that_makes_no_sense_everything_is_read(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with followed() as (store, follower):
            await store.multi([Create("/one/notice_", data, sequential=True) for data in (b"a", b"\xff")])
            await until(lambda: follower.read == [EVERYTHING, EVERYTHING], lambda: follower.read)
            await tell(store, "b")
            await until(lambda: follower.read == [EVERYTHING, EVERYTHING, "b"], lambda: follower.read)

    run(story())
    assert "cannot be understood" in caplog.text


def test_after_a_failure_everything_is_read(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with followed() as (store, follower):
            follower.failing.add("a")
            await tell(store, "a")
            await until(lambda: follower.read == [EVERYTHING, EVERYTHING], lambda: follower.read)
            await tell(store, "a")
            await until(lambda: follower.read == [EVERYTHING, EVERYTHING, "a"], lambda: follower.read)

    run(story())
    assert "reading changes failed" in caplog.text


def test_after_a_lost_session_everything_is_read() -> None:
    async def story() -> None:
        async with followed() as (_, follower):
            follower.notices._listen(SessionEvent.LOST)
            await until(lambda: follower.read == [EVERYTHING, EVERYTHING], lambda: follower.read)

    run(story())
