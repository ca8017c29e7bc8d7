"""Leaving a cluster when its store or its controller does not respond: in virtual time, so that tests count seconds."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cluster import znodes
from ottla.cluster.control import departure
from ottla.cluster.control.departure import depart
from ottla.cluster.control.office import Office
from ottla.cluster.image import Broker
from ottla.cluster.metadata_store import Unavailable
from ottla.cluster.registration import BrokerEndpoints, Registration
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.disk import RealDisk
from ottla.sim.clock import SimClock
from ottla.sim.loop import SimLoop, make_loop
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.peers import ControlledShutdownResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

FEW_S = 5.0
FOREVER_S = 10_000.0


async def answer() -> None:
    return


async def be_silent() -> None:
    await asyncio.sleep(FOREVER_S)


async def be_gone() -> None:
    raise Unavailable("gone")


class Store(SqliteStore):
    """A store that responds or not, as the test says."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
        self.first: Callable[[], Coroutine[Any, Any, None]] = answer

    async def get(self, path: str) -> Any:
        await self.first()
        return await super().get(path)


class Controller:
    def __init__(self) -> None:
        self.asked = 0
        self.first: Callable[[], Coroutine[Any, Any, None]] = answer
        self.alive: Callable[[], Coroutine[Any, Any, None]] = answer

    async def ask(self, broker: Broker, request: Any, **rest: Any) -> ControlledShutdownResponse:
        if isinstance(request, ApiVersionsRequest):
            await self.alive()
        else:
            self.asked += 1
            await self.first()
        return ControlledShutdownResponse(error_code=0, remaining_partitions=[])

    def close_channel(self, broker_id: int, channel: str) -> None:
        pass


@pytest.fixture
def loop() -> SimLoop:
    return make_loop(Random(1))


async def made() -> Store:
    store = Store()
    await store.open()
    for path in znodes.PARENTS:
        await store.create(path)
    await store.create(znodes.CONTROLLER, znodes.encode_controller(2, 0), ephemeral=True)
    await store.create(znodes.broker_path(2), znodes.encode_broker(Broker(2, {"IN": ("a", 1)}, None, 0), 0))
    return store


async def left(store: Store, controller: Controller) -> bool:
    return await depart(load({"node.id": "1", "log.dirs": "/nowhere"}), store, controller, 1, 5)


@pytest.mark.parametrize("trouble", [be_gone, be_silent])
def test_a_store_that_does_not_answer_is_not_waited_for(
    loop: SimLoop, trouble: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def story() -> None:
        store, controller = await made(), Controller()
        store.first = trouble
        began = loop.time()
        assert not await left(store, controller)
        assert loop.time() - began < FEW_S

    loop.run_until_complete(story())


def test_nor_is_a_controller_whose_store_has_gone(loop: SimLoop) -> None:
    async def story() -> None:
        store, controller = await made(), Controller()

        async def lose_the_store() -> None:
            store.first = be_gone
            await be_silent()

        controller.first = lose_the_store
        began = loop.time()
        assert not await left(store, controller)
        assert controller.asked == 1
        assert loop.time() - began < FEW_S

    loop.run_until_complete(story())


def test_a_controller_that_answers_nothing_is_not_waited_for(loop: SimLoop) -> None:
    """A paused process keeps its connections, and its session for a while."""

    async def story() -> None:
        store, controller = await made(), Controller()
        controller.first = controller.alive = be_silent
        began = loop.time()
        assert not await left(store, controller)
        assert controller.asked == 1
        assert loop.time() - began < 2 * FEW_S

    loop.run_until_complete(story())


def test_a_controller_that_is_busy_is_waited_for(loop: SimLoop) -> None:
    async def story() -> None:
        store, controller = await made(), Controller()

        async def be_slow() -> None:
            await asyncio.sleep(20.0)

        controller.first = be_slow
        assert await left(store, controller)
        assert controller.asked == 1

    loop.run_until_complete(story())


def test_a_controller_that_comes_to_no_end_is_not_waited_for_without_end(loop: SimLoop) -> None:
    async def story() -> None:
        store, controller = await made(), Controller()
        controller.first = be_silent
        began = loop.time()
        assert not await left(store, controller)
        assert loop.time() - began <= departure.LEAVE_S_MAX + 1

    loop.run_until_complete(story())


def test_a_store_that_is_away_for_a_moment_is_waited_for(loop: SimLoop) -> None:
    async def story() -> None:
        store, controller = await made(), Controller()
        store.first = be_gone
        loop.call_later(departure.AWAY_S / 2, setattr, store, "first", answer)
        assert await left(store, controller)
        assert controller.asked == 1

    loop.run_until_complete(story())


@pytest.mark.parametrize("trouble", [be_gone, be_silent])
def test_the_office_is_left_without_an_answer(loop: SimLoop, trouble: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def story() -> None:
        store = await made()
        office = Office(store, 1, SimClock(loop))
        store.first = trouble
        began = loop.time()
        await office.leave()
        assert loop.time() - began < FEW_S

    loop.run_until_complete(story())


@pytest.mark.parametrize("trouble", [be_gone, be_silent])
def test_so_is_the_registration(
    loop: SimLoop, tmp_path: Path, trouble: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def story() -> None:
        store = await made()
        member = Registration(store, load({"node.id": "1", "log.dirs": str(tmp_path)}), SimClock(loop), RealDisk())
        await member.register(BrokerEndpoints({"IN": ("a", 1)}, {}, None))
        store.first = trouble
        began = loop.time()
        await member.close()
        assert loop.time() - began < FEW_S

    loop.run_until_complete(story())
