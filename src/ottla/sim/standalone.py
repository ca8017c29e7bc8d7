"""A standalone broker that is killed and restarted under load: the smallest simulation."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from ottla.records import batch
from ottla.sim.clients import Client, ProducingClient, ReadingClient
from ottla.sim.history import History, Violation
from ottla.sim.link import LinkError
from ottla.sim.loop import make_loop
from ottla.sim.net import Network
from ottla.sim.node import PORT, SimNode, make_deterministic
from ottla.sim.zookeeper import SimZooKeeper
from ottla.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "orders"
PARTITIONS = 2
CALM_S = 60.0  # twice as long as a client waits for a broker that died silently


class BrokenInvariant(Exception):
    """An invariant is violated."""


class Standalone:
    """With `flush`, every record is synced before it is acknowledged: then the power may fail at any moment."""

    def __init__(self, seed: int, folder: Path, *, flush: bool, trace: Callable[[str], None] | None = None) -> None:
        self.chance = Random(seed)
        self.loop = make_loop(Random(f"{seed} loop"))
        self.loop.trace = trace
        self.loop.until = self.loop.time() + 300
        self.network = Network(self.loop, Random(f"{seed} net"))
        self.store = SimZooKeeper(self.loop, self.network)
        self.history = History(self._wrong)
        self.node = SimNode(
            1, folder, self.network, self.store, Random(f"{seed} disk"), {"log.segment.bytes": "4096"}, standalone=True
        )
        self._seed = seed
        self._flush = flush
        self._partitions = [(TOPIC, index) for index in range(PARTITIONS)]

    def _wrong(self, violation: Violation) -> None:
        self.loop.note(str(violation))

    def run(self) -> None:
        with make_deterministic(self.loop, Random(f"{self._seed} broker")):
            try:
                self.loop.run_until_complete(self._story())
            finally:
                self.loop.close()
                self.node.close()

    async def _story(self) -> None:
        bootstrap = [(self.node.name, PORT)]
        self.node.start()
        clients = [Client(self.network, name, bootstrap, Random(f"{self._seed} {name}")) for name in ("p1", "p2", "r1")]
        producers = [ProducingClient(one, self.history, self._partitions, pause_s=0.05) for one in clients[:2]]
        reader = ReadingClient(clients[2], self.history, self._partitions)
        await self._in_process("admin", self._create(Client(self.network, "admin", bootstrap, self.chance)))
        works = [self._in_process(one.client.name, one.run()) for one in producers]
        reading = self._in_process(reader.client.name, reader.run())
        for _ in range(4):
            await asyncio.sleep(self.chance.uniform(0.2, 3.0))
            await self._trouble()
        for producer in producers:
            producer.stopping = True
        async with asyncio.timeout(CALM_S):
            await asyncio.gather(*works)
        await self._catch_up(reader)
        reading.cancel()
        for refused in (*producers[0].refused, *producers[1].refused, *reader.refused, *self.loop.faults):
            raise BrokenInvariant(refused)
        self._compare()
        for violation in self.history.violations:
            raise BrokenInvariant(str(violation))

    async def _trouble(self) -> None:
        node, kinds = self.node, ["kill", "pause", "stop", "reset", "slow"]
        kind = self.chance.choice([*kinds, "outage"] if self._flush else kinds)
        if kind == "pause":
            node.pause()
            await asyncio.sleep(self.chance.uniform(0.1, 8.0))
            node.resume()
        elif kind == "reset":
            self.network.reset("p1", node.name)
        elif kind == "slow":
            self.network.slow["p2", node.name] = 0.05
        else:
            if kind == "stop":
                await node.stop()
            elif kind == "kill":
                node.kill()
            else:
                node.outage()
            await asyncio.sleep(self.chance.uniform(0.0, 2.0))
            node.start()

    async def _create(self, client: Client) -> None:
        configs = [CreatableTopicConfig(name="flush.messages", value="1")] if self._flush else []
        topic = CreatableTopic(
            name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=configs
        )
        while True:
            with suppress(LinkError):
                await client.ask(client.anybody(), CreateTopicsRequest(topics=[topic]), 5)
                return
            await client.rest()

    async def _catch_up(self, reader: ReadingClient) -> None:
        async with asyncio.timeout(CALM_S):
            while True:
                if all(self._end(partition) == reader.positions[partition] for partition in self._partitions):
                    return
                await asyncio.sleep(0.1)

    def _log(self, partition: tuple[str, int]) -> bytes:
        assert self.node.broker is not None
        log = self.node.broker._store.logs[partition]
        data, at = b"", log.start
        while at < log.end and (found := log.read(at, 1 << 20, offset_max=log.end)) is not None:
            piece = found.read()
            data += piece
            at = max(entry.last_offset for entry in batch.entries(piece)) + 1
        return data

    def _end(self, partition: tuple[str, int]) -> int:
        assert self.node.broker is not None
        return self.node.broker._store.logs[partition].end

    def _compare(self) -> None:
        for partition in self._partitions:
            data = self._log(partition)
            found = {
                record.offset: record.value or b""
                for entry in batch.entries(data)
                for record in batch.iterate(data, entry.position)
            }
            self.history.check_found(partition, found)

    def _in_process(self, name: str, work: object) -> asyncio.Task[None]:
        _, context = self.loop.process(name)
        return self.loop.create_task(work, context=context)  # type: ignore[arg-type]
