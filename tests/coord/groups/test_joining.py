"""Who may join a classic group: ids, limits, protocols, static members and their replacements."""

from __future__ import annotations

import pytest
from coord.groups.stage import RULES, Stage, subscription

from ottla.coord.groups.classic import GroupState
from ottla.errors import ErrorCode

A, B = subscription("a"), subscription("b")


def test_a_member_without_an_id_is_sent_back_with_one() -> None:
    stage = Stage()
    answer = stage.answer(stage.join(client="reader"))
    assert (answer.error_code, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "reader-1")
    assert (answer.generation_id, answer.protocol_name, answer.leader, answer.members) == (-1, None, "", [])
    assert stage.waits(stage.join("reader-1"))


@pytest.mark.parametrize("version", [0, 3])
def test_older_clients_are_let_in_without_an_id(version: int) -> None:
    stage = Stage()
    join = stage.join(version=version)
    stage.advance(3000)
    assert (stage.code(join), stage.answer(join).generation_id) == (ErrorCode.NONE, 1)


def test_before_version_1_the_session_is_also_the_rebalance_time_out() -> None:
    stage = Stage()
    stage.join(version=0, session_ms=7000, rebalance_ms=-1)
    (member,) = stage.machine.groups["g"].roster.members.values()
    assert (member.session_ms, member.rebalance_ms) == (7000, 7000)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": RULES.session_ms_min - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": RULES.session_ms_max + 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"kind": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_a_new_group_refuses(options: dict[str, object], code: ErrorCode) -> None:
    stage = Stage()
    assert stage.code(stage.join(**options)) is code  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refusal_has_no_protocol_in_the_words_of_its_version(version: int, name: str | None) -> None:
    stage = Stage()
    assert stage.answer(stage.join("stranger", version=version)).protocol_name == name


