"""The controller: decides on topics, partitions and options, writes them to the keeper, then publishes a new image.

One change at a time: decide on the current image (`plans.py`), write in one transaction, replace the image, tell the
subscribers. A subscriber is called on the loop before the change is answered, so whoever created a topic finds its logs
there. Every write checks the controller epoch's version: a controller that was replaced can no longer write.

On one node the controller is this broker. When it starts it leads every partition it holds, in a new leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from ottla.cluster import alterations, keeper, plans, znodes
from ottla.cluster.image import EMPTY, EVERY_BROKER, Broker, Image, Topic
from ottla.cluster.plans import Legacy
from ottla.config import BrokerConfig, TopicConfig, topic_config
from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.group import OPTIONS as GROUP_OPTIONS
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.cluster.alterations import Change
    from ottla.cluster.keeper import Keeper
    from ottla.cluster.plans import NewTopic

NO_ID = bytes(16)

log = logging.getLogger("ottla.controller")


class Controller:
    """`config` is the broker's configuration with what was set while running laid over it."""

    def __init__(
        self,
        store: Keeper,
        config: BrokerConfig,
        clock: Clock,
        *,
        node_id: int | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.node_id = config.node_id if node_id is None else node_id
        self.image: Image = EMPTY
        self.config = config
        self.first_start = False  # whether the keeper had no cluster in it: then logs on disk may be adopted
        self.static = config  # as given at start, without what was set while running
        self._keeper = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._subscribers: list[Callable[[Image | None, Image], None]] = []
        self._preparers: list[Callable[[Topic], Awaitable[None]]] = []
        self._deciding = asyncio.Lock()
        self._epoch = 0
        self._epoch_version = 0
        self._topic_configs: dict[str, tuple[Topic, TopicConfig]] = {}

    def subscribe(self, callback: Callable[[Image | None, Image], None]) -> None:
        """Be called with the old and the new image after every change, and now if there is one."""
        self._subscribers.append(callback)
        if self.image is not EMPTY:
            callback(None, self.image)

    def prepare_with(self, callback: Callable[[Topic], Awaitable[None]]) -> None:
        """Have this done for a topic that is new or has grown, before it is published: what takes long goes here."""
        self._preparers.append(callback)

    async def _prepare(self, topic: Topic) -> None:
        for prepare in self._preparers:
            await prepare(topic)

    def topic_config(self, topic: Topic) -> TopicConfig:
        """A topic's configuration as of now; the same object until it or the broker's defaults change."""
        cached = self._topic_configs.get(topic.name)
        if cached is not None and cached[0] is topic:
            return cached[1]
        config = topic_config(self.config, topic.configs)
        self._topic_configs[topic.name] = topic, config
        return config

    async def start(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        legacy: Callable[[], Legacy] = Legacy,
    ) -> None:
        """Register, become controller and lead every partition held here, in one transaction.

        `cluster_id` is what `meta.properties` says, if anything; it must be the keeper's, or becomes it. `legacy` is
        asked for what lies in the log folders, to be adopted, when the keeper knows of no cluster yet.
        """
        nodes = await self._keeper.tree("/")
        known = znodes.image_of(nodes)
        if known.cluster_id and cluster_id and known.cluster_id != cluster_id:
            reason = f"the log folders belong to cluster {cluster_id}, the metadata to {known.cluster_id}"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
        self.first_start = not known.cluster_id
        broker = Broker(self.node_id, dict(endpoints), self.config.broker_rack, 0)
        image = known._replace(
            cluster_id=known.cluster_id or cluster_id or znodes.encode_uuid(self._new_id()),
            controller_id=self.node_id,
        ).with_broker(broker)
        before = nodes.get(znodes.CONTROLLER_EPOCH)
        self._epoch = int(before.data) + 1 if before is not None else 1
        ops = self._arrival(nodes, image, broker)
        led = [plans.elected(self._identified(topic), self.node_id) for topic in image.topics.values()]
        for topic in led:
            ops += plans.election(topic, self._epoch, renamed=topic.id != image.topics[topic.name].id)
        image = image.with_topics(*map(plans.written, led))
        if self.first_start:
            image = self._adopt(image, legacy(), ops)
        await self._keeper.multi(ops)
        self._epoch_version = before.stat.version + 1 if before is not None else 0
        registration = await self._keeper.get(znodes.broker_path(self.node_id))
        self._publish(image.with_broker(broker._replace(epoch=registration.stat.czxid)))

    def _adopt(self, image: Image, legacy: Legacy, ops: list[keeper.Op]) -> Image:
        """The image with what another Kafka left in the folders; adds the writes that keep it."""
        topics, dropped = plans.adopted(self.static, legacy, self.node_id, self._new_ids())
        brokers, more = plans.adopted_brokers(self.static, legacy)
        for line in dropped + more:
            log.warning("not adopted: %s", line)
        for topic in topics:
            ops += plans.creation(topic, self._epoch)
        for broker, pairs in brokers.items():
            ops.append(keeper.Create(znodes.broker_config_path(broker), znodes.encode_configs(pairs)))
            image = image.with_broker_config(broker, pairs)
        first = plans.adopted_producer_id(legacy)
        if first > 0:
            block = znodes.encode_producer_ids(self.node_id, 0, first - 1)
            ops.append(keeper.Create(znodes.PRODUCER_IDS, block))
        return image.with_topics(*topics)

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """Each topic, or why there is none. Those that can be made are made together."""
        async with self._deciding:
            image, made, results = self.image, list[Topic](), list[Topic | BrokerError]()
            for wish in wishes:
                try:
                    topic = plans.new_topic(image, self.config, wish, self._new_id(), self._shift())
                    plans.check_count(sum(len(one.partitions) for one in (*made, topic)))
                except BrokerError as error:
                    results.append(error)
                    continue
                image = image.with_topics(topic)
                made.append(topic)
                results.append(topic)
            if made and not validate_only:
                try:
                    await self._write([op for topic in made for op in plans.creation(topic, self._epoch)])
                except BrokerError as error:
                    return [error if isinstance(result, Topic) else result for result in results]
                for topic in made:
                    await self._prepare(topic)
                self._publish(image)
            return results

    async def auto_create(self, name: str) -> Topic:
        """The topic that a client asked for, with the broker's defaults; BrokerError when it cannot be."""
        wish = plans.NewTopic(name, configs=plans.INTERNAL_CONFIGS.get(name, {}))
        made = (await self.create_topics([wish]))[0]
        if isinstance(made, BrokerError):
            raise made
        return made

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | BrokerError]:
        """Each topic that is gone now, or why it is not."""
        async with self._deciding:
            results = [self._find(name) for name in names]
            gone = {topic.name: topic for topic in results if isinstance(topic, Topic)}
            if gone:
                try:
                    await self._write([op for topic in gone.values() for op in plans.deletion(topic)])
                except BrokerError as error:
                    return [error if isinstance(result, Topic) else result for result in results]
                self._publish(self.image.without_topics(*gone))
            return results

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> Topic:
        """The topic with `count` partitions in all; BrokerError when it cannot be."""
        async with self._deciding:
            grown = plans.more_partitions(self.image, name, count, assignments)
            if not validate_only:
                present = len(self.image.topics[name].partitions)
                await self._write(plans.growth(grown, present, self._epoch))
                await self._prepare(grown)
                self._publish(self.image.with_topics(grown))
            return grown

    async def alter_topic(
        self, name: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's options; with `replace` those not mentioned go back to their defaults."""
        async with self._deciding:
            topic = self.image.topic(name)
            before = {} if replace else topic.configs
            after = alterations.changed_configs(before, changes, TOPIC_OPTIONS, alterations.topic_defaults(self.config))
            alterations.check_topic_configs(self.config, after)
            if validate_only or after == topic.configs:
                return
            await self._write([keeper.Set(znodes.topic_config_path(name), znodes.encode_configs(after))])
            self._publish(self.image.with_topics(topic._replace(configs=after)))

    async def alter_broker(
        self, broker: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of one broker, or of EVERY_BROKER, while they run."""
        async with self._deciding:
            present = self.image.broker_configs.get(broker, {})
            before = {} if replace else present
            after = alterations.changed_configs(
                before, changes, BROKER_OPTIONS, alterations.broker_defaults(self.config)
            )
            alterations.check_broker_configs(self.static, broker, present, after)
            if validate_only or after == present:
                return
            path, data = znodes.broker_config_path(broker), znodes.encode_configs(after)
            known = broker in self.image.broker_configs
            await self._write([keeper.Set(path, data) if known else keeper.Create(path, data)])
            self._publish(self.image.with_broker_config(broker, after))

    async def alter_group(
        self, group: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of a group, whether there is one of that name or not."""
        async with self._deciding:
            present = self.image.group_configs.get(group, {})
            after = alterations.changed_configs({} if replace else present, changes, GROUP_OPTIONS, {})
            alterations.check_group_configs(self.config, after)
            if validate_only or after == present:
                return
            path, data = znodes.group_config_path(group), znodes.encode_configs(after)
            if not after:
                op: keeper.Op = keeper.Delete(path)
            else:
                op = keeper.Set(path, data) if present else keeper.Create(path, data)
            await self._write([op])
            self._publish(self.image.with_group_config(group, after))

    def _arrival(self, nodes: Mapping[str, keeper.Node], image: Image, broker: Broker) -> list[keeper.Op]:
        """The writes of a broker that comes up: what every tree needs, its registration, its being controller."""
        now_ms = self._clock.now_ms()
        ops: list[keeper.Op] = [keeper.Create(path) for path in znodes.PARENTS if path not in nodes]
        if znodes.CLUSTER_ID not in nodes:
            ops.append(keeper.Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(image.cluster_id)))
        ops.append(keeper.Create(znodes.broker_path(broker.id), znodes.encode_broker(broker, now_ms), ephemeral=True))
        ops.append(keeper.Create(znodes.CONTROLLER, znodes.encode_controller(broker.id, now_ms), ephemeral=True))
        before, epoch = nodes.get(znodes.CONTROLLER_EPOCH), str(self._epoch).encode()
        if before is None:
            ops.append(keeper.Create(znodes.CONTROLLER_EPOCH, epoch))
        else:
            ops.append(keeper.Set(znodes.CONTROLLER_EPOCH, epoch, before.stat.version))
        return ops

    async def _write(self, ops: Sequence[keeper.Op]) -> None:
        try:
            await self._keeper.multi([keeper.Check(znodes.CONTROLLER_EPOCH, self._epoch_version), *ops])
        except keeper.BadVersion as error:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"another broker has become controller: {error}") from error
        except keeper.Unavailable as error:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata cannot be written: {error}") from error
        except keeper.KeeperError as error:
            reason = f"the metadata is not what this broker left: {type(error).__name__} {error.path}"
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

    def _publish(self, new: Image) -> None:
        old = None if self.image is EMPTY else self.image
        self.image = new
        if old is None or old.broker_configs is not new.broker_configs:
            own = new.broker_configs.get(str(self.node_id), {})
            self.config = self.static.overlaid({**new.broker_configs.get(EVERY_BROKER, {}), **own})
            self._topic_configs.clear()
        for callback in self._subscribers:
            callback(old, new)

    def _find(self, name: str) -> Topic | BrokerError:
        topic = self.image.topics.get(name)
        return topic if topic is not None else BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _identified(self, topic: Topic) -> Topic:
        """Tools older than topic ids write topics without one."""
        return topic if topic.id != NO_ID else topic._replace(id=self._new_id())

    def _new_id(self) -> bytes:
        """Sixteen random bytes, marked as a UUID of version 4."""
        while True:
            value = bytearray(self._random_bytes(16))
            value[6] = value[6] & 0x0F | 0x40
            value[8] = value[8] & 0x3F | 0x80
            # A leading dash in its text would look like an option to the command line tools.
            if not znodes.encode_uuid(bytes(value)).startswith("-"):
                return bytes(value)

    def _new_ids(self) -> Iterator[bytes]:
        while True:
            yield self._new_id()

    def _shift(self) -> int:
        return int.from_bytes(self._random_bytes(2))
