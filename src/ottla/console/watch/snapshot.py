"""What the pages see: an immutable snapshot of a cluster. `taken` is monotonic time, `at_ms` wall clock time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import TopicPartition

UNKNOWN = -1


class Disk(NamedTuple):
    folder: str
    size: int  # bytes of logs
    total: int  # -1: unknown
    free: int
    error: int


class Broker(NamedTuple):
    node: int
    host: str
    port: int
    rack: str | None
    silence: str | None  # why it does not answer; None if it does
    listed: bool  # whether the cluster's metadata lists it
    leads: int = 0
    replicas: int = 0
    behind: int = 0  # replicas that are not in sync
    disks: tuple[Disk, ...] = ()
    rate: float = 0.0  # records per second into partitions it is leader of

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}" if self.host else "address unknown"

    @property
    def size(self) -> int:
        return sum(disk.size for disk in self.disks)


class Partition(NamedTuple):
    number: int
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int = UNKNOWN
    end: int = UNKNOWN
    size: int = UNKNOWN  # bytes of the leader's replica

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def preferred(self) -> bool:
        return bool(self.replicas) and self.leader == self.replicas[0]


class Topic(NamedTuple):
    name: str
    id: str
    internal: bool
    partitions: tuple[Partition, ...]
    rate: float = 0.0
    min_isr: int = 1
    cleanup: str = ""
    retention_ms: int | None = None
    error: int = 0

    @property
    def records(self) -> int:
        return sum(one.end - one.start for one in self.partitions if one.end >= 0 and one.start >= 0)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.partitions if one.size >= 0)

    @property
    def copies(self) -> int:
        return max((len(one.replicas) for one in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(one.under_replicated for one in self.partitions)

    @property
    def under_min_isr(self) -> int:
        return sum(len(one.isr) < min(self.min_isr, len(one.replicas)) for one in self.partitions)

    @property
    def offline(self) -> int:
        return sum(one.leader < 0 for one in self.partitions)

    @property
    def not_preferred(self) -> int:
        return sum(one.leader >= 0 and not one.preferred for one in self.partitions)


class Member(NamedTuple):
    id: str
    client: str
    host: str
    instance: str | None
    partitions: tuple[TopicPartition, ...]


class Lag(NamedTuple):
    """The lag of one group in one partition."""

    where: TopicPartition
    committed: int | None
    start: int
    end: int
    records: int | None  # None: the end is unknown
    seconds: float | None  # None: unknown
    owner: str = ""  # the client of the member that reads it
    metadata: str = ""


class Group(NamedTuple):
    name: str
    kind: str  # classic, consumer, share, streams
    state: str
    protocol: str
    coordinator: int
    members: tuple[Member, ...] = ()
    lags: tuple[Lag, ...] = ()
    rate: float = 0.0  # records per second
    trend: float = 0.0  # growth of the lag, in records per second

    @property
    def lag(self) -> int:
        return sum(one.records or 0 for one in self.lags)

    @property
    def seconds(self) -> float | None:
        known = [one.seconds for one in self.lags if one.seconds is not None]
        return max(known) if known else None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({one.where.topic for one in self.lags}))

    @property
    def clear_s(self) -> float | None:
        """Seconds until the lag is 0 at the current rates; None if it does not shrink."""
        if not self.lag:
            return 0.0
        return self.lag / -self.trend if self.trend < -0.01 else None


class Transaction(NamedTuple):
    name: str
    coordinator: int
    producer: int
    epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


class Move(NamedTuple):
    """A reassignment in progress."""

    where: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    version: int = 0
    at_ms: int = 0
    taken: float = 0.0
    took_s: float = 0.0
    every_s: float = 2.0
    cluster: str = ""
    controller: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    transactions: tuple[Transaction, ...] = ()
    moves: tuple[Move, ...] = ()
    sizes: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict)  # of each broker's replicas
    problem: str | None = None  # why there is no new data
    missing: Mapping[str, str] = field(default_factory=dict)  # what could not be read, and why

    @property
    def rate(self) -> float:
        return sum(topic.rate for topic in self.topics.values())

    @property
    def size(self) -> int:
        return sum(broker.size for broker in self.brokers.values())

    @property
    def silent(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.silence is not None]

    def partition(self, where: TopicPartition) -> Partition | None:
        topic = self.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            return None
        return topic.partitions[where.partition]
