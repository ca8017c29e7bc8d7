"""Bugs put into the code on purpose, each for a test that shows that the simulation finds it."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from ottla.cluster.metadata_store import VersionCheck
from ottla.coord.transactions.machine import TransactionMachine
from ottla.coord.transactions.markers import MarkerWriter
from ottla.errors import ErrorCode
from ottla.log.compaction import Compaction
from ottla.log.log import Log
from ottla.log.store import LogStore
from ottla.replica.copying import Copy
from ottla.replica.follower import Cut
from ottla.replica.leader import Leader
from ottla.replica.membership import Membership
from ottla.replica.partition import Partition
from ottla.sim.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def commit_without_followers() -> Iterator[None]:
    """High watermark: the leader's own log end offset, whatever the others have."""

    def advance(leader: Leader, now_ms: int) -> bool:
        moved, leader.high = leader.end > leader.high, max(leader.high, leader.end)
        return moved

    with mock.patch.object(Leader, "advance", advance):
        yield


@contextmanager
def commit_by_any_follower() -> Iterator[None]:
    """High watermark: the log end offset of the fastest in-sync follower instead of the slowest."""

    def advance(leader: Leader, now_ms: int) -> bool:
        ends = [one.end for replica, one in leader.followers.items() if replica in leader.maximal]
        high = min(leader.end, max(ends, default=leader.end))
        moved, leader.high = high > leader.high, max(leader.high, high)
        return moved

    with mock.patch.object(Leader, "advance", advance):
        yield


@contextmanager
def cut_to_the_high_watermark() -> Iterator[None]:
    """Truncation: what Kafka did before there were leader epochs."""

    def first_cut(epochs: Any, end: int, high: int) -> Cut:
        return Cut(min(high, end), agrees=False)

    with mock.patch("ottla.replica.copying.first_cut", first_cut):
        yield


@contextmanager
def admit_whoever_fetches() -> Iterator[None]:
    """ISR admission: a follower is in sync as soon as it fetches at all."""
    with mock.patch.object(Leader, "_may_join", lambda leader, replica: leader.followers[replica].end >= 0):
        yield


@contextmanager
def obey_every_controller() -> Iterator[None]:
    """Fencing: neither brokers nor the store check controller epochs."""
    verify = SimZooKeeper._verify

    def unguarded(store: SimZooKeeper, ops: Any) -> None:
        verify(store, [op for op in ops if not isinstance(op, VersionCheck)])

    with (
        mock.patch.object(Membership, "check", return_value=ErrorCode.NONE),
        mock.patch.object(SimZooKeeper, "_verify", unguarded),
    ):
        yield


@contextmanager
def no_last_fetched_epoch() -> Iterator[None]:
    """Leader epochs: a follower does not send its last fetched epoch, so its leader cannot detect divergence."""
    wanted = Copy.build_request

    def silent(copy: Copy, size_max: int) -> Any:
        asked = wanted(copy, size_max)
        asked.last_fetched_epoch = -1
        return asked

    with mock.patch.object(Copy, "build_request", silent):
        yield


@contextmanager
def no_check_epoch() -> Iterator[None]:
    """Leader epochs: fetches count, whatever epoch they were sent for."""
    with mock.patch.object(Partition, "check_epoch", return_value=None):
        yield


@contextmanager
def read_what_is_not_decided() -> Iterator[None]:
    """Transactions: replicated records count as stable, even if their transaction is open."""
    with mock.patch.object(Log, "last_stable", lambda log, high: high):
        yield


@contextmanager
def read_what_was_aborted() -> Iterator[None]:
    """Transactions: fetch responses do not list aborted transactions."""
    with mock.patch("ottla.handlers.fetch.list_aborted", return_value=[]):
        yield


