"""Decisions of a controller, as pure functions: from an image and a request to the new state, or BrokerError.

Nothing here waits, writes or reads a clock; `standalone.py` and `control/` carry the decisions out. Error codes and
messages are Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster import znodes
from ottla.cluster.alterations import check_broker_configs, check_topic_configs
from ottla.cluster.image import NO_LEADER, Image, Partition, Topic
from ottla.cluster.metadata_store import Create, Delete, Op, Set
from ottla.cluster.placement import assign
from ottla.cluster.topic_names import RESERVED, check_name, collides, collision_key
from ottla.config import BrokerConfig, ConfigError, topic_config
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

UNSET = -1
PARTITIONS_MAX = 10_000  # in one request, as in Kafka: a typo must not fill the disk with folders


class NewTopic(NamedTuple):
    """A topic to create; -1 means the broker's default. `assignments` maps partitions to brokers, instead of both."""

    name: str
    partitions: int = UNSET
    replicas: int = UNSET
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = {}


class FoundLog(NamedTuple):
    """A partition's folder, found on disk without metadata."""

    topic: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    topic_id: bytes | None
    epoch: int  # the last leader epoch in it, -1 for none
    producer_id: int = -1  # the highest in its producer state


def new_topic(image: Image, config: BrokerConfig, wish: NewTopic, topic_id: bytes, shift: int) -> Topic:
    """The new topic for a request."""
    check_new_name(image, wish.name)
    if wish.assignments:
        replicas = check_assignment(image, wish)
    else:
        if wish.partitions != UNSET and wish.partitions <= 0:
            reason = "Number of partitions was set to an invalid non-positive value."
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, reason)
        if wish.replicas != UNSET and wish.replicas <= 0:
            reason = "Replication factor must be larger than 0, or -1 to use the default value."
            raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        count = config.num_partitions if wish.partitions == UNSET else wish.partitions
        factor = config.default_replication_factor if wish.replicas == UNSET else wish.replicas
        check_count(count)
        replicas = assign(racks(image), count, factor, shift=shift, gap=shift)
    configs = check_new_configs(config, wish.configs)
    return Topic(wish.name, topic_id, tuple(fresh(index, brokers) for index, brokers in enumerate(replicas)), configs)


def check_new_name(image: Image, name: str) -> None:
    check_name(name)
    if name == RESERVED:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = image.colliding(name)
    if other is not None:
        reason = f"Topic '{name}' collides with existing topic: {other}"
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_against(others: Mapping[str, str], name: str) -> None:
    """Reject a name that collides with another one of the same request."""
    other = others.get(collision_key(name))
    if other == name:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if other is not None and collides(name):
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def check_assignment(image: Image, wish: NewTopic) -> list[tuple[int, ...]]:
    assert wish.assignments is not None
    for given, what in ((wish.replicas, "replication factor"), (wish.partitions, "numPartitions")):
        if given != UNSET:
            reason = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    check_count(len(wish.assignments))
    replicas: list[tuple[int, ...]] = []
    for brokers in wish.assignments.values():
        check_replicas(image, brokers, expected=len(replicas[0]) if replicas else None)
        replicas.append(tuple(brokers))
    if sorted(wish.assignments) != list(range(len(replicas))):
        reason = "partitions should be a consecutive 0-based integer sequence"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return [tuple(wish.assignments[index]) for index in range(len(replicas))]


