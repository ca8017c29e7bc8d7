"""A member's steps, one at a time."""

from __future__ import annotations

import pytest

from ottla.coord.groups.consumer_member import Held, Holding, MemberState
from ottla.coord.groups.reconciliation import Goal, Owned, reconcile

T, U = b"t" * 16, b"u" * 16


def goal(epoch: int, *indexes: int, topics: frozenset[bytes] = frozenset((T, U))) -> Goal:
    return Goal(epoch, {T: frozenset(indexes)} if indexes else {}, topics)


def held(*indexes: int, since: int = 1) -> Held:
    return {T: dict.fromkeys(indexes, since)} if indexes else {}


def step(
    holding: Holding,
    towards: Goal,
    owned: Owned | None = None,
    taken: tuple[int, ...] = (),
    *,
    changed: bool = False,
) -> Holding:
    return reconcile(holding, towards, owned=owned, is_taken=lambda _, index: index in taken, changed=changed)


def test_who_is_where_it_should_be_stays() -> None:
    there = Holding(2, 1, MemberState.STABLE, held(0))
    assert step(there, goal(2, 0)) is there
    assert step(there, goal(2, 0), changed=True) is there


def test_what_is_free_is_taken_at_once() -> None:
    after = step(Holding(1, 0, MemberState.STABLE, held(0)), goal(2, 0, 1))
    assert after == Holding(2, 1, MemberState.STABLE, {T: {0: 1, 1: 2}})


def test_what_others_hold_is_waited_for() -> None:
    after = step(Holding(), goal(2, 0, 1), taken=(0,))
    assert after == Holding(2, 0, MemberState.UNRELEASED, held(1, since=2))
    assert step(after, goal(2, 0, 1), taken=(0, 1)) == after._replace(previous_epoch=2)
    assert step(after, goal(2, 0, 1), taken=(1,)) == Holding(2, 2, MemberState.STABLE, held(0, 1, since=2))


@pytest.mark.parametrize("owned", [None, {T: {0, 1}}, {T: {1}}])
def test_what_is_to_be_let_go_of_holds_the_epoch_until_it_is(owned: Owned | None) -> None:
    before = Holding(1, 0, MemberState.STABLE, held(0, 1))
    after = step(before, goal(2, 0), owned)
    assert after == Holding(1, 1, MemberState.UNREVOKED, held(0), held(1))
    assert step(after, goal(3, 0), owned) is after, "whatever the target has become"
    assert step(after, goal(3, 0), {T: {0}}) == Holding(3, 1, MemberState.STABLE, held(0))


def test_what_it_owns_no_longer_anyhow_need_not_be_waited_for() -> None:
    assert step(Holding(1, 0, MemberState.STABLE, held(0, 1)), goal(2, 0), {T: {0}}) == Holding(
        2, 1, MemberState.STABLE, held(0)
    )


def test_what_it_was_letting_go_of_it_may_take_again() -> None:
    before = Holding(1, 1, MemberState.UNREVOKED, held(0), held(1))
    assert step(before, goal(3, 0, 1), {T: {0}}, taken=(0, 1)) == Holding(3, 1, MemberState.STABLE, {T: {0: 1, 1: 3}})


def test_a_topic_that_it_is_not_subscribed_to_is_nothing_to_it() -> None:
    nothing = frozenset[bytes]()
    assert step(Holding(), goal(2, 0, topics=nothing)) == Holding(2, 0, MemberState.STABLE)
    before = Holding(2, 1, MemberState.STABLE, held(0))
    after = step(before, goal(2, 0, topics=nothing), changed=True)
    assert after == Holding(2, 2, MemberState.UNREVOKED, {}, held(0))
    assert step(before, goal(2, 0, topics=nothing), {}, changed=True) == Holding(2, 2, MemberState.STABLE)


def test_while_it_lets_go_of_one_topic_it_may_have_to_let_go_of_another() -> None:
    before = Holding(2, 2, MemberState.UNREVOKED, {U: {0: 1}}, held(0))
    after = step(before, goal(3, topics=frozenset((T,))), changed=True)
    assert after == Holding(2, 2, MemberState.UNREVOKED, {}, {T: {0: 1}, U: {0: 1}})
