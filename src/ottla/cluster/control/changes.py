"""Changes that any broker of a cluster may write by itself: configs and auto-created topics.

Configs are written with a notice below /config/changes that every broker follows; the controller watches for new
topics. A request is answered when this broker's own image has the change.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.cluster import alterations, entity_nodes, plans, znodes
from ottla.cluster.control.awaiting import Awaiting
from ottla.cluster.image import EVERY_BROKER
from ottla.cluster.metadata_store import BadVersion, Create, Delete, NodeExists, NoNode, Set, StoreError, Unavailable
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.cluster.alterations import OptionChange
    from ottla.cluster.image import Image, Topic
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore, Op
    from ottla.cluster.plans import NewTopic

KNOWN_S = 5.0  # how long a response waits until this broker sees its own change
TRIES = 20  # of a write that conflicts with others
LEADER_S = 2.0  # how long the auto-creation of a topic waits for leaders


class Changes:
    def __init__(self, store: MetadataStore, metadata: Metadata, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._metadata = metadata
        self._random_bytes = random_bytes
        self._awaiting = Awaiting(metadata)
        self._deciding = asyncio.Lock()

    def new_id(self) -> bytes:
        return znodes.new_uuid(self._random_bytes)

    def _shift(self) -> int:
        return int.from_bytes(self._random_bytes(2))

    # Options

    async def alter_topic(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's configs; with `replace` those not mentioned are reset to their defaults."""
        async with self._deciding:
            await self._metadata.turns.pause()
            before, after = alterations.alter_topic(self._metadata, name, changes, replace=replace)
            if validate_only or after == before:
                return
            await self._write_options("topics", name, znodes.topic_config_path(name), after)

        def is_known(image: Image) -> bool:
            topic = image.topics.get(name)
            return topic is None or topic.configs == after

        await self._awaiting.until(is_known, KNOWN_S, [name])

    async def alter_broker(
        self, broker: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change dynamic configs of one broker, or of EVERY_BROKER."""
        async with self._deciding:
            await self._metadata.turns.pause()
            before, after = alterations.alter_broker(self._metadata, broker, changes, replace=replace)
            if validate_only or after == before:
                return
            name = znodes.DEFAULT_ENTITY if broker == EVERY_BROKER else broker
            await self._write_options("brokers", name, znodes.broker_config_path(broker), after)
        await self._awaiting.until(lambda image: image.broker_configs.get(broker, {}) == after, KNOWN_S)

    async def alter_group(
        self, group: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change configs of a group, which need not exist."""
        async with self._deciding:
            await self._metadata.turns.pause()
            before, after = alterations.alter_group(self._metadata, group, changes, replace=replace)
            if validate_only or after == before:
                return
            await self._write_options("groups", group, znodes.group_config_path(group), after)
        await self._awaiting.until(lambda image: image.group_configs.get(group, {}) == after, KNOWN_S)

    async def alter_client_metrics(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a client metrics subscription. One without configs is deleted."""
        async with self._deciding:
            await self._metadata.turns.pause()
            before, after = alterations.alter_client_metrics(self._metadata, name, changes, replace=replace)
            if validate_only or after == before:
                return
            await self._write_options("client-metrics", name, znodes.client_metrics_path(name), after)
        await self._awaiting.until(lambda image: image.client_metrics.get(name, {}) == after, KNOWN_S)

    async def alter_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change values of a user. Its node is kept even when empty, as in Kafka: there may be others below it."""
        await self.alter_entity(znodes.user_node(name), changes)

    async def alter_entity(self, node: str, changes: Mapping[str, str | None]) -> None:
        """The same for any quota entity, given by the path of its node below /config."""
        async with self._deciding:
            await self._metadata.turns.pause()
            await self._write_entity(node, changes)
        user = znodes.user_at(node)

        def is_known(image: Image) -> bool:
            kept = image.quotas.get(node, {}) if user is None else image.users.get(user, {})
            return all(kept.get(name) == value for name, value in changes.items())  # others may change the rest

        await self._awaiting.until(is_known, KNOWN_S)

    async def _write_entity(self, node: str, changes: Mapping[str, str | None]) -> None:
        """Write the values of an entity. If another broker writes at the same time, read again and retry."""
        path = znodes.entity_path(node)
        kind, _, name = node.partition("/")
        try:
            for _ in range(TRIES):
                found = await entity_nodes.read(self._store, path)
                present = znodes.decode_configs(found.data) if found is not None else {}
                after = alterations.change_user(present, changes)
                if after == present:
                    return
                data = znodes.encode_configs(after)
                if found is None:
                    ops = [*await entity_nodes.make_parents(self._store, node), Create(path, data)]
                else:
                    ops = [Set(path, data, found.stat.version)]
                try:
                    await self._store.multi([*ops, znodes.notify_of_config(kind, name)])
                    return
                except (BadVersion, NoNode, NodeExists):
                    continue
        except Unavailable as error:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata cannot be written: {error}") from error
        except StoreError as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__} {error.path}") from error
        except znodes.MALFORMED as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be understood") from error
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is written by others all the time")

    async def _write_options(self, kind: str, name: str, path: str, pairs: Mapping[str, str]) -> None:
        """Write configs and their notice. The node may be missing. The node of a group or client metrics subscription
        is deleted with its last config."""
        data, notice = znodes.encode_configs(pairs), znodes.notify_of_config(kind, name)
        if kind in znodes.SILENT and not pairs:
            tries: tuple[Op, ...] = (Delete(path),)
        else:
            tries = (Set(path, data), Create(path, data), Set(path, data))
        for op in tries:
            try:
                await self._store.multi([op, notice])
                return
            except (NoNode, NodeExists):
                continue
            except Unavailable as error:
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata cannot be written: {error}") from error
            except StoreError as error:
                raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__} {error.path}") from error

    # Topics

    async def auto_create(self, name: str, wish: NewTopic | None = None) -> Topic:
        """Create a topic that a client requested or that Kafka itself needs.

        The controller elects the leaders: LEADER_NOT_AVAILABLE when that takes long, and the client retries.
        """
        if not self._metadata.image.brokers:
            # This broker has just started. After INVALID_REPLICATION_FACTOR a client would not retry.
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "the controller has not said yet which brokers there are")
        wish = wish or plans.NewTopic(name, configs=plans.INTERNAL_CONFIGS.get(name, {}))
        plans.check_total(self._metadata.config, [wish])
        topic = plans.new_topic(self._metadata.image, self._metadata.config, wish, self.new_id(), self._shift())
        await self._write_topic(topic)
        if not await self._awaiting.until(lambda image: is_led(image, topic), LEADER_S, [name]):
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._metadata.image.topics.get(name, topic)

    async def _write_topic(self, topic: Topic) -> None:
        """Write the nodes of a new topic. Its config node may be left over from a deleted topic."""
        path, config_path = znodes.topic_path(topic.name), znodes.topic_config_path(topic.name)
        data, options = znodes.encode_topic(topic), znodes.encode_configs(topic.configs)
        for op in (Create(config_path, options), Set(config_path, options), Create(config_path, options)):
            try:
                await self._store.multi([op, Create(path, data)])
                return
            except (NoNode, NodeExists) as error:
                if error.path == path:
                    reason = f"Topic '{topic.name}' already exists."
                    raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, reason) from error
            except Unavailable as error:
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata cannot be written: {error}") from error
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{config_path} comes and goes")


def is_led(image: Image, topic: Topic) -> bool:
    """Whether every partition of the topic has a leader, as far as this broker knows.

    Before 2.8 requests between brokers have no topic ids: then only the name is compared.
    """
    known = image.topics.get(topic.name)
    if known is None or (any(known.id) and known.id != topic.id) or len(known.partitions) < len(topic.partitions):
        return False
    return all(state.leader >= 0 for state in known.partitions)
