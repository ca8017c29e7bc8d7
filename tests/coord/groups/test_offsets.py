"""Committed offsets in memory and as records: transactions, removal, and the same bytes as Kafka's."""

from __future__ import annotations

import pytest

from ottla.coord import formats
from ottla.coord.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coord.groups.offsets import NO_EXPIRY, CommittedOffset, Offsets, record, tombstone
from ottla.coord.machine import NOBODY
from ottla.errors import BrokerError

KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=9)


def offset_of(offsets: Offsets) -> int | None:
    found = offsets.get("g", "t", 3)
    return None if found is None else found.offset


@pytest.mark.parametrize(("epoch", "expires_ms"), [(7, NO_EXPIRY), (-1, 1234)])
def test_a_record_says_what_was_committed_in_kafka_s_format(epoch: int, expires_ms: int) -> None:
    made = record("grüße", "t", 3, 42, epoch, "text", 99, expires_ms)
    key = OffsetCommitKey(group="grüße", topic="t", partition=3)
    content = OffsetCommitValue(
        offset=42, leader_epoch=epoch, metadata="text", commit_timestamp=99, expire_timestamp=expires_ms
    )
    assert formats.decode_record(formats.GROUPS, made.key, made.value) == (key, content)
    if expires_ms == NO_EXPIRY:
        assert made == formats.encode_record(key, content), "packed by hand, and still the declared format"
    assert tombstone("grüße", "t", 3) == (made.key, None)


@pytest.mark.parametrize(
    ("group", "topic", "text"), [("x" * 32768, "t", ""), ("g", "t" * 32768, ""), ("g", "t", "x" * 32768)]
)
def test_what_a_record_cannot_hold_is_refused(group: str, topic: str, text: str) -> None:
    with pytest.raises(BrokerError):
        record(group, topic, 0, 1, -1, text, 0, NO_EXPIRY)


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
