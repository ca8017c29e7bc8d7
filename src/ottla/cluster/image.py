"""The cluster as a broker sees it: brokers, topics, partitions, configs. Immutable; a change makes a new image.

A new image shares everything with the old one but the path to what changed, so `old.topics[t] is new.topics[t]` means
that nothing about t is different, and subscribers need to look no further.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_LEADER = -1
EVERY_BROKER = ""  # in broker_configs: what holds for all brokers that say nothing themselves


class Broker(NamedTuple):
    id: int
    endpoints: Mapping[str, tuple[str, int]]  # by listener name
    rack: str | None
    epoch: int  # czxid of its registration: tells one life of a broker from the next


class Partition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    replicas: tuple[int, ...]  # the first is the preferred leader
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    version: int = 0  # of the state node: the "partition epoch" of the protocol


class Topic(NamedTuple):
    name: str
    id: bytes
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str]


class Image(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    names_by_id: Mapping[bytes, str]
    broker_configs: Mapping[str, Mapping[str, str]]  # by broker id as text, or EVERY_BROKER
    group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # of those groups that have any

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def partition(self, name: str, index: int) -> Partition:
        partitions = self.topic(name).partitions
        if not 0 <= index < len(partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic partition {name}-{index}")
        return partitions[index]

    def with_topics(self, *topics: Topic) -> Image:
        """The image with these topics added or replaced."""
        gone = [self.topics[topic.name].id for topic in topics if topic.name in self.topics]
        by_id = {**self.names_by_id}
        for topic_id in gone:
            del by_id[topic_id]
        by_id.update((topic.id, topic.name) for topic in topics)
        return self._replace(
            topics={**self.topics, **{topic.name: topic for topic in topics}},
            names_by_id=by_id,
        )

    def without_topics(self, *names: str) -> Image:
        topics, by_id = {**self.topics}, {**self.names_by_id}
        for name in names:
            del by_id[topics.pop(name).id]
        return self._replace(topics=topics, names_by_id=by_id)

    def with_broker(self, broker: Broker) -> Image:
        return self._replace(brokers={**self.brokers, broker.id: broker})

    def with_broker_config(self, broker: str, pairs: Mapping[str, str]) -> Image:
        return self._replace(broker_configs={**self.broker_configs, broker: pairs})

    def with_group_config(self, group: str, pairs: Mapping[str, str]) -> Image:
        others = {name: configs for name, configs in self.group_configs.items() if name != group}
        return self._replace(group_configs={**others, group: pairs} if pairs else others)


EMPTY = Image("", NO_LEADER, {}, {}, {}, {})
