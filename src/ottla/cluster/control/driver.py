"""The controller as the rest of a broker sees it: `Commands` for a member of a cluster.

What only the controller may do fails with NOT_CONTROLLER on other brokers, and the client turns to the right one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.cluster import plans, znodes
from ottla.cluster.control import events
from ottla.cluster.control.changes import Changes, is_led
from ottla.cluster.control.engine import Engine
from ottla.cluster.image import EMPTY, Topic
from ottla.cluster.metadata_store import NodeExists, Unavailable
from ottla.cluster.topic_names import collision_key
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.cluster.control.memory import Key, KnownTopic
    from ottla.cluster.image import Image, Partition
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.peers import Peers
    from ottla.cluster.plans import NewTopic
    from ottla.wire.messages.peers import AlterPartitionRequest, AlterPartitionResponse

TOPICS_AT_ONCE = 100
GONE_S = 2.0  # how long a response waits until the name of a deleted topic is free
TIMED_OUT = BrokerError(ErrorCode.REQUEST_TIMED_OUT)


class Control(Changes):
    def __init__(
        self,
        store: MetadataStore,
        peers: Peers,
        metadata: Metadata,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        super().__init__(store, metadata, random_bytes)
        self._engine = Engine(store, peers, metadata, clock, self.new_id)

    async def start(self) -> None:
        await self._engine.start()

    async def stop(self) -> None:
        await self._engine.stop()

    @property
    def in_office(self) -> bool:
        return self._engine.in_office

    @property
    def engine(self) -> Engine:
        """For the metrics."""
        return self._engine

    def check_controller(self) -> None:
        """NOT_CONTROLLER when another broker is the controller."""
        self._engine.check_controller()

    # Topics

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 30_000
    ) -> list[Topic | BrokerError]:
        """For each wish the created topic, or the error. Waits until this broker knows a leader of every partition."""
        try:
            self.check_controller()
            plans.check_total(self._metadata.config, wishes)
        except BrokerError as error:
            return [error] * len(wishes)
        async with self._deciding:
            try:
                results = await self._plan(wishes)
            except BrokerError as error:
                return [error] * len(wishes)
            if validate_only:
                return results
            for start in range(0, len(results), TOPICS_AT_ONCE):
                some = range(start, min(start + TOPICS_AT_ONCE, len(results)))
                made = await asyncio.gather(*(self._make(results[position]) for position in some))
                for position, result in zip(some, made, strict=True):
                    results[position] = result
            self._engine.push(events.TopicsChanged())
        topics = [one for one in results if isinstance(one, Topic)]
        await self._awaiting.until(
            lambda image: all(is_led(image, one) for one in topics), timeout_ms / 1000, [one.name for one in topics]
        )
        image = self._metadata.image
        return [TIMED_OUT if isinstance(one, Topic) and not is_led(image, one) else one for one in results]

    async def _plan(self, wishes: Sequence[NewTopic]) -> list[Topic | BrokerError]:
        memory = await self._engine.memory()
        image = self._metadata.image._replace(brokers=dict(memory.brokers))
        results: list[Topic | BrokerError] = []
        others: dict[str, str] = {}  # names in this request by collision key
        for wish in wishes:
            await self._metadata.turns.pause()
            try:
                plans.check_against(others, wish.name)
                if wish.name in memory.topics:
                    raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wish.name}' already exists.")
                results.append(plans.new_topic(image, self._metadata.config, wish, self.new_id(), self._shift()))
                others[collision_key(wish.name)] = wish.name
            except BrokerError as error:
                results.append(error)
        return results

    async def _make(self, topic: Topic | BrokerError) -> Topic | BrokerError:
        if isinstance(topic, BrokerError):
            return topic
        try:
            await self._write_topic(topic)
        except BrokerError as error:
            return error
        return topic

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int = 30_000) -> list[Topic | BrokerError]:
        """For each name the topic being deleted, or the error. Waits until it is gone from this broker's image."""
        try:
            topics = (await self._engine.memory()).topics
        except BrokerError as error:
            return [error] * len(names)
        results = list(await asyncio.gather(*(self._ask_to_delete(topics.get(name)) for name in names)))
        self._engine.push(events.DeletionsAsked())
        going = {one.name: one for one in results if isinstance(one, Topic)}

        def are_gone(image: Image) -> bool:
            return not any(is_known(image, topic) for topic in going.values())

        await self._awaiting.until(are_gone, timeout_ms / 1000, going)
        if going and timeout_ms > 0:
            # A client that recreates the topic at once finds the name free, unless a broker with a replica is down.
            await asyncio.wait(
                [self._engine.wait_for_deletion(name) for name in going], timeout=min(GONE_S, timeout_ms / 1000)
            )
        image = self._metadata.image
        return [TIMED_OUT if isinstance(one, Topic) and is_known(image, one) else one for one in results]

    async def _ask_to_delete(self, known: KnownTopic | None) -> Topic | BrokerError:
        if known is None:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic = known.as_image()
        try:
            await self._store.create(znodes.deleted_topic_path(topic.name))
        except NodeExists:
            return topic  # requested before
        except Unavailable as error:
            return BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata cannot be written: {error}")
        return topic

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
    ) -> Topic:
        """Grow the topic to `count` partitions in total. BrokerError when that fails."""
        memory = await self._engine.memory()
        known = memory.topics.get(name)
        if known is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        image = EMPTY._replace(brokers=dict(memory.brokers)).with_topics(known.as_image(memory.leads))
        grown = plans.more_partitions(image, name, count, assignments)
        if not validate_only:
            present = len(known.assignments)
            added = [state.replicas for state in grown.partitions[present:]]
            await self._engine.ask(events.Grow(name, present, added))
            if not await self._awaiting.until(lambda image: is_led(image, grown), timeout_ms / 1000, [name]):
                raise TIMED_OUT
        return grown

    # Leaders

    async def elect_leaders(
        self, keys: Sequence[Key] | None, kind: int, *, timeout_ms: int = 30_000
    ) -> Mapping[Key, BrokerError | None]:
        """The error of each partition. For all partitions (None), only of those that needed an election."""
        results: dict[Key, BrokerError | None] = await self._engine.ask(events.Elect(keys, kind))
        leads = (await self._engine.memory()).leads
        wanted = {key: leads[key] for key, error in results.items() if error is None and key in leads}

        def are_told(image: Image) -> bool:
            return all(is_told(image, key, lead.leader_epoch) for key, lead in wanted.items())

        await self._awaiting.until(are_told, timeout_ms / 1000, {topic for topic, _ in wanted})
        image = self._metadata.image
        late = [key for key, lead in wanted.items() if not is_told(image, key, lead.leader_epoch)]
        return {**results, **dict.fromkeys(late, TIMED_OUT)}

    async def move_partitions(
        self, wishes: Mapping[Key, Sequence[int] | None], *, resize: bool = True
    ) -> Mapping[Key, BrokerError | None]:
        """Start reassignments; None cancels one. Returns errors. `resize`: the replication factor may change."""
        results: Mapping[Key, BrokerError | None] = await self._engine.ask(events.MovePartitions(wishes, resize))
        return results

    def moving_partitions(self, keys: Sequence[Key] | None) -> Mapping[Key, Partition]:
        """Those of the given partitions, or of all (None), that are being reassigned."""
        memory = self._engine.memory_now()
        wanted = memory.moving if keys is None else [key for key in keys if key in memory.moving]
        return {
            key: state
            for key in wanted
            if (state := memory.describe(key)) is not None and (state.adding or state.removing)
        }

    # Brokers

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """AlterPartition: change in-sync sets as requested by a leader."""
        response: AlterPartitionResponse = await self._engine.ask(events.AlterPartition(request, version))
        return response

    async def shut_down_broker(self, broker: int, epoch: int) -> Sequence[Key]:
        """ControlledShutdown: move leadership away from a broker. Returns partitions that it still leads."""
        remaining: Sequence[Key] = await self._engine.ask(events.Shutdown(broker, epoch))
        return remaining

    async def take_producer_ids(self, broker: int, epoch: int) -> tuple[int, int]:
        """Allocate a block of producer ids: the first id and the number of ids."""
        block: Any = await self._engine.ask(events.TakeProducerIds(broker, epoch))
        return block[0], block[1]


def is_known(image: Image, topic: Topic) -> bool:
    known = image.topics.get(topic.name)
    return known is not None and known.id == topic.id


def is_told(image: Image, key: Key, epoch: int) -> bool:
    """Whether this broker knows the partition's leader of that epoch or a newer one."""
    topic = image.topics.get(key[0])
    return topic is None or key[1] >= len(topic.partitions) or topic.partitions[key[1]].leader_epoch >= epoch
