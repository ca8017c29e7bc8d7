"""Followers that truncate their logs to match a leader's, in the classic cases and in many random ones."""

from __future__ import annotations

from random import Random

import pytest

from ottla.disk import RealDisk
from ottla.log.epochs import Epochs
from ottla.replica.follower import UNKNOWN, Cut, Restart, agreement, first_cut, high_watermark, out_of_range


class Replica:
    """A log of (epoch, value), and its leader epoch cache."""

    def __init__(self, *epochs: int) -> None:
        self.log: list[tuple[int, str]] = []
        self.epochs = Epochs("", RealDisk(), [])
        self.high = 0
        for epoch in epochs:
            self.append(epoch, f"{epoch}@{len(self.log)}")

    @property
    def end(self) -> int:
        return len(self.log)

    def append(self, epoch: int, value: str) -> None:
        self.epochs.recall(epoch, self.end)
        self.log.append((epoch, value))

    def lead(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.end)

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.cut_end(self.end)
        self.high = min(self.high, self.end)

    def copy(self, leader: Replica, count: int = 1 << 30) -> None:
        for epoch, value in leader.log[self.end : self.end + count]:
            self.append(epoch, value)

    def agree(self, leader: Replica) -> int:
        """Look up epochs as with OffsetForLeaderEpoch. Returns the number of requests."""
        cut, asked = first_cut(self.epochs, self.end, self.high), 0
        self.cut(cut.offset)
        while not cut.agrees:
            asked += 1
            assert asked < 50, "it ends"
            found = leader.epochs.end_of(self.epochs.latest, leader.end)
            cut = agreement(self.epochs, self.end, *found, self.high)
            self.cut(cut.offset)
            cut = cut if self.epochs.latest != UNKNOWN else Cut(cut.offset, agrees=True)
        return asked

    def fetch(self, leader: Replica, count: int) -> bool:
        """One Fetch of version 12: a diverging epoch, or records. Returns whether it got records."""
        latest = self.epochs.latest
        if latest != UNKNOWN:
            epoch, end = leader.epochs.end_of(latest, leader.end)
            if epoch != latest or end < self.end:
                self.cut(agreement(self.epochs, self.end, epoch, end, self.high).offset)
                return False
        self.copy(leader, count)
        return True


def test_records_that_are_acknowledged_but_not_yet_known_to_be_committed_are_not_cut_off() -> None:
    """KIP-101, first case: the follower has the record, not the high watermark, restarts, and is elected."""
    leader, follower = Replica(0, 0), Replica(0, 0)
    leader.high, follower.high = 2, 1
    follower.agree(leader)
    assert follower.end == 2


def test_two_that_wrote_at_the_same_offset_do_not_both_keep_it() -> None:
    """KIP-101, second case: both crashed, one restarted first and wrote another record there."""
    former, leader = Replica(0, 0), Replica(0, 1)
    former.agree(leader)
    former.copy(leader)
    assert former.log == leader.log


def test_two_quick_leader_changes() -> None:
    """KIP-279: each of leader and follower has an epoch that the other lacks."""
    first, second = Replica(0, 0, 1, 1, 1), Replica(0, 0, 2, 2)
    first.lead(3)
    second.agree(first)
    second.copy(first)
    assert second.log == first.log


def test_a_follower_whose_latest_epoch_the_leader_does_not_have_asks_more_than_once() -> None:
    follower, leader = Replica(0, 1, 1, 3, 3), Replica(0, 1, 1, 2, 2, 2)
    leader.lead(4)
    assert follower.agree(leader) > 1
    assert follower.log == leader.log[:3]


def test_an_epoch_in_which_nothing_was_written_does_not_hold_the_follower_up() -> None:
    follower, leader = Replica(0, 0), Replica(0, 0)
    follower.lead(1)
    leader.lead(2)
    assert not follower.fetch(leader, 10), "the leader knows nothing of epoch 1"
    assert follower.end == 2
    assert follower.fetch(leader, 10)


def test_a_log_without_epochs_goes_by_its_high_watermark() -> None:
    assert first_cut(Epochs("", RealDisk(), []), 10, 6) == Cut(6, agrees=True)
    assert first_cut(Epochs("", RealDisk(), [(0, 0)]), 10, 6) == Cut(10, agrees=False)


def test_a_leader_without_epochs_leaves_only_the_high_watermark() -> None:
    assert agreement(Replica(0, 1).epochs, 2, UNKNOWN, UNKNOWN, 1) == Cut(1, agrees=True)


def test_an_answer_of_version_0_has_no_epoch() -> None:
    assert agreement(Replica(0, 0, 1).epochs, 3, UNKNOWN, 2, 0) == Cut(2, agrees=True)


def test_a_leader_whose_log_begins_after_the_followers_epoch_cuts_it_there() -> None:
    follower = Replica(3, 3, 3)
    assert agreement(follower.epochs, 3, 1, 2, 0).offset == 0, "nothing of what it has is the leader's"


def test_out_of_range() -> None:
    assert out_of_range(10, leader_start=2, leader_end=7) == Cut(7, agrees=True)
    assert out_of_range(10, leader_start=12, leader_end=20) == Restart(12)
    assert out_of_range(10, leader_start=2, leader_end=20) == Cut(10, agrees=True)
    assert out_of_range(10, leader_start=10, leader_end=10) == Cut(10, agrees=True)


def test_the_high_watermark_of_a_follower_is_at_most_its_end_and_does_not_go_back() -> None:
    assert high_watermark(10, 6, 2) == 6
    assert high_watermark(4, 6, 2) == 4
    assert high_watermark(1, 6, 2) == 2


@pytest.mark.parametrize("seed", range(200))
def test_after_any_elections_a_follower_that_agrees_is_a_prefix_of_its_leader(seed: int) -> None:
    random = Random(seed)
    replicas = [Replica(), Replica(), Replica()]
    for epoch in range(1, 25):
        leader = random.choice(replicas)  # clean or not: logs must match either way
        leader.lead(epoch)
        for _ in range(random.randrange(4)):
            leader.append(epoch, f"{epoch}@{leader.end}")
        for follower in replicas:
            if follower is leader or random.random() < 0.3:
                continue
            if seed % 2:
                follower.agree(leader)
                follower.copy(leader, random.randrange(4))
            else:
                for _ in range(60):
                    if follower.fetch(leader, random.randrange(4)):
                        break
                else:
                    pytest.fail("no agreement")
            assert follower.log == leader.log[: follower.end]
