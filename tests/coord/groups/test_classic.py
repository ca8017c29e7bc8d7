"""Rebalances of a classic group: generations, which requests wait, and for how long."""

from __future__ import annotations

import pytest
from coord.groups.stage import RULES, Stage, subscription

from ottla.coord.groups.classic import GroupState
from ottla.errors import ErrorCode


def test_the_first_members_wait_for_more_and_the_first_of_them_leads() -> None:
    stage = Stage()
    (first, one), (second, two) = stage.admitted(), stage.admitted()
    stage.advance(2999)
    assert stage.waits(one)
    assert stage.waits(two)
    stage.advance(1)
    assert stage.waits(one), "a second member came: the wait begins anew"
    stage.advance(3000)
    answer = stage.answer(one)
    assert (answer.error_code, answer.generation_id, answer.leader, answer.member_id) == (0, 1, first, first)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in answer.members] == [first, second]
    assert answer.members[0].metadata == subscription("t")
    follower = stage.answer(two)
    assert (follower.generation_id, follower.leader, follower.member_id, follower.members) == (1, first, second, [])


def test_newcomers_prolong_the_first_wait_up_to_the_rebalance_time_out() -> None:
    stage = Stage()
    joins = [stage.admitted(rebalance_ms=8000)[1]]
    for _ in range(10):
        stage.advance(1000)
        if not stage.waits(joins[0]):
            break
        joins.append(stage.admitted(rebalance_ms=8000)[1])
    # 3 s, 3 s more, and then what is left of 8 s: 2 s.
    assert stage.now_ms == 1_000_000 + 8000
    assert {stage.answer(join).generation_id for join in joins} == {1}


def test_followers_get_their_part_when_the_leader_has_shared_out() -> None:
    stage = Stage()
    leader, follower = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    early = stage.sync(follower, 1)
    assert stage.waits(early)
    own = stage.sync(leader, 1, {leader: b"L", follower: b"F", "stranger": b"?"})
    assert stage.answer(own).assignment == b"L"
    assert stage.answer(early).assignment == b"F"
    assert (stage.answer(early).protocol_type, stage.answer(early).protocol_name) == ("consumer", "range")
    again = stage.sync(follower, 1)
    assert stage.answer(again).assignment == b"F", "a stable group tells it as often as it is asked"


def test_a_member_that_the_leader_forgot_gets_an_empty_part() -> None:
    stage = Stage()
    leader, follower = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    waiting = stage.sync(follower, 1)
    stage.sync(leader, 1, {leader: b"L"})
    assert (stage.code(waiting), stage.answer(waiting).assignment) == (ErrorCode.NONE, b"")


