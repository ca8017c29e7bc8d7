"""Whole groups: created, listed, described and deleted; loaded with their members; unloaded with an answer to each
pending request."""

from __future__ import annotations

import pytest
from coord.groups.stage import RULES, Stage, done, subscription

from ottla.coord.formats import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_record,
)
from ottla.coord.groups.classic import GroupState
from ottla.coord.groups.machine import GroupMachine
from ottla.coord.machine import NOBODY, NOTHING, Decision
from ottla.errors import ErrorCode
from ottla.wire.messages.groups import HeartbeatRequest, MemberIdentity


def delete(stage: Stage, group: str = "g") -> ErrorCode:
    answer = stage.answer(stage.ask(lambda token: stage.machine.delete(group, token)))
    assert isinstance(answer, ErrorCode)
    return answer


def test_a_group_lives_on_after_a_restart_with_all_its_members_and_their_parts() -> None:
    stage = Stage()
    leader, follower = stage.stable(2, session_ms=10_000)
    stage.commit(7, leader, 1)
    stage.advance(8000)
    stage.restart()
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    assert stage.answer(stage.sync(follower, 1)).assignment == follower.encode()
    assert stage.fetched() == (7, ErrorCode.NONE)
    group = stage.machine.groups["g"]
    assert (group.state, group.roster.leader, group.protocol, group.protocol_type) == (
        GroupState.STABLE,
        leader,
        "range",
        "consumer",
    )
    stage.advance(9000)
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    stage.advance(1000)
    assert stage.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID, "its session began anew with the load"
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_that_a_restart_cut_short_begins_again() -> None:
    stage = Stage()
    leader, _ = stage.stable(2)
    stage.admitted()
    rejoin = stage.join(leader)
    stage.restart()
    assert stage.code(rejoin) is ErrorCode.NOT_COORDINATOR
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    assert stage.machine.groups["g"].state is GroupState.STABLE


def test_who_waits_is_sent_away_when_another_broker_takes_over() -> None:
    stage = Stage()
    _, follower = (member for member, _ in (stage.admitted(), stage.admitted()))
    stage.advance(6000)
    sync = stage.sync(follower, 1)
    member, join = stage.admitted(group="h")
    stage.restart()
    assert stage.code(sync) is stage.code(join) is ErrorCode.NOT_COORDINATOR
    assert stage.answer(join).member_id == member


def test_records_of_older_kafkas_load() -> None:
    """Version 0 of a group record has neither a rebalance timeout nor the time of the last state change."""
    machine = GroupMachine(RULES, lambda: "1")
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[
            MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/h",
                session_timeout=7000,
                subscription=subscription("t"),
                assignment=b"x",
            )
        ],
    )
    from ottla.wire import codec

    key = encode_record(GroupMetadataKey(group="g"), None).key
    machine.apply(key, b"\0\0" + codec.encode(value, 0), offset=0, timestamp=5, producer_id=NOBODY)
    decision = machine.finish_load(100)
    assert (("session", "g"), 7100) in decision.timers
    group = machine.groups["g"]
    assert (group.state, group.generation, group.since_ms) == (GroupState.STABLE, 4, None)
    assert group.roster.members["m"].rebalance_ms == 7000


def test_records_of_other_kinds_are_passed_over() -> None:
    machine = GroupMachine(RULES, lambda: "1")
    machine.apply(b"\x7f\xff", b"\0\0", offset=0, timestamp=0, producer_id=NOBODY)
    tombstone = encode_record(ConsumerGroupMetadataKey(group_id="k"), None)
    machine.apply(tombstone.key, None, offset=1, timestamp=0, producer_id=NOBODY)
    assert machine.durable() == GroupMachine(RULES, lambda: "1").durable()


def test_groups_are_listed_by_state_and_kind() -> None:
    stage = Stage()
    stage.stable(group="a")
    stage.commit(1, group="b")
    stage.join(group="c")

    def names(states: set[str], kinds: set[str]) -> set[str]:
        return {group.group_id for group in done(stage.machine.list(states, kinds))}

    assert names(set(), set()) == {"a", "b", "c"}
    assert names({"stable"}, set()) == {"a"}
    assert names({"empty", "dead"}, {"classic"}) == {"b", "c"}
    assert names(set(), {"consumer"}) == set()
    (listed,) = done(stage.machine.list({"stable"}, set()))
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Stable", "classic")


