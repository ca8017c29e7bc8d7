"""The clients of a run: always two producers, a reader and a group; others at random.

Each kind of client defines what must become true after all failures have healed (V17), and its final checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.metadata_store import NoNode
from ottla.sim import keyed, seasons
from ottla.sim.atomic import SimTransactions
from ottla.sim.clients import ProducingClient, ReadingClient
from ottla.sim.keyed import KeyedProducer, KeyLedger, TableReader
from ottla.sim.members import GroupLedger, GroupMember
from ottla.sim.seasons import Gardener
from ottla.sim.transactions import CommittedReader, Coordinators, TransactionalProducer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from random import Random
    from typing import Any

    from ottla.sim.history import Partition
    from ottla.sim.world import World

GROUP = "readers"
PARTS = {"transactions": 0.5, "seasons": 0.4, "keys": 0.4}  # probability of each


class Cast:
    def __init__(self, world: World, chance: Random, parts: Sequence[str] | None = None) -> None:
        self.world = world
        client, history, partitions = world.client, world.history, world.partitions
        self.ledger = GroupLedger(world.fail)
        self.transactions = SimTransactions(world.fail)
        self.topics: dict[str, dict[str, str]] = {}  # additional topics with one partition each, and their options
        self.table: TableReader | None = None
        self.writers: list[ProducingClient | TransactionalProducer | Gardener | KeyedProducer] = [
            ProducingClient(client(name), history, partitions, pause_s=0.3) for name in ("p1", "p2")
        ]
        self.writers[1].client.trusting = True
        self.readers: list[ReadingClient] = [ReadingClient(client("r1"), history, partitions)]
        self.members = [GroupMember(client(name), history, self.ledger, GROUP, partitions) for name in ("g1", "g2")]
        by_chance = [part for part, likely in PARTS.items() if chance.random() < likely]
        self.parts = by_chance if parts is None else parts
        if "transactions" in self.parts:
            newer = chance.random() < 0.5
            self.writers += [
                TransactionalProducer(client(name), history, self.transactions, partitions, newer=newer)
                for name in ("t1", "t2")
            ]
            self.readers.append(CommittedReader(client("r2"), history, partitions, self.transactions))
        if "seasons" in self.parts:
            world.checks.deletable.add(seasons.NAME)
            self.writers.append(Gardener(client("a1"), world.fail, self._read_planted, prunes="pruning" in self.parts))
        if "keys" in self.parts:
            keys = KeyLedger(world.fail)
            self.topics[keyed.NAME] = keyed.CONFIGS
            self.table = TableReader(client("k2"), keys)
            self.writers.append(KeyedProducer(client("k1"), keys))
        self._works: list[asyncio.Task[Any]] = []
        self._others: list[asyncio.Task[Any]] = []

    def _read_planted(self) -> seasons.Planted | None:
        try:
            return seasons.decode_planted(self.world.store.get(f"/brokers/topics/{seasons.NAME}").data)
        except NoNode:
            return None

    def begin(self) -> None:
        run = self.world.in_process
        self._works = [run(one.client.name, one.run()) for one in self.writers]
        self._others = [run(one.client.name, one.run()) for one in self.readers]
        self._others += [run(one.client.name, one.run()) for one in self.members]
        if self.table is not None:
            self._others.append(run(self.table.client.name, self.table.run()))

    def stop(self) -> None:
        for writer in self.writers:
            writer.stopping = True

    def wishes(self) -> dict[str, Callable[[], bool]]:
        truths, partitions = self.world.checks.truths, self.world.partitions
        return {
            "every record is acknowledged": lambda: all(work.done() for work in self._works),
            "the readers have read everything": lambda: all(
                one.positions[key] == truths[key].high for one in self.readers for key in partitions
            ),
            "the group has read everything": lambda: all(
                self.ledger.committed.get(key, 0) == truths[key].high for key in partitions
            ),
        }

    async def end(self, logs: Mapping[Partition, Mapping[int, bytes]], contents: Mapping[Partition, bytes]) -> None:
        """Final checks, after the last write: log contents by offset, and as bytes."""
        for client in (*self.writers, *self.readers):
            if client.refused:
                self.world.fail(f"V9 {client.refused[0]}")
        for other in self._others:
            other.cancel()
        if self.table is not None:
            await self.world.in_process("k3", TableReader(self.world.client("k3"), self.table.ledger).restore())
        if "transactions" in self.parts:
            offset = await self.world.in_process(
                "admin", Coordinators(self.world.client("admin")).offset(self.world.partitions[0])
            )
            self.transactions.close(logs, offset)
            for partition, data in contents.items():
                self.transactions.look_for_ends(partition, data)
