"""Shared by the tests of replicas: a member's replicas over real logs, without other brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from log.making import StillClock, produced

from ottla.cluster.image import EMPTY, Broker, Image, Topic
from ottla.cluster.image import Partition as State
from ottla.cluster.metadata import Metadata
from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.log.store import LogStore
from ottla.replica.assigned import Assigned
from ottla.replica.membership import Membership
from ottla.replica.sessions import Sessions
from ottla.replica.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ottla.config import BrokerConfig
    from ottla.handlers.call import Parts
    from ottla.log.append import Appended
    from ottla.replica.partition import Partition
    from ottla.replica.throttle import Throttle

TOPIC_ID = bytes(range(16))
ME = 0


class Recorder:
    """Stands for fetchers and proposals: records the calls."""

    def __init__(self) -> None:
        self.followed: list[tuple[str, int, int]] = []
        self.forgotten: list[tuple[str, int]] = []
        self.proposed: list[Partition] = []
        self.looked = 0

    def follow(self, partition: Partition) -> None:
        self.followed.append((partition.topic, partition.index, partition.leader_id))

    def forget(self, partition: Partition) -> None:
        self.forgotten.append((partition.topic, partition.index))

    def propose(self, partition: Partition) -> None:
        self.proposed.append(partition)

    def look(self, partitions: Iterable[Partition]) -> None:
        self.looked += 1


class Host:
    """One member of a cluster of three, without its network; also the `parts` of its handlers."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.clock = StillClock()
        config = load({"log.dirs": str(folder), "node.id": str(ME), **options})
        self.metadata = Metadata(config, self.clock)
        self.store = LogStore([folder], RealDisk(), self.clock, config)
        self.store.open(lambda _: topic_config(config, {}), replicated=True)
        self.told = Recorder()
        self.waits = Waits(asyncio.get_running_loop())
        self.replicas = Assigned(self.metadata, self.store, self.waits, self.told, self.told)
        self.metadata.subscribe(self.replicas.apply)
        self.metadata.publish(cluster(0, 1, 2))
        self.node_id = ME
        self.configs: dict[str, dict[str, str]] = {}
        self.broker_epoch = 10
        self.membership = Membership(lambda: self.broker_epoch, self._read_configs)
        self.throttle: Throttle | None = None
        self.sessions = Sessions(10, 1000, lambda: 7)

    @property
    def config(self) -> BrokerConfig:
        return self.metadata.config

    @property
    def parts(self) -> Parts:
        return cast("Parts", self)

    async def _read_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.configs[name] for name in names if name in self.configs}

    def assign(self, state: State, *, name: str = "t", topic_id: bytes = TOPIC_ID, new: bool = True) -> Partition:
        self.replicas.assign(Topic(name, topic_id, (), {}), state, new=new)
        return self.replicas.require_hosted(name, state.index)

    def append(self, partition: Partition, count: int = 1) -> Appended:
        return partition.append(produced(count), self.clock.now_ms(), 9)

    def fetch(self, partition: Partition, replica: int, offset: int) -> None:
        partition.note_fetch(replica, offset, 0, -1, epoch_known=True)


def cluster(*brokers: int) -> Image:
    return EMPTY._replace(
        cluster_id="c",
        brokers={one: Broker(one, {"PLAINTEXT": ("127.0.0.1", 9092 + one)}, None, -1) for one in brokers},
    )


def state(
    leader: int = ME,
    epoch: int = 1,
    *,
    version: int = 0,
    replicas: tuple[int, ...] = (0, 1, 2),
    isr: tuple[int, ...] = (0, 1, 2),
    index: int = 0,
) -> State:
    return State(index, replicas, isr, leader, epoch, version)
