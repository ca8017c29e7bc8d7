"""What operators do to a running cluster, and what disks do to files: only in runs that name these kinds of trouble.

reassign     the replicas of a partition move to other brokers; sometimes they are sent elsewhere halfway, or back
directories  a replica moves to another log directory of its broker
insync       `min.insync.replicas` of the topic changes
spoil        a broker is killed, and some of its small files are gone, cut off, or those of an earlier time
broken       one of the log directories of a broker fails, until the broker has been restarted
old disk     a broker loses its disk, and gets a copy made earlier

The world needs more than three brokers to reassign, and two directories for each broker.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.sim.checks import list_hosted
from ottla.sim.link import LinkError
from ottla.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.wire.messages.folders import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.sim.history import Partition
    from ottla.sim.node import SimNode
    from ottla.sim.trouble import Trouble
    from ottla.sim.world import World

# A run with operators: the options of its `World`.
OPERATED: dict[str, Any] = {
    "brokers": 4,
    "directories": 2,
    "kinds": (
        *("reassign", "directories", "insync", "spoil", "broken"),
        *("kill", "kill two", "pause", "stop", "isolate", "depose", "orphan", "cut one way", "slow", "full"),
        *("resign", "expire", "store away", "store slow"),
    ),
}
REPLICAS = 3
# Files that say less than the logs do: a broker that finds a bad one, or none, has to do without.
SPOILABLE = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "ottla-session",
    ".kafka_cleanshutdown",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
)
SPOILED = 0.3  # of these files
TOPIC_RESOURCE, SET = 2, 0


class Operations:
    def __init__(self, world: World, trouble: Trouble) -> None:
        self.world = world
        self._trouble = trouble
        self._chance = world.chance
        self._client = world.client("operator")
        self._copies: dict[SimNode, str] = {}
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "reassign": self.reassign,
            "directories": self.directories,
            "insync": self.insync,
            "spoil": self.spoil,
            "broken": self.broken,
            "old disk": self.old_disk,
        }

    async def _ask(self, broker: int | None, request: object, version: int) -> Any:
        """Ask this broker, or the controller. None without a response."""

        async def ask() -> Any:
            await self._client.refresh()
            address = self._client.address(self._client.controller if broker is None else broker)
            with suppress(LinkError):
                return None if address is None else await self._client.ask(address, request, version)

        return await self.world.in_process("operator", ask())

    def _some_partition(self) -> Partition:
        return self._chance.choice(sorted(key for key in self.world.checks.states if key[0] != "seasons"))

    # Where replicas are.

    async def reassign(self) -> None:
        numbers = [node.number for node in self.world.nodes]
        for _ in range(self._chance.randint(1, 3)):
            places = {}
            for _ in range(self._chance.randint(1, 2)):
                target = self._chance.sample(numbers, min(REPLICAS, len(numbers)))
                places[self._some_partition()] = None if self._chance.random() < 0.15 else target
            self.world.loop.note(f"reassign {places}")
            await self._reassign(places)
            await asyncio.sleep(self._chance.choice((0.0, self._chance.expovariate(5), self._chance.expovariate(0.5))))

    async def _reassign(self, places: dict[Partition, list[int] | None]) -> None:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in places.items():
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=replicas))
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        )
        await self._ask(None, request, 0)

    async def directories(self) -> None:
        node = self._chance.choice(self.world.nodes)
        for _ in range(self._chance.randint(1, 3)):
            topic, index = self._some_partition()
            moved = AlterReplicaLogDirTopic(name=topic, partitions=[index])
            path = self._chance.choice(node.folders)
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])])
            self.world.loop.note(f"{node.name}: {topic}-{index} to {os.path.basename(path)}")
            await self._ask(node.number, request, 2)

    async def insync(self, count: int | None = None) -> None:
        value = str(self._chance.choice((1, 2, 3)) if count is None else count)
        option = IncrementalAlterableConfig(name="min.insync.replicas", config_operation=SET, value=value)
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name="orders", configs=[option]
        )
        self.world.loop.note(f"min.insync.replicas={value}")
        await self._ask(None, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    def is_settled(self) -> bool:
        """Whether no reassignment is left, and exactly the assigned brokers have a replica."""
        assigned = self.world.checks.assigned()
        if any(moving for _, moving in assigned.values()):
            return False
        found: dict[Partition, set[int]] = {key: set() for key in assigned}
        for node in self.world.nodes:
            for one in list_hosted(node):
                found.setdefault((one.topic, one.index), set()).add(node.number)
        return all(found[key] == set(assigned[key][0]) if key in assigned else False for key in found)

    # Disks.

    async def spoil(self) -> None:
        node = self._trouble.pick()
        if node is None:
            return
        with self._trouble.busy(node):
            node.kill()
            spoiled = {path for path in sorted(files_of(node)) if self._chance.random() < SPOILED}
            for path in sorted(spoiled):
                # Without both of these, holes that compaction has left look like those of a power cut.
                other = path.replace("cleaner-offset-checkpoint", "recovery-point-offset-checkpoint")
                if path.endswith(SPOILABLE) and (other == path or other not in spoiled):
                    self._spoil(node, path)
            await asyncio.sleep(self._trouble.moment())
            self.world.start(node)

    def _spoil(self, node: SimNode, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        how = self._chance.choice(("gone", "cut", "empty", "zeros"))
        self.world.loop.note(f"{node.name}: {os.path.relpath(path, node.folders[0])} {how}")
        if how == "gone":
            os.remove(path)
            node.device.synced.pop(path, None)
            return
        kept = {"cut": data[: self._chance.randint(0, len(data))], "empty": b"", "zeros": bytes(len(data))}[how]
        with open(path, "wb") as file:
            file.write(kept)
        node.device.synced[path] = kept

    async def broken(self) -> None:
        node = self._trouble.pick()
        if node is None or node.device.broken is not None:
            return
        with self._trouble.busy(node):
            node.device.broken = self._chance.choice(node.folders)
            self.world.loop.note(f"{node.name}: {os.path.basename(node.device.broken)} is broken")
            await asyncio.sleep(self._trouble.moment())
            node.kill()
            await asyncio.sleep(self._trouble.moment())
            if self._chance.random() < 0.3 and node.device.broken != node.folders[0]:
                self.world.start(node)  # it is still broken
                await asyncio.sleep(self._trouble.moment())
                node.kill()
            node.device.broken = None
            self.world.start(node)

    async def old_disk(self) -> None:
        """The first time only a copy is made, of the folder of a broker that is down for a moment."""
        node = self._trouble.pick()
        if node is None or not self._trouble.is_whole():
            return
        if node not in self._copies:
            await node.stop()
            copy = self._copies[node] = f"{node.folder}-copy"
            shutil.copytree(node.folder, copy)
            self.world.loop.note(f"{node.name}: copied")
            self.world.start(node)
            return
        node.outage()
        node.replace_by(self._copies.pop(node))
        self.world.checks.note_power_loss(node)
        away_s = self._chance.choice((0.05, 1, 3, 9, 15))
        await asyncio.sleep(away_s)
        self.world.start(node)
        await asyncio.sleep(max(0.0, 9 - away_s))
        await self._trouble.whole()


def files_of(node: SimNode) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(node.folder) for name in names]