@contextmanager
def let_zombies_commit() -> Iterator[None]:
    """Transactions: the coordinator does not check producer epochs."""

    def checked(machine: TransactionMachine, known: Any, producer_id: int, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if known is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    with mock.patch.object(TransactionMachine, "_check", checked):
        yield


@contextmanager
def lose_markers() -> Iterator[None]:
    """Transactions: a leader sometimes acknowledges a marker that it has not written."""
    write, count = MarkerWriter.write, itertools.count(1)

    def forgetful(writer: MarkerWriter, topic: str, index: int, marker: Any) -> Any:
        if next(count) % 7 or topic.startswith("__"):
            return write(writer, topic, index, marker)
        return None

    with mock.patch.object(MarkerWriter, "write", forgetful):
        yield


@contextmanager
def acknowledge_markers_early() -> Iterator[None]:
    """Transactions: a marker counts as soon as the leader has it; the coordinator never writes it again."""
    write = MarkerWriter.write

    def hasty(writer: MarkerWriter, topic: str, index: int, marker: Any) -> None:
        uncommitted = write(writer, topic, index, marker)
        if uncommitted is not None:
            uncommitted.add_done_callback(lambda done: done.exception())  # its result is not used

    with mock.patch.object(MarkerWriter, "write", hasty):
        yield


@contextmanager
def compact_the_last_value() -> Iterator[None]:
    """Compaction: the last record of each key is removed, too."""
    keys = Compaction._keys

    def later(compaction: Compaction, span: Any, data: Any, first: int) -> dict[bytes, int]:
        found = keys(compaction, span, data, first)
        return {key: offset + 1 for key, offset in found.items()}

    with mock.patch.object(Compaction, "_keys", later):
        yield


@contextmanager
def drop_tombstones_at_once() -> Iterator[None]:
    """Compaction: a tombstone is removed together with the records that it deletes."""
    make_keep = Compaction._make_keep

    def hasty(compaction: Compaction, *, retain_deletes: bool) -> Any:
        return make_keep(compaction, retain_deletes=False)

    with mock.patch.object(Compaction, "_make_keep", hasty):
        yield


@contextmanager
def tell_what_may_be_old() -> Iterator[None]:
    """Groups: a coordinator that was paused returns offsets from memory, though they may be outdated."""
    with mock.patch.object(Leader, "is_abandoned", return_value=False):
        yield


@contextmanager
def keep_deleted_logs() -> Iterator[None]:
    """Names: the logs of a deleted topic are kept."""
    with mock.patch.object(LogStore, "delete", return_value=None):
        yield


@contextmanager
def move_without_waiting() -> Iterator[None]:
    """Reassignment: it counts as done although the new replicas have not caught up."""
    with mock.patch("ottla.cluster.control.reassignments.is_complete", return_value=True):
        yield


class Mutant(NamedTuple):
    """A bug, and the kind of scenario that reveals it soon."""

    fault: Callable[[], Any]
    options: dict[str, Any]
    first: int = 0  # the first seed: one that is known to reveal it soon


PLAIN: dict[str, Any] = {"cast": ()}
CONTROLLERS: dict[str, Any] = {"cast": (), "rounds": 8, "kinds": ("resign", "store slow", "expire")}
TRANSACTIONS: dict[str, Any] = {"cast": ("transactions",), "rounds": 3}
ORPHANS: dict[str, Any] = {"cast": ("transactions",), "rounds": 8, "kinds": ("orphan",)}
# "A record that may be truncated replaces no committed one" is violated too rarely in scenarios: see tests/log.
KEYS: dict[str, Any] = {"cast": ("keys",), "rounds": 3}
SLEEPERS: dict[str, Any] = {"cast": (), "rounds": 8, "kinds": ("pause",)}
SEASONS: dict[str, Any] = {"cast": ("seasons",), "rounds": 2, "kinds": ("kill", "slow")}
MUTANTS = [
    Mutant(commit_without_followers, PLAIN),
    Mutant(commit_by_any_follower, PLAIN),
    Mutant(cut_to_the_high_watermark, PLAIN),
    Mutant(admit_whoever_fetches, PLAIN),
    Mutant(obey_every_controller, CONTROLLERS),
    Mutant(read_what_is_not_decided, TRANSACTIONS),
    Mutant(read_what_was_aborted, TRANSACTIONS),
    Mutant(let_zombies_commit, TRANSACTIONS),
    Mutant(lose_markers, TRANSACTIONS),
    Mutant(acknowledge_markers_early, ORPHANS, first=22),
    Mutant(compact_the_last_value, KEYS),
    Mutant(drop_tombstones_at_once, KEYS),
    Mutant(tell_what_may_be_old, SLEEPERS, first=62),
    Mutant(keep_deleted_logs, SEASONS),
    Mutant(move_without_waiting, SEASONS),
]
