"""The controller as a state machine: an event in, a task out. The task yields effects; its value answers the event.

One task at a time: the next event starts when the last task has ended. When a task fails or is cancelled, memory may
hold an incomplete change: the machine starts over (`Elected`) and reads everything again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster import znodes
from ottla.cluster.control import (
    brokers,
    deletions,
    events,
    insync,
    ledger,
    messages,
    partitions,
    preferred,
    reassignments,
    replicas,
    strays,
    topics,
)
from ottla.cluster.control.context import Context, ControlSettings, Term
from ottla.cluster.control.effects import names_below, read_one
from ottla.cluster.control.states import PartitionState, ReplicaState
from ottla.cluster.metadata_store import Create, Set
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.events import Event
    from ottla.cluster.control.memory import Memory
    from ottla.cluster.control.tally import Tally

PRODUCER_IDS_BLOCK = 1000


class Machine:
    def __init__(
        self, term: Term, settings: ControlSettings, new_id: Callable[[], bytes], tally: Tally | None = None
    ) -> None:
        self._new_id = new_id
        self._context = Context(term, settings, new_id, tally)

    @property
    def memory(self) -> Memory:
        return self._context.memory

    @property
    def term(self) -> Term:
        return self._context.term

    def configure(self, settings: ControlSettings) -> None:
        self._context.settings = settings

    def handle(self, event: Event) -> Task[Any]:
        """The task for an event."""
        if isinstance(event, events.Elected):
            self._context = Context(self.term, self._context.settings, self._new_id, self._context.tally)
            yield from take_office(self._context)
            return None
        answer = yield from _handle(self._context, event)
        yield from self._context.send()
        return answer


def _handle(context: Context, event: Event) -> Task[Any]:
    match event:
        case events.BrokersChanged():
            yield from brokers.refresh(context)
        case events.TopicsChanged():
            yield from topics.refresh(context)
        case events.TopicsWritten(names):
            yield from topics.handle_writes(context, names)
        case events.DeletionsAsked():
            yield from deletions.read_requests(context)
        case events.MovesAsked():
            yield from reassignments.move_from_znode(context)
        case events.PreferredAsked():
            yield from preferred.elect_from_znode(context)
        case events.InSyncNotified():
            yield from insync.handle_notices(context)
        case events.FoldersNotified():
            yield from brokers.handle_folder_events(context)
        case events.CheckBalance():
            brokers.retry(context)
            yield from preferred.balance(context)
        case events.UncleanAllowed(topic):
            yield from preferred.retry_leaderless(context, topic)
        case events.Answered():
            yield from handle_answer(context, event)
        case events.AlterPartition(request, version):
            return (yield from insync.alter(context, request, version))
        case events.Shutdown(broker, epoch):
            return (yield from brokers.shut_down(context, broker, epoch))
        case events.Elect(keys, kind):
            return (yield from preferred.elect(context, keys, kind))
        case events.MovePartitions(wishes, resize):
            return (yield from reassignments.move(context, wishes, resize=resize))
        case events.Grow(topic, first, added):
            yield from topics.grow(context, topic, first, added)
        case events.TakeProducerIds(broker, epoch):
            return (yield from take_producer_ids(context, broker, epoch))
    return None


def handle_answer(context: Context, event: events.Answered) -> Task[None]:
    memory = context.memory
    errors = messages.errors_in(memory, event.response)
    if isinstance(event.request, LeaderAndIsrRequest):
        yield from brokers.handle_answer(context, event, errors)
    elif isinstance(event.request, StopReplicaRequest) and event.response.error_code == ErrorCode.NONE:
        broker = memory.brokers.get(event.broker)
        if broker is not None and broker.epoch == event.epoch:
            deleted = messages.deletions_in(event.request)
            strays.handle_answer(context, event.broker, deleted, errors)
            yield from deletions.handle_answer(context, event.broker, deleted, errors)


def take_office(context: Context) -> Task[None]:
    """Become controller: read everything, inform all brokers, and continue what the predecessor left."""
    memory = context.memory
    # The states that these notifications are about are read below anyway.
    for path in (znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS):
        yield from ledger.remove(context, [f"{path}/{name}" for name in (yield from names_below(path))])
    memory.brokers = yield from brokers.read_registered(context)
    yield from topics.load(context, (yield from names_below(znodes.TOPICS)))
    yield from ledger.refresh(context, list(memory.partitions()))
    if context.settings.deletion:
        wanted = yield from names_below(znodes.DELETED_TOPICS)
        for name in wanted:
            if name in memory.topics:
                still = any(one.moving for one in memory.topics[name].assignments.values())
                (memory.doomed if still else memory.deleting)[name] = None
    place(context)
    # Brokers get the broker list before they learn whom to follow.
    context.batch.announce()
    yield from context.send()
    for broker in memory.brokers:
        context.batch.tell_everything(broker, memory.leads)
    online = [one for one, state in memory.replica_states.items() if state is ReplicaState.ONLINE]
    replicas.bring_online(context, online)
    yield from partitions.bring_online(context, list(memory.leaderless))
    lost = [one for one, state in memory.replica_states.items() if state is ReplicaState.OFFLINE]
    yield from replicas.take_offline(context, lost)
    yield from context.send()
    yield from go_on(context)


def place(context: Context) -> None:
    """Set the state of every partition and replica, derived from what was read."""
    memory = context.memory
    for key in memory.partitions():
        lead = memory.leads.get(key)
        gone = key[0] in memory.deleting
        memory.set_partition_state(key, PartitionState.NEW)
        if lead is not None and memory.is_online(lead.leader, key):
            memory.set_partition_state(key, PartitionState.ONLINE)
        elif lead is not None or gone:
            memory.set_partition_state(key, PartitionState.OFFLINE)
        if gone:
            memory.set_partition_state(key, PartitionState.OFFLINE)
            memory.leaderless.pop(key, None)
        assignment = memory.assignment(key)
        if assignment is not None and assignment.moving:
            memory.moving[key] = None
        for broker in memory.replicas(key):
            online = memory.is_online(broker, key)
            memory.replica_states[*key, broker] = ReplicaState.ONLINE if online else ReplicaState.OFFLINE


def go_on(context: Context) -> Task[None]:
    """Continue reassignments, deletions and elections that are requested or unfinished."""
    memory = context.memory
    halves = {key: memory.assignment(key) for key in memory.moving}
    for topic, indexes in reassignments.group_by_topic(halves).items():
        assignments = {index: one for index in indexes if (one := halves[topic, index]) is not None}
        yield from reassignments.begin(context, topic, assignments)
    yield from context.send()
    yield from reassignments.proceed(context, list(halves))
    yield from reassignments.move_from_znode(context)
    yield from deletions.read_requests(context)
    yield from deletions.resume(context)
    yield from preferred.elect_from_znode(context)
    yield from context.send()


def take_producer_ids(context: Context, broker: int, epoch: int) -> Task[tuple[int, int]]:
    """Allocate a new block of producer ids."""
    known = context.memory.brokers.get(broker)
    if known is None or known.epoch != epoch:
        raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
    for _ in range(ledger.TRIES_MAX):
        node = yield from read_one(znodes.PRODUCER_IDS)
        try:
            first = znodes.decode_producer_ids(node.data) + 1 if node is not None and node.data else 0
        except znodes.MALFORMED:  # starting again from 0 would give ids to two producers
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{znodes.PRODUCER_IDS} cannot be understood") from None
        block = znodes.encode_producer_ids(broker, first, first + PRODUCER_IDS_BLOCK - 1)
        op = Create(znodes.PRODUCER_IDS, block) if node is None else Set(znodes.PRODUCER_IDS, block, node.stat.version)
        results = yield from ledger.write(context, [[op]])
        if results[0] is None:
            return first, PRODUCER_IDS_BLOCK
    raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids can be had now")