def test_a_group_is_described_with_its_members_and_once_stable_with_what_they_said() -> None:
    stage = Stage()
    member, _ = stage.admitted()
    before = stage.machine.describe("g", 5)
    assert (before.group_state, before.protocol_type, before.protocol_data) == ("PreparingRebalance", "consumer", "")
    assert [(one.member_id, one.member_metadata) for one in before.members] == [(member, b"")]
    stage.advance(3000)
    stage.sync(member, 1, {member: b"part"})
    after = stage.machine.describe("g", 5)
    assert (after.group_state, after.protocol_data) == ("Stable", "range")
    (one,) = after.members
    assert (one.client_id, one.client_host, one.member_assignment) == ("c", "/127.0.0.1", b"part")
    assert one.member_metadata == subscription("t")


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [(5, ErrorCode.NONE, None), (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")],
)
def test_a_group_that_is_not_there_is_described_as_dead(version: int, code: ErrorCode, message: str | None) -> None:
    described = Stage().machine.describe("g", version)
    assert (described.group_state, described.error_code, described.error_message) == ("Dead", code, message)


def test_an_empty_group_is_deleted_with_all_its_offsets() -> None:
    stage = Stage()
    assert delete(stage) is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = stage.stable()
    stage.commit(1, member, 1)
    stage.commit(1, member, 1, topic="u", index=4)
    assert delete(stage) is ErrorCode.NON_EMPTY_GROUP
    stage.leave(member)
    stage.commit_in_transaction(77, 9)
    assert delete(stage) is ErrorCode.NONE
    assert stage.machine.groups == {}
    assert list(stage.machine.offsets.partitions("g")) == []
    stage.end(77, committed=True)
    assert stage.fetched() == (-1, ErrorCode.NONE)
    assert stage.machine.durable() == stage.replayed().durable()


def test_a_group_that_was_deleted_while_a_member_was_invited_does_not_know_it() -> None:
    stage = Stage()
    invited = stage.answer(stage.join()).member_id
    assert delete(stage) is ErrorCode.NONE
    assert stage.code(stage.join(invited)) is ErrorCode.UNKNOWN_MEMBER_ID
    stage.advance(RULES.session_ms_max)
    assert stage.machine.expire(("join", "g"), stage.now_ms) == NOTHING


@pytest.mark.parametrize("group", ["", "nobody"])
def test_a_group_that_is_not_there_has_no_members(group: str) -> None:
    stage = Stage()
    code = ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
    assert stage.heartbeat("m", 1, group=group) is code
    assert stage.code(stage.sync("m", 1, group=group)) is code
    members = [MemberIdentity(member_id="m")]
    answer = stage.answer(stage.ask(lambda token: stage.machine.leave(group, members, False, token, 0)))
    assert answer.error_code == (ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID)
    assert [one.error_code for one in answer.members] == ([ErrorCode.UNKNOWN_MEMBER_ID] if group else [])


def test_a_single_member_s_error_is_that_of_the_answer() -> None:
    stage = Stage()
    members = [MemberIdentity(member_id="m")]
    answer = stage.answer(stage.ask(lambda token: stage.machine.leave("g", members, True, token, 0)))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_decides_nothing_but_its_answer() -> None:
    stage = Stage()
    (member,) = stage.stable()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    decision = stage.machine.heartbeat(request, 99, stage.now_ms)
    assert (decision.records, decision.timers) == ((), ())
    assert [token for token, _ in decision.replies] == [99]


def test_offsets_that_have_outlived_their_group_s_record_have_a_group_again() -> None:
    stage = Stage()
    stage.commit(5)
    tombstone = encode_record(GroupMetadataKey(group="g"), None)
    stage.carry_out(Decision([tombstone]))
    assert stage.machine.groups == {}
    stage.restart()
    assert stage.fetched() == (5, ErrorCode.NONE)
    stage.advance(RULES.retention_ms + RULES.retention_check_ms)
    assert stage.fetched() == (-1, ErrorCode.NONE)
