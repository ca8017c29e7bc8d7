"""Partition reassignment, in steps that a successor can continue:

    write the old and new replicas to the topic's node; inform all of them, in a new leader epoch
    the new replicas catch up, and the leader adds them to the in-sync replicas
    then one of the new replicas becomes leader, the old ones leave the in-sync replicas and are deleted
    mark the reassignment as done in the topic's node, and in /admin/reassign_partitions if an old tool requested it

Cancelling a reassignment means a reassignment back to the original replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import deletions, elections, ledger, nodes, partitions, replicas, strays
from ottla.cluster.control.effects import read_one
from ottla.cluster.control.memory import Assignment
from ottla.cluster.control.states import ReplicaState
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.elections import Choice
    from ottla.cluster.control.memory import Key, Lead, Replica


def move_from_znode(context: Context) -> Task[None]:
    """Start the reassignments that an old tool has written. Invalid ones are removed from its list."""
    node = yield from read_one(znodes.REASSIGNMENT)
    if node is None:
        return
    wishes = nodes.moves_of(node.data)
    fresh = {key: replicas for key, replicas in wishes.items() if key not in context.memory.asked_by_znode}
    context.memory.asked_by_znode |= dict.fromkeys(fresh)
    yield from move(context, fresh)
    yield from strike(context, [key for key in wishes if key not in context.memory.moving])
    if not wishes:
        yield from ledger.remove(context, [znodes.REASSIGNMENT])


def move(
    context: Context, wishes: Mapping[Key, Sequence[int] | None], *, resize: bool = True
) -> Task[dict[Key, BrokerError | None]]:
    """Start reassignments; None cancels an unfinished one."""
    results: dict[Key, BrokerError | None] = {}
    wanted: dict[Key, Assignment] = {}
    for key, target in wishes.items():
        try:
            wanted[key] = plan(context, key, target, resize=resize)
            results[key] = None
        except BrokerError as error:
            results[key] = error
    for topic, indexes in group_by_topic(wanted).items():
        yield from begin(context, topic, {index: wanted[topic, index] for index in indexes})
    yield from context.send()
    yield from proceed(context, wanted)
    return results


def plan(context: Context, key: Key, target: Sequence[int] | None, *, resize: bool) -> Assignment:
    """The assignment during the reassignment. Error codes are Kafka's."""
    memory = context.memory
    before = memory.assignment(key)
    if before is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if memory.is_to_go(key[0]):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic is being deleted.")
    if target is None:
        if not before.moving:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return check_in_sync(context, key, before.towards(before.origin))
    if not target:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."
        )
    if len(set(target)) != len(target):
        reason = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if any(broker < 0 for broker in target):
        reason = f"Invalid broker id in replica list: {list(target)}"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if not resize and len(target) != len(before.origin):
        reason = f"The replication factor is changed from {len(before.origin)} to {len(target)}"
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    after = before.towards(target)
    dead = [broker for broker in after.adding if broker not in memory.brokers]
    if dead:
        reason = (
            f"Replica assignment has brokers that are not alive. Replica list: {list(target)}, "
            f"live broker list: {sorted(memory.brokers)}"
        )
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return check_in_sync(context, key, after)


def check_in_sync(context: Context, key: Key, after: Assignment) -> Assignment:
    """Reject a change that would delete all in-sync replicas: the last one may be from an earlier, unfinished move."""
    lead = context.memory.leads.get(key)
    if lead is not None and not any(broker in after.replicas for broker in lead.isr):
        reason = f"none of the replicas {list(after.replicas)} is in sync, but {list(lead.isr)}"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return after


