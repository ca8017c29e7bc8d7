"""The leader's view of its followers: the high watermark, and who is in sync."""

from random import Random

import pytest

from ottla.replica.leader import UNKNOWN, Leader, Proposal

LAG_MS = 100


def leader_of(*others: int, isr: tuple[int, ...] | None = None, end: int = 0, high: int = 0, epoch: int = 1) -> Leader:
    """Broker 0 leads, with these followers."""
    return Leader(
        0,
        replicas=(0, *others),
        isr=(0, *others) if isr is None else isr,
        epoch=epoch,
        version=7,
        end=end,
        high=high,
        now_ms=0,
        lag_ms=LAG_MS,
        epoch_of=lambda broker: UNKNOWN,
    )


def fetch(leader: Leader, replica: int, offset: int, now_ms: int = 0, broker_epoch: int = UNKNOWN) -> bool:
    return leader.note_fetch(replica, offset, start=0, broker_epoch=broker_epoch, now_ms=now_ms)


def test_a_leader_alone_commits_what_it_appends() -> None:
    leader = leader_of()
    assert leader.note_append(5, now_ms=0)
    assert leader.high == 5
    assert leader.propose(10_000) is None


def test_a_record_is_committed_when_every_member_has_it() -> None:
    leader = leader_of(1, 2)
    assert not leader.note_append(10, now_ms=0)
    assert not fetch(leader, 1, 10)
    assert leader.high == 0
    assert fetch(leader, 2, 4)
    assert leader.high == 4
    assert fetch(leader, 2, 10)
    assert leader.high == 10


def test_a_new_leader_starts_from_the_high_watermark_that_it_knew() -> None:
    leader = leader_of(1, end=10, high=6)
    assert leader.high == 6
    assert not fetch(leader, 1, 6), "what is committed is not committed again"
    assert fetch(leader, 1, 10)


def test_the_high_watermark_is_never_above_the_end() -> None:
    assert leader_of(1, end=3, high=9).high == 3


def test_a_silent_follower_leaves_after_the_lag_and_holds_the_high_watermark_until_it_is_agreed() -> None:
    leader = leader_of(1, 2)
    leader.note_append(10, now_ms=0)
    fetch(leader, 1, 10, now_ms=LAG_MS)
    fetch(leader, 2, 4, now_ms=1)
    assert leader.propose(LAG_MS) is None
    assert leader.propose(LAG_MS + 2) == Proposal((0, 1), 1, 7)
    assert leader.high == 4
    assert leader.propose(LAG_MS + 50) is None, "one proposal at a time"
    assert leader.accept((0, 1), epoch=1, version=8, now_ms=LAG_MS + 3)
    assert leader.high == 10
    assert leader.isr == (0, 1)
    assert leader.version == 8


def test_a_follower_that_never_fetches_leaves_too() -> None:
    leader = leader_of(1)
    assert leader.propose(LAG_MS) is None
    assert leader.propose(LAG_MS + 1) == Proposal((0,), 1, 7)


def test_an_idle_partition_keeps_its_members() -> None:
    leader = leader_of(1, end=4, high=4)
    fetch(leader, 1, 4)
    assert leader.propose(100 * LAG_MS) is None, "it has everything"


def test_under_steady_load_a_follower_that_reaches_the_end_of_its_last_fetch_keeps_up() -> None:
    leader = leader_of(1)
    for turn in range(1, 100):
        leader.note_append(10 * turn, now_ms=50 * turn)
        fetch(leader, 1, 10 * (turn - 1), now_ms=50 * turn)  # one fetch behind, always
        assert leader.propose(50 * turn) is None


def test_a_follower_may_join_with_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = leader_of(1, isr=(0,), end=10, high=4)
    leader.advance(0)
    assert leader.high == 10
    for offset in (3, 9):
        fetch(leader, 1, offset)
        assert not leader.may_propose(1)
        assert leader.propose(0) is None
    fetch(leader, 1, 10)
    assert leader.may_propose(1)
    assert leader.propose(0) == Proposal((0, 1), 1, 7)


