"""The owner of the log folders, and the configs with which their logs are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.plans import INTERNAL_CONFIGS
from ottla.config import topic_config
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.image import Image
    from ottla.config import BrokerConfig, TopicConfig
    from ottla.log.checkpoints import Meta


def choose_node_id(config: BrokerConfig, meta: Meta) -> int:
    """The node id. New log folders become ours; used ones must belong to this node."""
    if meta.node_id is None or meta.node_id == config.node_id:
        return config.node_id
    if {"node.id", "broker.id"} & config.given.keys():
        reason = f"the log folders belong to node {meta.node_id}, not {config.node_id} (see meta.properties)"
        raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    return meta.node_id


def configs_of(config: BrokerConfig, image: Image) -> Callable[[str], TopicConfig]:
    """The config for each log: that of its topic, if the topic is known."""

    def config_of(name: str) -> TopicConfig:
        topic = image.topics.get(name)
        return topic_config(config, INTERNAL_CONFIGS.get(name, {}) if topic is None else topic.configs)

    return config_of


def ids_of(image: Image) -> Callable[[str], bytes | None]:
    """The id of each topic that is known."""

    def id_of(name: str) -> bytes | None:
        topic = image.topics.get(name)
        return topic.id if topic is not None and any(topic.id) else None

    return id_of
