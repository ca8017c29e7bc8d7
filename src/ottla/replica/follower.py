"""Follower decisions: where its log diverges from the leader's, and how far to truncate. Pure functions.

Every leader epoch has one leader, so two logs that hold an epoch hold the same records of it, one of them perhaps more.
So the logs agree up to the end of the last epoch that both have, whichever of the two ends comes first. A follower
requests the leader's end offset for its own latest epoch: with a Fetch of version 12 or later, which returns a
diverging epoch instead of records, or with OffsetForLeaderEpoch. If the leader does not have that epoch, it returns the
one below; the follower truncates to that and asks again (KIP-101, KIP-279).

The high watermark is not used for this: a follower learns it one fetch late, and one that truncated to it and was then
elected would lack acknowledged records. It is used only for a log without any epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.log.epochs import Epochs

UNKNOWN = -1


class Cut(NamedTuple):
    """Truncate the log to `offset`. Unless it `agrees` with the leader's then, request its epochs again."""

    offset: int
    agrees: bool


class Restart(NamedTuple):
    """Delete the log and start empty at `offset`."""

    offset: int


def first_cut(epochs: Epochs, end: int, high: int) -> Cut:
    """Before the first fetch from a new leader."""
    if epochs.latest == UNKNOWN:
        return Cut(min(high, end), agrees=True)
    return Cut(end, agrees=False)  # the leader will tell


def agreement(epochs: Epochs, end: int, leader_epoch: int, leader_end: int, high: int) -> Cut:
    """`leader_epoch` ends at `leader_end` on the leader: its response for the latest epoch of this log."""
    if leader_end == UNKNOWN:  # the leader has no epochs
        return Cut(min(high, end), agrees=True)
    if leader_epoch == UNKNOWN:  # version 0 of the response has no epoch
        return Cut(min(leader_end, end), agrees=True)
    epoch, own_end = epochs.end_of(leader_epoch, end)
    if own_end == UNKNOWN:
        return Cut(min(leader_end, end), agrees=True)
    if epoch != leader_epoch:
        return Cut(min(own_end, end), agrees=False)
    return Cut(min(own_end, leader_end, end), agrees=True)


def out_of_range(end: int, leader_start: int, leader_end: int) -> Cut | Restart:
    """The end of this log is outside the leader's log: past its end, or before its start."""
    if leader_end < end:  # only after an unclean leader election
        return Cut(leader_end, agrees=True)
    if leader_start > end:
        return Restart(leader_start)
    return Cut(end, agrees=True)


def high_watermark(leader_high: int, end: int, high: int) -> int:
    """A follower's high watermark: the leader's, at most the end of the log. It never decreases under one leader."""
    return max(high, min(leader_high, end))
