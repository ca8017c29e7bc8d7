"""A follower's log has the leader's bytes, epochs, producers and transactions. What is broken is refused whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log.making import NOW_MS, a_log, append, end_transaction, everything, from_producer, in_transaction, produced

from ottla.errors import BrokerError, ErrorCode
from ottla.log.replicate import replicate

if TYPE_CHECKING:
    from pathlib import Path


def test_a_follower_that_takes_over_answers_retries_of_its_leaders_last_five_batches(tmp_path: Path) -> None:
    leader, follower = a_log(tmp_path / "leader"), a_log(tmp_path / "follower")
    first = [append(leader, from_producer(sequence)) for sequence in range(6)]
    replicate(follower, memoryview(everything(leader)), now_ms=NOW_MS)
    for sequence in range(1, 6):
        retried = append(follower, from_producer(sequence), epoch=1)
        assert (retried.base, retried.duplicate) == (first[sequence].base, True)
    assert follower.end == 6


def test_a_copy_is_the_same_bytes(tmp_path: Path) -> None:
    leader = a_log(tmp_path / "leader", segment_bytes=300)
    follower = a_log(tmp_path / "follower", segment_bytes=500)
    append(leader, produced(3), epoch=2)
    append(leader, from_producer(0, count=2), epoch=2)
    append(leader, in_transaction(0, 8), epoch=4)
    end_transaction(leader, commit=False, producer_id=8, epoch=4)
    offset = 0
    while found := leader.read(offset, 200, offset_max=leader.end):
        offset = replicate(follower, memoryview(found.read()), now_ms=NOW_MS)
    assert everything(follower) == everything(leader)
    assert follower.epochs.entries == leader.epochs.entries == [(2, 0), (4, 5)]
    assert follower.list_aborted(0, follower.end) == leader.list_aborted(0, leader.end) == [(8, 5)]
    assert [one[:4] for one in follower.producers.active()] == [one[:4] for one in leader.producers.active()]


def test_a_broken_or_backward_copy_is_refused_whole(tmp_path: Path) -> None:
    leader, follower = a_log(tmp_path / "leader"), a_log(tmp_path / "follower")
    append(leader, produced(3))
    append(leader, produced(3))
    data = everything(leader)
    broken = bytearray(data)
    broken[-1] ^= 1
    with pytest.raises(BrokerError) as failure:
        replicate(follower, memoryview(broken), now_ms=NOW_MS)
    assert failure.value.code == ErrorCode.CORRUPT_MESSAGE
    assert follower.end == follower.size == 0
    assert replicate(follower, memoryview(data), now_ms=NOW_MS) == 6
    with pytest.raises(BrokerError):
        replicate(follower, memoryview(data), now_ms=NOW_MS)
    assert follower.end == 6
    assert replicate(follower, memoryview(data[:10]), now_ms=NOW_MS) == 6, "a piece of a batch is nothing"
