"""The members of a group: leader, static instances, and the protocol that all of them support."""

from __future__ import annotations

import pytest

from ottla.coord.groups.member import ClassicMember, Waiting
from ottla.coord.groups.roster import Roster
from ottla.errors import BrokerError, ErrorCode


def member(name: str, *protocols: str, instance: str | None = None, rebalance_ms: int = 1) -> ClassicMember:
    offered = tuple((protocol, name.encode()) for protocol in protocols or ("x",))
    return ClassicMember(name, instance, "c", "/h", session_ms=1, rebalance_ms=rebalance_ms, protocols=offered)


def roster_of(*members: ClassicMember) -> Roster:
    roster = Roster()
    for one in members:
        roster.add(one)
    return roster


def test_the_first_leads_until_it_goes() -> None:
    roster = roster_of(member("a"), member("b"), member("c"))
    assert roster.leader == "a"
    roster.remove("b")
    roster.remove("stranger")
    roster.remove("a")
    assert roster.leader == "c"
    roster.remove("c")
    assert roster.leader is None


def test_a_leader_that_has_not_joined_makes_way_for_one_that_has() -> None:
    a, b = member("a"), member("b")
    roster = roster_of(a, b)
    assert not roster.elect()
    roster.wait(b, Waiting(1, 9))
    assert roster.elect()
    assert (roster.leader, roster.joined) == ("b", 1)
    assert roster.wait(b, None) == Waiting(1, 9)
    assert roster.joined == 0
    assert not Roster().elect()


def test_each_votes_for_its_favourite_among_what_all_speak() -> None:
    roster = roster_of(member("a", "x", "y", "z"), member("b", "z", "y"), member("c", "q", "y", "z"))
    assert roster.choose() == "y"
    roster.remove("c")
    assert roster.choose() == "y", "one vote each: the first that was voted for"
    roster.update(roster.members["a"], (("z", b""),), 5, 6)
    assert roster.choose() == "z"
    assert (roster.members["a"].session_ms, roster.members["a"].rebalance_ms) == (5, 6)
    assert roster.speaks((("z", b""),))
    assert not roster.speaks((("y", b""), ("x", b"")))


def test_a_static_member_keeps_its_place_under_another_id() -> None:
    one = member("a", instance="i")
    roster = roster_of(one, member("b"))
    roster.rename(one, "a2")
    assert (roster.leader, roster.static, set(roster.members)) == ("a2", {"i": "a2"}, {"a2", "b"})
    assert roster.check("a2", "i") is roster.check("a2", None) is one
    roster.remove("a2")
    assert roster.static == {}


@pytest.mark.parametrize(
    ("name", "instance", "code"),
    [
        ("a", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_speaks_in_another_s_name_is_refused(name: str, instance: str | None, code: ErrorCode) -> None:
    roster = roster_of(member("a", instance="i"), member("b"))
    with pytest.raises(BrokerError) as refused:
        roster.check(name, instance)
    assert refused.value.code is code


def test_the_slowest_member_sets_the_time_of_a_rebalance() -> None:
    assert roster_of(member("a", rebalance_ms=5), member("b", rebalance_ms=9)).rebalance_ms == 9
    assert Roster().rebalance_ms == 0


def test_what_a_member_says_for_a_protocol_that_it_no_longer_offers_is_what_it_says_for_its_favourite() -> None:
    one = ClassicMember("a", None, "c", "/h", session_ms=1, rebalance_ms=1, protocols=(("x", b"1"), ("y", b"2")))
    assert [one.metadata(name) for name in ("x", "y", "z", None)] == [b"1", b"2", b"1", b"1"]
