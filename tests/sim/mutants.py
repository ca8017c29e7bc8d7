"""Faults put into the code on purpose, each for a test that shows that the simulation finds it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from ottla.cluster.keeper import Check
from ottla.errors import ErrorCode
from ottla.replica.follower import Cut
from ottla.replica.leader import Leader
from ottla.replica.membership import Membership
from ottla.sim.keeper import SimStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def commit_without_followers() -> Iterator[None]:
    """High watermark: the leader's own end, whatever the others have."""

    def advance(leader: Leader, now_ms: int) -> bool:
        moved, leader.high = leader.end > leader.high, max(leader.high, leader.end)
        return moved

    with mock.patch.object(Leader, "advance", advance):
        yield


@contextmanager
def commit_by_any_follower() -> Iterator[None]:
    """High watermark: the end of the fastest follower in sync, in place of the slowest."""

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
    """ISR admission: a follower is in sync as soon as it asks for anything."""
    with mock.patch.object(Leader, "_may_join", lambda leader, replica: leader.followers[replica].end >= 0):
        yield


@contextmanager
def obey_every_controller() -> Iterator[None]:
    """Fencing: nobody looks at controller epochs, neither brokers nor the store."""
    verify = SimStore._verify

    def unguarded(store: SimStore, ops: Any) -> None:
        verify(store, [op for op in ops if not isinstance(op, Check)])

    with (
        mock.patch.object(Membership, "check", return_value=ErrorCode.NONE),
        mock.patch.object(SimStore, "_verify", unguarded),
    ):
        yield


MUTANTS: list[Callable[[], Any]] = [
    commit_without_followers,
    commit_by_any_follower,
    cut_to_the_high_watermark,
    admit_whoever_fetches,
    obey_every_controller,
]
