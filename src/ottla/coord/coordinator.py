"""An internal topic and its machines: created on first use, loaded and dropped as leadership changes.

Groups are stored in `__consumer_offsets`, transactional ids in `__transaction_state`. A key maps to the same partition
as in Kafka, and the leader of that partition is its coordinator.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.cluster.image import NO_LEADER
from ottla.cluster.plans import INTERNAL_CONFIGS, NewTopic
from ottla.coord.machine import Decision, Machine
from ottla.coord.runtime import PATIENCE_S, Runtime, slot
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.metadata import Metadata
    from ottla.coord.machine import Token
    from ottla.replica.partition import Partition
    from ottla.replica.replicas import Replicas

M = TypeVar("M", bound=Machine)


class TopicShape(NamedTuple):
    """How an internal topic is created."""

    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


class Coordinator(Generic[M]):
    def __init__(
        self,
        shape: TopicShape,
        make: Callable[[int], M],
        metadata: Metadata,
        controller: Commands,
        replicas: Replicas,
        clock: Clock,
        perform: Callable[[int, Any], None] | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.runtime: Runtime[M] = Runtime(make, clock, perform, patience_s=patience_s)
        self._shape = shape
        self._metadata = metadata
        self._controller = controller
        self._replicas = replicas
        self._making: asyncio.Lock = asyncio.Lock()

    @property
    def topic(self) -> str:
        return self._shape.name

    @property
    def exists(self) -> bool:
        return self._shape.name in self._metadata.image.topics

    async def ensure(self) -> None:
        """Create the topic unless it exists.

        Raises COORDINATOR_NOT_AVAILABLE if it cannot be created now, for example because the disk is full or there
        are too few brokers.
        """
        if self.exists:
            return
        async with self._making:
            if self.exists:
                return
            shape = self._shape
            configs = {**INTERNAL_CONFIGS[shape.name], **shape.configs}
            wish = NewTopic(shape.name, shape.partitions, shape.replicas, None, configs)
            try:
                await self._controller.auto_create(shape.name, wish)
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error

    def index_of(self, key: str) -> int:
        topic = self._metadata.image.topics.get(self._shape.name)
        if topic is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return slot(key, len(topic.partitions))

    def run(
        self,
        key: str,
        operation: Callable[[M, Token, int], Decision],
        refuse: Callable[[ErrorCode], Any] | None = None,
    ) -> Any:
        """Run an operation on the machine of the key: see `Runtime.run`."""
        return self.runtime.run(self._index_here(key), operation, refuse)

    def peek(self, key: str) -> M:
        return self.runtime.peek(self._index_here(key))

    def pending_commit(self, key: str, machine: M) -> asyncio.Future[None] | None:
        """`Runtime.pending_commit` for the machine that holds the key."""
        return self.runtime.pending_commit(self.index_of(key), machine)

    def wait_for_commit(self, key: str, machine: M) -> Generator[asyncio.Future[None], None, None]:
        """`Runtime.wait_for_commit` for the machine that holds the key."""
        return self.runtime.wait_for_commit(self.index_of(key), machine)

    def leader_of(self, key: str) -> int:
        """The broker that coordinates the key, according to this broker's metadata; NO_LEADER if there is none."""
        topic = self._metadata.image.topics.get(self._shape.name)
        return NO_LEADER if topic is None else topic.partitions[self.index_of(key)].leader

    # Leadership.

    def start(self) -> None:
        """Subscribe to leadership changes of the topic's partitions."""
        self._replicas.subscribe_roles(self.follow)

    async def stop(self) -> None:
        await self.runtime.stop()

    def follow(self, partition: Partition, led: bool) -> None:
        """Called when this broker becomes the leader of a partition (`led`) or stops being it."""
        if partition.topic != self._shape.name:
            return
        if led:
            self.runtime.on_election(partition)
        else:
            self.runtime.on_resignation(partition.index)

    def _index_here(self, key: str) -> int:
        """The partition of the key. If this broker is its leader but the log was not ready in time, try again."""
        index = self.index_of(key)
        if not self.runtime.leads(index) and self.leader_of(key) == self._metadata.node_id:
            with suppress(BrokerError):
                self.follow(self._replicas.require_led(self._shape.name, index), led=True)
        return index
