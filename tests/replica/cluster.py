"""A few members of a cluster in one process: real logs, real handlers, real bytes between them, and no sockets.

There is no controller: a test assigns roles, and answers AlterPartition proposals, itself.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, cast

from log.making import everything, produced
from replica.making import TOPIC_ID, cluster

from ottla.clock import SystemClock
from ottla.cluster.image import Partition as State
from ottla.cluster.image import Topic
from ottla.cluster.metadata import Metadata
from ottla.cluster.peers import PeerError
from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.handlers import load as load_handlers
from ottla.handlers.call import REGISTRY, Call
from ottla.log.store import LogStore
from ottla.replica.assigned import Assigned
from ottla.replica.fetcher import Fetchers
from ottla.replica.isr import Proposals
from ottla.replica.sessions import Sessions
from ottla.replica.throttle import Throttle
from ottla.replica.waits import Waits
from ottla.wire import codec
from ottla.wire.apis import BY_KEY
from ottla.wire.schema import spec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from ottla.cluster.image import Broker
    from ottla.handlers.call import Parts
    from ottla.replica.partition import Partition

QUICK = {"replica.fetch.wait.max.ms": "50", "replica.fetch.backoff.ms": "20"}


class Member:
    """One broker. It is also the `parts` of its handlers."""

    def __init__(self, world: World, node_id: int, folder: Path, options: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.clock = SystemClock()
        config = load({"log.dirs": str(folder), "node.id": str(node_id), **QUICK, **options})
        self.metadata = Metadata(config, self.clock)
        self.store = LogStore([folder], RealDisk(), self.clock, config)
        self.store.open(lambda _: topic_config(config, {}), replicated=True)
        self.waits = Waits(asyncio.get_running_loop())
        line, epoch = Line(world, node_id), 100 + node_id
        incoming = Throttle(self.clock, lambda: self.config.follower_replication_throttled_rate, samples=11, sample_s=1)
        self.throttle: Throttle | None = None
        self.fetchers = Fetchers(line, self.metadata, self.store, broker_epoch=lambda: epoch, throttle=incoming)
        self.proposals = Proposals(line, self.metadata, self.clock, broker_epoch=lambda: epoch)
        self.replicas = Assigned(self.metadata, self.store, self.waits, self.fetchers, self.proposals)
        self.metadata.subscribe(self.replicas.apply)
        self.sessions = Sessions(10, 1000, iter(range(1, 1 << 30)).__next__)
        self.metadata.publish(cluster(*world.ids)._replace(controller_id=world.ids[0]))
        loops = (self.proposals.run(), self.proposals.watch(lambda: self.replicas))
        self.tasks = [asyncio.ensure_future(loop) for loop in loops]

    @property
    def config(self) -> Any:
        return self.metadata.config

    def assign(self, state: State, *, name: str = "t", topic_id: bytes = TOPIC_ID) -> Partition:
        self.replicas.assign(Topic(name, topic_id, (), {}), state, new=True)
        return self.replicas.require_hosted(name, state.index)

    def log(self, name: str = "t", index: int = 0) -> Any:
        return self.store.logs[name, index]

    async def stop(self) -> None:
        await self.fetchers.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.waits.release()
        await self.store.close()


class World:
    def __init__(self, folder: Path, ids: Sequence[int], options: Mapping[str, str]) -> None:
        self.ids = tuple(ids)
        self.asked: list[tuple[int, int, Any, int]] = []  # from, to, request, version
        self.down: set[int] = set()  # brokers that cannot be reached
        self.silent: set[int] = set()  # brokers that receive requests and do not answer
        self.hold: asyncio.Event | None = None  # answers wait for it
        self.spoil: Callable[[Any], Any] = lambda answer: answer
        self.answers: dict[type, Callable[[Any], Any]] = {}  # in place of a handler
        self.members = {one: Member(self, one, folder / str(one), options) for one in ids}

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    def lead(self, leader: int, epoch: int = 1, *, isr: tuple[int, ...] | None = None, **more: Any) -> Partition:
        """Assign this leader at every member, at the leader last."""
        index, name = more.get("index", 0), more.get("name", "t")
        topic_id = more.get("topic_id", TOPIC_ID)
        state = State(index, self.ids, self.ids if isr is None else isr, leader, epoch, more.get("version", epoch))
        told = [one for one in self.ids if one != leader and one not in self.down]
        for one in told:
            self[one].assign(state, name=name, topic_id=topic_id)
        return self[leader].assign(state, name=name, topic_id=topic_id)

    def requests(self, kind: type) -> list[tuple[Any, int]]:
        return [(request, version) for _, _, request, version in self.asked if isinstance(request, kind)]


class Line:
    """One member's connections to the others: every request and response is encoded and decoded."""

    def __init__(self, world: World, me: int) -> None:
        self._world = world
        self._me = me
        self._closing: dict[tuple[int, str], set[asyncio.Future[Any]]] = {}

    async def ask(
        self,
        broker: Broker,
        request: Any,
        *,
        version: int | None = None,
        least: int = 0,
        timeout_s: float = 30.0,
        client_id: str = "",
        channel: str = "",
    ) -> Any:
        work = asyncio.ensure_future(self._carry(broker.id, request, version))
        open_now = self._closing.setdefault((broker.id, channel), set())
        open_now.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            if work.cancelled() and work not in open_now:
                raise PeerError("the channel was closed") from None
            work.cancel()
            raise
        finally:
            open_now.discard(work)

    def close_channel(self, broker_id: int, channel: str) -> None:
        asked = self._closing.pop((broker_id, channel), set())
        closed = list(asked)
        asked.clear()
        for work in closed:
            work.cancel()

    async def _carry(self, to: int, request: Any, version: int | None) -> Any:
        world, key = self._world, spec(type(request)).key
        assert key is not None
        chosen = BY_KEY[key].versions[1] if version is None else version
        world.asked.append((self._me, to, request, chosen))
        if {to, self._me} & world.down:
            raise PeerError(f"broker {to} cannot be reached")
        if to in world.silent:
            await asyncio.Event().wait()
        arrived = copied(type(request), chosen, request)
        if type(request) in world.answers:
            answer = world.answers[type(request)](arrived)
        else:
            call = Call(key, chosen, "c", "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 1))
            answer = await finished(REGISTRY[key].function(cast("Parts", world[to]), call, arrived))
        answer = world.spoil(copied(type(answer), chosen, answer))
        if world.hold is not None:
            await world.hold.wait()
        if {to, self._me} & world.down:
            raise PeerError(f"broker {to} is gone")
        return answer


def copied(kind: type, version: int, value: Any) -> Any:
    parts = codec.encoder(kind, version)(value)
    data = b"".join(part if isinstance(part, bytes) else bytes(part.read()) for part in parts)
    return codec.decode(kind, version, memoryview(data))


async def finished(work: Any) -> Any:
    if asyncio.isfuture(work) or inspect.iscoroutine(work):
        return await work
    if not hasattr(work, "send"):
        return work
    while True:
        try:
            waited = next(work)
        except StopIteration as end:
            return end.value
        await (waited if waited is not None else asyncio.sleep(0))


def append(partition: Partition, count: int = 1, **more: Any) -> None:
    partition.append(produced(count, **more), 1_700_000_000_000, 9)


def alike(*members: Member, name: str = "t", index: int = 0) -> bool:
    logs = [one.log(name, index) for one in members]
    return len({everything(log) for log in logs}) == 1


def play(
    folder: Path, story: Callable[[World], Awaitable[None]], *, ids: Sequence[int] = (0, 1, 2), **options: str
) -> None:
    load_handlers()

    async def scene() -> None:
        world = World(folder, ids, options)
        try:
            await story(world)
        finally:
            for member in world.members.values():
                await member.stop()

    asyncio.run(scene())