def test_a_follower_below_the_start_of_the_epoch_may_not_join_although_it_has_the_high_watermark() -> None:
    leader = leader_of(1, 2, isr=(0, 2), end=10, high=4)
    fetch(leader, 1, 6)
    assert leader.high == 4
    assert not leader.may_propose(1), "6 to 9 are of older epochs, and it may have others there"
    fetch(leader, 1, 10)
    assert leader.may_propose(1)


def test_who_is_proposed_is_waited_for_before_the_answer() -> None:
    leader = leader_of(1, isr=(0,))
    leader.note_append(10, now_ms=0)
    fetch(leader, 1, 10)
    assert leader.propose(0) is not None
    assert not leader.note_append(20, now_ms=10 * LAG_MS)
    assert leader.high == 10
    assert leader.accept((0, 1), epoch=1, version=8, now_ms=10 * LAG_MS) is False
    assert fetch(leader, 1, 20)


def test_a_follower_that_keeps_up_is_waited_for_before_it_has_joined() -> None:
    leader = leader_of(1, isr=(0,))
    leader.note_append(10, now_ms=0)
    fetch(leader, 1, 5, now_ms=0)
    fetch(leader, 1, 10, now_ms=1)
    assert not leader.note_append(20, now_ms=2), "else it could not join under load"
    assert leader.advance(1 + LAG_MS + 1), "but not for ever"
    assert leader.high == 20


def test_a_refused_proposal_changes_nothing() -> None:
    leader = leader_of(1)
    leader.note_append(10, now_ms=0)
    proposal = leader.propose(LAG_MS + 1)
    assert proposal is not None
    leader.drop_proposal(Proposal((0,), 1, 6))
    assert leader.proposal is proposal, "that was another"
    leader.drop_proposal(proposal)
    assert leader.maximal == {0, 1}
    assert leader.high == 0
    assert leader.propose(LAG_MS + 1) == proposal, "and it may be tried again"


def test_answers_from_the_past_are_ignored() -> None:
    leader = leader_of(1)
    leader.propose(LAG_MS + 1)
    assert not leader.accept((0,), epoch=0, version=9, now_ms=0)
    assert not leader.accept((0,), epoch=1, version=6, now_ms=0)
    assert leader.isr == (0, 1)
    assert leader.proposal is not None


def test_a_newer_state_of_the_same_epoch_ends_a_proposal() -> None:
    leader = leader_of(1)
    leader.note_append(10, now_ms=0)
    leader.propose(LAG_MS + 1)
    assert leader.lead(replicas=(0, 1), isr=(0,), epoch=1, version=8, now_ms=LAG_MS + 2)
    assert leader.proposal is None
    assert leader.high == 10


def test_a_member_that_has_lost_committed_records_leaves_at_once() -> None:
    leader = leader_of(1, 2)
    leader.note_append(10, now_ms=0)
    fetch(leader, 1, 10)
    fetch(leader, 2, 10)
    fetch(leader, 1, 3)
    assert leader.high == 10
    assert leader.may_propose(1)
    assert leader.propose(0) == Proposal((0, 2), 1, 7)


def test_only_live_brokers_join_and_only_in_their_present_life() -> None:
    alive: dict[int, int] = {}
    leader = Leader(
        0,
        replicas=(0, 1),
        isr=(0,),
        epoch=1,
        version=0,
        end=5,
        high=5,
        now_ms=0,
        lag_ms=LAG_MS,
        epoch_of=alive.get,
    )
    fetch(leader, 1, 5, broker_epoch=40)
    assert not leader.may_propose(1), "not alive"
    alive[1] = 41
    assert not leader.may_propose(1), "that was its life before"
    fetch(leader, 1, 5, broker_epoch=41)
    assert leader.may_propose(1)
    fetch(leader, 1, 5)
    assert leader.may_propose(1), "an old version of Fetch does not tell the epoch"


def test_a_proposal_tells_the_lives_of_which_the_leader_knows_what_they_have() -> None:
    leader = leader_of(1, 2, isr=(0,), end=5, high=5)
    fetch(leader, 1, 5, broker_epoch=40)
    fetch(leader, 2, 5)
    proposal = leader.propose(0)
    fetch(leader, 1, 0, broker_epoch=41)  # it restarted with a shorter log
    assert proposal == leader.proposal == Proposal((0, 1, 2), 1, 7, lives=((1, 40),))


