"""Changes of the in-sync replicas: leaders propose them with AlterPartition, and older leaders write them themselves.

A proposal is accepted only from the leader of the newest epoch, for the newest state, and only with live replicas: a
broker that restarted since it was last in sync has another broker epoch, and has to catch up first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import ledger, nodes, reassignments, strays
from ottla.cluster.control.effects import names_below, read
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.peers import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

if TYPE_CHECKING:
    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.memory import Key, Lead
    from ottla.wire.messages.peers import AlterPartitionRequest, AlterPartitionRequestPartitionData

BY_ID_SINCE = 2
EPOCHS_SINCE = 3
RECOVERED, RECOVERING = 0, 1
UNKNOWN_EPOCH = -1


def alter(context: Context, request: AlterPartitionRequest, version: int) -> Task[AlterPartitionResponse]:
    memory = context.memory
    broker = memory.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
    wanted: dict[Key, Lead] = {}
    errors: dict[Key, ErrorCode] = {}
    names: list[tuple[str | None, bytes]] = []
    for topic in request.topics:
        name = memory.names_by_id.get(topic.topic_id) if version >= BY_ID_SINCE else topic.topic_name
        names.append((name, topic.topic_id))
        for partition in topic.partitions if name is not None else ():
            key = (name or "", partition.partition_index)
            try:
                wanted[key] = check_proposal(context, key, request.broker_id, partition, version)
            except BrokerError as error:
                errors[key] = error.code
    changes = {key: lead for key, lead in wanted.items() if lead != memory.leads[key]}
    done = yield from _write(context, changes)
    lost = [key for key, lead in changes.items() if key not in done and not is_same(memory.leads.get(key), lead)]
    errors |= dict.fromkeys(lost, ErrorCode.INVALID_UPDATE_VERSION)
    answer = AlterPartitionResponse(
        error_code=ErrorCode.NONE,
        topics=[
            AlterPartitionResponseTopicData(
                topic_name=name or "",
                topic_id=topic_id,
                partitions=[result(context, name, one.partition_index, errors) for one in topic.partitions],
            )
            for (name, topic_id), topic in zip(names, request.topics, strict=True)
        ],
    )
    context.batch.tell(changes)
    strays.tell_again(context, changes)
    yield from context.send()
    yield from reassignments.proceed(context, wanted)
    return answer


def check_proposal(
    context: Context, key: Key, sender: int, partition: AlterPartitionRequestPartitionData, version: int
) -> Lead:
    """The state that the leader proposes; BrokerError when it is rejected."""
    memory = context.memory
    lead = memory.leads.get(key)
    if lead is None or key[0] in memory.deleting:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= EPOCHS_SINCE:
        members = {one.broker_id: one.broker_epoch for one in partition.new_isr_with_epochs}
    else:
        members = dict.fromkeys(partition.new_isr, UNKNOWN_EPOCH)
    isr = tuple(members)
    if partition.leader_epoch > lead.leader_epoch or partition.partition_epoch > lead.version:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)  # the leader knows a newer controller: we may have been replaced
    if partition.leader_epoch < lead.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    if sender == lead.leader and set(isr) == set(lead.isr):
        return lead  # nothing to change, whichever version it was proposed for
    if partition.partition_epoch < lead.version:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
    recovering = partition.leader_recovery_state == RECOVERING
    if sender != lead.leader or sender not in isr or recovering or not set(isr) <= set(memory.replicas(key)):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if not all(eligible(context, key, member, epoch, lead) for member, epoch in members.items()):
        by_id = version >= BY_ID_SINCE
        raise BrokerError(ErrorCode.INELIGIBLE_REPLICA if by_id else ErrorCode.OPERATION_NOT_ATTEMPTED)
    return lead._replace(isr=isr)


def eligible(context: Context, key: Key, member: int, epoch: int, lead: Lead) -> bool:
    """Whether a replica may be in sync: its broker is online with the epoch that the leader knows, and not stopping."""
    memory = context.memory
    broker = memory.brokers.get(member)
    if broker is None or epoch not in (UNKNOWN_EPOCH, broker.epoch):
        return False
    return member in lead.isr or memory.is_online(member, key)


def _write(context: Context, changes: dict[Key, Lead]) -> Task[dict[Key, Lead]]:
    """Write the proposed states. One that has changed meanwhile is skipped: its leader will propose again."""

    def decide(key: Key, lead: Lead) -> Lead | None:
        new = changes[key]
        return new if (lead.version, lead.leader_epoch) == (new.version, new.leader_epoch) else None

    return (yield from ledger.update(context, changes, decide))


def is_same(now: Lead | None, wanted: Lead) -> bool:
    """Whether an unanswered write was done after all."""
    return now is not None and (now.leader, now.leader_epoch, now.isr) == (
        wanted.leader,
        wanted.leader_epoch,
        wanted.isr,
    )


def result(
    context: Context, name: str | None, index: int, errors: dict[Key, ErrorCode]
) -> AlterPartitionResponsePartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else errors.get((name, index), ErrorCode.NONE)
    lead = None if name is None else context.memory.leads.get((name, index))
    if code != ErrorCode.NONE or lead is None:
        return AlterPartitionResponsePartitionData(
            partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
        )
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        error_code=code,
        leader_id=lead.leader,
        leader_epoch=lead.leader_epoch,
        isr=list(lead.isr),
        leader_recovery_state=RECOVERED,
        partition_epoch=lead.version,
    )


def handle_notices(context: Context) -> Task[None]:
    """Leaders of older versions have written states: read them, and inform all brokers."""
    paths = [f"{znodes.ISR_CHANGES}/{name}" for name in (yield from names_below(znodes.ISR_CHANGES))]
    found = yield from read(paths)
    listed = dict.fromkeys(key for node in found if node is not None for key in nodes.isr_changes_of(node.data))
    keys = [key for key in listed if context.memory.assignment(key) is not None]
    yield from ledger.refresh(context, keys)
    context.batch.tell(keys)
    strays.tell_again(context, keys)
    yield from context.send()
    yield from reassignments.proceed(context, keys)
    yield from ledger.remove(context, paths)
