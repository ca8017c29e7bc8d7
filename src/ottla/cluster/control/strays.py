"""Replicas removed by a reassignment while their broker was down: it is told to delete them when it is back.

Nothing waits for that, so the topic may be deleted and recreated meanwhile. A broker that still has a log of the former
topic rejects the new one with INCONSISTENT_TOPIC_ID. If that log is known to be a stray, the broker is told to delete
it, and then to create the new replica. Any other log is kept: the id may be wrong.

As in Apache Kafka, a new controller does not know the strays. Then brokers set such logs aside by themselves, but not
while they are in the in-sync set: see `replica/assigned.py` and `founding/member.py`. So a broker that has rejected a
replica gets LeaderAndIsr again when it is no longer in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cluster.control.messages import id_of
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.memory import Key, Replica

NEVER: Final = -1


def note(context: Context, replicas: Iterable[Replica]) -> None:
    """Brokers were told to delete these replicas. Until they confirm it, the replicas are strays."""
    memory = context.memory
    for topic, index, broker in replicas:
        memory.strays.setdefault(broker, {})[topic, index] = id_of(memory, topic)


def stop_again(context: Context, broker: int) -> None:
    """The broker is back: tell it again to delete its strays."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in list(known):
        if broker not in memory.replicas(key):
            context.batch.stop(broker, key, delete=True)
        elif known[key] == id_of(memory, key[0]):  # it was moved back
            del known[key]


def delete_found(context: Context, broker: int, inconsistent: Iterable[Key]) -> None:
    """The broker has logs of former topics of these names: delete those that are strays."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in inconsistent:
        if key in known and known[key] != id_of(memory, key[0]):
            context.batch.stop(broker, key, delete=True)
            known[key] = id_of(memory, key[0])  # only once: after that it may be a replica of the new topic


def note_answers(context: Context, broker: int, begun: Iterable[Key], inconsistent: Iterable[Key]) -> None:
    """The broker has accepted the replicas in `begun`, and rejected those in `inconsistent` because of an old log."""
    memory = context.memory
    refused, left_over = memory.refused.setdefault(broker, {}), memory.strays.get(broker, {})
    for key in begun:
        refused.pop(key, None)
    for key in inconsistent:
        if key not in left_over:  # else the stray is deleted first
            refused.setdefault(key, NEVER)
            tell_again(context, [key])


def tell_again(context: Context, keys: Iterable[Key]) -> None:
    """The states of these have changed: inform brokers that rejected one and are not in sync. They set the log aside.

    Only once for each state: a broker of Apache Kafka rejects it again.
    """
    memory = context.memory
    for key in keys:
        lead = memory.leads.get(key)
        for broker in memory.replicas(key) if lead is not None else ():
            refused = memory.refused.get(broker, {})
            if lead is not None and broker not in lead.isr and refused.get(key, lead.version) != lead.version:
                refused[key] = lead.version
                context.batch.lead([broker], key)


def handle_answer(context: Context, broker: int, deleted: Iterable[Key], errors: Mapping[Key, int]) -> None:
    """The broker has deleted strays. If it has new replicas of the same names, tell it to create them now."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in deleted:
        if key not in known or errors.get(key, ErrorCode.NONE) != ErrorCode.NONE:
            continue
        del known[key]
        if broker in memory.replicas(key) and key in memory.leads and not memory.is_to_go(key[0]):
            context.batch.lead([broker], key)
