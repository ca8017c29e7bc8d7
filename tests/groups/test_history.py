"""The laws of histories bite: each breach is found, and what only looks like one is not."""

from __future__ import annotations

from typing import Any

from groups.history import (
    Event,
    no_way_back,
    nothing_lost,
    one_owner,
    one_owner_in_a_generation,
    one_reader,
    ownerships,
)


def story(*lines: tuple[str, str, Any] | tuple[str, str]) -> list[Event]:
    """Events one nanosecond apart: (member, what, parts or offsets or (first, last))."""
    events = []
    for at, (member, what, *rest) in enumerate(lines):
        facts: dict[str, Any] = {}
        if what in ("assigned", "revoked", "lost"):
            facts["parts"] = list(rest[0])
        elif what in ("committing", "committed", "refused"):
            facts["offsets"] = {"p": rest[0]}
        elif what == "polled":
            first, last = rest[0]
            facts |= {"part": "p", "first": first, "last": last, "count": last - first + 1}
        if what == "refused":
            facts["error"] = "ILLEGAL_GENERATION"
        events.append(Event(at, "g", member, what, facts))
    return events


def test_an_ownership_lasts_from_assigned_to_revoked() -> None:
    (first, second) = ownerships(story(("a", "assigned", "p"), ("a", "revoked", "p"), ("b", "assigned", "p")))
    assert (first.member, first.start, first.end, first.how) == ("a", 0, 1, "revoked")
    assert (second.member, second.start, second.end) == ("b", 2, None)


def test_two_owners_are_found() -> None:
    assert one_owner(story(("a", "assigned", "p"), ("b", "assigned", "p")))
    assert one_owner(story(("a", "assigned", "p"), ("b", "assigned", "p"), ("a", "revoked", "p")))
    assert one_owner(
        story(("a", "assigned", "pq"), ("a", "revoked", "q"), ("b", "assigned", "q"), ("b", "assigned", "p"))
    )
    assert not one_owner(story(("a", "assigned", "p"), ("a", "killed"), ("b", "assigned", "p"), ("b", "left")))
    assert not one_owner(story(("a", "assigned", "p"), ("b", "assigned", "q"), ("b", "assigned", "r")))


def test_who_lost_a_partition_may_learn_it_late_but_commit_no_more() -> None:
    late = [("a", "assigned", "p"), ("b", "assigned", "p"), ("a", "lost", "p")]
    assert not one_owner(story(*late))
    assert one_owner(story(*late[:2], ("a", "committed", 5), late[2]))
    frozen = [("a", "assigned", "p"), ("a", "frozen"), ("b", "assigned", "p"), ("a", "thawed")]
    assert not one_owner(story(*frozen, ("a", "polled", (0, 4)), ("a", "refused", 5), ("a", "revoked", "p")))
    assert one_owner(story(*frozen, ("a", "committing", 5), ("a", "committed", 5), ("a", "revoked", "p")))
    before = ("a", "assigned", "p"), ("a", "committing", 5), ("a", "frozen"), ("b", "assigned", "p"), ("a", "thawed")
    assert not one_owner(story(*before, ("a", "committed", 5))), "acknowledged before it froze"
    assert not no_way_back(story(*before, ("b", "committed", 6), ("a", "committed", 5)))


def test_a_reader_begins_at_the_commit_and_leaves_nothing_out() -> None:
    good = [("a", "assigned", "p"), ("a", "polled", (0, 4)), ("a", "committing", 5), ("a", "committed", 5)]
    assert not one_reader(story(*good, ("a", "polled", (5, 9))))
    assert one_reader(story(*good, ("a", "polled", (6, 9))))
    assert one_reader(story(*good, ("a", "polled", (4, 9))))
    assert one_reader(story(*good, ("b", "polled", (5, 9)))), "not the owner"
    moved = [*good, ("a", "polled", (5, 9)), ("a", "revoked", "p"), ("b", "assigned", "p")]
    assert not one_reader(story(*moved, ("b", "polled", (5, 7))))
    assert one_reader(story(*moved, ("b", "polled", (10, 11)))), "5 to 9 were never committed"
    killed = [*good, ("a", "polled", (5, 9)), ("a", "committing", 10), ("a", "killed"), ("b", "assigned", "p")]
    assert not one_reader(story(*killed, ("b", "polled", (5, 7)))), "the commit may not have arrived"
    assert not one_reader(story(*killed, ("b", "polled", (10, 11)))), "or it may"
    refused = [*good, ("a", "polled", (5, 9)), ("a", "committing", 10), ("a", "refused", 10)]
    assert one_reader(story(*refused, ("a", "revoked", "p"), ("b", "assigned", "p"), ("b", "polled", (10, 11))))


def test_a_member_may_give_up_while_its_broker_is_away_and_no_commit_is_lost() -> None:
    before = [("a", "assigned", "p"), ("a", "polled", (0, 4)), ("a", "committing", 5), ("a", "committed", 5)]
    away = [*before, ("a", "polled", (5, 9)), ("a", "committing", 10), ("broker", "away")]
    back = [*away, ("a", "refused", 10), ("b", "assigned", "p")]
    assert not one_owner(story(*back, ("a", "revoked", "p"))), "it may learn late that it was expelled"
    assert one_owner(story(*back, ("a", "committed", 10), ("a", "revoked", "p"))), "but commit no more"
    assert not one_reader(story(*back, ("b", "polled", (5, 7)))), "the commit may not have arrived"
    assert not one_reader(story(*back, ("b", "polled", (10, 11)))), "or it may, and was refused when sent again"
    assert one_reader(story(*back, ("b", "polled", (4, 7)))), "4 was committed"
    assert not one_reader(story(*away, ("a", "refused", 10), ("a", "polled", (5, 9))))
    after = [*before, ("broker", "away"), ("a", "polled", (5, 9)), ("a", "committing", 10), ("a", "refused", 10)]
    assert one_reader(story(*after, ("b", "assigned", "p"), ("b", "polled", (10, 11))))


def test_commits_do_not_go_back() -> None:
    assert not no_way_back(story(("a", "committed", 5), ("b", "committed", 5), ("b", "committed", 6)))
    assert no_way_back(story(("a", "committed", 5), ("b", "committed", 4)))


def test_a_record_that_nobody_read_and_a_forgotten_commit_are_found() -> None:
    events = story(("a", "assigned", "p"), ("a", "polled", (0, 4)), ("a", "committed", 5), ("a", "polled", (6, 9)))
    assert not nothing_lost(events[:3], {"p": 5}, {"p": 5})
    assert nothing_lost(events, {"p": 10}, {"p": 5}) == ["p: 1 of 10 records were never read, first 5"]
    assert nothing_lost(events[:3], {"p": 5}, {"p": 4}) == ["p: committed 5, remembered 4"]
    assert nothing_lost(events[:3], {"p": 5}, {}) == ["p: committed 5, remembered None"]


def test_a_generation_has_one_owner_and_generations_rise() -> None:
    def assigned(at: int, member: str, generation: int, part: str) -> Event:
        return Event(at, "g", member, "assigned", {"parts": [part], "generation": generation})

    assert not one_owner_in_a_generation([assigned(0, "a", 1, "p"), assigned(1, "b", 2, "p")])
    assert one_owner_in_a_generation([assigned(0, "a", 1, "p"), assigned(1, "b", 1, "p")])
    assert one_owner_in_a_generation([assigned(0, "a", 2, "p"), assigned(1, "a", 1, "q")])
