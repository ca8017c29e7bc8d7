"""The model of ZooKeeper: the tree, sessions that expire, lost responses, watches that miss nothing."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cluster.metadata_store import (
    BadVersion,
    Create,
    Delete,
    Event,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    Set,
    Unavailable,
    UnknownOutcome,
    VersionCheck,
)
from ottla.sim.loop import make_loop
from ottla.sim.net import Network
from ottla.sim.zookeeper import HOST, SimMetadataStore, SimZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Ensemble:
    def __init__(self, seed: int = 1) -> None:
        self.loop = make_loop(Random(seed))
        self.network = Network(self.loop, Random(seed))
        self.store = SimZooKeeper(self.loop, self.network)
        self.events: list[SessionEvent] = []

    def client(self, name: str) -> tuple[SimMetadataStore, Any]:
        process, context = self.loop.process(name)
        return context.run(SimMetadataStore, self.store, name), process

    def run(self, story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            _, context = self.loop.process("story")
            return await self.loop.create_task(story(), context=context)

        return self.loop.run_until_complete(whole())


def test_the_tree_is_zookeepers() -> None:
    one = Ensemble()
    metadata_store, _ = one.client("a")

    async def story() -> None:
        await metadata_store.open()
        await metadata_store.create("/a", b"1")
        with pytest.raises(NodeExists):
            await metadata_store.create("/a")
        with pytest.raises(NoNode):
            await metadata_store.create("/x/y")
        assert (await metadata_store.set("/a", b"2", 0)).version == 1
        with pytest.raises(BadVersion):
            await metadata_store.set("/a", b"3", 0)
        assert await metadata_store.create("/a/n", sequential=True) == "/a/n0000000000"
        assert await metadata_store.create("/a/n", sequential=True) == "/a/n0000000001"
        with pytest.raises(NotEmpty):
            await metadata_store.delete("/a")
        assert await metadata_store.children("/a") == ["n0000000000", "n0000000001"]
        assert list(await metadata_store.tree("/a")) == ["/a", "/a/n0000000000", "/a/n0000000001"]
        assert (await metadata_store.get("/a/n0000000001")).stat.czxid > (await metadata_store.get("/a")).stat.czxid

    one.run(story)


def test_several_writes_happen_together_or_not_at_all() -> None:
    one = Ensemble()
    metadata_store, _ = one.client("a")

    async def story() -> None:
        await metadata_store.open()
        await metadata_store.multi([Create("/a"), Create("/a/b"), Set("/a", b"x", 0)])
        with pytest.raises(BadVersion):
            await metadata_store.multi([Create("/c"), VersionCheck("/a", 7)])
        with pytest.raises(NoNode):
            await metadata_store.get("/c")
        await metadata_store.multi([Delete("/a/b"), Delete("/a")])
        with pytest.raises(NoNode):
            await metadata_store.get("/a")

    one.run(story)


def test_what_a_session_created_goes_with_it() -> None:
    one = Ensemble()
    metadata_store, process = one.client("a")
    other, _ = one.client("b")
    seen: list[Event] = []

    async def story() -> None:
        await metadata_store.open()
        await other.open()
        await metadata_store.create("/me", ephemeral=True)
        other.watch("/me", seen.append)
        assert (await other.get("/me")).stat.owner == metadata_store.session
        one.loop.kill(process)
        await asyncio.sleep(5)
        assert (await other.get("/me")).stat.ephemeral
        await asyncio.sleep(3)
        with pytest.raises(NoNode):
            await other.get("/me")
        assert [event.kind for event in seen] == ["deleted"]

    one.run(story)


def test_a_lost_connection_is_not_a_lost_session() -> None:
    one = Ensemble()
    metadata_store, _ = one.client("a")
    events: list[SessionEvent] = []

    async def story() -> None:
        await metadata_store.open()
        session = metadata_store.session
        metadata_store.subscribe(events.append)
        one.network.cut("a", HOST)
        await asyncio.sleep(4.7)
        assert events == [SessionEvent.SUSPENDED]
        one.network.heal()
        await asyncio.sleep(1)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert metadata_store.session == session
        one.network.cut("a", HOST)
        await asyncio.sleep(20)
        one.network.heal()
        await asyncio.sleep(4)
        assert events[2:] == [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.CONNECTED]
        assert metadata_store.session > session

    one.run(story)


@pytest.mark.parametrize("source", ["a", HOST])
def test_a_write_without_an_answer_has_happened_or_not(source: str) -> None:
    one = Ensemble()
    metadata_store, _ = one.client("a")

    async def story() -> None:
        await metadata_store.open()
        one.network.cut(source, HOST if source == "a" else "a")
        with pytest.raises(UnknownOutcome):
            await metadata_store.create("/a")
        with pytest.raises(Unavailable):
            await metadata_store.get("/a")
        one.network.heal()
        await asyncio.sleep(10)
        assert (await metadata_store.children("/") == ["a"]) is (source == HOST)

    one.run(story)


def test_a_paused_client_believes_what_is_over() -> None:
    one = Ensemble()
    metadata_store, process = one.client("a")
    events: list[SessionEvent] = []

    async def story() -> None:
        await metadata_store.open()
        metadata_store.subscribe(events.append)
        await metadata_store.create("/me", ephemeral=True)
        one.loop.pause(process)
        await asyncio.sleep(10)
        assert one.store.tree("/me") == {}
        assert metadata_store.connected
        one.loop.resume(process)
        await asyncio.sleep(1)
        assert events[:2] == [SessionEvent.SUSPENDED, SessionEvent.LOST]

    one.run(story)


def test_a_call_to_a_store_that_was_away_does_not_hang() -> None:
    one = Ensemble()
    metadata_store, _ = one.client("a")

    async def story() -> None:
        await metadata_store.open()
        one.store.stop()
        call = one.loop.create_task(metadata_store.create("/a"))
        await asyncio.sleep(1)
        one.store.start()
        with pytest.raises(UnknownOutcome):
            await call
        await asyncio.sleep(1)
        await metadata_store.create("/b")

    one.run(story)


@pytest.mark.parametrize("seed", range(20))
def test_who_reads_after_an_event_has_missed_nothing(seed: int) -> None:
    one = Ensemble(seed)
    writer, _ = one.client("w")
    watcher, process = one.client("r")
    chance = Random(seed)
    known = [b""]

    async def follow(event: Event) -> None:
        try:
            known[0] = (await watcher.get("/n")).data
        except Unavailable:
            return

    async def story() -> None:
        await writer.open()
        await watcher.open()
        await writer.create("/n", b"0")

        def woken(event: Event) -> None:
            one.loop.create_task(follow(event))

        watcher.watch("/n", woken)
        for number in range(1, 40):
            await writer.set("/n", str(number).encode())
            fate = chance.random()
            if fate < 0.1:
                one.network.cut(*chance.choice([("r", HOST), (HOST, "r")]))
                await asyncio.sleep(chance.uniform(0, 8))
                one.network.heal()
            elif fate < 0.2:
                one.loop.pause(process)
                await asyncio.sleep(chance.uniform(0, 8))
                one.loop.resume(process)
        await asyncio.sleep(15)
        assert known[0] == b"39"

    one.run(story)