def check_replicas(image: Image, brokers: Sequence[int], *, expected: int | None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT for brokers that cannot hold a partition together."""
    start = "The manual partition assignment includes"
    reason = "" if brokers else f"{start} an empty replica list."
    ordered = sorted(brokers)
    for position, broker in enumerate(ordered):
        if broker not in image.brokers:
            reason = f"{start} broker {broker}, but no such broker is registered."
        elif position and ordered[position - 1] == broker:
            reason = f"{start} the broker {broker} more than once."
        if reason:
            break
    if not reason and expected is not None and len(brokers) != expected:
        reason = (
            f"{start} a partition with {len(brokers)} replica(s), but this is not consistent with previous partitions, "
            f"which have {expected} replica(s)."
        )
    if reason:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def check_total(config: BrokerConfig, wishes: Iterable[NewTopic]) -> None:
    """Reject a request with too many partitions in total, as Kafka does."""
    total = 0
    for wish in wishes:
        wanted = config.num_partitions if wish.partitions == UNSET else max(0, wish.partitions)
        total += len(wish.assignments) if wish.assignments else wanted
    check_count(total)


def more_partitions(image: Image, name: str, count: int, assignments: Sequence[Sequence[int]] | None) -> Topic:
    """The topic with `count` partitions in total."""
    topic = image.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if count == present:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        reason = f"The topic {name} currently has {present} partition(s); {count} would not be an increase."
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, reason)
    check_count(count - present)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        # Start at the first replica's broker, or the next one if that is gone.
        first = topic.partitions[0].replicas[0]
        shift = next((at for at, broker in enumerate(sorted(image.brokers)) if broker >= first), 0)
        replicas = assign(racks(image), count - present, factor, shift=shift, gap=shift, first=present)
    else:
        replicas = [tuple(brokers) for brokers in assignments]
        if len(replicas) != count - present:
            reason = (
                f"Attempted to add {count - present} additional partition(s), but only {len(replicas)} assignment(s) "
                "were specified."
            )
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        for brokers in replicas:
            check_replicas(image, brokers, expected=factor)
    added = (fresh(present + position, brokers) for position, brokers in enumerate(replicas))
    return topic._replace(partitions=(*topic.partitions, *added))


class Legacy(NamedTuple):
    """What the folders of an Apache Kafka broker hold when Ottla takes them over."""

    logs: Sequence[FoundLog] = ()
    topics: Mapping[str, Mapping[str, str]] = {}  # topic configs
    brokers: Mapping[str, Mapping[str, str]] = {}  # dynamic broker configs, as in the image
    producer_id: int = -1  # the first that was never allocated

    def by_topic(self) -> dict[str, dict[int, FoundLog]]:
        found: dict[str, dict[int, FoundLog]] = {}
        for log in self.logs:
            found.setdefault(log.topic, {})[log.index] = log
        return found


def adopt_topics(
    config: BrokerConfig, legacy: Legacy, broker: int, new_ids: Iterable[bytes]
) -> tuple[list[Topic], list[str]]:
    """Topics for logs found without metadata: all partitions up to the highest found, with this broker as leader.

    Also the configs that are not supported here, to be logged.
    """
    found = legacy.by_topic()
    topics, dropped = [], []
    ids = iter(new_ids)
    for name, partitions in sorted(found.items()):
        known = next((log.topic_id for log in partitions.values() if log.topic_id is not None), None)
        states = []
        for index in range(max(partitions) + 1):
            # One above the last epoch in the log, as after an election.
            epoch = partitions[index].epoch + 1 if index in partitions else 0
            states.append(Partition(index, (broker,), (broker,), broker, epoch))
        configs = {**legacy.topics.get(name, INTERNAL_CONFIGS.get(name, {}))}
        for option, value in list(configs.items()):
            try:
                topic_config(config, {option: value})
            except ConfigError as error:
                dropped.append(f"topic {name}: {error}")
                del configs[option]
        topics.append(Topic(name, known or next(ids), tuple(states), configs))
    return topics, dropped


def adopt_broker_configs(config: BrokerConfig, legacy: Legacy) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The dynamic broker configs that can be kept, and why others cannot."""
    kept: dict[str, dict[str, str]] = {}
    dropped = []
    for broker, pairs in legacy.brokers.items():
        for option, value in pairs.items():
            try:
                check_broker_configs(config, broker, {}, {option: value})
                kept.setdefault(broker, {})[option] = value
            except BrokerError as error:
                dropped.append(f"broker {broker or '(all)'}: {error.message}")
    return kept, dropped


PRODUCER_IDS_JUMP = 1_000_000  # ids skipped after a rebuild from the journal, which may lack its last lines


def next_producer_id(legacy: Legacy) -> int:
    """The first producer id that is not in these logs, so that a new producer is not mistaken for an old one."""
    return max(legacy.producer_id, *(log.producer_id + 1 for log in legacy.logs), 0)


# Kafka's configs of its internal topics. Without them an adopted offsets topic would be deleted by age, not compacted.
INTERNAL_CONFIGS: Mapping[str, Mapping[str, str]] = {
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}


def elect(topic: Topic, broker: int, *, anew: bool = True, above: Mapping[int, int] = {}) -> Topic:
    """The topic after a restart of this broker, the only one: it becomes leader of its partitions, in a new epoch.

    Unless `anew`, a partition that it was leading until a clean stop keeps its epoch. `above` has the last epochs in
    the logs: a log that Apache Kafka wrote to may be ahead of its state.
    """
    partitions = []
    for state in topic.partitions:
        seen = above.get(state.index, NO_LEADER)
        settled = not anew and state.leader == broker and state.isr == (broker,) and seen <= state.leader_epoch
        if broker in state.replicas and not settled:
            epoch = max(state.leader_epoch, seen) + 1
            partitions.append(state._replace(leader=broker, isr=(broker,), leader_epoch=epoch))
        else:
            partitions.append(state)
    if all(after is before for after, before in zip(partitions, topic.partitions, strict=True)):
        return topic
    return topic._replace(partitions=tuple(partitions))


def reconcile(topic: Topic, logs: Mapping[int, FoundLog], broker: int) -> Topic:
    """A topic from the journal, corrected by the logs on disk: where they differ, the journal is outdated."""
    ids = {log.topic_id for log in logs.values() if log.topic_id is not None}
    if ids and topic.id not in ids:
        topic = topic._replace(id=min(ids), configs=INTERNAL_CONFIGS.get(topic.name, {}))
    missing = range(len(topic.partitions), max(logs, default=-1) + 1)
    added = (Partition(index, (broker,), (), NO_LEADER, NO_LEADER, NO_LEADER) for index in missing)
    return topic._replace(partitions=(*topic.partitions, *added)) if missing else topic


def fresh(index: int, replicas: tuple[int, ...]) -> Partition:
    return Partition(index, replicas, replicas, replicas[0], 0)


def racks(image: Image) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in image.brokers.values()}


