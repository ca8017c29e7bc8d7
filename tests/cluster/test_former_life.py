"""A broker that may have lost records registers only when no in-sync set counts on it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ottla.clock import SystemClock
from ottla.cluster import former_life, znodes
from ottla.cluster.former_life import be_given_up
from ottla.cluster.image import Broker, Partition, Topic
from ottla.cluster.metadata_store import NodeExists, NoNode
from ottla.cluster.sqlite_store import MEMORY, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ME, OTHER = 1, 2
TOPIC = Topic("t", b"i" * 16, (Partition(0, (ME, OTHER), (ME, OTHER), ME, 1),), {})


def play(story: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def scene() -> None:
        store = SqliteStore(MEMORY)
        await store.open()
        for path in znodes.PARENTS:
            with suppress(NodeExists):
                await store.create(path)
        await store.create(f"{znodes.TOPICS}/t", znodes.encode_topic(TOPIC))
        for path in (f"{znodes.TOPICS}/t/partitions", f"{znodes.TOPICS}/t/partitions/0"):
            await store.create(path)
        await store.create(znodes.state_path("t", 0), said(ME, OTHER))
        await story(store)
        await store.close()

    asyncio.run(scene())


def said(*isr: int) -> bytes:
    return znodes.encode_state(Partition(0, (ME, OTHER), isr, isr[0], 1), 1)


async def come(store: SqliteStore, broker: int) -> None:
    told = znodes.encode_broker(Broker(broker, {"PLAINTEXT": ("h", 1)}, None, 0), 0)
    await store.create(znodes.broker_path(broker), told, ephemeral=True)


def test_it_waits_until_another_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_life, "LOOK_S", 0.005)

    async def story(store: SqliteStore) -> None:
        await come(store, OTHER)
        waiting = asyncio.ensure_future(be_given_up(store, ME, 0, SystemClock(), patience_s=60))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await store.set(znodes.state_path("t", 0), said(OTHER))
        await asyncio.wait_for(waiting, 60)

    play(story)


def test_it_does_not_wait_for_those_who_are_away() -> None:
    async def story(store: SqliteStore) -> None:
        await be_given_up(store, ME, 0, SystemClock(), patience_s=60)
        await come(store, ME)
        await be_given_up(store, ME, 0, SystemClock(), patience_s=60)

    play(story)


def test_it_does_not_wait_for_ever() -> None:
    async def story(store: SqliteStore) -> None:
        await come(store, OTHER)
        await be_given_up(store, ME, 0, SystemClock(), patience_s=0)

    play(story)


def test_what_its_former_life_left_is_removed_and_nothing_else() -> None:
    async def story(store: SqliteStore) -> None:
        await come(store, ME)
        await store.create(znodes.CONTROLLER, znodes.encode_controller(ME, 0), ephemeral=True)
        await be_given_up(store, ME, store.session + 1, SystemClock(), patience_s=60)
        assert await store.get(znodes.broker_path(ME))
        await be_given_up(store, ME, store.session, SystemClock(), patience_s=60)
        for path in (znodes.broker_path(ME), znodes.CONTROLLER):
            with pytest.raises(NoNode):
                await store.get(path)

    play(story)
