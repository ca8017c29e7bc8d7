"""Committed offsets in memory: transactions and removal."""

from __future__ import annotations

from ottla.coord.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coord.groups.offsets import NO_EXPIRY, CommittedOffset, Offsets
from ottla.coord.machine import NOBODY

KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=9)


def offset_of(offsets: Offsets) -> int | None:
    found = offsets.get("g", "t", 3)
    return None if found is None else found.offset


def test_the_last_commit_counts_until_it_is_removed() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(5), 0, NOBODY)
    offsets.apply(KEY, value(4), 1, NOBODY)
    assert offsets.get("g", "t", 3) == CommittedOffset(4, -1, "", 9, NO_EXPIRY, bytes(16), 1)
    assert list(offsets.partitions("g")) == [("t", 3)]
    offsets.apply(KEY, None, 2, NOBODY)
    assert offset_of(offsets) is None
    assert offsets.by_group == {}
    offsets.apply(KEY, None, 3, NOBODY)


def test_a_transaction_s_offset_lies_aside_until_it_is_committed() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(5), 0, 77)
    assert offset_of(offsets) is None
    assert offsets.unstable("g", "t", 3)
    assert not offsets.unstable("g", "t", 4)
    assert not offsets.unstable("other", "t", 3)
    assert list(offsets.partitions("g")) == [("t", 3)]
    offsets.end_transaction(77, committed=True)
    assert offset_of(offsets) == 5
    assert (offsets.pending, offsets.open) == ({}, {})


def test_an_aborted_transaction_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(5), 0, NOBODY)
    offsets.apply(KEY, value(9), 1, 77)
    offsets.end_transaction(77, committed=False)
    assert offset_of(offsets) == 5
    assert not offsets.unstable("g", "t", 3)


def test_of_a_transaction_and_a_commit_the_record_that_was_written_last_wins() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(9), 0, 77)
    offsets.apply(KEY, value(5), 1, NOBODY)
    offsets.end_transaction(77, committed=True)
    assert offset_of(offsets) == 5
    offsets.apply(KEY, value(9), 2, 77)
    offsets.end_transaction(77, committed=True)
    assert offset_of(offsets) == 9


def test_two_open_transactions_do_not_mix() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(1), 0, 77)
    offsets.apply(KEY, value(2), 1, 78)
    offsets.end_transaction(78, committed=True)
    assert offset_of(offsets) == 2
    assert offsets.unstable("g", "t", 3)
    offsets.end_transaction(77, committed=True)
    assert offset_of(offsets) == 2, "its record is the older one"
    assert not offsets.unstable("g", "t", 3)


def test_a_removal_also_removes_what_open_transactions_hold() -> None:
    offsets = Offsets()
    offsets.apply(KEY, value(1), 0, 77)
    offsets.apply(KEY, None, 1, NOBODY)
    assert not offsets.unstable("g", "t", 3)
    offsets.end_transaction(77, committed=True)
    assert offset_of(offsets) is None


def test_a_marker_of_somebody_who_committed_nothing_here_is_nothing() -> None:
    offsets = Offsets()
    offsets.end_transaction(5, committed=True)
    assert offsets.by_group == {}
