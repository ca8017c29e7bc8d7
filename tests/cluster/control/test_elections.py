"""Leader election: who becomes leader, and who is in sync afterwards."""

from __future__ import annotations

from ottla.cluster.control.elections import choose_after_loss, choose_among, choose_before_stop, choose_preferred


def test_after_a_loss_the_first_replica_that_is_in_sync_and_online() -> None:
    assert choose_after_loss((1, 2, 3), (3, 2), {2, 3}, unclean=False) == (2, (3, 2))
    assert choose_after_loss((1, 2, 3), (1, 3), {2, 3}, unclean=False) == (3, (3,)), "who is away is not in sync"


def test_without_one_in_sync_only_an_unclean_election_has_a_leader() -> None:
    assert choose_after_loss((1, 2, 3), (1,), {2, 3}, unclean=False) is None
    assert choose_after_loss((1, 2, 3), (1,), {2, 3}, unclean=True) == (2, (2,))
    assert choose_after_loss((1, 2), (1,), set(), unclean=True) is None


def test_a_move_ends_with_a_leader_of_its_targets() -> None:
    assert choose_among((4, 5), (1, 5), {1, 4, 5}) == (5, (1, 5))
    assert choose_among((4, 5), (1, 5), {1, 4}) is None


def test_the_preferred_leader_is_the_first_replica_or_nobody() -> None:
    assert choose_preferred((1, 2), (2, 1), {1, 2}) == (1, (2, 1))
    assert choose_preferred((1, 2), (2,), {1, 2}) is None


def test_a_broker_that_stops_hands_over_to_one_that_stays() -> None:
    assert choose_before_stop((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1, 2}) == (3, (3,))
    assert choose_before_stop((1, 2), (1, 2), {1, 2}, {1, 2}) is None
