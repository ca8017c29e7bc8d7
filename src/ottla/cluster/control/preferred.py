"""Requested leader elections: the preferred (first) replica if it is in sync, or, unclean, any replica that is left.

Requested by ElectLeaders, by a list that an old tool writes, or by the controller itself when too many partitions of a
broker have another leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import elections, ledger, nodes, partitions
from ottla.cluster.control.effects import read_one
from ottla.cluster.control.events import PREFERRED, UNCLEAN
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.elections import Choice
    from ottla.cluster.control.memory import Key, Lead


def elect(context: Context, keys: Sequence[Key] | None, kind: int) -> Task[dict[Key, BrokerError | None]]:
    """The error of each partition. For all partitions (None), only of those that needed an election."""
    if kind not in (PREFERRED, UNCLEAN):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    results: dict[Key, BrokerError | None] = {}
    wanted: list[Key] = []
    for key in context.memory.partitions() if keys is None else dict.fromkeys(keys):
        error = refusal(context, key, kind)
        if error is None:
            wanted.append(key)
        if error is None or keys is not None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
            results[key] = error
    if kind == UNCLEAN:
        left = yield from partitions.bring_online(context, wanted, unclean=True)
        code, reason = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is online"
    else:
        left = yield from partitions.elect(context, wanted, lambda key, lead: first(context, key, lead))
        code, reason = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is down or not in sync"
    results |= {
        key: BrokerError(code, f"Failed to elect leader for partition {key[0]}-{key[1]}: {reason}") for key in left
    }
    yield from context.send()
    return results


def refusal(context: Context, key: Key, kind: int) -> BrokerError | None:
    memory = context.memory
    assignment, lead = memory.assignment(key), memory.leads.get(key)
    if assignment is None:
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if memory.is_to_go(key[0]):
        return BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
    leader = None if lead is None else lead.leader
    led = leader is not None and memory.is_online(leader, key, stopping=True)
    if (kind == UNCLEAN and led) or (kind == PREFERRED and leader == assignment.replicas[0]):
        return BrokerError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    return None


def first(context: Context, key: Key, lead: Lead) -> Choice:
    return elections.choose_preferred(context.memory.replicas(key), lead.isr, context.memory.online(key))


def elect_from_znode(context: Context) -> Task[None]:
    node = yield from read_one(znodes.PREFERRED_ELECTION)
    if node is None:
        return
    yield from elect(context, nodes.preferred_of(node.data), PREFERRED)
    yield from ledger.remove(context, [znodes.PREFERRED_ELECTION])


def balance(context: Context) -> Task[None]:
    """Elect preferred leaders for brokers that lead too few of their preferred partitions."""
    yield from elect(context, list(list_imbalanced(context)), PREFERRED)


def list_imbalanced(context: Context) -> Iterable[Key]:
    memory = context.memory
    by_broker: dict[int, list[Key]] = {}
    for key in memory.partitions():
        if key[0] not in memory.deleting and key in memory.leads:
            by_broker.setdefault(memory.replicas(key)[0], []).append(key)
    for broker, keys in by_broker.items():
        away = [key for key in keys if memory.leads[key].leader != broker]
        if len(away) * 100 > context.settings.imbalance * len(keys):
            for key in away:
                if key not in memory.moving and first(context, key, memory.leads[key]) is not None:
                    yield key


def retry_leaderless(context: Context, topic: str | None) -> Task[None]:
    """A config has changed: try partitions without a leader again."""
    waiting = [key for key in context.memory.leaderless if topic is None or key[0] == topic]
    yield from partitions.bring_online(context, waiting)
    yield from context.send()
