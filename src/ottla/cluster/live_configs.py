"""Dynamic configs: every member of a cluster reads them from the store and puts them into its image.

A change of a topic's or broker's configs comes with a numbered notice below /config/changes that names the entity. Each
member reads the new notices, then the configs, and publishes an image with them. Groups and client metrics have no
notices (`znodes.notify_of_config` explains why): their parent node is written with each change, and all are read again.

The configs of a new topic are read with `read_topic_configs` when the controller announces it. A notice that arrives in
between would be lost, so its topic is remembered, and the configs are read again when the topic is in the image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.image import EVERY_BROKER
from ottla.cluster.metadata_store import NoNode, SessionEvent, StoreError, Unavailable, stop_watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.cluster.image import Image, Topic
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore, Znode

logger = logging.getLogger("ottla.member")

NOTICES_KEPT_S = 15 * 60.0  # as in Kafka: a member that was disconnected for longer reads everything again
EARLY_MAX = 1000  # topics remembered because of a notice before they were in the image
RETRY_S = 1.0
READS_AT_ONCE = 500

Configs = dict[str, str]
Entities = Mapping[str, Mapping[str, str]]


class LiveConfigs:
    def __init__(self, store: MetadataStore, metadata: Metadata, clock: Clock) -> None:
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._seen: dict[str, float] = {}  # notices by name, and when they were first seen
        self._early: dict[str, None] = {}  # topics in notices that are not in the image yet
        self._come: dict[str, None] = {}  # those that are now
        self._changed = asyncio.Event()
        self._all = False  # whether notices may have been missed
        self._groups_changed = False
        self._task: asyncio.Task[None] | None = None
        self._cancels: list[Callable[[], None]] = []

    async def start(self, image: Image) -> None:
        """Publish an image with all dynamic configs, and then one for each change of them."""
        self._cancels = [
            self._store.watch(znodes.CONFIG_CHANGES, lambda event: self._changed.set()),
            *(self._store.watch(path, lambda event: self._look_at_groups()) for path in znodes.SILENT.values()),
            self._store.subscribe(self._listen),
        ]
        now = self._clock.monotonic()
        self._seen = dict.fromkeys(await self._store.children(znodes.CONFIG_CHANGES), now)
        brokers, groups = await self._read_brokers(), await self._read_below(znodes.GROUP_CONFIGS)
        metrics = await self._read_below(znodes.CLIENT_METRICS_CONFIGS)
        entities = await self._read_all_entities()
        self._metadata.subscribe(self._catch_up)
        self._metadata.publish(
            image._replace(broker_configs=brokers, group_configs=groups, client_metrics=metrics).with_entities(
                *entities
            )
        )
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def read_topic_configs(self, names: Iterable[str]) -> dict[str, Configs]:
        """The current configs of these topics, including topics without any."""
        wanted = tuple(names)
        found: dict[str, Configs] = {}
        for first in range(0, len(wanted), READS_AT_ONCE):
            some = wanted[first : first + READS_AT_ONCE]
            read = await asyncio.gather(*(self._read(znodes.topic_config_path(name)) for name in some))
            found.update(zip(some, read, strict=True))
        return found

    def _look_at_groups(self) -> None:
        self._groups_changed = True
        self._changed.set()

    def _listen(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._all = True

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._take()
            except Unavailable:  # the watch fires on reconnect; retry soon in case it was something else
                await asyncio.sleep(RETRY_S)
                self._changed.set()
            except Exception:
                logger.exception("changed configs could not be applied")
                await asyncio.sleep(RETRY_S)

    async def _take(self) -> None:
        """Read the configs named in new notices, and publish them."""
        everything, self._all = self._all, False
        groups, self._groups_changed = self._groups_changed or everything, False
        come, self._come = self._come, {}
        try:
            names = await self._store.children(znodes.CONFIG_CHANGES)
            fresh = [name for name in names if name not in self._seen]
            nodes = await asyncio.gather(*(self._notice(name) for name in fresh))
            changes = dict.fromkeys(change for node in nodes for change in decode_notice(node))
            topics = {change.name: None for change in changes if change.kind == "topics"}
            topics |= come
            if everything:
                topics |= dict.fromkeys(self._metadata.image.topics)
            configs = await self.read_topic_configs(topics)
            brokers = everything or any(change.kind == "brokers" for change in changes)
            broker_configs = await self._read_brokers() if brokers else None
            group_configs = await self._read_below(znodes.GROUP_CONFIGS) if groups else None
            metrics = await self._read_below(znodes.CLIENT_METRICS_CONFIGS) if groups else None
            entities = await (self._read_all_entities() if everything else self._read_entities(changes))
        except StoreError:
            self._all |= everything
            self._groups_changed |= groups
            self._come |= come
            raise
        now = self._clock.monotonic()
        self._seen = {name: self._seen.get(name, now) for name in names}
        self._publish(configs, broker_configs, group_configs, metrics, entities)
        await self._remove_old(now)

    def _publish(
        self,
        topics: Mapping[str, Configs],
        brokers: Mapping[str, Configs] | None,
        groups: Mapping[str, Configs] | None,
        metrics: Mapping[str, Configs] | None,
        entities: tuple[Entities, Entities],
    ) -> None:
        image = self._metadata.image
        changed: list[Topic] = []
        for name, configs in topics.items():
            topic = image.topics.get(name)
            if topic is None:
                self._keep(name)
            elif topic.configs != configs:
                changed.append(topic._replace(configs=configs))
        new = image.with_topics(*changed) if changed else image
        if brokers is not None and brokers != image.broker_configs:
            new = new._replace(broker_configs=brokers)
        if groups is not None and groups != image.group_configs:
            new = new._replace(group_configs=groups)
        if metrics is not None and metrics != image.client_metrics:
            new = new._replace(client_metrics=metrics)
        if any(entities):
            new = new.with_entities(*entities)
        if new is not image:
            self._metadata.publish(new)

    def _keep(self, name: str) -> None:
        if len(self._early) >= EARLY_MAX:
            self._early.pop(next(iter(self._early)))
        self._early[name] = None

    def _catch_up(self, old: Image | None, new: Image) -> None:
        """Read configs again for new topics that had an early notice."""
        if self._early and (come := [name for name in new.topics_changed_since(old) if name in self._early]):
            for name in sorted(come):
                self._come[name] = self._early.pop(name)
            self._changed.set()

    async def _remove_old(self, now: float) -> None:
        """Remove old notices. Every member does this; the first one wins."""
        for name in [name for name, since in self._seen.items() if now - since > NOTICES_KEPT_S]:
            try:
                await self._store.delete(f"{znodes.CONFIG_CHANGES}/{name}")
            except NoNode:
                continue

    async def _notice(self, name: str) -> Znode | None:
        try:
            return await self._store.get(f"{znodes.CONFIG_CHANGES}/{name}")
        except NoNode:
            return None

    async def _read(self, path: str) -> Configs:
        try:
            data = (await self._store.get(path)).data
        except NoNode:
            return {}
        return decode(path, data)

    async def _read_brokers(self) -> dict[str, Configs]:
        names = await self._children(znodes.BROKER_CONFIGS)
        found = await asyncio.gather(*(self._read(f"{znodes.BROKER_CONFIGS}/{name}") for name in names))
        kept = (EVERY_BROKER if name == znodes.DEFAULT_ENTITY else name for name in names)
        return dict(zip(kept, found, strict=True))

    async def _read_all_entities(self) -> tuple[Entities, Entities]:
        """The values of users and other quota entities; empty for deleted ones."""
        image = self._metadata.image
        found: dict[str, Configs] = {znodes.entity_path(node): {} for node in image.quotas}
        found.update((znodes.entity_path(znodes.user_node(name)), {}) for name in image.users)
        for parent in (znodes.USER_CONFIGS, znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS):
            nodes = await self._store.tree(parent)
            found.update((path, decode(path, node.data)) for path, node in nodes.items() if path != parent)
        return znodes.split_entities(found)

    async def _read_entities(self, changes: Iterable[znodes.ConfigChange]) -> tuple[Entities, Entities]:
        """The same for the entities named in notices."""
        wanted = [f"{change.kind}/{change.name}" for change in changes if change.kind in ("users", "clients", "ips")]
        found: dict[str, Configs] = {}
        for first in range(0, len(wanted), READS_AT_ONCE):
            some = wanted[first : first + READS_AT_ONCE]
            read = await asyncio.gather(*(self._read(znodes.entity_path(node)) for node in some))
            found.update(zip(some, read, strict=True))
        return znodes.split_entities(found)

    async def _read_below(self, parent: str) -> dict[str, Configs]:
        """The configs of groups, or of client metrics, by name."""
        names = await self._children(parent)
        found = await asyncio.gather(*(self._read(f"{parent}/{name}") for name in names))
        return {znodes.group_name(name): pairs for name, pairs in zip(names, found, strict=True) if pairs}

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNode:
            return []

    async def close(self) -> None:
        await stop_watching(self._cancels, self._task)


def decode(path: str, data: bytes) -> Configs:
    try:
        return znodes.decode_configs(data)
    except (ValueError, AttributeError):
        logger.error("malformed configs ignored", extra={"path": path})
        return {}


def decode_notice(node: Znode | None) -> list[znodes.ConfigChange]:
    """The change named in a notice; empty when it is deleted or malformed."""
    if node is None:
        return []
    try:
        return [znodes.decode_config_change(node.data)]
    except (ValueError, KeyError, TypeError):
        logger.warning("malformed notice of changed configs ignored", extra={"data": repr(node.data[:80])})
        return []
