"""Brokers that join, fail, return, shut down, and lose log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import deletions, elections, ledger, nodes, partitions, reassignments, replicas, strays
from ottla.cluster.control.effects import names_below, read
from ottla.cluster.control.states import PartitionState
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.elections import Choice
    from ottla.cluster.control.events import Answered
    from ottla.cluster.control.memory import Key, Lead, Replica
    from ottla.cluster.image import Broker

UNKNOWN_EPOCH = -1


def read_registered(context: Context) -> Task[dict[int, Broker]]:
    """The registered brokers, without those whose nodes are malformed."""
    names = yield from names_below(znodes.BROKERS)
    ids = sorted(int(name) for name in names if name.isdecimal())
    found = yield from read([znodes.broker_path(broker) for broker in ids])
    brokers: dict[int, Broker] = {}
    for broker, node in zip(ids, found, strict=True):
        if node is not None:
            try:
                brokers[broker] = znodes.decode_broker(broker, node.data, node.stat.czxid)
            except nodes.MALFORMED:
                continue
    return brokers


def refresh(context: Context) -> Task[None]:
    """Compare with the registered brokers. One with another epoch has re-registered since, and knows nothing."""
    memory = context.memory
    now = yield from read_registered(context)
    lost = [one for one in memory.brokers.values() if one.id not in now or now[one.id].epoch != one.epoch]
    come = [one for one in now.values() if one.id not in memory.brokers or memory.brokers[one.id].epoch != one.epoch]
    moved = [one for one in now.values() if one not in come and memory.brokers[one.id] != one]
    if lost:
        yield from remove(context, [one.id for one in lost])
    for broker in moved:
        memory.brokers[broker.id] = broker
    if moved:
        context.batch.announce()
    if come:
        yield from add(context, come)


def remove(context: Context, brokers: Iterable[int]) -> Task[None]:
    memory = context.memory
    lost: list[Replica] = []
    for broker in brokers:
        memory.brokers.pop(broker, None)
        memory.stopping.pop(broker, None)
        memory.broken.pop(broker, None)
        memory.refused.pop(broker, None)
        lost += [(topic, index, broker) for topic, index in memory.list_hosted(broker)]
    context.batch.announce()
    yield from lose(context, lost)


def lose(context: Context, lost: Sequence[Replica]) -> Task[None]:
    """These replicas are offline: elect other leaders where possible."""
    memory = context.memory
    leaderless: list[Key] = []
    for topic, index, broker in lost:
        key = (topic, index)
        lead = memory.leads.get(key)
        if lead is not None and lead.leader == broker and topic not in memory.deleting:
            memory.set_partition_state(key, PartitionState.OFFLINE)
            leaderless.append(key)
    yield from partitions.bring_online(context, leaderless)
    deleting = [one for one in lost if one[0] in memory.deleting]
    yield from replicas.take_offline(context, [one for one in lost if one[0] not in memory.deleting])
    deletions.fail(context, deleting)
    yield from context.send()


def add(context: Context, brokers: Sequence[Broker]) -> Task[None]:
    memory = context.memory
    hosted: dict[Key, None] = {}
    memory.brokers.update({broker.id: broker for broker in brokers})
    for broker in brokers:
        memory.stopping.pop(broker.id, None)
        memory.broken.pop(broker.id, None)
        memory.refused.pop(broker.id, None)
        context.batch.tell_everything(broker.id, memory.leads)
        strays.stop_again(context, broker.id)
        hosted.update(dict.fromkeys(memory.list_hosted(broker.id)))
    # Send the broker list first: Apache Kafka does not follow a broker that it does not know.
    context.batch.announce()
    yield from context.send()
    for broker in brokers:
        replicas.bring_online(context, [(topic, index, broker.id) for topic, index in memory.list_hosted(broker.id)])
    yield from partitions.bring_online(context, [key for key in hosted if key in memory.leaderless])
    yield from reassignments.proceed(context, hosted)
    yield from context.send()
    yield from deletions.resume(context, {topic for topic, _ in hosted if topic in memory.deleting})


def shut_down(context: Context, broker: int, epoch: int) -> Task[list[Key]]:
    """Controlled shutdown: move leadership to other brokers, and remove the broker from in-sync sets.

    Returns the partitions that it still leads, because nobody else can. Partitions with one replica do not count.
    """
    memory = context.memory
    if broker not in memory.brokers:
        raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
    if epoch not in (UNKNOWN_EPOCH, memory.brokers[broker].epoch):
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
    memory.stopping[broker] = None
    shared = [
        key
        for key in memory.list_hosted(broker)
        if len(memory.replicas(key)) > 1 and key in memory.leads and key[0] not in memory.deleting
    ]

    def choose(key: Key, lead: Lead) -> Choice:
        online = memory.online(key, stopping=True)
        return elections.choose_before_stop(memory.replicas(key), lead.isr, online, memory.stopping)

    led = [key for key in shared if memory.leads[key].leader == broker]
    yield from partitions.elect(context, led, choose)
    remaining = [key for key in shared if key in memory.leads and memory.leads[key].leader == broker]
    left = set(remaining)
    followed = [key for key in shared if key not in left]
    yield from replicas.take_offline(context, [(topic, index, broker) for topic, index in followed])
    yield from context.send()
    return remaining


def handle_folder_events(context: Context) -> Task[None]:
    """Brokers report a failed log directory: send each LeaderAndIsr for all its replicas, to learn which failed."""
    memory = context.memory
    paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in (yield from names_below(znodes.LOG_DIR_EVENTS))]
    found = yield from read(paths)
    failed = dict.fromkeys(nodes.folder_event_of(node.data) for node in found if node is not None)
    for broker in failed:
        if broker is not None and broker in memory.brokers:
            hosted = [key for key in memory.list_hosted(broker) if memory.is_online(broker, key, stopping=True)]
            replicas.bring_online(context, [(topic, index, broker) for topic, index in hosted])
    yield from context.send()
    yield from ledger.remove(context, paths)


def retry(context: Context) -> None:
    """Send brokers their failed replicas again: a full disk may have room now."""
    for broker, keys in context.memory.broken.items():
        for key in keys:
            if broker in context.memory.brokers and broker in context.memory.replicas(key):
                context.batch.lead([broker], key)


def handle_answer(context: Context, event: Answered, errors: dict[Key, int]) -> Task[None]:
    """A response to LeaderAndIsr: replicas with a storage error go offline, those without one are online again.

    A response from a former registration of the broker is ignored.
    """
    memory = context.memory
    broker = memory.brokers.get(event.broker)
    if broker is None or broker.epoch != event.epoch:
        return
    known = {key: code for key, code in errors.items() if broker.id in memory.replicas(key)}
    failed = [key for key, code in known.items() if code == ErrorCode.KAFKA_STORAGE_ERROR]
    whole = [key for key, code in known.items() if code == ErrorCode.NONE]
    broken = memory.broken.get(broker.id, {})
    mended = [key for key in whole if key in broken]
    for key in mended:
        del broken[key]
    yield from partitions.bring_online(context, [key for key in mended if key in memory.leaderless])
    inconsistent = [key for key, code in known.items() if code == ErrorCode.INCONSISTENT_TOPIC_ID]
    strays.delete_found(context, broker.id, inconsistent)
    strays.note_answers(context, broker.id, whole, inconsistent)
    lost = [key for key in failed if key not in memory.broken.get(broker.id, {})]
    if lost:
        memory.broken.setdefault(broker.id, {}).update(dict.fromkeys(lost))
        yield from lose(context, [(topic, index, broker.id) for topic, index in lost])
