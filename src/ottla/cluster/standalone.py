"""The controller of a single node: decides on topics, partitions and configs, writes them to the store, and publishes a
new image.

One change at a time: decide on the current image (`plans.py`), create the logs, write in one transaction, replace the
image, notify the subscribers. A topic exists from the transaction on: if it fails, the logs created for the topic are
removed, and after a crash they belong to no topic. Subscribers run on the loop before the change is answered, so the
client that created a topic finds its logs. Every write checks the version of the controller epoch: a controller that
was replaced can no longer write.

A request for many topics is carried out some partitions at a time, yielding to the event loop in between.

When the broker starts it becomes leader of all its partitions, in a new leader epoch unless the last stop was clean.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.cluster import alterations, entity_nodes, plans, znodes
from ottla.cluster.alone import AloneCommands
from ottla.cluster.image import NO_LEADER, Broker, Image, Topic
from ottla.cluster.metadata_store import (
    BadVersion,
    Create,
    Delete,
    Op,
    Set,
    StoreError,
    Unavailable,
    VersionCheck,
    Znode,
)
from ottla.cluster.plans import Legacy
from ottla.cluster.topic_names import collision_key
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.cluster.alterations import Altered, OptionChange
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.plans import NewTopic

NO_ID = bytes(16)
PARTITIONS_AT_ONCE = 100  # per transaction, unless one topic has more: others wait briefly, and flushes are few

log = logging.getLogger("ottla.controller")


class PartitionHost(Protocol):
    """Hosts the partitions: called before a change is written, and after it was published."""

    async def prepare(self, topic: Topic, first: int) -> None:
        """Create the logs of the partitions from `first` on. On BrokerError nothing is left behind."""

    def abandon(self, topic: Topic) -> None:
        """The change could not be written: undo what was prepared."""

    async def settle(self) -> None:
        """Finish the slow part of a published change."""


class Standalone(AloneCommands):
    def __init__(
        self,
        store: MetadataStore,
        metadata: Metadata,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.metadata = metadata
        self.first_start = False  # whether the store was empty: then logs on disk may be adopted
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._host: PartitionHost | None = None
        self._deciding = asyncio.Lock()
        self._nodes: Mapping[str, Znode] = {}
        self._known: Image | None = None
        self._epoch = 0
        self._epoch_version = 0

    def set_host(self, host: PartitionHost) -> None:
        """Set the host whose `prepare` and `settle` to call. It subscribes to the image itself."""
        self._host = host

    async def load(self) -> Image:
        """The image in the store before this broker has started. `start` continues from it."""
        if self._known is None:
            self._nodes = await self._store.tree("/")
            self._known = znodes.image_of(self._nodes)
        return self._known

    async def start(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        legacy: Callable[[], Legacy] = Legacy,
        epoch_of: Callable[[str, int], int] = lambda topic, index: NO_LEADER,
        clean: bool = False,
        rebuilt: bool = False,
    ) -> None:
        """Register, become controller and leader of all partitions on this node, in one transaction.

        `cluster_id` is from `meta.properties`, if set there; it must match the store, or becomes its id. `legacy` is
        called for the logs to adopt from the folders, when the store has no cluster yet or was `rebuilt`. `epoch_of`
        returns the highest leader epoch in the log of a partition. After a `clean` stop no log has lost anything, so
        leaders keep their epochs and nothing is written for them.
        """
        known = await self.load()
        nodes, self._nodes = self._nodes, {}
        if known.cluster_id and cluster_id and known.cluster_id != cluster_id:
            reason = f"the log folders belong to cluster {cluster_id}, the metadata to {known.cluster_id}"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
        self.first_start = not known.cluster_id
        broker = Broker(self.metadata.node_id, dict(endpoints), self.metadata.config.broker_rack, 0)
        image = known._replace(
            cluster_id=known.cluster_id or cluster_id or znodes.encode_uuid(self._new_id()),
            controller_id=self.metadata.node_id,
        ).with_broker(broker)
        self._known = None  # an old image keeps all later ones alive
        before = nodes.get(znodes.CONTROLLER_EPOCH)
        self._epoch = int(before.data) + 1 if before is not None else 1
        ops = self._arrival(nodes, image, broker)
        found = legacy() if self.first_start or rebuilt else Legacy()
        # Every start raises a leader epoch by at most one, so this bounds the epochs of logs that have none stored.
        floor = self._epoch - 1 if rebuilt else NO_LEADER
        epochs = partial(_epochs, epoch_of, floor)
        image = self._lead(image, found, epochs, ops, anew=not clean or rebuilt)
        if self.first_start or rebuilt:
            image = self._adopt(image, found, ops, rebuilt=rebuilt)
        if rebuilt:
            ops.append(self._skip_producer_ids(nodes, found))
        await self._store.multi(ops)
        self._epoch_version = before.stat.version + 1 if before is not None else 0
        registration = await self._store.get(znodes.broker_path(self.metadata.node_id))
        self.metadata.publish(image.with_broker(broker._replace(epoch=registration.stat.czxid)))

    def _lead(
        self,
        image: Image,
        found: Legacy,
        epochs: Callable[[Topic], Mapping[int, int]],
        ops: list[Op],
        *,
        anew: bool,
    ) -> Image:
        """The image with this broker as leader of its partitions; adds the writes for that to `ops`."""
        led = []
        logs = found.by_topic()
        for topic in image.topics.values():
            leading = self._ensure_id(plans.reconcile(topic, logs.get(topic.name, {}), self.metadata.node_id))
            leading = plans.elect(leading, self.metadata.node_id, anew=anew, above=epochs(leading))
            if leading is not topic:
                ops += plans.election(topic, leading, self._epoch)
                led.append(plans.raise_versions(topic, leading))
        return image.with_topics(*led)

    def _skip_producer_ids(self, nodes: Mapping[str, Znode], found: Legacy) -> Op:
        """The write that skips producer ids which may have been allocated: the journal may lack its last lines."""
        node = nodes.get(znodes.PRODUCER_IDS)
        last = znodes.decode_producer_ids(node.data) if node is not None and node.data else -1
        first = max(last + 1, plans.next_producer_id(found)) + plans.PRODUCER_IDS_JUMP
        block = znodes.encode_producer_ids(self.metadata.node_id, 0, first - 1)
        return Create(znodes.PRODUCER_IDS, block) if node is None else Set(znodes.PRODUCER_IDS, block)

    def _adopt(self, image: Image, legacy: Legacy, ops: list[Op], *, rebuilt: bool) -> Image:
        """The image with topics and configs adopted from the folders; adds the writes for that to `ops`."""
        unknown = [one for one in legacy.logs if one.topic not in image.topics]
        topics, dropped = plans.adopt_topics(
            self.metadata.static, legacy._replace(logs=unknown), self.metadata.node_id, self._new_ids()
        )
        for topic in topics:
            ops += plans.creation(topic, self._epoch)
        if self.first_start and not rebuilt:
            brokers, more = plans.adopt_broker_configs(self.metadata.static, legacy)
            dropped += more
            for broker, pairs in brokers.items():
                ops.append(Create(znodes.broker_config_path(broker), znodes.encode_configs(pairs)))
                image = image.with_broker_config(broker, pairs)
            first = plans.next_producer_id(legacy)
            if first > 0:
                block = znodes.encode_producer_ids(self.metadata.node_id, 0, first - 1)
                ops.append(Create(znodes.PRODUCER_IDS, block))
        for line in dropped:
            log.warning("not adopted: %s", line)
        return image.with_topics(*topics)

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[Topic | BrokerError]:
        """For each wish the created topic, or the error. Nothing here waits for others, so `timeout_ms` is ignored."""
        try:
            plans.check_total(self.metadata.config, wishes)
        except BrokerError as error:
            return [error] * len(wishes)
        async with self._deciding:
            results: list[Topic | BrokerError] = []
            waiting: dict[int, Topic] = {}  # by the position of their wish
            others: dict[str, str] = {}  # names in this request by collision key
            for wish in wishes:
                await self.metadata.turns.pause()
                try:
                    plans.check_against(others, wish.name)
                    topic = plans.new_topic(
                        self.metadata.image, self.metadata.config, wish, self._new_id(), self._shift()
                    )
                except BrokerError as error:
                    results.append(error)
                    continue
                others[collision_key(wish.name)] = wish.name
                waiting[len(results)] = topic
                results.append(topic)
                if sum(len(one.partitions) for one in waiting.values()) >= PARTITIONS_AT_ONCE:
                    await self._bring(waiting, results, validate_only=validate_only)
            await self._bring(waiting, results, validate_only=validate_only)
            return results

    async def _bring(
        self, waiting: dict[int, Topic], results: list[Topic | BrokerError], *, validate_only: bool
    ) -> None:
        """Create these topics and publish them. The result of one that cannot be created is the error."""
        made = {}
        for position, topic in waiting.items() if not validate_only else ():
            try:
                await self._prepare(topic)
                made[position] = topic
            except BrokerError as error:
                results[position] = error
        waiting.clear()
        if not made:
            return
        try:
            await self._write([op for topic in made.values() for op in plans.creation(topic, self._epoch)])
        except BrokerError as error:
            for position, topic in made.items():
                results[position] = error
                self._abandon(topic)
        else:
            self.metadata.publish(self.metadata.image.with_topics(*made.values()))

    async def _prepare(self, topic: Topic, first: int = 0) -> None:
        if self._host is not None:
            await self._host.prepare(topic, first)

    def _abandon(self, topic: Topic) -> None:
        if self._host is not None:
            self._host.abandon(topic)

    async def auto_create(self, name: str, wish: NewTopic | None = None) -> Topic:
        """Create a missing topic: as in `wish`, or with the broker's defaults. BrokerError when that fails."""
        if wish is None:
            wish = plans.NewTopic(name, configs=plans.INTERNAL_CONFIGS.get(name, {}))
        wish = wish._replace(replicas=min(wish.replicas, len(self.metadata.image.brokers)))
        made = (await self.create_topics([wish]))[0]
        if isinstance(made, BrokerError):
            raise made
        return made

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int = 0) -> list[Topic | BrokerError]:
        """For each name the deleted topic, or the error."""
        async with self._deciding:
            results = [self._find(name) for name in names]
            going: dict[int, Topic] = {}  # by the position of their name
            for position, found in enumerate(tuple(results)):
                if isinstance(found, Topic):
                    going[position] = found
                    if sum(len(one.partitions) for one in going.values()) >= PARTITIONS_AT_ONCE:
                        await self._remove(going, results)
            await self._remove(going, results)
            return results

    async def _remove(self, going: dict[int, Topic], results: list[Topic | BrokerError]) -> None:
        gone = {topic.name: topic for topic in going.values()}
        if gone:
            try:
                await self._write([op for topic in gone.values() for op in plans.deletion(topic)])
            except BrokerError as error:
                for position in going:
                    results[position] = error
            else:
                await self._publish_and_settle(self.metadata.image.without_topics(*gone))
        going.clear()

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = 0,
    ) -> Topic:
        """Grow the topic to `count` partitions in total. BrokerError when that fails."""
        async with self._deciding:
            await self.metadata.turns.pause()
            grown = plans.more_partitions(self.metadata.image, name, count, assignments)
            if not validate_only:
                present = len(self.metadata.image.topics[name].partitions)
                await self._prepare(grown, present)
                try:
                    await self._write(plans.growth(grown, present, self._epoch))
                except BrokerError:
                    self._abandon(grown)
                    raise
                self.metadata.publish(self.metadata.image.with_topics(grown))
            return grown

    async def alter_topic(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's configs; with `replace` those not mentioned are reset to their defaults."""
        async with self._deciding:
            await self.metadata.turns.pause()
            before, after = alterations.alter_topic(self.metadata, name, changes, replace=replace)
            if validate_only or after == before:
                return
            await self._write([Set(znodes.topic_config_path(name), znodes.encode_configs(after))])
            topic = self.metadata.image.topic(name)._replace(configs=after)
            self.metadata.publish(self.metadata.image.with_topics(topic))

    async def alter_broker(
        self, broker: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change dynamic configs of one broker, or of EVERY_BROKER."""
        async with self._deciding:
            await self.metadata.turns.pause()
            before, after = alterations.alter_broker(self.metadata, broker, changes, replace=replace)
            if validate_only or after == before:
                return
            path, data = znodes.broker_config_path(broker), znodes.encode_configs(after)
            known = broker in self.metadata.image.broker_configs
            await self._write([Set(path, data) if known else Create(path, data)])
            await self._publish_and_settle(self.metadata.image.with_broker_config(broker, after))

    async def alter_group(
        self, group: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change configs of a group, which need not exist."""
        async with self._deciding:
            await self.metadata.turns.pause()
            altered = alterations.alter_group(self.metadata, group, changes, replace=replace)
            if not validate_only and await self._write_options(znodes.group_config_path(group), altered):
                self.metadata.publish(self.metadata.image.with_group_config(group, altered.after))

    async def alter_client_metrics(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a client metrics subscription. One without configs is deleted."""
        async with self._deciding:
            await self.metadata.turns.pause()
            altered = alterations.alter_client_metrics(self.metadata, name, changes, replace=replace)
            if not validate_only and await self._write_options(znodes.client_metrics_path(name), altered):
                self.metadata.publish(self.metadata.image.with_client_metrics(name, altered.after))

    async def _write_options(self, path: str, altered: Altered) -> bool:
        """Write the node of these configs, or delete it when none are left. False if nothing changes."""
        before, after = altered
        if after == before:
            return False
        data = znodes.encode_configs(after)
        if not after:
            op: Op = Delete(path)
        else:
            op = Set(path, data) if before else Create(path, data)
        await self._write([op])
        return True

    async def alter_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change values of a user (credentials, quotas). A user without values is deleted."""
        await self.alter_entity(znodes.user_node(name), changes)

    async def alter_entity(self, node: str, changes: Mapping[str, str | None]) -> None:
        """The same for any quota entity, given by the path of its node below /config."""
        async with self._deciding:
            await self.metadata.turns.pause()
            image = self.metadata.image
            user = znodes.user_at(node)
            present = image.quotas.get(node, {}) if user is None else image.users.get(user, {})
            after = alterations.change_user(present, changes)
            if after == present:
                return
            await self._write(await entity_nodes.write(self._store, node, after))
            self.metadata.publish(image.with_quotas(node, after) if user is None else image.with_user(user, after))

    def _arrival(self, nodes: Mapping[str, Znode], image: Image, broker: Broker) -> list[Op]:
        """The writes of a starting broker: the nodes that every tree has, its registration, the controller node."""
        now_ms = self._clock.now_ms()
        ops: list[Op] = [Create(path) for path in znodes.PARENTS if path not in nodes]
        if znodes.CLUSTER_ID not in nodes:
            ops.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(image.cluster_id)))
        ops.append(Create(znodes.broker_path(broker.id), znodes.encode_broker(broker, now_ms), ephemeral=True))
        ops.append(Create(znodes.CONTROLLER, znodes.encode_controller(broker.id, now_ms), ephemeral=True))
        before, epoch = nodes.get(znodes.CONTROLLER_EPOCH), str(self._epoch).encode()
        if before is None:
            ops.append(Create(znodes.CONTROLLER_EPOCH, epoch))
        else:
            ops.append(Set(znodes.CONTROLLER_EPOCH, epoch, before.stat.version))
        return ops

    async def _write(self, ops: Sequence[Op]) -> None:
        try:
            await self._store.multi([VersionCheck(znodes.CONTROLLER_EPOCH, self._epoch_version), *ops])
        except BadVersion as error:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"another broker has become controller: {error}") from error
        except Unavailable as error:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata cannot be written: {error}") from error
        except StoreError as error:
            reason = f"the metadata is not what this broker left: {type(error).__name__} {error.path}"
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

    async def _publish_and_settle(self, new: Image) -> None:
        self.metadata.publish(new)
        if self._host is not None:
            await self._host.settle()

    def _find(self, name: str) -> Topic | BrokerError:
        topic = self.metadata.image.topics.get(name)
        return topic if topic is not None else BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _ensure_id(self, topic: Topic) -> Topic:
        """Give the topic an id if it has none: tools older than topic ids create such topics."""
        return topic if topic.id != NO_ID else topic._replace(id=self._new_id())

    def _new_id(self) -> bytes:
        return znodes.new_uuid(self._random_bytes)

    def _new_ids(self) -> Iterator[bytes]:
        while True:
            yield self._new_id()

    def _shift(self) -> int:
        return int.from_bytes(self._random_bytes(2))


def _epochs(epoch_of: Callable[[str, int], int], floor: int, topic: Topic) -> dict[int, int]:
    return {state.index: max(floor, epoch_of(topic.name, state.index)) for state in topic.partitions}
