"""The cluster as a broker sees it: brokers, topics, partitions, configs. Immutable; a change makes a new image.

A new image shares all unchanged parts with the old one, so `old.topics[t] is new.topics[t]` means that nothing about t
has changed. The cost of a new image, and of the difference between two (`Image.topics_changed_since`), depends on the
size of the change, not on the number of topics. The old image stays readable, but keep only the newest.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.topic_names import collides, collision_key
from ottla.cluster.versioned import Versioned
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    Entities: TypeAlias = Mapping[str, Mapping[str, str]]

NO_LEADER = -1
EVERY_BROKER = ""  # in broker_configs: the cluster-wide defaults


class Broker(NamedTuple):
    id: int
    endpoints: Mapping[str, tuple[str, int]]  # by listener name
    rack: str | None
    epoch: int  # czxid of its registration: a new one after each restart or lost session
    protocols: Mapping[str, str] = MappingProxyType({})  # security protocol by listener name, where not PLAINTEXT


class Partition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    replicas: tuple[int, ...]  # the first is the preferred leader
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    version: int = 0  # of the state node: the "partition epoch" of the protocol
    adding: tuple[int, ...] = ()  # of `replicas`: added by a reassignment
    removing: tuple[int, ...] = ()  # of `replicas`: removed by it when the others have caught up


class Topic(NamedTuple):
    name: str
    id: bytes
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str]


class Image(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    topics: Versioned[str, Topic]
    names_by_id: Versioned[bytes, str]
    broker_configs: Mapping[str, Mapping[str, str]]  # by broker id as text, or EVERY_BROKER
    group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # only groups that have any
    names_by_key: Versioned[str, tuple[str, ...]] = Versioned()  # of names with dots or underscores
    client_metrics: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # subscriptions to clients' metrics
    users: Versioned[str, Mapping[str, str]] = Versioned()  # by user: SCRAM credentials and quotas
    quotas: Versioned[str, Mapping[str, str]] = Versioned()  # of all other entities, by path below /config

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

    def colliding(self, name: str) -> str | None:
        """An existing topic whose metrics names collide with those of a topic of this name."""
        return self.names_by_key.get(collision_key(name), (None,))[0] if collides(name) else None

    def topics_changed_since(self, old: Image | None) -> set[str]:
        """The names of topics that were added, removed or changed."""
        return set(self.topics) if old is None else self.topics.keys_changed_since(old.topics)

    def with_topics(self, *topics: Topic) -> Image:
        """The image with these topics added or replaced."""
        return self._change_topics({topic.name: topic for topic in topics}, ())

    def without_topics(self, *names: str) -> Image:
        return self._change_topics({}, names)

    def _change_topics(self, put: Mapping[str, Topic], gone: Iterable[str]) -> Image:
        former = [self.topics[name] for name in gone] + [old for name in put if (old := self.topics.get(name))]
        stale = [topic.id for topic in former if self.names_by_id.get(topic.id) == topic.name]
        keys: dict[str, set[str]] = {}
        for name in (*gone, *put):
            if collides(name):
                key = collision_key(name)
                names = keys.setdefault(key, set(self.names_by_key.get(key, ())))
                names.discard(name)
                names.update((name,) if name in put else ())
        return self._replace(
            topics=self.topics.change(put, gone),
            names_by_id=self.names_by_id.change({topic.id: name for name, topic in put.items()}, stale),
            names_by_key=self.names_by_key.change(
                {key: tuple(sorted(names)) for key, names in keys.items() if names},
                [key for key, names in keys.items() if not names and key in self.names_by_key],
            ),
        )

    def with_broker(self, broker: Broker) -> Image:
        return self._replace(brokers={**self.brokers, broker.id: broker})

    def with_broker_config(self, broker: str, pairs: Mapping[str, str]) -> Image:
        return self._replace(broker_configs={**self.broker_configs, broker: pairs})

    def with_group_config(self, group: str, pairs: Mapping[str, str]) -> Image:
        others = {name: configs for name, configs in self.group_configs.items() if name != group}
        return self._replace(group_configs={**others, group: pairs} if pairs else others)

    def with_client_metrics(self, name: str, pairs: Mapping[str, str]) -> Image:
        others = {other: configs for other, configs in self.client_metrics.items() if other != name}
        return self._replace(client_metrics={**others, name: pairs} if pairs else others)

    def with_user(self, name: str, pairs: Mapping[str, str]) -> Image:
        return self.with_entities({name: pairs}, {})

    def with_quotas(self, node: str, pairs: Mapping[str, str]) -> Image:
        """Quotas of any entity but a named user: those are in `users`."""
        return self.with_entities({}, {node: pairs})

    def with_entities(self, users: Entities, quotas: Entities) -> Image:
        """The image with these users and other quota entities replaced. Entities with no values are removed."""
        users = {name: pairs for name, pairs in users.items() if self.users.get(name, {}) != pairs}
        quotas = {node: pairs for node, pairs in quotas.items() if self.quotas.get(node, {}) != pairs}
        return self._replace(
            users=change_entities(self.users, users) if users else self.users,
            quotas=change_entities(self.quotas, quotas) if quotas else self.quotas,
        )

    def entities_changed_since(self, old: Image | None) -> tuple[Entities, Entities]:
        """The current values of users and other quota entities that were added, removed or changed."""
        if old is None:
            return self.users, self.quotas
        users = self.users.keys_changed_since(old.users)
        quotas = self.quotas.keys_changed_since(old.quotas)
        return {one: self.users.get(one, {}) for one in users}, {one: self.quotas.get(one, {}) for one in quotas}


def change_entities(kept: Versioned[str, Mapping[str, str]], changes: Entities) -> Versioned[str, Mapping[str, str]]:
    """Each of `changes` must differ from the current value."""
    gone = [name for name, pairs in changes.items() if not pairs]
    return kept.change({name: pairs for name, pairs in changes.items() if pairs}, gone)


EMPTY = Image("", NO_LEADER, {}, Versioned(), Versioned(), {})