def check_new_configs(config: BrokerConfig, pairs: Mapping[str, str | None]) -> dict[str, str]:
    """The configs of a new topic, or INVALID_CONFIG."""
    empty = [name for name, value in pairs.items() if value is None]
    if empty:
        reason = f"Null value not supported for topic configs: {','.join(empty)}"
        raise BrokerError(ErrorCode.INVALID_CONFIG, reason)
    configs = {name: value for name, value in pairs.items() if value is not None}
    check_topic_configs(config, configs)
    return configs


def creation(topic: Topic, controller_epoch: int) -> list[Op]:
    """The writes that create a topic."""
    ops: list[Op] = [Create(znodes.topic_path(topic.name), znodes.encode_topic(topic))]
    ops.append(Create(znodes.partitions_path(topic.name)))
    ops.extend(_partition_creations(topic, topic.partitions, controller_epoch))
    ops.append(Create(znodes.topic_config_path(topic.name), znodes.encode_configs(topic.configs)))
    return ops


def growth(topic: Topic, present: int, controller_epoch: int) -> list[Op]:
    """The writes that add the partitions from `present` on."""
    ops: list[Op] = [Set(znodes.topic_path(topic.name), znodes.encode_topic(topic))]
    return [*ops, *_partition_creations(topic, topic.partitions[present:], controller_epoch)]


def deletion(topic: Topic) -> list[Op]:
    """The writes that delete a topic, leaves first."""
    ops: list[Op] = []
    for partition in topic.partitions:
        ops.append(Delete(znodes.state_path(topic.name, partition.index)))
        ops.append(Delete(znodes.partition_path(topic.name, partition.index)))
    ops.append(Delete(znodes.partitions_path(topic.name)))
    ops.append(Delete(znodes.topic_path(topic.name)))
    ops.append(Delete(znodes.topic_config_path(topic.name)))
    return ops


def election(before: Topic, topic: Topic, controller_epoch: int) -> list[Op]:
    """The writes of an election. Old tools create topics without state nodes, which are created here."""
    ops: list[Op] = []
    if topic.id != before.id or len(topic.partitions) != len(before.partitions):
        ops.append(Set(znodes.topic_path(topic.name), znodes.encode_topic(topic)))
    if topic.configs != before.configs:
        ops.append(Set(znodes.topic_config_path(topic.name), znodes.encode_configs(topic.configs)))
    if topic.partitions and all(partition.version == NO_LEADER for partition in topic.partitions):
        ops.append(Create(znodes.partitions_path(topic.name)))
    for at, partition in enumerate(topic.partitions):
        if at < len(before.partitions) and partition is before.partitions[at]:
            continue
        if partition.version == NO_LEADER:
            ops.extend(_partition_creations(topic, [partition], controller_epoch))
        else:
            path = znodes.state_path(topic.name, partition.index)
            ops.append(Set(path, znodes.encode_state(partition, controller_epoch), partition.version))
    return ops


def raise_versions(before: Topic, topic: Topic) -> Topic:
    """The topic with the versions of its state nodes after these writes."""
    known = before.partitions
    return topic._replace(
        partitions=tuple(
            state if at < len(known) and known[at] is state else state._replace(version=state.version + 1)
            for at, state in enumerate(topic.partitions)
        )
    )


def _partition_creations(topic: Topic, partitions: Sequence[Partition], controller_epoch: int) -> Iterable[Op]:
    for partition in partitions:
        yield Create(znodes.partition_path(topic.name, partition.index))
        yield Create(znodes.state_path(topic.name, partition.index), znodes.encode_state(partition, controller_epoch))