def test_a_newcomer_makes_a_stable_group_rebalance_and_all_rejoin() -> None:
    stage = Stage()
    (old,) = stage.stable()
    assert stage.heartbeat(old, 1) is ErrorCode.NONE
    new, join = stage.admitted()
    assert stage.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.code(stage.sync(old, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.waits(join)
    rejoin = stage.join(old)
    assert stage.answer(rejoin).generation_id == stage.answer(join).generation_id == 2
    assert stage.answer(rejoin).leader == old
    assert stage.heartbeat(old, 1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.heartbeat(new, 2) is ErrorCode.NONE, "heartbeats may begin before the sync"


def test_who_does_not_rejoin_in_time_is_out() -> None:
    stage = Stage()
    leader, other = stage.stable(2, rebalance_ms=5000, session_ms=60_000)
    rejoin = stage.join(other, protocols={"range": subscription("u")}, rebalance_ms=5000)
    stage.advance(4999)
    assert stage.waits(rejoin)
    stage.advance(1)
    answer = stage.answer(rejoin)
    assert (answer.generation_id, answer.leader) == (2, other), "somebody who is here leads"
    assert [member.member_id for member in answer.members] == [other]
    assert stage.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_invited_member_holds_a_rebalance_up_until_its_time_is_up() -> None:
    stage = Stage()
    (member,) = stage.stable()
    invited = stage.answer(stage.join(session_ms=4000)).member_id
    rejoin = stage.join(member)
    assert stage.waits(rejoin)
    stage.advance(4000)
    assert stage.answer(rejoin).generation_id == 2
    assert stage.code(stage.join(invited)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    stage = Stage()
    leader, other = stage.stable(2, session_ms=10_000)
    stage.advance(9000)
    assert stage.heartbeat(other, 1) is ErrorCode.NONE
    stage.advance(1000)
    assert stage.heartbeat(other, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rejoin = stage.join(other)
    assert (stage.answer(rejoin).generation_id, stage.answer(rejoin).leader) == (2, other)


def test_heartbeats_set_no_timers_and_the_one_timer_finds_out_itself() -> None:
    stage = Stage()
    members = stage.stable(3, session_ms=10_000)
    before = dict(stage.timers)
    for _ in range(30):
        stage.advance(3000)
        timers = dict(stage.timers)
        assert [stage.heartbeat(member, 1) for member in members] == [ErrorCode.NONE] * 3
        assert stage.timers == timers
    assert set(stage.timers) == set(before) == {("session", "g"), ("retention", "")}
    assert stage.machine.groups["g"].state is GroupState.STABLE


def test_a_commit_is_a_sign_of_life() -> None:
    stage = Stage()
    (member,) = stage.stable(session_ms=10_000)
    stage.advance(9000)
    assert stage.commit(5, member, 1) is ErrorCode.NONE
    stage.advance(9000)
    assert stage.heartbeat(member, 1) is ErrorCode.NONE


def test_a_member_that_waits_for_an_answer_is_not_silent() -> None:
    stage = Stage()
    leader, other = stage.stable(2, session_ms=5000, rebalance_ms=30_000)
    rejoin = stage.join(leader, session_ms=5000)
    for _ in range(5):
        stage.advance(4000)
        assert stage.heartbeat(other, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.waits(rejoin)
    stage.join(other, session_ms=5000)
    assert stage.answer(rejoin).generation_id == 2
    stage.advance(5000)
    assert stage.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID, "its session began with the answer"


def test_a_first_join_that_nobody_answers_does_not_wait_for_ever() -> None:
    stage = Stage()
    stage.stable(session_ms=60_000, rebalance_ms=60_000)
    new, join = stage.admitted(session_ms=5000, rebalance_ms=60_000)
    stage.advance(RULES.first_join_ms - 1)
    assert stage.waits(join)
    stage.advance(1)
    assert stage.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.answer(join).member_id == ""
    assert stage.code(stage.join(new)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_never_fetch_their_part_are_out_after_the_rebalance_time_out() -> None:
    stage = Stage()
    leader, slow = (member for member, _ in (stage.admitted(rebalance_ms=5000), stage.admitted(rebalance_ms=5000)))
    stage.advance(5000)  # the first wait cannot be longer than a rebalance may take
    assert stage.code(stage.sync(leader, 1, {leader: b"x", slow: b"y"})) is ErrorCode.NONE
    for _ in range(4):
        stage.advance(1000)
        assert stage.heartbeat(slow, 1) is stage.heartbeat(leader, 1) is ErrorCode.NONE
    stage.advance(1000)
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(slow, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_shares_out_makes_room_for_another() -> None:
    stage = Stage()
    leader, other = (
        member
        for member, _ in (stage.admitted(rebalance_ms=6000, session_ms=60_000), stage.admitted(rebalance_ms=6000))
    )
    stage.advance(6000)
    waiting = stage.sync(other, 1)
    stage.advance(6000)
    assert stage.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = stage.join(other)
    assert (stage.answer(rejoin).generation_id, stage.answer(rejoin).leader) == (2, other)
    assert stage.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_somebody_new_while_work_is_shared_out_begins_a_new_generation() -> None:
    stage = Stage()
    leader, _ = stage.admitted()
    stage.advance(3000)
    new, join = stage.admitted()
    late = stage.sync(leader, 1, {leader: b"all"})
    assert stage.code(late) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = stage.join(leader)
    assert stage.answer(rejoin).generation_id == stage.answer(join).generation_id == 2
    assert stage.machine.groups["g"].written is not None
    assert stage.machine.groups["g"].written.members == [], "the generation that was never shared out is not written"
    waiting = stage.sync(new, 2)
    third = stage.admitted()
    assert stage.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS, "who waited for its part is told at once"
    assert stage.waits(third[1])


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    stage = Stage()
    (member,) = stage.stable()
    assert stage.commit(7, member, 1) is ErrorCode.NONE
    assert stage.leave(member) == [ErrorCode.NONE]
    group = stage.machine.groups["g"]
    assert (group.state, group.generation, group.roster.leader, group.protocol) == (GroupState.EMPTY, 2, None, None)
    assert stage.fetched() == (7, ErrorCode.NONE)
    assert stage.heartbeat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.code(stage.sync(member, 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.stable() != [member]
    assert stage.machine.groups["g"].generation == 3


def test_a_leaving_leader_hands_over_and_many_may_leave_at_once() -> None:
    stage = Stage()
    first, second, third = stage.stable(3)
    assert stage.leave(first, "stranger", second) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert stage.machine.groups["g"].roster.leader == third
    answer = stage.answer(stage.join(third))
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (2, [third])


def test_who_leaves_while_its_join_waits_is_told() -> None:
    stage = Stage()
    member, join = stage.admitted()
    assert stage.leave(member) == [ErrorCode.NONE]
    assert stage.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.machine.groups["g"].state is GroupState.PREPARING
    stage.advance(3000)
    assert stage.machine.groups["g"].state is GroupState.EMPTY


def test_an_invited_member_may_leave_and_disturbs_nobody() -> None:
    stage = Stage()
    (member,) = stage.stable()
    invited = stage.answer(stage.join()).member_id
    assert stage.leave(invited) == [ErrorCode.NONE]
    assert stage.leave(invited) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.heartbeat(member, 1) is ErrorCode.NONE
    other = stage.answer(stage.join()).member_id
    rejoin = stage.join(member)
    assert stage.waits(rejoin)
    stage.leave(other)
    assert stage.answer(rejoin).generation_id == 2


@pytest.mark.parametrize(
    ("generation", "member", "protocol", "code"),
    [
        (2, "", None, ErrorCode.ILLEGAL_GENERATION),
        (1, "stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, "", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, "", "range", ErrorCode.NONE),
    ],
)
def test_a_sync_must_be_of_this_generation_this_group_and_its_protocol(
    generation: int, member: str, protocol: str | None, code: ErrorCode
) -> None:
    stage = Stage()
    (own,) = stage.stable()
    assert stage.code(stage.sync(member or own, generation, protocol=protocol)) is code


def test_a_generation_that_cannot_be_written_does_not_begin() -> None:
    stage = Stage()
    leader, other = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    waiting = stage.sync(other, 1)
    stage.full = True
    own = stage.sync(leader, 1, {leader: b"x", other: b"y"})
    assert stage.code(own) is stage.code(waiting) is ErrorCode.NOT_COORDINATOR
    stage.full = False
    assert stage.machine.groups["g"].state is GroupState.PREPARING
    rejoins = [stage.join(leader), stage.join(other)]
    assert [stage.answer(join).generation_id for join in rejoins] == [2, 2]
    assert stage.code(stage.sync(leader, 2, {leader: b"x"})) is ErrorCode.NONE


def test_an_empty_group_that_cannot_be_written_still_answers() -> None:
    stage = Stage()
    (member,) = stage.stable()
    stage.full = True
    assert stage.leave(member) == [ErrorCode.NONE]
    stage.full = False
    assert stage.machine.groups["g"].state is GroupState.EMPTY
    stage.restart()
    assert stage.heartbeat(member, 1) is ErrorCode.NONE, "the last that was written counts after a restart"


def test_static_members_that_are_away_are_kept_through_a_rebalance() -> None:
    stage = Stage()
    first = stage.join(instance="one", session_ms=60_000, rebalance_ms=10_000)
    stage.advance(3000)
    one = stage.answer(first).member_id
    stage.sync(one, 1, {one: b"1"}, instance="one")
    new, join = stage.admitted(rebalance_ms=10_000)
    stage.advance(10_000)
    answer = stage.answer(join)
    assert (answer.generation_id, answer.leader) == (2, new), "who has joined leads"
    assert {member.member_id for member in answer.members} == {one, new}


def test_a_rebalance_of_static_members_who_are_all_away_waits_for_their_sessions() -> None:
    stage = Stage()
    first = stage.join(instance="one", session_ms=60_000, rebalance_ms=10_000)
    second = stage.join(instance="two", session_ms=60_000, rebalance_ms=10_000)
    stage.advance(6000)
    one, two = stage.answer(first).member_id, stage.answer(second).member_id
    stage.sync(two, 1, instance="two")
    stage.sync(one, 1, {one: b"1"}, instance="one")
    new, join = stage.admitted()
    assert stage.leave(new) == [ErrorCode.NONE]
    assert stage.code(join) is ErrorCode.UNKNOWN_MEMBER_ID
    stage.advance(30_000)
    assert stage.machine.groups["g"].state is GroupState.PREPARING
    stage.advance(30_000)
    assert stage.machine.groups["g"].state is GroupState.EMPTY


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    stage = Stage()
    leader, other = stage.stable(2)
    first = stage.join(leader)
    second = stage.join(leader)
    assert stage.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.join(other)
    assert stage.answer(second).generation_id == 2


def test_a_second_sync_of_the_same_member_takes_the_place_of_the_first() -> None:
    stage = Stage()
    leader, other = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    first, second = stage.sync(other, 1), stage.sync(other, 1)
    assert stage.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.sync(leader, 1, {other: b"x"})
    assert stage.answer(second).assignment == b"x"


def test_who_leaves_while_it_waits_for_its_part_is_told() -> None:
    stage = Stage()
    _, follower = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    waiting = stage.sync(follower, 1)
    assert stage.leave(follower) == [ErrorCode.NONE]
    assert stage.code(waiting) is ErrorCode.UNKNOWN_MEMBER_ID
