"""Transitions of replicas. Leader changes are written first, then collected in the batch to be sent to the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.control import ledger
from ottla.cluster.control.states import PartitionState, ReplicaState
from ottla.cluster.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.memory import Key, Lead, Replica


def start_new(context: Context, replicas: Iterable[Replica]) -> None:
    """Tell brokers to create replicas that they do not have yet."""
    memory = context.memory
    for topic, index, broker in replicas:
        key = (topic, index)
        if memory.set_replica_state((topic, index, broker), ReplicaState.NEW) and key in memory.leads:
            context.batch.lead([broker], key, new=True)


def bring_online(context: Context, replicas: Iterable[Replica]) -> None:
    """Send brokers the state of their replicas. Those of a topic being deleted do not change."""
    memory = context.memory
    for topic, index, broker in replicas:
        replica, key = (topic, index, broker), (topic, index)
        before = memory.replica_state(replica)
        if topic in memory.deleting or not memory.set_replica_state(replica, ReplicaState.ONLINE):
            continue
        if before is not ReplicaState.NEW and key in memory.leads:
            context.batch.lead([broker], key)


def take_offline(context: Context, replicas: Iterable[Replica]) -> Task[None]:
    """Take replicas offline that are gone or must stop: remove them from the in-sync replicas and from leadership.

    When all in-sync replicas go offline at once, the in-sync set is kept: each of them has all committed records, so
    the first one back may become leader.
    """
    memory = context.memory
    going: dict[Key, list[int]] = {}
    for topic, index, broker in memory.legal(replicas, ReplicaState.OFFLINE):
        memory.set_replica_state((topic, index, broker), ReplicaState.OFFLINE)
        context.batch.stop(broker, (topic, index), delete=False)
        going.setdefault((topic, index), []).append(broker)
    context.batch.tell(key for key in going if key[0] not in memory.deleting)

    def without(key: Key, lead: Lead) -> Lead | None:
        gone = going[key]
        isr = tuple(broker for broker in lead.isr if broker not in gone) or lead.isr
        leader = NO_LEADER if lead.leader in gone else lead.leader
        return None if (isr, leader) == (lead.isr, lead.leader) else lead.next(leader, isr)

    done = yield from ledger.update(context, [key for key in going if key[0] not in memory.deleting], without)
    for key, lead in done.items():
        if lead.leader == NO_LEADER:
            memory.set_partition_state(key, PartitionState.OFFLINE)
        others = [broker for broker in memory.online(key, stopping=True) if broker not in going[key]]
        context.batch.lead(others, key)


def start_deleting(context: Context, replicas: Iterable[Replica]) -> None:
    for topic, index, broker in replicas:
        if context.memory.set_replica_state((topic, index, broker), ReplicaState.DELETING):
            context.batch.stop(broker, (topic, index), delete=True)


def forget(context: Context, replicas: Iterable[Replica]) -> None:
    """Forget replicas that a reassignment has removed: their brokers delete them, and nothing waits for that."""
    for replica in replicas:
        context.memory.set_replica_state(replica, ReplicaState.DELETED)
        context.memory.set_replica_state(replica, ReplicaState.ABSENT)
