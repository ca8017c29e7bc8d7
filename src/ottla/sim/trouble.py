"""Random failures of a simulated cluster: one after the other, some of them at the same time.

The failures at one time are limited to what the cluster promises to survive. Any number of brokers may be killed,
paused or cut off, because what they wrote stays on their disks. But the power or the disk of one broker may fail only
while every replica is in sync, and nothing else happens until they are in sync again (with min.insync.replicas=2 the
cluster survives the loss of one disk, not of two).
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.sim.operations import Operations
from ottla.sim.zookeeper import HOST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ottla.sim.disk import Device
    from ottla.sim.node import SimNode
    from ottla.sim.world import World

ALONE = frozenset(("outage", "wipe", "old disk"))  # nothing else happens until the lost data is replicated again
CLIENTS = ("p1", "p2", "r1", "g1", "g2")  # in every run


class Trouble:
    def __init__(self, world: World, rounds: int, kinds: Sequence[str] = ()) -> None:
        """`kinds`: use only these kinds of failures."""
        self.world = world
        self.rounds = rounds
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self.kill,
            "kill two": self.kill_two,
            "outage": self.outage,
            "wipe": self.wipe,
            "pause": self.pause,
            "stop": self.stop,
            "cut brokers": self.cut_brokers,
            "cut store": self.cut_store,
            "cut one way": self.cut_one_way,
            "isolate": self.isolate,
            "depose": self.depose,
            "orphan": self.orphan,
            "reset": self.reset,
            "slow": self.slow,
            "store away": self.store_away,
            "store slow": self.store_slow,
            "expire": self.expire,
            "resign": self.resign,
            "clock": self.clock,
            "full": self.full,
            "starve": self.starve,
        }
        self.operations = Operations(world, self)
        if kinds:
            known = {**self.kinds, **self.operations.kinds}
            self.kinds = {kind: known[kind] for kind in kinds}
        self._chance = world.chance
        self.starved: set[Device] = set()
        self._busy: set[str] = set()  # nodes with a failure in progress

    async def run(self) -> None:
        """Run several rounds, each with one to three failures at the same time."""
        await asyncio.sleep(self._chance.uniform(0.5, 3))
        for _ in range(self.rounds):
            count = self._chance.choice((1, 1, 2, 2, 3))
            kinds = self._chance.sample(sorted(self.kinds), min(count, len(self.kinds)))
            if not ALONE.isdisjoint(kinds):
                kinds = [next(kind for kind in kinds if kind in ALONE)]
                await self.whole()
            self.world.loop.note(f"trouble: {', '.join(kinds)}")
            await asyncio.gather(*(self.kinds[kind]() for kind in kinds))
            await asyncio.sleep(self._chance.expovariate(0.5))

    async def heal(self) -> None:
        world = self.world
        world.network.heal()
        world.network.slow.clear()
        world.store.slow_s = 0.0
        if not world.store.up:
            world.store.start()
        await asyncio.sleep(0.1)
        for node in world.nodes:
            node.device.full = node.device.starved = False
            if node.device.broken is not None:
                node.device.broken = None
                node.kill()
            if node.paused:
                node.resume()
            if not node.running:
                world.start(node)

    # One broker, or two.

    def pick(self) -> SimNode | None:
        """A running node without another failure."""
        free = [one for one in self.world.nodes if one.running and not one.paused and one.name not in self._busy]
        return self._chance.choice(free) if free else None

    @contextmanager
    def busy(self, node: SimNode) -> Iterator[None]:
        self._busy.add(node.name)
        yield
        self._busy.discard(node.name)

    def moment(self) -> float:
        """A random duration: usually shorter than a session, sometimes longer."""
        return self._chance.choice(
            (self._chance.uniform(0, 0.5), self._chance.uniform(0, 5), self._chance.uniform(5, 15))
        )

    async def kill(self) -> None:
        node = self.pick()
        if node is None:
            return
        self._busy.add(node.name)
        node.kill()
        await asyncio.sleep(self.moment())
        self.world.start(node)
        self._busy.discard(node.name)

    async def kill_two(self) -> None:
        await asyncio.gather(self.kill(), self._after(self.kill))

    async def _after(self, what: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self._chance.uniform(0, 2))
        await what()

    async def wipe(self) -> None:
        await self.outage(wipe=True)

    async def outage(self, *, wipe: bool = False) -> None:
        world, node = self.world, self.pick()
        if node is None or not self.is_whole():
            return
        node.outage()
        if wipe:
            node.wipe()
        world.checks.note_power_loss(node)
        away_s = self._chance.choice((0.05, 1, 3, 9, 15))  # some restart before their session has expired
        await asyncio.sleep(away_s)
        world.start(node)
        await asyncio.sleep(max(0.0, 9 - away_s))  # until then the store may not have noticed
        await self.whole()

    def is_whole(self) -> bool:
        return bool(self.world.checks.states) and self.world.checks.is_whole()

    async def whole(self) -> None:
        """Wait until every replica is in sync, with a limit: the final checks report it if it never happens."""
        for _ in range(120):
            if self.is_whole():
                return
            await asyncio.sleep(0.5)

    async def pause(self) -> None:
        node = self.pick()
        if node is None:
            return
        self._busy.add(node.name)
        node.pause()
        await asyncio.sleep(self.moment())
        node.resume()
        self._busy.discard(node.name)

    async def stop(self) -> None:
        node = self.pick()
        if node is None:
            return
        self._busy.add(node.name)
        try:
            async with asyncio.timeout(60):
                await node.stop()
        except TimeoutError:
            node.kill()
        await asyncio.sleep(self.moment())
        self.world.start(node)
        self._busy.discard(node.name)

    async def clock(self) -> None:
        node = self._chance.choice(self.world.nodes)
        self.world.checks.note_clock_jump()
        node.clock.jump(self._chance.choice((-3_600_000, 3_600_000, -1000, 60_000)))

    async def full(self) -> None:
        node = self._chance.choice(self.world.nodes)
        node.device.full = True
        await asyncio.sleep(self._chance.uniform(0, 3))
        node.device.full = False

    async def starve(self) -> None:
        """A broker's process reaches the limit of open files."""
        device = self._chance.choice(self.world.nodes).device
        device.starved = True
        self.starved.add(device)
        await asyncio.sleep(self._chance.uniform(0, 3))
        self.starved.discard(device)
        device.starved = False

    # The network.

    async def _cut(self, *ways: tuple[str, str]) -> None:
        network = self.world.network
        for way in ways:
            self.world.loop.note(f"cut {way[0]} -> {way[1]}")
            network.cut(*way)
        await asyncio.sleep(self.moment())
        for way in ways:
            network.heal(*way)
        self.world.loop.note("healed")

    def _two(self) -> tuple[str, str]:
        one, other = self._chance.sample([node.name for node in self.world.nodes], 2)
        return one, other

    async def cut_brokers(self) -> None:
        one, other = self._two()
        await self._cut((one, other), (other, one))

    async def cut_one_way(self) -> None:
        names = [node.name for node in self.world.nodes]
        one, other = self._chance.sample([*names, HOST, *CLIENTS[:2]], 2)
        await self._cut((one, other))

    async def cut_store(self) -> None:
        name = self._chance.choice(self.world.nodes).name
        await self._cut((name, HOST), (HOST, name))

    async def isolate(self) -> None:
        """Cut one broker off from the others and from the store; clients still reach it."""
        name = self._chance.choice(self.world.nodes).name
        others = [HOST, *(node.name for node in self.world.nodes if node.name != name)]
        await self._cut(*((name, other) for other in others), *((other, name) for other in others))

    async def depose(self) -> None:
        """A leader writes records that no follower gets; its session expires, others lead for a moment, it returns."""
        leaders = sorted({one.leader for one in self.world.checks.states.values() if one.leader >= 0})
        if not leaders:
            return
        number = self._chance.choice(leaders)
        name, others = f"b{number}", [node.name for node in self.world.nodes if node.number != number]
        ways = [way for other in others for way in ((name, other), (other, name))]
        for way in ways:
            self.world.network.cut(*way)
        self.world.loop.note(f"{name} is on its own")
        await asyncio.sleep(self._chance.uniform(0.2, 1))
        self.world.store.expire_of(name)
        await asyncio.sleep(self._chance.uniform(0.1, 1.5))
        for way in ways:
            self.world.network.heal(*way)
        self.world.loop.note(f"{name} is back")

    async def orphan(self) -> None:
        """A follower gets nothing more, but is still in sync when its leader dies, so it may become the leader."""
        led = sorted(state for state in self.world.checks.states.values() if state.leader >= 0 and len(state.isr) > 1)
        if not led:
            return
        state = self._chance.choice(led)
        leader = self.world.nodes[state.leader]
        follower = f"b{self._chance.choice([number for number in state.isr if number != state.leader])}"
        if not leader.running or leader.paused or leader.name in self._busy:
            return
        self._busy.add(leader.name)
        for way in ((leader.name, follower), (follower, leader.name)):
            self.world.network.cut(*way)
        self.world.loop.note(f"{follower} gets nothing more from {leader.name}")
        await asyncio.sleep(self._chance.uniform(0.2, 2))
        leader.kill()
        for way in ((leader.name, follower), (follower, leader.name)):
            self.world.network.heal(*way)
        await asyncio.sleep(self.moment())
        self.world.start(leader)
        self._busy.discard(leader.name)

    async def reset(self) -> None:
        one, other = self._two()
        self.world.network.reset(one, other)
        self.world.network.reset(self._chance.choice(CLIENTS), one)

    async def slow(self) -> None:
        way = self._two()
        self.world.network.slow[way] = self._chance.choice((0.02, 0.1, 0.5))
        await asyncio.sleep(self.moment())
        self.world.network.slow.pop(way, None)

    # The store.

    async def store_away(self) -> None:
        store = self.world.store
        if not store.up:
            return
        self.world.loop.note("the store is away")
        store.stop()
        await asyncio.sleep(self.moment())
        self.world.loop.note("the store is back")
        store.start()

    async def store_slow(self) -> None:
        self.world.store.slow_s = self._chance.choice((0.05, 0.3, 1.0))
        await asyncio.sleep(self.moment())
        self.world.store.slow_s = 0.0

    async def expire(self) -> None:
        sessions = sorted(self.world.store.sessions)
        if sessions:
            self.world.store.expire(self._chance.choice(sessions))

    async def resign(self) -> None:
        """The controller loses its role, as if its znode was deleted by hand."""
        if self.world.store.owner("/controller"):
            self.world.store.remove("/controller")
