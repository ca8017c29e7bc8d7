"""The coordinator of groups: the machines of `__consumer_offsets`, told when topics go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.coordinator import Coordinator, Shape
from ottla.coord.groups.group import Rules
from ottla.coord.groups.machine import GroupMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import Image
    from ottla.config import BrokerConfig
    from ottla.replica.replicas import Replicas

TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000


class Groups(Coordinator[GroupMachine]):
    def __init__(
        self,
        config: BrokerConfig,
        controller: Controller,
        replicas: Replicas,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        rules = rules_of(config)
        super().__init__(
            shape_of(config),
            lambda _: GroupMachine(rules, new_id, lambda: controller.image),
            controller,
            replicas,
            clock,
        )

    def apply(self, old: Image | None, new: Image) -> None:
        super().apply(old, new)
        if old is None or old.topics is new.topics:
            return
        gone = {name for name, topic in old.topics.items() if name not in new.topics or new.topics[name].id != topic.id}
        topic = new.topics.get(TOPIC)
        if gone and topic is not None:
            for state in topic.partitions:
                self.runtime.decide(state.index, lambda machine, _: machine.forget(gone))


def shape_of(config: BrokerConfig) -> Shape:
    return Shape(
        TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {"segment.bytes": str(config.offsets_topic_segment_bytes)},
    )


def rules_of(config: BrokerConfig) -> Rules:
    return Rules(
        session_ms_min=config.group_min_session_timeout_ms,
        session_ms_max=config.group_max_session_timeout_ms,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
        metadata_size_max=config.offset_metadata_max_bytes,
        retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        retention_check_ms=config.offsets_retention_check_interval_ms,
    )