def test_a_member_must_speak_the_group_s_kind_and_one_protocol_of_everybody() -> None:
    stage = Stage()
    stage.stable(protocols={"range": A, "sticky": A})
    assert stage.code(stage.join(kind="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.code(stage.join(protocols={"other": A})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    _, join = stage.admitted(protocols={"sticky": B})
    assert stage.code(stage.join(protocols={"range": B})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "not all speak it"
    assert stage.waits(join)


def test_members_vote_for_a_protocol_that_all_of_them_speak() -> None:
    stage = Stage()
    joins = [
        stage.admitted(protocols={"x": A, "y": A, "z": A}),
        stage.admitted(protocols={"z": B, "y": B}),
        stage.admitted(protocols={"w": B, "y": B, "z": B}),
    ]
    stage.advance(6000)
    assert {stage.answer(join).protocol_name for _, join in joins} == {"y"}
    assert [member.metadata for member in stage.answer(joins[0][1]).members] == [A, B, B]


def test_of_a_protocol_that_is_offered_twice_the_first_counts() -> None:
    stage = Stage()
    invited = stage.answer(stage.join()).member_id
    from ottla.coord.groups.member import protocols_of
    from ottla.wire.messages.groups import JoinGroupRequestProtocol

    offered = [JoinGroupRequestProtocol(name="x", metadata=A), JoinGroupRequestProtocol(name="x", metadata=B)]
    assert protocols_of(offered) == (("x", A),)
    assert stage.waits(stage.join(invited))


def test_a_full_group_takes_nobody() -> None:
    stage = Stage(RULES._replace(size_max=2))
    first, second = stage.stable(2)
    answer = stage.answer(stage.join())
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert stage.heartbeat(first, 1) is ErrorCode.NONE
    rejoin = stage.join(first)
    assert stage.waits(rejoin), "its own members are welcome"
    stage.join(second)
    assert stage.answer(rejoin).generation_id == 2


def test_of_too_many_invited_members_the_last_are_refused() -> None:
    stage = Stage(RULES._replace(size_max=2))
    invited = [stage.answer(stage.join()).member_id for _ in range(3)]
    joins = [stage.join(member) for member in invited]
    assert stage.code(joins[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.waits(joins[0])
    assert stage.waits(joins[1])


def test_a_group_that_has_become_too_large_is_cut_by_a_rebalance_after_a_restart() -> None:
    stage = Stage()
    members = stage.stable(3)
    stage.rules = RULES._replace(size_max=2)
    stage.restart()
    assert [stage.heartbeat(member, 1) for member in members] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    joins = [stage.join(member) for member in members]
    assert stage.code(joins[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    stage.advance(30_000)
    assert [stage.answer(join).generation_id for join in joins[:2]] == [2, 2]


def test_a_follower_that_comes_again_unchanged_is_told_the_generation_it_is_in() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    answer = stage.answer(stage.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    assert stage.code(stage.sync(follower, 1)) is ErrorCode.NONE


def test_a_member_that_has_changed_its_mind_makes_the_group_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.waits(stage.join(follower, protocols={"range": B}))
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_comes_again_makes_the_group_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.waits(stage.join(leader))
    assert stage.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_has_missed_the_answer_while_work_is_shared_out_gets_it_again() -> None:
    stage = Stage()
    leader, _ = stage.admitted()
    stage.advance(3000)
    answer = stage.answer(stage.join(leader))
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (1, [leader])
    assert stage.waits(stage.join(leader, protocols={"range": B, "x": B})) is False
    assert stage.machine.groups["g"].generation == 2, "another metadata begins another generation"


def test_a_new_group_that_cannot_be_written_is_not_there() -> None:
    stage = Stage()
    stage.full = True
    assert stage.code(stage.join()) is ErrorCode.NOT_COORDINATOR
    assert stage.machine.groups == {}


# Static members.


def static(stage: Stage, instance: str, **options: object) -> str:
    """A static member of a stable group of its own."""
    join = stage.join(instance=instance, **options)  # type: ignore[arg-type]
    stage.advance(3000)
    member = str(stage.answer(join).member_id)
    assert stage.code(stage.sync(member, 1, {member: b"part"}, instance=instance)) is ErrorCode.NONE
    return member


def test_a_static_member_needs_no_invitation_and_its_id_begins_with_its_name() -> None:
    stage = Stage()
    assert static(stage, "rack-7") == "rack-7-1"


def test_a_static_member_that_is_back_takes_its_part_again_and_nobody_rebalances() -> None:
    stage = Stage()
    old = static(stage, "i")
    join = stage.join(instance="i")
    answer = stage.answer(join)
    new = answer.member_id
    assert new != old
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, new, True)
    assert [member.member_id for member in answer.members] == [new]
    assert stage.answer(stage.sync(new, 1, instance="i")).assignment == b"part"
    assert stage.heartbeat(old, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(1, old, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.code(stage.sync(old, 1, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.code(stage.join(old, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    stage.restart()
    assert stage.heartbeat(new, 1, instance="i") is ErrorCode.NONE, "the new id was written down"


def test_an_old_client_that_is_back_as_the_leader_is_told_that_the_former_one_leads() -> None:
    stage = Stage()
    old = static(stage, "i")
    answer = stage.answer(stage.join(instance="i", version=8))
    assert (answer.leader, answer.members, answer.skip_assignment) == (old, [], False)
    assert answer.member_id != old


def test_a_returning_static_member_that_cannot_be_written_has_not_returned() -> None:
    stage = Stage()
    old = static(stage, "i")
    stage.full = True
    join = stage.join(instance="i", protocols={"range": B}, session_ms=20_000)
    assert (stage.code(join), stage.answer(join).member_id) == (ErrorCode.NOT_COORDINATOR, "")
    stage.full = False
    assert stage.heartbeat(old, 1, instance="i") is ErrorCode.NONE
    (member,) = stage.machine.groups["g"].roster.members.values()
    assert (member.protocols, member.session_ms) == ((("range", subscription("t")),), 10_000)


def test_a_returning_static_member_rebalances_when_the_protocol_would_change() -> None:
    stage = Stage()
    static(stage, "i", protocols={"range": A, "sticky": A})
    join = stage.join(instance="i", protocols={"sticky": A})
    assert (stage.answer(join).generation_id, stage.answer(join).protocol_name) == (2, "sticky")


def test_a_static_member_that_is_back_while_work_is_shared_out_begins_anew() -> None:
    stage = Stage()
    first, second = stage.join(instance="one"), stage.join(instance="two")
    stage.advance(6000)
    one, two = stage.answer(first).member_id, stage.answer(second).member_id
    waiting = stage.sync(two, 1, instance="two")
    back = stage.join(instance="two")
    assert stage.code(waiting) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.code(stage.sync(one, 1, {one: b"1", two: b"2"}, instance="one")) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.join(one, instance="one")
    assert stage.answer(back).generation_id == 2


def test_a_static_member_that_is_back_while_its_former_self_joins_fences_it() -> None:
    stage = Stage()
    first = stage.join(instance="i", version=5)
    second = stage.join(instance="i")
    assert stage.code(first) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.answer(first).protocol_name == ""
    stage.advance(3000)
    assert stage.answer(second).generation_id == 1


def test_an_instance_that_the_group_does_not_know_is_no_member_s() -> None:
    stage = Stage()
    (member,) = stage.stable()
    assert stage.code(stage.join(member, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat(member, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_invited_member_cannot_turn_static() -> None:
    stage = Stage()
    invited = stage.answer(stage.join()).member_id
    assert stage.code(stage.join(invited, instance="i")) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_static_member_is_removed_by_its_instance() -> None:
    stage = Stage()
    static(stage, "i")
    assert stage.leave(instances=("j", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert stage.machine.groups["g"].state is GroupState.EMPTY
