"""The controller's writes. Every transaction checks the controller epoch first, and fails if it is outdated.

The states of many partitions are written some hundreds at a time, in concurrent transactions. When one fails because
somebody else has written a state (a leader of an older version writes its in-sync replicas itself), or when its outcome
is unknown, the states are read again and the decision is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control import nodes
from ottla.cluster.control.context import Deposed
from ottla.cluster.control.effects import Write, read, read_one
from ottla.cluster.metadata_store import (
    ANY,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Set,
    StoreError,
    VersionCheck,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ottla.cluster.control.context import Context
    from ottla.cluster.control.effects import Task
    from ottla.cluster.control.memory import Assignment, Key, Lead
    from ottla.cluster.metadata_store import Op

DECISIONS_AT_ONCE = 2000  # per round of writes, so that the event loop is not blocked for long
STATES_AT_ONCE = 200  # in one transaction: well below ZooKeeper's limit of a megabyte
TRIES_TOGETHER = 3  # then each state is written on its own: one may be rejected permanently
TRIES_MAX = 100  # then a state that somebody else keeps writing is left to the next event


def write(context: Context, transactions: Sequence[Sequence[Op]]) -> Task[list[StoreError | None]]:
    """Carry out the transactions if this broker is still controller."""
    if not transactions:
        return []
    check = VersionCheck(znodes.CONTROLLER_EPOCH, context.term.version)
    results: list[StoreError | None] = yield Write([(check, *ops) for ops in transactions])
    for error in results:
        if isinstance(error, BadVersion | NoNode) and error.path == znodes.CONTROLLER_EPOCH:
            raise Deposed(f"the controller epoch is no longer {context.term.epoch}")
    return results


def update(context: Context, keys: Iterable[Key], decide: Callable[[Key, Lead], Lead | None]) -> Task[dict[Key, Lead]]:
    """Write the state that `decide` returns for each partition; None leaves it. Returns those that were written."""
    done: dict[Key, Lead] = {}
    for some in _slices(list(dict.fromkeys(keys)), DECISIONS_AT_ONCE):
        done |= yield from _update(context, some, decide)
    return done


def _update(
    context: Context, pending: Sequence[Key], decide: Callable[[Key, Lead], Lead | None]
) -> Task[dict[Key, Lead]]:
    memory = context.memory
    done: dict[Key, Lead] = {}
    for tries in range(TRIES_MAX):
        wanted: dict[Key, Lead] = {}
        for key in pending:
            lead = memory.leads.get(key)
            new = None if lead is None else decide(key, lead)
            if new is not None:
                wanted[key] = new._replace(controller_epoch=context.term.epoch)
        groups = list(_slices(list(wanted), STATES_AT_ONCE if tries < TRIES_TOGETHER else 1))
        results = yield from write(context, [[_set(key, wanted[key]) for key in group] for group in groups])
        pending = []
        for group, error in zip(groups, results, strict=True):
            if error is None:
                for key in group:
                    done[key] = memory.leads[key] = wanted[key]._replace(version=wanted[key].version + 1)
            else:
                pending += group
        if not pending:
            break
        yield from refresh(context, pending)
    return done


def refresh(context: Context, keys: Sequence[Key]) -> Task[None]:
    """Read the states of these partitions again. One that is missing or malformed is removed from memory."""
    found = yield from read([znodes.state_path(*key) for key in keys])
    newest = context.term.epoch
    for key, node in zip(keys, found, strict=True):
        lead = None if node is None else nodes.lead_of(node)
        if lead is None:
            context.memory.leads.pop(key, None)
        else:
            newest = max(newest, lead.controller_epoch)
            context.memory.leads[key] = lead
    if newest > context.term.epoch:
        # Written by a successor, or before somebody lowered /controller_epoch by hand: its version tells which.
        count = yield from read_one(znodes.CONTROLLER_EPOCH)
        if count is None or count.stat.version != context.term.version:
            raise Deposed(f"a state was written by controller epoch {newest}")


def create_states(context: Context, leads: Mapping[Key, Lead]) -> Task[dict[Key, Lead]]:
    """Write the first state of partitions. One that exists already is used as it is. Returns all that exist now."""
    memory = context.memory
    yield from _create_all(context, list(dict.fromkeys(znodes.partitions_path(topic) for topic, _ in leads)))
    pending = list(leads)
    done: dict[Key, Lead] = {}
    at_once = STATES_AT_ONCE
    for _ in range(TRIES_MAX):
        groups = list(_slices(pending, at_once))
        transactions = [[op for key in group for op in _creation(key, leads[key])] for group in groups]
        results = yield from write(context, transactions)
        pending = []
        for group, error in zip(groups, results, strict=True):
            if error is None:
                done |= {key: leads[key] for key in group}
            else:
                pending += group
        memory.leads |= done
        if not pending:
            break
        at_once = 1  # one that cannot be written must not block the others
        present = yield from _remaining(context, pending)
        done |= present
        malformed = yield from _existing(pending, present)
        pending = [key for key in pending if key not in present and key not in malformed]
    memory.leads |= done
    return done


def _existing(keys: Sequence[Key], known: Mapping[Key, Lead]) -> Task[set[Key]]:
    """Partitions with a malformed state. It is kept for manual repair: it may tell which replicas have records."""
    unknown = [key for key in keys if key not in known]
    found = yield from read([znodes.state_path(*key) for key in unknown])
    return {key for key, node in zip(unknown, found, strict=True) if node is not None and nodes.lead_of(node) is None}


def _remaining(context: Context, keys: Sequence[Key]) -> Task[dict[Key, Lead]]:
    """Of states that could not be created together: those that exist. Clears the way for the others."""
    yield from refresh(context, keys)
    missing = [key for key in keys if key not in context.memory.leads]
    parents = yield from read([znodes.partition_path(*key) for key in missing])
    halves = [key for key, node in zip(missing, parents, strict=True) if node is not None]
    # A partition node without a state is left over from a creation without a transaction: delete and recreate it.
    yield from write(context, [[Delete(znodes.partition_path(*key))] for key in halves])
    return {key: context.memory.leads[key] for key in keys if key in context.memory.leads}


def _create_all(context: Context, paths: Sequence[str]) -> Task[None]:
    """Create those of these nodes that are missing."""
    results = yield from write(context, [[Create(path) for path in group] for group in _slices(paths, STATES_AT_ONCE)])
    if any(error is not None for error in results):
        found = yield from read(paths)
        missing = [path for path, node in zip(paths, found, strict=True) if node is None]
        yield from write(context, [[Create(path)] for path in missing])


def write_topic(context: Context, name: str, changes: Mapping[int, Assignment]) -> Task[bool]:
    """Write a topic's node with these assignments. Partitions that somebody has added meanwhile are kept.

    Returns whether the topic exists. Memory changes only when the write succeeds.
    """
    topic = context.memory.topics[name]
    added: Mapping[int, Assignment] = {}
    for _ in range(TRIES_MAX):
        data = nodes.topic_data(name, topic.id, {**added, **topic.assignments, **changes})
        results = yield from write(context, [[Set(znodes.topic_path(name), data, topic.version)]])
        if results[0] is None:
            topic.version += 1
            for index, assignment in changes.items():
                context.memory.assign((name, index), assignment)
            return True
        node = yield from read_one(znodes.topic_path(name))
        if node is None:
            return False
        topic.version = node.stat.version
        found = nodes.topic_of(node)
        added = found[1] if found is not None else {}
    return False


def remove(context: Context, paths: Iterable[str]) -> Task[None]:
    """Delete nodes without children, if they exist."""
    groups = list(_slices(list(paths), STATES_AT_ONCE))
    results = yield from write(context, [[Delete(path, ANY) for path in group] for group in groups])
    for group, error in zip(groups, results, strict=True):
        if error is not None:
            found = yield from read(group)
            present = [path for path, node in zip(group, found, strict=True) if node is not None]
            yield from write(context, [[Delete(path, ANY)] for path in present])


def put(context: Context, path: str, data: bytes) -> Task[None]:
    """Set a node that may have to be created."""
    results = yield from write(context, [[Set(path, data)]])
    if isinstance(results[0], NoNode):
        results = yield from write(context, [[Create(path, data)]])
        if isinstance(results[0], NodeExists):
            yield from write(context, [[Set(path, data)]])


def _set(key: Key, lead: Lead) -> Op:
    return Set(znodes.state_path(*key), nodes.lead_data(lead), lead.version)


def _creation(key: Key, lead: Lead) -> Iterator[Op]:
    yield Create(znodes.partition_path(*key))
    yield Create(znodes.state_path(*key), nodes.lead_data(lead))


def _slices(items: Sequence[str] | Sequence[Key], size: int) -> Iterator[list]:  # type: ignore[type-arg]
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
