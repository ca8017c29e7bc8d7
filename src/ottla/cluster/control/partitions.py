"""Leader elections. Decisions are written first, then collected in the batch to be sent to the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import elections, ledger, nodes
from ottla.cluster.control.effects import read
from ottla.cluster.control.memory import Lead
from ottla.cluster.control.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.elections import Choice
    from ottla.cluster.control.memory import Key

UNCLEAN_OPTION = "unclean.leader.election.enable"


def open_new(context: Context, keys: Iterable[Key]) -> Task[None]:
    """Elect the first leader of new partitions. All online replicas are in sync, since all are empty."""
    memory = context.memory
    leads: dict[Key, Lead] = {}
    for key in keys:
        memory.set_partition_state(key, PartitionState.NEW)
        online = memory.online(key)
        if online and memory.partition_state(key) is PartitionState.NEW:
            leads[key] = Lead(online[0], 0, tuple(online), 0, context.term.epoch)
    created = yield from ledger.create_states(context, leads)
    for key, lead in created.items():
        # A state that existed already may name a leader that is gone.
        led = memory.is_online(lead.leader, key)
        memory.set_partition_state(key, PartitionState.ONLINE if led else PartitionState.OFFLINE)
        context.batch.lead(memory.online(key, stopping=True), key, new=lead is leads[key])
    stale = [key for key in created if memory.partition_state(key) is PartitionState.OFFLINE]
    if stale:
        yield from bring_online(context, stale)


def bring_online(context: Context, keys: Iterable[Key], *, unclean: bool = False) -> Task[list[Key]]:
    """Elect a leader for partitions without one; `unclean` allows any replica. Returns those still without one."""
    memory = context.memory
    allowed: dict[str, bool] = {}

    def choose(key: Key, lead: Lead) -> Choice:
        any_will_do = unclean or allowed.get(key[0], False)
        return elections.choose_after_loss(memory.replicas(key), lead.isr, memory.online(key), unclean=any_will_do)

    wanted = [key for key in dict.fromkeys(keys) if key[0] not in memory.deleting]
    yield from open_new(context, [key for key in wanted if key not in memory.leads])
    pending = [key for key in wanted if memory.partition_state(key) is not PartitionState.ONLINE]
    pending = [key for key in pending if key in memory.leads]
    while pending:
        left = yield from elect(context, pending, choose)
        for key in left:
            memory.set_partition_state(key, PartitionState.OFFLINE)
        unknown = [] if unclean else [key for key in left if key[0] not in allowed]
        allowed.update((yield from read_unclean_options(context, {topic for topic, _ in unknown})))
        pending = [key for key in unknown if allowed[key[0]]]
    return [key for key in wanted if memory.partition_state(key) is not PartitionState.ONLINE]


def read_unclean_options(context: Context, topics: Iterable[str]) -> Task[dict[str, bool]]:
    """Which of the topics allow unclean elections: by their own config, or by the broker's default."""
    names = sorted(topics)
    found = yield from read([znodes.topic_config_path(name) for name in names])
    allowed = {}
    for name, node in zip(names, found, strict=True):
        value = nodes.configs_of(node).get(UNCLEAN_OPTION)
        allowed[name] = context.settings.unclean if value is None else value.strip().lower() == "true"
    return allowed


def elect(context: Context, keys: Iterable[Key], choose: Callable[[Key, Lead], Choice]) -> Task[list[Key]]:
    """Give each partition the leader that `choose` returns, in a new epoch. Returns those without a leader."""
    memory = context.memory
    left: dict[Key, None] = {}
    unclean: set[Key] = set()

    def decide(key: Key, lead: Lead) -> Lead | None:
        choice = choose(key, lead)
        if choice is None:
            left[key] = None
            return None
        left.pop(key, None)
        if choice[0] not in lead.isr:
            unclean.add(key)
        return lead.next(*choice)

    done = yield from ledger.update(context, keys, decide)
    for key in done:
        memory.set_partition_state(key, PartitionState.ONLINE)
        context.batch.lead(memory.online(key, stopping=True), key)
    context.tally.elections += len(done)
    context.tally.unclean += len(unclean.intersection(done))
    return list(left)


def raise_epochs(context: Context, keys: Iterable[Key]) -> Task[None]:
    """Keep the leaders but raise their epochs, which makes earlier requests stale."""
    done = yield from ledger.update(context, keys, lambda _, lead: lead.next(lead.leader, lead.isr))
    for key in done:
        context.batch.lead(context.memory.online(key, stopping=True), key)
