"""The group coordinator: the machines of `__consumer_offsets`. Removes the offsets of deleted topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config import ConfigError
from ottla.config.group import group_config
from ottla.coord.coordinator import Coordinator, TopicShape
from ottla.coord.groups.group import ConsumerRules, GroupRules
from ottla.coord.groups.machine import GroupMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.cluster.commands import Commands
    from ottla.cluster.image import Image, Topic
    from ottla.cluster.metadata import Metadata
    from ottla.config import BrokerConfig
    from ottla.replica.partition import Partition
    from ottla.replica.replicas import Replicas

TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000


class Groups(Coordinator[GroupMachine]):
    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        controller: Commands,
        replicas: Replicas,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        rules = rules_of(config)
        self._rules: tuple[BrokerConfig, ConsumerRules] = config, rules.consumer
        self._own_rules: dict[str, tuple[Mapping[str, str], ConsumerRules]] = {}  # of groups with own options

        def make(_: int) -> GroupMachine:
            return GroupMachine(rules, new_id, lambda: metadata.image, self.consumer_rules)

        patience_s = config.offsets_commit_timeout_ms / 1000
        super().__init__(shape_of(config), make, metadata, controller, replicas, clock, patience_s=patience_s)

    def consumer_rules(self, group_id: str) -> ConsumerRules:
        """The current rules of a consumer group: some options of brokers and groups can change at runtime."""
        config = self._metadata.config
        if self._rules[0] is not config:
            self._rules = config, consumer_rules_of(config)
            self._own_rules.clear()
        overrides = self._metadata.image.group_configs.get(group_id)
        if overrides is None:
            return self._rules[1]
        known = self._own_rules.get(group_id)
        if known is None or known[0] is not overrides:
            known = self._own_rules[group_id] = overrides, own_rules(config, overrides, self._rules[1])
        return known[1]

    def apply(self, old: Image | None, new: Image) -> None:
        """Called when the metadata changes: remove the offsets of deleted topics."""
        if old is None:
            return
        changed = new.topics_changed_since(old)
        gone = {name for name in changed if (before := old.topics.get(name)) and is_gone(before, new.topics.get(name))}
        if gone:
            for partition in self.runtime.partitions():
                self._forget(partition.index, gone, partition.log.end)

    def end_transaction(self, partition: Partition, producer_id: int, commits: bool) -> None:
        """Called when a marker is written: pending offsets of the transaction take effect or are dropped."""
        if partition.topic == self.topic:
            self.runtime.end_transaction(partition.index, producer_id, committed=commits)

    def _forget(self, index: int, topics: set[str], end: int) -> None:
        self.runtime.decide(index, lambda machine, now_ms: machine.forget(topics, end, now_ms))


def is_gone(before: Topic, after: Topic | None) -> bool:
    """Whether a topic was deleted, even if a new one has its name. A topic that only gets an id was not deleted."""
    return after is None or (before.id != after.id and any(before.id) and any(after.id))


def shape_of(config: BrokerConfig) -> TopicShape:
    return TopicShape(
        TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {"segment.bytes": str(config.offsets_topic_segment_bytes)},
    )


def rules_of(config: BrokerConfig) -> GroupRules:
    return GroupRules(
        session_ms_min=config.group_min_session_timeout_ms,
        session_ms_max=config.group_max_session_timeout_ms,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
        metadata_size_max=config.offset_metadata_max_bytes,
        retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        retention_check_ms=config.offsets_retention_check_interval_ms,
        consumer=consumer_rules_of(config),
        record_size_max=config.message_max_bytes,
    )


def consumer_rules_of(config: BrokerConfig) -> ConsumerRules:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerRules(
        session_ms=config.group_consumer_session_timeout_ms,
        heartbeat_ms=config.group_consumer_heartbeat_interval_ms,
        size_max=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        pattern_refresh_ms=config.group_consumer_regex_refresh_interval_ms,
        upgrades=policy in ("upgrade", "bidirectional"),
        downgrades=policy in ("downgrade", "bidirectional"),
        classic_size_max=config.group_max_size,
    )


def own_rules(config: BrokerConfig, overrides: Mapping[str, str], base: ConsumerRules) -> ConsumerRules:
    try:
        own = group_config(config, overrides)
    except ConfigError:
        return base  # the broker's bounds have changed since they were set
    return base._replace(
        session_ms=own.consumer_session_timeout_ms,
        heartbeat_ms=own.consumer_heartbeat_interval_ms,
        assignment_interval_ms=own.consumer_assignment_interval_ms,
    )