def test_after_a_new_epoch_a_follower_outside_has_to_show_again_that_it_keeps_up() -> None:
    leader = leader_of(1, 2)
    leader.note_append(10, now_ms=0)
    fetch(leader, 1, 10, now_ms=0)
    fetch(leader, 2, 10, now_ms=0)
    leader.lead(replicas=(0, 1, 2), isr=(0, 2), epoch=2, version=9, now_ms=1)
    assert leader.epoch_start == 10
    leader.note_append(20, now_ms=2)
    assert fetch(leader, 2, 20, now_ms=3), "1 died: nobody waits for it"
    assert leader.high == 20


def test_replicas_come_and_go() -> None:
    leader = leader_of(1)
    leader.note_append(4, now_ms=0)
    leader.lead(replicas=(0, 2), isr=(0,), epoch=2, version=9, now_ms=1)
    assert leader.high == 4
    with pytest.raises(KeyError):
        fetch(leader, 1, 4)
    fetch(leader, 2, 4)
    assert leader.propose(1) == Proposal((0, 2), 2, 9)


def test_the_lowest_log_start_is_known_when_it_was_told() -> None:
    leader = leader_of(1, 2)
    assert leader.low() == UNKNOWN
    leader.note_fetch(1, 5, start=3, broker_epoch=UNKNOWN, now_ms=0)
    leader.note_fetch(2, 5, start=2, broker_epoch=UNKNOWN, now_ms=0)
    assert leader.low() == 2


@pytest.mark.parametrize("seed", range(100))
def test_what_is_committed_is_on_every_replica_that_may_be_elected(seed: int) -> None:
    random, now_ms, version = Random(seed), 0, 7
    leader = leader_of(1, 2)
    ends = {0: 0, 1: 0, 2: 0}
    agreed = {0, 1, 2}  # the set in the store, also while the response is in flight
    held: list[Proposal] = []  # proposals that the controller has not seen
    answers: list[tuple[tuple[int, ...], int]] = []
    for _ in range(300):
        now_ms += random.randrange(20)
        before = leader.high
        match random.randrange(6):
            case 0 | 1:
                ends[0] += random.randrange(1, 10)
                leader.note_append(ends[0], now_ms)
            case 2 | 3:
                follower = random.choice((1, 2))
                fetch(leader, follower, ends[follower], now_ms)
                ends[follower] = random.randint(ends[follower], ends[0])  # what the answer brings
            case 4:
                proposal = leader.propose(now_ms)
                held += [proposal] if proposal else []
            case _:
                if held and random.random() < 0.5:
                    one = held.pop()
                    if random.random() < 0.3:
                        leader.drop_proposal(one)
                    else:
                        version += 1
                        agreed = set(one.isr)
                        answers.append((one.isr, version))
                elif answers:
                    isr, at = answers.pop()
                    leader.accept(isr, epoch=1, version=at, now_ms=now_ms)
        assert leader.high >= before
        assert all(ends[replica] >= leader.high for replica in agreed)
        assert agreed <= leader.maximal


class Session:
    def __init__(self) -> None:
        self.used_ms = 0
        self.before_ms: int | None = None


def test_a_follower_of_an_idle_partition_keeps_up_as_long_as_its_session_is_used() -> None:
    leader, session = leader_of(1), Session()
    fetch(leader, 1, 0, now_ms=0)
    leader.followers[1].session = session
    session.used_ms = 50 * LAG_MS  # fetches without this partition
    leader.note_append(5, now_ms=50 * LAG_MS + 1)
    assert leader.propose(50 * LAG_MS + 2) is None
    assert leader.propose(51 * LAG_MS + 1) == Proposal((0,), 1, 7), "but now it has to say something"


def test_a_follower_whose_session_is_silent_leaves_soon_after_the_next_append() -> None:
    leader, session = leader_of(1), Session()
    fetch(leader, 1, 0, now_ms=0)
    leader.followers[1].session = session
    leader.note_append(5, now_ms=50 * LAG_MS)
    assert leader.propose(50 * LAG_MS) == Proposal((0,), 1, 7)
