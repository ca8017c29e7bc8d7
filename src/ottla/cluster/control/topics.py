"""New topics and new partitions. Any broker may write the node of a new topic; the controller elects the leaders.

Tools older than topic ids write nodes without one, and drop an existing id when they add partitions. The controller
assigns an id, or restores the one that it knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import deletions, ledger, nodes, partitions, replicas
from ottla.cluster.control.effects import UnwatchTopics, WatchTopics, names_below, read
from ottla.cluster.control.memory import Assignment, KnownTopic
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.memory import Key


def refresh(context: Context) -> Task[None]:
    """Read which topics exist, and load new ones."""
    memory = context.memory
    names = yield from names_below(znodes.TOPICS)
    present = set(names)
    gone = [name for name in memory.topics if name not in present]  # somebody has deleted the node by hand
    if gone:
        yield UnwatchTopics(gone)
        for name in gone:
            memory.drop_topic(name)
    fresh = [name for name in names if name not in memory.topics]
    yield from load(context, fresh)
    yield from open_partitions(
        context, [key for name in fresh if name in memory.topics for key in memory.topics[name].partitions()]
    )
    if fresh:
        yield from deletions.read_requests(context)


def load(context: Context, names: Sequence[str]) -> Task[None]:
    """Read topics into memory. They are watched first, so that no change in between is missed."""
    if not names:
        return
    yield WatchTopics(names)
    found = yield from read([znodes.topic_path(name) for name in names])
    nameless = []
    for name, node in zip(names, found, strict=True):
        read_as = None if node is None else nodes.topic_of(node)
        if node is None or read_as is None:
            continue  # malformed, or not a topic: the watch fires when it is corrected
        topic_id, assignments = read_as
        context.memory.put_topic(
            KnownTopic(name, topic_id or context.new_id(), node.stat.version, assignments),
        )
        if topic_id is None or topic_id == ZERO_UUID:
            nameless.append(name)
    for name in nameless:
        yield from ledger.write_topic(context, name, {})


def open_partitions(context: Context, keys: Sequence[Key]) -> Task[None]:
    """Bring partitions online that are new to this controller."""
    memory = context.memory
    if not keys:
        return
    everyone = [(*key, broker) for key in keys for broker in memory.replicas(key)]
    replicas.start_new(context, everyone)
    yield from partitions.open_new(context, keys)
    online = [one for one in everyone if memory.is_online(one[2], one[:2], stopping=True)]
    replicas.bring_online(context, online)
    here = set(online)
    yield from replicas.take_offline(context, [one for one in everyone if one not in here])
    yield from context.send()


def grow(context: Context, name: str, first: int, added: Sequence[tuple[int, ...]]) -> Task[None]:
    """Add partitions to a topic that must still have `first` of them."""
    topic = context.memory.topics.get(name)
    if topic is None or context.memory.is_to_go(name):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if any(one.moving for one in topic.assignments.values()):
        reason = f"A partition reassignment is in progress for the topic '{name}'."
        raise BrokerError(ErrorCode.REASSIGNMENT_IN_PROGRESS, reason)
    if len(topic.assignments) != first:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic currently has {len(topic.assignments)} partitions.")
    assignments = {first + position: Assignment(replicas) for position, replicas in enumerate(added)}
    if not (yield from ledger.write_topic(context, name, assignments)):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    yield from open_partitions(context, [(name, index) for index in assignments])


def handle_writes(context: Context, names: Sequence[str]) -> Task[None]:
    """The nodes of topics were written: by ourselves, or by somebody who adds partitions."""
    found = yield from read([znodes.topic_path(name) for name in names])
    unknown = False
    for name, node in zip(names, found, strict=True):
        read_as = None if node is None else nodes.topic_of(node)
        if node is None or read_as is None:
            continue
        topic = context.memory.topics.get(name)
        if topic is None or read_as[0] not in (None, topic.id):
            # It was malformed until now, or it was deleted and recreated unnoticed.
            context.memory.drop_topic(name)
            unknown = True
        elif (node.stat.version, read_as[0]) != (topic.version, topic.id):  # not by ourselves
            topic.version = node.stat.version
            yield from handle_rewrite(context, topic, *read_as)
    if unknown:
        yield from refresh(context)


def handle_rewrite(
    context: Context, topic: KnownTopic, topic_id: bytes | None, assignments: Mapping[int, Assignment]
) -> Task[None]:
    """Somebody has written the node of a known topic: only added partitions are accepted."""
    name, memory = topic.name, context.memory
    added = {index: one for index, one in assignments.items() if index not in topic.assignments}
    if memory.is_to_go(name):
        if added:  # a topic being deleted does not grow
            yield from ledger.write_topic(context, name, {})
        return
    lost = topic_id is None or any(assignments.get(index) != one for index, one in topic.assignments.items())
    for index, assignment in added.items():
        memory.assign((name, index), assignment)
    if lost:  # restore the id and the assignments of the existing partitions
        yield from ledger.write_topic(context, name, {})
    yield from open_partitions(context, [(name, index) for index in added])
