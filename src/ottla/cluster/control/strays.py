"""Replicas that a move took away while their broker was gone: it is told to delete them when it is back.

Nobody waits for that, so the topic may be deleted and made again meanwhile, under the same name. A broker that still
has a log of the former topic refuses the new one with INCONSISTENT_TOPIC_ID. If what it has is known to be left over,
it is told to delete it, and then to begin the new one. Any other log stays where it is: the id may be what is wrong.

A successor does not know what was left over, as in Apache Kafka. Then brokers set such logs aside by themselves: see
`replica/assigned.py` and `founding/member.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.control.messages import id_of
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.memory import Key, Replica


def note(context: Context, replicas: Iterable[Replica]) -> None:
    """These were told to be deleted. Until their brokers say that they are, they are left over."""
    memory = context.memory
    for topic, index, broker in replicas:
        memory.strays.setdefault(broker, {})[topic, index] = id_of(memory, topic)


def stop_again(context: Context, broker: int) -> None:
    """The broker is back. What it is to hold now is left to what it says of it."""
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
