"""The guarantees of a group, and that each violation is found."""

from __future__ import annotations

import pytest

from ottla.sim.members import GroupLedger

P = ("t", 0)


@pytest.fixture
def wrong() -> list[str]:
    return []


@pytest.fixture
def ledger(wrong: list[str]) -> GroupLedger:
    return GroupLedger(wrong.append)


def test_nothing_is_wrong_when_all_is_well(ledger: GroupLedger, wrong: list[str]) -> None:
    ledger.note_owner(1, P, "a")
    ledger.note_commit(P, 5, "a")
    ledger.note_owner(2, P, "b")
    ledger.check_fetch(P, 5, 5, "b")
    ledger.note_commit(P, 5, "b")
    ledger.note_commit(P, 9, "b")
    assert wrong == []


def test_two_owners_in_one_generation(ledger: GroupLedger, wrong: list[str]) -> None:
    ledger.note_owner(1, P, "a")
    ledger.note_owner(1, P, "b")
    assert "V13" in wrong[0]


def test_a_commit_of_a_member_that_was_left_behind(ledger: GroupLedger, wrong: list[str]) -> None:
    ledger.note_commit(P, 9, "b")
    ledger.note_commit(P, 5, "a")
    assert "V13" in wrong[0]


def test_a_commit_that_was_lost(ledger: GroupLedger, wrong: list[str]) -> None:
    ledger.note_commit(P, 9, "a")
    ledger.check_fetch(P, -1, 9, "b")
    assert "V13" in wrong[0]
