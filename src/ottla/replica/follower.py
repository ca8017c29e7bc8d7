"""What a follower decides: where its log diverges from the leader's, and what to do then. Pure functions.

Every leader epoch has one leader, so two logs that hold an epoch hold the same records of it, one of them perhaps more.
So the logs agree up to the end of the last epoch that both have, whichever of the two ends comes first. A follower asks
for the leader's end of its own latest epoch: with a Fetch of version 12 or later, which is answered with a diverging
epoch in place of records, or with OffsetForLeaderEpoch. If the leader does not have that epoch it answers with the one
below, the follower cuts back to that, and asks again (KIP-101, KIP-279).

The high watermark decides nothing here: a follower learns of it one fetch late, and one that cut its log to it and was
elected would lack records that were acknowledged. It is used only for a log that knows no epochs at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.log.epochs import Epochs

UNKNOWN = -1


class Cut(NamedTuple):
    """Cut the log to `offset`; if it does not `agree` with the leader's then, ask about its epochs again."""

    offset: int
    agrees: bool


class Restart(NamedTuple):
    """Throw the log away and begin at `offset`."""

    offset: int


def first_cut(epochs: Epochs, end: int, high: int) -> Cut:
    """Before the first fetch from a new leader."""
    if epochs.latest == UNKNOWN:
        return Cut(min(high, end), agrees=True)
    return Cut(end, agrees=False)  # the leader will say


def agreement(epochs: Epochs, end: int, leader_epoch: int, leader_end: int, high: int) -> Cut:
    """The leader has `leader_epoch` and it ends at `leader_end`: its answer for the latest epoch of this log."""
    if leader_end == UNKNOWN:  # it knows no epochs
        return Cut(min(high, end), agrees=True)
    if leader_epoch == UNKNOWN:  # version 0 of the answer has no epoch
        return Cut(min(leader_end, end), agrees=True)
    epoch, own_end = epochs.end_of(leader_epoch, end)
    if own_end == UNKNOWN:
        return Cut(min(leader_end, end), agrees=True)
    if epoch != leader_epoch:
        return Cut(min(own_end, end), agrees=False)
    return Cut(min(own_end, leader_end, end), agrees=True)


def out_of_range(end: int, leader_start: int, leader_end: int) -> Cut | Restart:
    """The leader has nothing at the end of this log: it is longer than the leader's, or older than all of it."""
    if leader_end < end:  # only after an election of a replica that was not in sync
        return Cut(leader_end, agrees=True)
    if leader_start > end:
        return Restart(leader_start)
    return Cut(end, agrees=True)


def high_watermark(leader_high: int, end: int, high: int) -> int:
    """A follower's high watermark: the leader's, as far as the log goes. It does not go back while one leader leads."""
    return max(high, min(leader_high, end))