def begin(context: Context, topic: str, assignments: Mapping[int, Assignment]) -> Task[None]:
    """Write the assignments, and stop replicas that only an earlier, unfinished move needed."""
    memory = context.memory
    before = {index: memory.topics[topic].assignments[index] for index in assignments}
    different = {index: after for index, after in assignments.items() if after != before[index]}
    if different and not (yield from ledger.write_topic(context, topic, different)):
        return
    unwanted: list[Replica] = []
    for index, after in assignments.items():
        memory.moving[topic, index] = None
        unwanted += [(topic, index, one) for one in before[index].replicas if one not in after.replicas]

    def choose(key: Key, lead: Lead) -> Choice:
        return elections.choose_among(memory.replicas(key), lead.isr, memory.online(key))

    led = [one[:2] for one in unwanted if one[:2] in memory.leads and memory.leads[one[:2]].leader == one[2]]
    yield from partitions.elect(context, led, choose)
    yield from withdraw(context, unwanted)
    waiting = [(topic, index) for index in assignments if not is_complete(context, (topic, index))]
    yield from partitions.raise_epochs(context, waiting)
    for key in waiting:
        replicas.start_new(context, [(*key, broker) for broker in assignments[key[1]].adding])
        for broker in assignments[key[1]].adding:
            context.batch.lead([broker], key, new=True)


def is_complete(context: Context, key: Key) -> bool:
    """Whether all target replicas are in sync."""
    assignment, lead = context.memory.assignment(key), context.memory.leads.get(key)
    if assignment is None or not assignment.moving:
        return True
    return lead is not None and all(broker in lead.isr for broker in assignment.target)


def proceed(context: Context, keys: Iterable[Key]) -> Task[None]:
    """Finish the reassignments that are ready. Called again whenever something about a partition changes."""
    memory = context.memory
    before = {key: memory.assignment(key) for key in keys if key in memory.moving}
    ready = {key: one for key, one in before.items() if one is not None and is_complete(context, key)}
    if not ready:
        return
    # From here on brokers learn only of the new replicas, in a new epoch. The topic's node is written last: until then
    # a successor removes the old replicas again.
    for key, assignment in ready.items():
        for broker in assignment.adding:
            memory.set_replica_state((*key, broker), ReplicaState.ONLINE)
        memory.assign(key, Assignment(assignment.target))

    def choose(key: Key, lead: Lead) -> Choice:
        if lead.leader in memory.replicas(key) and memory.is_online(lead.leader, key):
            return lead.leader, lead.isr
        return elections.choose_among(memory.replicas(key), lead.isr, memory.online(key))

    for key in (yield from partitions.elect(context, ready, choose)):
        memory.assign(key, ready.pop(key))  # no target replica can be leader now: tried again when one is back
    yield from withdraw(context, [(*key, broker) for key, one in ready.items() for broker in one.removing])
    for topic, indexes in group_by_topic(ready).items():
        finished = {index: Assignment(ready[topic, index].target) for index in indexes}
        if any(ready[topic, index].moving for index in indexes):
            yield from ledger.write_topic(context, topic, finished)
        for index in indexes:
            memory.moving.pop((topic, index), None)
    yield from context.send()
    yield from strike(context, ready)
    yield from deletions.resume(context, dict.fromkeys(topic for topic, _ in ready if topic in memory.doomed))


def group_by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(index)
    return by_topic


def withdraw(context: Context, gone: Sequence[Replica]) -> Task[None]:
    """Remove replicas: from the in-sync set first, then stop and delete them."""
    if not gone:
        return
    memory = context.memory
    yield from replicas.take_offline(context, gone)
    # A replica still in the in-sync set is the last one there, and is not deleted.
    spare = [one for one in gone if one[:2] not in memory.leads or one[2] not in memory.leads[one[:2]].isr]
    replicas.start_deleting(context, spare)
    yield from context.send()
    strays.note(context, spare)
    replicas.forget(context, spare)


def strike(context: Context, keys: Iterable[Key]) -> Task[None]:
    """Remove partitions from the old tool's list, if there is one; the node is deleted with the last of them."""
    memory = context.memory
    struck = dict.fromkeys(key for key in keys if key in memory.asked_by_znode)
    if not struck:
        return
    for key in struck:
        del memory.asked_by_znode[key]
    node = yield from read_one(znodes.REASSIGNMENT)
    if node is None:
        return
    before = nodes.moves_of(node.data)
    left = {key: brokers for key, brokers in before.items() if key not in struck}
    if not left:
        yield from ledger.remove(context, [znodes.REASSIGNMENT])
    elif left != before:
        yield from ledger.put(context, znodes.REASSIGNMENT, znodes.encode_reassignment(left))
