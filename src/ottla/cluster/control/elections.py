"""Chooses the next leader of a partition and the replicas that stay in sync. Pure; None if there is no candidate.

`replicas` are in order of preference, `online` are those that can serve now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

Choice = tuple[int, tuple[int, ...]] | None  # the leader and the in-sync replicas


def choose_after_loss(replicas: Sequence[int], isr: Sequence[int], online: Container[int], *, unclean: bool) -> Choice:
    """The leader is gone. If no in-sync replica is online, an `unclean` election takes any, and records may be lost."""
    for broker in replicas:
        if broker in isr and broker in online:
            return broker, tuple(one for one in isr if one in online)
    if unclean:
        for broker in replicas:
            if broker in online:
                return broker, (broker,)
    return None


def choose_among(target: Sequence[int], isr: Sequence[int], online: Container[int]) -> Choice:
    """The first target replica of a reassignment that is in sync and online."""
    for broker in target:
        if broker in isr and broker in online:
            return broker, tuple(isr)
    return None


def choose_preferred(replicas: Sequence[int], isr: Sequence[int], online: Container[int]) -> Choice:
    return choose_among(replicas[:1], isr, online)


def choose_before_stop(
    replicas: Sequence[int], isr: Sequence[int], online: Container[int], stopping: Container[int]
) -> Choice:
    """The leader is about to stop: choose a replica that is not. `online` includes the stopping ones."""
    for broker in replicas:
        if broker in isr and broker in online and broker not in stopping:
            return broker, tuple(one for one in isr if one not in stopping)
    return None
