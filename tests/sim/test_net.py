"""The simulated network: order within a connection, cuts in one direction, resets, hosts that die or lose power."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.sim.loop import PROCESS, SimLoop, make_loop
from ottla.sim.net import Network, SimSocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Place:
    """A client `c` and a server `s` with one connection between them."""

    def __init__(self, seed: int = 1) -> None:
        self.loop: SimLoop = make_loop(Random(seed))
        self.network = Network(self.loop, Random(seed))
        self.server, self.server_context = self.loop.process("s")
        self.client, self.client_context = self.loop.process("c")
        self.listening = self.network.listen("s", 1, self.server)

    def run(self, story: Callable[[SimSocket, SimSocket], Awaitable[Any]]) -> None:
        async def tell() -> None:
            near = await self.network.connect("c", "s", 1)
            far, _ = self.listening.accept()
            await story(near, far)

        async def whole() -> None:
            await self.loop.create_task(tell(), context=self.client_context)

        self.loop.run_until_complete(whole())


def test_bytes_arrive_late_and_in_order() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        for number in range(50):
            near.send(bytes([number]))
        with pytest.raises(BlockingIOError):
            far.recv(100)
        await asyncio.sleep(1)
        assert far.recv(100) == bytes(range(50))

    place.run(story)


def test_a_cut_holds_one_direction_until_it_heals() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        place.network.cut("c", "s")
        near.send(b"question")
        far.send(b"news")
        await asyncio.sleep(60)
        assert near.recv(100) == b"news"
        assert not far.readable
        place.network.heal()
        assert far.recv(100) == b"question"

    place.run(story)


def test_nobody_gets_through_a_cut_to_connect() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        place.network.cut("s", "c")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(place.network.connect("c", "s", 1), 5)

    place.run(story)


def test_a_reset_is_noticed_on_both_ends() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        near.send(b"lost")
        place.network.reset("c", "s")
        for end in (near, far):
            with pytest.raises(ConnectionResetError):
                end.recv(100)
        with pytest.raises(BrokenPipeError):
            near.send(b"more")

    place.run(story)


def test_a_process_that_dies_ends_its_connections() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        place.loop.kill(place.server)
        place.network.kill(place.server)
        await asyncio.sleep(1)
        assert near.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            await place.network.connect("c", "s", 1)

    place.run(story)


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    place = Place()

    async def story(near: SimSocket, far: SimSocket) -> None:
        place.loop.kill(place.server)
        place.network.outage("s", place.server)
        near.send(b"hello?")
        await asyncio.sleep(60)
        assert not near.readable
        place.network.dark.discard("s")
        near.send(b"hello?")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            near.recv(100)

    place.run(story)


def test_a_connection_may_be_attempted_twice() -> None:
    place = Place()
    place.network.ghosts = 1.0

    async def story(near: SimSocket, far: SimSocket) -> None:
        await place.network.connect("c", "s", 1)
        await asyncio.sleep(2)
        assert len(place.listening.backlog) == 3  # two ghosts, one of them from the earlier connection

    place.run(story)


def test_asyncio_connects_over_it() -> None:
    place = Place()
    lost: list[object] = []

    class Protocol(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.data = bytearray(100)
            self.size = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def get_buffer(self, sizehint: int) -> memoryview:
            return memoryview(self.data)[self.size :]

        def buffer_updated(self, nbytes: int) -> None:
            self.size += nbytes

        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    async def story(near: SimSocket, far: SimSocket) -> None:
        assert PROCESS.get().name == "c"
        transport, protocol = await place.loop.create_connection(Protocol, "s", 1)
        peer, _ = place.listening.accept()
        transport.write(b"question")
        await asyncio.sleep(1)
        assert peer.recv(100) == b"question"
        peer.send(b"answer")
        await asyncio.sleep(1)
        assert protocol.data[: protocol.size] == b"answer"
        peer.close()
        await asyncio.sleep(1)
        assert lost == [None]

    place.run(story)
