"""Topic deletion: first every broker is informed, then each replica is stopped and deleted, then the nodes are deleted.

A replica whose broker is down is deleted when it is back, and only then the topic's name is free again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import ledger, replicas
from ottla.cluster.control.effects import UnwatchTopics, names_below
from ottla.cluster.control.states import PartitionState, ReplicaState
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.memory import Key, Replica


def read_requests(context: Context) -> Task[None]:
    """Read which topics are to be deleted, and start."""
    memory = context.memory
    names = yield from names_below(znodes.DELETED_TOPICS)
    if not context.settings.deletion:
        yield from ledger.remove(context, [f"{znodes.DELETED_TOPICS}/{name}" for name in names])
        return
    unknown = [name for name in names if name not in memory.topics]
    yield from ledger.remove(context, [f"{znodes.DELETED_TOPICS}/{name}" for name in unknown])
    fresh = [name for name in names if name in memory.topics and name not in memory.deleting]
    memory.doomed |= dict.fromkeys(fresh)
    yield from resume(context, fresh)


def resume(context: Context, topics: Iterable[str] | None = None) -> Task[None]:
    """Continue to delete these topics, or all, as far as possible now."""
    memory = context.memory
    for name in [*memory.deleting, *memory.doomed] if topics is None else sorted(topics):
        if name in memory.doomed and not moves(context, name):
            del memory.doomed[name]
            memory.deleting[name] = None
        if name not in memory.deleting:
            continue
        states = {replica: memory.replica_state(replica) for replica in memory.replicas_of(name)}
        left = [one for one, state in states.items() if state not in (ReplicaState.DELETED, ReplicaState.DELETING)]
        if left:
            # Also while others are being deleted: nothing else would trigger the deletion of a replica that came back.
            yield from begin(context, name, left)
        elif ReplicaState.DELETING not in states.values():
            yield from finish(context, name)
    yield from context.send()


def moves(context: Context, topic: str) -> bool:
    """Whether a partition of the topic is being reassigned: then the deletion waits."""
    known = context.memory.topics.get(topic)
    return known is not None and any(key in context.memory.moving for key in known.partitions())


def begin(context: Context, topic: str, left: Sequence[Replica]) -> Task[None]:
    memory = context.memory
    keys = list(memory.topics[topic].partitions())
    for key in keys:
        memory.set_partition_state(key, PartitionState.OFFLINE)
        memory.set_partition_state(key, PartitionState.ABSENT)
    context.batch.tell(keys)
    here = [one for one in left if memory.is_online(one[2], one[:2], stopping=True)]
    yield from replicas.take_offline(context, left)
    yield from context.send()
    replicas.start_deleting(context, here)
    yield from context.send()
    fail(context, [one for one in left if one not in here])


def fail(context: Context, lost: Iterable[Replica]) -> None:
    """These replicas cannot be deleted now."""
    memory = context.memory
    for replica in lost:
        memory.set_replica_state(replica, ReplicaState.OFFLINE)
        memory.set_replica_state(replica, ReplicaState.UNDELETABLE)


def handle_answer(context: Context, broker: int, deleted: Iterable[Key], errors: Mapping[Key, int]) -> Task[None]:
    """A broker has deleted replicas, or failed to."""
    memory = context.memory
    topics: dict[str, None] = {}
    for key in deleted:
        replica = (*key, broker)
        if key[0] not in memory.deleting or memory.replica_state(replica) is not ReplicaState.DELETING:
            continue
        code = errors.get(key, ErrorCode.NONE)
        if code == ErrorCode.NONE:
            memory.set_replica_state(replica, ReplicaState.DELETED)
            topics[key[0]] = None
        else:
            fail(context, [replica])
    done = [
        topic
        for topic in topics
        if all(memory.replica_state(one) is ReplicaState.DELETED for one in memory.replicas_of(topic))
    ]
    yield from resume(context, done)


def finish(context: Context, topic: str) -> Task[None]:
    """Every replica is deleted: delete the nodes. The request is deleted last, so that a successor can continue."""
    indexes = yield from names_below(znodes.partitions_path(topic))
    keys = [(topic, int(name)) for name in indexes if name.isdecimal()]
    yield from ledger.remove(context, [znodes.state_path(*key) for key in keys])
    yield from ledger.remove(context, [znodes.partition_path(*key) for key in keys])
    yield from ledger.remove(context, [znodes.partitions_path(topic)])
    yield from ledger.remove(context, [znodes.topic_config_path(topic)])
    yield from ledger.remove(context, [znodes.topic_path(topic)])
    yield from ledger.remove(context, [f"{znodes.DELETED_TOPICS}/{topic}"])
    yield UnwatchTopics([topic])
    context.memory.drop_topic(topic)
