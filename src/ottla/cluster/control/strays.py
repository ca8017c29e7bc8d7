"""Replicas that a move took away while their broker was gone: it is told to delete them when it is back.

Nobody waits for that, so the topic may be deleted and made again meanwhile, under the same name. A broker that still
has a log of the former topic refuses the new one with INCONSISTENT_TOPIC_ID. If what it has is known to be left over,
it is told to delete it, and then to begin the new one. Any other log stays where it is: the id may be what is wrong.

A successor does not know what was left over, as in Apache Kafka. Then brokers set such logs aside by themselves, but
not while they count as in sync: see `replica/assigned.py` and `founding/member.py`. So one that has refused a replica
is told of it again when it is not in sync any more.
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
    """Their brokers were told to delete these. Until they answer, the replicas are left over."""
    memory = context.memory
    for topic, index, broker in replicas:
        memory.strays.setdefault(broker, {})[topic, index] = id_of(memory, topic)


def stop_again(context: Context, broker: int) -> None:
    """The broker is back: tell it again to delete what is left over."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in list(known):
        if broker not in memory.replicas(key):
            context.batch.stop(broker, key, delete=True)
        elif known[key] == id_of(memory, key[0]):  # it was moved back
            del known[key]


def delete_found(context: Context, broker: int, inconsistent: Iterable[Key]) -> None:
    """The broker has logs of other topics of these names: those that are left over go."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in inconsistent:
        if key in known and known[key] != id_of(memory, key[0]):
            context.batch.stop(broker, key, delete=True)
            known[key] = id_of(memory, key[0])  # once: what is there after that may be a replica of the new topic


def note_answers(context: Context, broker: int, begun: Iterable[Key], inconsistent: Iterable[Key]) -> None:
    """The broker has begun these replicas, and refused those because of the log that it has."""
    memory = context.memory
    refused, left_over = memory.refused.setdefault(broker, {}), memory.strays.get(broker, {})
    for key in begun:
        refused.pop(key, None)
    for key in inconsistent:
        if key not in left_over:  # else it is deleted first
            refused.setdefault(key, NEVER)
            tell_again(context, [key])


def tell_again(context: Context, keys: Iterable[Key]) -> None:
    """The states of these have changed: who has refused one, and is not in sync, sets its log aside when it is told.

    Once for each state: Apache Kafka refuses it again.
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
    """The broker has deleted replicas. Where it is to hold others of the same names, it may begin now."""
    memory = context.memory
    known = memory.strays.get(broker, {})
    for key in deleted:
        if key not in known or errors.get(key, ErrorCode.NONE) != ErrorCode.NONE:
            continue
        del known[key]
        if broker in memory.replicas(key) and key in memory.leads and not memory.is_to_go(key[0]):
            context.batch.lead([broker], key)
