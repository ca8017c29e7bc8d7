"""The follower's side of a fetch session: full until the leader assigns an id, then epochs count up and wrap around."""

from __future__ import annotations

from ottla.replica.asking import EPOCH_MAX, FollowerSession


def test_a_session_begins_when_the_leader_gives_it_an_id() -> None:
    session = FollowerSession()
    assert (session.id, session.epoch) == (0, 0)
    session.advance(0)
    assert (session.id, session.epoch) == (0, 0), "a leader without room for sessions: full fetches go on"
    session.advance(7)
    assert (session.id, session.epoch) == (7, 1)
    session.advance(7)
    assert (session.id, session.epoch) == (7, 2)


def test_the_epoch_goes_around_past_zero() -> None:
    session = FollowerSession()
    session.advance(7)
    session.epoch = EPOCH_MAX
    session.advance(7)
    assert session.epoch == 1, "0 would ask for a new session"


def test_a_reset_names_the_old_session_so_that_the_leader_ends_it() -> None:
    session = FollowerSession()
    session.advance(7)
    session.reset()
    assert (session.id, session.epoch) == (7, 0)
    session.advance(9)
    assert (session.id, session.epoch) == (9, 1)
