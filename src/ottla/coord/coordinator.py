"""An internal topic and its machines: made on first use, followed as its partitions come and go.

Groups live in `__consumer_offsets`, transactional ids in `__transaction_state`. A key belongs to the partition that
Kafka would put it in, and the leader of that partition coordinates it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.cluster.plans import INTERNAL_CONFIGS, NewTopic
from ottla.coord.machine import Decision, Machine
from ottla.coord.runtime import RETRY_S, Runtime, slot
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata
    from ottla.coord.machine import Token
    from ottla.replica.replicas import Replicas

logger = logging.getLogger("ottla.coord")

M = TypeVar("M", bound=Machine)


class Shape(NamedTuple):
    """How an internal topic is made."""

    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


class Coordinator(Generic[M]):
    def __init__(
        self,
        shape: Shape,
        make: Callable[[int], M],
        metadata: Metadata,
        controller: Commands,
        replicas: Replicas,
        clock: Clock,
        perform: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.runtime: Runtime[M] = Runtime(make, clock, perform)
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
        """Make the topic unless it is there. Fewer brokers than its replicas are no obstacle: they may come later.

        COORDINATOR_NOT_AVAILABLE when it cannot be made now: the disk is full, say.
        """
        async with self._making:
            if self.exists:
                return
            shape, alive = self._shape, len(self._metadata.image.brokers)
            configs = {**INTERNAL_CONFIGS[shape.name], **shape.configs}
            wish = NewTopic(shape.name, shape.partitions, min(shape.replicas, alive), None, configs)
            made = (await self._controller.create_topics([wish]))[0]
            if isinstance(made, BrokerError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, made.message) from made

    def index_of(self, key: str) -> int:
        topic = self._metadata.image.topics.get(self._shape.name)
        if topic is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return slot(key, len(topic.partitions))

    def run(self, key: str, operation: Callable[[M, Token, int], Decision]) -> Any:
        """The reply of the machine that holds the key, or a Future of it."""
        return self.runtime.run(self.index_of(key), operation)

    def peek(self, key: str) -> M:
        return self.runtime.peek(self.index_of(key))

    def apply(self, old: Image | None, new: Image) -> None:
        """Follow the topic: load machines of partitions that have come, drop those of partitions that have gone."""
        before = None if old is None else old.topics.get(self._shape.name)
        after = new.topics.get(self._shape.name)
        if before is after:
            return
        states = {} if before is None else {state.index: state for state in before.partitions}
        wanted = {} if after is None else {state.index: state for state in after.partitions}
        recreated = before is not None and after is not None and before.id != after.id
        for index, state in states.items():
            present = wanted.get(index)
            if recreated or present is None or present.leader != self._metadata.node_id:
                self.runtime.resigned(state.index)
        for index, state in wanted.items():
            known = None if recreated else states.get(index)
            led = known is not None and (known.leader, known.leader_epoch) == (state.leader, state.leader_epoch)
            if state.leader == self._metadata.node_id and not led:
                self.runtime.resigned(index)
                self._lead(index)

    def _lead(self, index: int, *, again: bool = False) -> None:
        """Load the machine of a partition; later, if its log cannot be made just now, as on a full disk."""
        topic = self._metadata.image.topics.get(self._shape.name)
        led = topic is not None and index < len(topic.partitions)
        if topic is None or not led or topic.partitions[index].leader != self._metadata.node_id:
            return
        if self.runtime.stopped or self.runtime.leads(index):
            return
        try:
            partition = self._replicas.get(self._shape.name, index)
        except BrokerError as error:
            if not again:
                logger.error("cannot coordinate %s-%d yet: %s", self._shape.name, index, error)
            asyncio.get_running_loop().call_later(RETRY_S, lambda: self._lead(index, again=True))
            return
        self.runtime.elected(partition)
