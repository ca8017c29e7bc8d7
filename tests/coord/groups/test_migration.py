"""Groups that change their type while they have members, and classic members in groups of the new protocol."""

from __future__ import annotations

from typing import Any

import pytest
from coord.groups.consumer_stage import ConsumerStage
from coord.groups.stage import RULES

from ottla.coord.groups.classic import ClassicGroup, GroupState
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.groups.consumer_member import MemberState
from ottla.coord.groups.consumer_protocol import read_assignment
from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.groups import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)


def wants(*topics: str, owned: dict[str, set[int]] | None = None, rack: str | None = None) -> bytes:
    parts = [SubscriptionTopicPartition(topic=name, partitions=sorted(own)) for name, own in (owned or {}).items()]
    told = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=parts, generation_id=1, rack_id=rack)
    return b"\0\3" + codec.encode(told, 3)


def part(*indexes: int, user_data: bytes | None = None) -> bytes:
    parts = [AssignmentTopicPartition(topic="t", partitions=list(indexes))]
    return b"\0\0" + codec.encode(ConsumerProtocolAssignment(assigned_partitions=parts, user_data=user_data), 0)


def held(data: bytes) -> dict[str, set[int]]:
    return {one.topic: set(one.partitions) for one in read_assignment(data).assigned_partitions}


class Stage(ConsumerStage):
    def classic_group(self, count: int = 1, **options: Any) -> list[str]:
        """A stable classic group of consumers; the first one owns every partition."""
        options = {"protocols": {"range": wants("t")}} | options
        joins = [self.admitted(**options) for _ in range(count)]
        self.advance(self.rules.initial_delay_ms * (1 + (count > 1)))
        members = [member for member, _ in joins]
        generation = self.answer(joins[0][1]).generation_id
        parts = {members[0]: part(0, 1, 2, 3)} | {member: part() for member in members[1:]}
        for member in (*members[1:], members[0]):
            self.sync(member, generation, parts if member == members[0] else None)
        return members

    def rejoin(self, member: str, *, owned: dict[str, set[int]] | None = None, **options: Any) -> Any:
        options = {"protocols": {"range": wants("t", owned=owned)}} | options
        return self.answer(self.join(member, **options))

    def synced(self, member: str, generation: int, **options: Any) -> dict[str, set[int]]:
        answer = self.answer(self.sync(member, generation, **options))
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return held(answer.assignment)

    @property
    def kind(self) -> type:
        return type(self.machine.groups["g"])


# From classic to consumer.


def test_a_classic_group_becomes_a_consumer_group_with_the_first_member_of_the_new_protocol() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    answer = stage.enter("new")
    assert (answer.member_epoch, stage.part(answer)) == (2, {})
    assert stage.kind is ConsumerGroup
    stage.check_replay()
    assert stage.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = stage.rejoin(old)
    assert (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader) == (0, 2, "range", "")
    assert stage.synced(old, 2) == {"t": {0, 1}}, "an eager member owns nothing when it joins: it has let go already"
    assert stage.part(stage.beat("new", 2)) == {"t": {2, 3}}
    assert stage.heartbeat(old, 2) is ErrorCode.NONE
    assert stage.group().phase == "Stable"
    stage.check_replay()


def test_a_cooperative_member_lets_go_and_joins_again() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    stage.enter("new")
    owned = {"t": {0, 1, 2, 3}}
    joined = stage.rejoin(old, owned=owned)
    assert (joined.generation_id, stage.synced(old, 1)) == (1, {"t": {0, 1}}), "it is told what it may keep"
    assert stage.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.part(stage.beat("new", 2)) is None
    joined = stage.rejoin(old, owned={"t": {0, 1}})
    assert (joined.generation_id, stage.synced(old, 2)) == (2, {"t": {0, 1}})
    assert stage.part(stage.beat("new", 2)) == {"t": {2, 3}}


def test_who_waits_for_a_rebalance_of_the_classic_group_is_sent_to_the_consumer_group() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    other, waiting = stage.admitted(protocols={"range": wants("t")})
    assert stage.waits(waiting)
    stage.enter("new")
    assert stage.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    for member in (old, other):
        generation = stage.rejoin(member).generation_id
        stage.synced(member, generation)
    stage.settle("new")
    assert stage.heartbeat(old, generation) is ErrorCode.NONE
    stage.advance(5000)
    assert stage.kind is ConsumerGroup, "no timer of the former group does any harm"


def test_a_group_in_its_first_rebalance_can_be_taken_over() -> None:
    stage = Stage()
    member, waiting = stage.admitted(protocols={"range": wants("t")})
    assert stage.enter("new").error_code == 0
    assert stage.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(stage.group().members) == {member, "new"}


def test_members_of_a_classic_group_that_wait_for_their_part_are_sent_on_too() -> None:
    stage = Stage()
    leader, other = stage.classic_group(2)
    stage.join(leader)
    joined = stage.join(other)
    waiting = stage.sync(other, stage.answer(joined).generation_id)
    assert stage.waits(waiting)
    stage.enter("new")
    assert stage.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("rules", "prepare", "message"),
    [
        ({"upgrades": False}, {}, "online upgrade is disabled."),
        ({}, {"kind": "connect"}, "the group does not use the consumer embedded protocol."),
        ({"size_max": 1}, {"count": 2}, "the group size exceeds the consumer group maximum size."),
        ({}, {"protocols": {"range": b""}}, "the embedded consumer protocol is malformed."),
        ({}, {"protocols": {"range": b"\xff\xff"}}, "the embedded consumer protocol is malformed."),
    ],
)
def test_a_classic_group_that_cannot_be_taken_over_stays(
    rules: dict[str, Any], prepare: dict[str, Any], message: str
) -> None:
    stage = Stage(**rules)
    stage.classic_group(**prepare)
    answer = stage.enter("new")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == f"Cannot upgrade classic group g to consumer group because {message}"
    assert stage.kind is ClassicGroup


def test_partitions_that_nobody_has_are_shared_out_when_the_group_changes_its_kind() -> None:
    stage = Stage()
    member, waiting = stage.admitted(protocols={"range": wants("t")})
    stage.advance(3000)
    stage.sync(member, stage.answer(waiting).generation_id, {member: part(1)})
    stage.enter("new", topics=[])
    stage.rejoin(member)
    assert stage.synced(member, stage.group().epoch) == {"t": {0, 1, 2, 3}}


def test_what_clients_have_shared_out_twice_or_out_of_nothing_is_not_taken_over() -> None:
    stage = Stage()
    (first, joined), (second, _) = (stage.admitted(protocols={"range": wants("t")}) for _ in range(2))
    stage.advance(6000)
    generation = stage.answer(joined).generation_id
    stage.sync(second, generation)
    stage.sync(first, generation, {first: part(0, 1, 9), second: part(1, 2)})
    stage.enter("new")
    topic = stage.image.topics["t"].id
    holdings = {name: stage.group().members[name].holding.assigned for name in (first, second)}
    assert holdings == {first: {topic: {0: 1, 1: 1}}, second: {topic: {2: 1}}}


def test_data_of_an_assignor_of_their_own_would_be_lost() -> None:
    stage = Stage()
    member, waiting = stage.admitted(protocols={"mine": wants("t")})
    stage.advance(3000)
    stage.sync(member, stage.answer(waiting).generation_id, {member: part(0, user_data=b"x")})
    answer = stage.enter("new")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "an unsupported custom assignor is in use" in answer.error_message


def test_a_classic_group_without_members_is_replaced_and_its_offsets_stay() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    stage.commit(7, old, 1)
    stage.leave(old)
    assert stage.enter("new").member_epoch == 2
    assert stage.kind is ConsumerGroup
    assert stage.fetched() == (7, ErrorCode.NONE)
    stage.check_replay()


def test_a_heartbeat_of_a_member_that_is_in_no_consumer_group() -> None:
    stage = Stage()
    stage.classic_group()
    answer = stage.beat("new", 3)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    assert stage.beat("new", -1).error_message == "Group g is not a consumer group."


# From consumer to classic.


def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_leaves() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    stage.enter("new")
    stage.rejoin(old)
    stage.synced(old, 2)
    stage.settle("new")
    assert stage.beat("new", -1).member_epoch == -1
    assert stage.kind is ClassicGroup
    stage.check_replay()
    assert stage.machine.groups["g"].state is GroupState.PREPARING
    assert stage.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = stage.rejoin(old)
    assert (rejoined.generation_id, rejoined.leader) == (3, old)
    assert stage.answer(stage.sync(old, 3, {old: part(0, 1, 2, 3)})).error_code == 0
    assert stage.heartbeat(old, 3) is ErrorCode.NONE
    stage.restart()
    assert stage.heartbeat(old, 3) is ErrorCode.NONE


def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_is_silent() -> None:
    stage = Stage()
    (old,) = stage.classic_group(session_ms=30_000)
    stage.enter("new")
    stage.rejoin(old, session_ms=30_000)
    stage.synced(old, 2)
    stage.advance(6000)
    assert stage.kind is ClassicGroup
    stage.check_replay()


def test_a_downgrade_that_cannot_be_written_happens_later() -> None:
    stage = Stage()
    (old,) = stage.classic_group(session_ms=60_000)
    stage.enter("new")
    stage.rejoin(old, session_ms=60_000)
    stage.synced(old, 2)
    stage.full = True
    stage.advance(8000)
    assert stage.kind is ConsumerGroup
    stage.full = False
    stage.advance(2000)
    assert stage.kind is ClassicGroup


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group_as_it_was() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    _, waiting = stage.admitted(protocols={"range": wants("t")})
    stage.full = True
    assert stage.enter("new").error_code == ErrorCode.NOT_COORDINATOR
    stage.full = False
    assert stage.kind is ClassicGroup
    assert stage.waits(waiting)
    stage.join(old, protocols={"range": wants("t")})
    assert stage.code(waiting) is ErrorCode.NONE


@pytest.mark.parametrize("rules", [{"downgrades": False}, {"classic_size_max": 0}])
def test_a_group_that_may_not_be_classic_stays_a_consumer_group(rules: dict[str, Any]) -> None:
    stage = Stage(**rules)
    (old,) = stage.classic_group()
    stage.enter("new")
    stage.rejoin(old)
    stage.beat("new", -1)
    assert stage.kind is ConsumerGroup
    generation = stage.rejoin(old).generation_id
    assert stage.synced(old, generation) == {"t": {0, 1, 2, 3}}


def test_a_consumer_group_without_members_may_become_a_classic_one() -> None:
    stage = Stage()
    stage.enter("new")
    stage.commit(7, "new", 2, version=9)
    stage.beat("new", -1)
    assert stage.answer(stage.join("somebody")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stage.admitted()
    assert stage.kind is ClassicGroup
    assert stage.fetched() == (7, ErrorCode.NONE)
    stage.check_replay()


def test_a_consumer_group_without_members_is_still_there_if_a_classic_one_cannot_be_written() -> None:
    stage = Stage()
    stage.enter("new")
    stage.beat("new", -1)
    stage.full = True
    assert stage.code(stage.join(version=3)) is ErrorCode.NOT_COORDINATOR
    assert stage.kind is ConsumerGroup


# Members with the classic protocol.


def test_a_classic_member_joins_a_consumer_group() -> None:
    stage = Stage()
    stage.enter("new")
    invited = stage.answer(stage.join(protocols={"range": wants("t", rack="r")}))
    assert invited.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = stage.rejoin(invited.member_id, protocols={"range": wants("t", rack="r")})
    assert (joined.error_code, joined.generation_id) == (0, 3)
    assert stage.synced(invited.member_id, 3) == {}
    assert stage.group().members[invited.member_id].subscription.rack == "r"
    assert stage.heartbeat(invited.member_id, 3) is ErrorCode.NONE, "its partitions are held by another"
    stage.settle("new")
    assert stage.heartbeat(invited.member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS, "now they are free"
    joined = stage.rejoin(invited.member_id)
    assert stage.synced(invited.member_id, joined.generation_id) == {"t": {2, 3}}
    stage.check_replay()


def test_who_may_not_join() -> None:
    stage = Stage(size_max=1)
    stage.enter("new")
    assert stage.code(stage.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    stage = Stage(upgrades=False, downgrades=False)
    stage.enter("new")
    assert stage.code(stage.join()) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stage = Stage()
    stage.enter("new")
    assert stage.code(stage.join(kind="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.code(stage.join("m", protocols={"range": b"\0"})) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stage.code(stage.join("m", instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    stage.rejoin("m")
    assert stage.code(stage.join("n", protocols={"sticky": wants("t")})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_what_a_classic_member_may_not_say() -> None:
    stage = Stage()
    stage.enter("new", instance="i")
    joined = stage.rejoin("old")
    generation = joined.generation_id
    assert stage.code(stage.sync("old", generation + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert stage.code(stage.sync("old", generation, protocol="sticky")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.code(stage.sync("none", generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("old", generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.heartbeat("new", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert stage.heartbeat("old", generation, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat("old", generation, instance="none") is ErrorCode.UNKNOWN_MEMBER_ID
    stage.enter("newer", "t")
    assert stage.code(stage.sync("old", generation)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_commits_in_its_generation() -> None:
    stage = Stage()
    stage.enter("new")
    generation = stage.rejoin("old").generation_id
    assert stage.commit(1, "old", generation, version=5) is ErrorCode.NONE
    assert stage.commit(1, "old", generation + 1, version=5) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(1, "old", generation - 1, version=5) is ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_that_is_silent_is_removed() -> None:
    stage = Stage(session_ms=10**6)
    stage.enter("new")
    generation = stage.rejoin("old", session_ms=10_000).generation_id
    stage.synced("old", generation)
    stage.advance(9000)
    assert stage.heartbeat("old", generation) is ErrorCode.NONE
    stage.advance(9999)
    assert "old" in stage.group().members
    stage.advance(1)
    assert "old" not in stage.group().members


def test_a_classic_member_that_does_not_fetch_its_part_is_removed() -> None:
    stage = Stage(session_ms=10**6)
    stage.enter("new")
    generation = stage.rejoin("old", session_ms=10_000, rebalance_ms=20_000).generation_id
    for _ in range(2):
        stage.advance(9000)
        stage.heartbeat("old", generation)
    stage.advance(2000)
    assert "old" not in stage.group().members


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    stage = Stage(session_ms=10**6)
    stage.enter("new", rebalance_ms=10**6)
    generation = stage.rejoin("old", session_ms=10_000, rebalance_ms=20_000).generation_id
    stage.synced("old", generation)
    stage.enter("newer")
    for _ in range(3):
        stage.advance(6000)
        assert stage.heartbeat("old", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.advance(7999)
    assert "old" in stage.group().members, "its time began when it was first told"
    stage.advance(1)
    assert "old" not in stage.group().members


def test_classic_members_leave() -> None:
    stage = Stage()
    stage.enter("new")
    stage.rejoin("a")
    stage.answer(stage.join(instance="i", protocols={"range": wants("t")}))
    assert stage.leave("a", "none") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.leave(instances=("i", "none")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(stage.group().members) == {"new"}
    assert stage.leave("new") == [ErrorCode.NONE], "an administrator may send anybody away"
    assert stage.group().phase == "Empty"
    stage.check_replay()


def test_a_leave_that_cannot_be_written_is_refused() -> None:
    stage = Stage()
    stage.enter("new")
    stage.full = True
    token = stage.ask(lambda token: stage.machine.leave("g", [], False, token, stage.now_ms))
    assert stage.code(token) is ErrorCode.NONE
    stage.full = False


def test_a_static_member_changes_to_the_new_protocol_and_back() -> None:
    stage = Stage()
    stage.enter("other")
    old = stage.answer(stage.join(instance="i", protocols={"range": wants("t")}))
    stage.synced(old.member_id, old.generation_id, instance="i")
    stage.settle("other")
    answer = stage.enter("new", instance="i")
    assert answer.error_code == 0, "one that speaks the classic protocol need not have left"
    assert old.member_id not in stage.group().members
    stage.settle("new", "other", instances={"new": "i"})
    back = stage.answer(stage.join(instance="i", protocols={"range": wants("t")}))
    assert (back.error_code, back.generation_id) == (0, stage.group().epoch), "nothing has changed for the group"
    assert stage.synced(back.member_id, back.generation_id, instance="i") == {"t": {2, 3}}
    assert stage.heartbeat("new", back.generation_id, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    stage.check_replay()


def test_a_static_member_that_takes_the_place_of_the_last_new_one_makes_the_group_classic() -> None:
    stage = Stage()
    stage.enter("new", instance="i")
    joined = stage.answer(stage.join(instance="i", protocols={"range": wants("t")}))
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert stage.kind is ClassicGroup
    assert stage.machine.groups["g"].state is GroupState.STABLE
    assert stage.synced(joined.member_id, 2, instance="i") == {"t": {0, 1, 2, 3}}
    stage.check_replay()
    stage.restart()
    assert stage.heartbeat(joined.member_id, 2, instance="i") is ErrorCode.NONE


def test_with_another_subscription_it_makes_the_classic_group_rebalance() -> None:
    stage = Stage(topics={"t": 1, "u": 1})
    stage.enter("new", instance="i")
    joined = stage.answer(stage.join(instance="i", protocols={"range": wants("u")}))
    assert stage.kind is ClassicGroup
    assert stage.machine.groups["g"].state is GroupState.PREPARING
    assert stage.heartbeat(joined.member_id, 2, instance="i") is ErrorCode.REBALANCE_IN_PROGRESS
    stage.check_replay()


def test_a_pattern_is_dropped_with_the_member_that_a_classic_one_replaces() -> None:
    stage = Stage()
    stage.enter("new", topics=[], pattern="t.*", instance="i")
    stage.enter("other")
    stage.join(instance="i", protocols={"range": wants("t")})
    assert stage.group().patterns == {}
    assert stage.group().epoch == 4


def test_a_group_of_both_kinds_lives_on_after_a_restart() -> None:
    stage = Stage(rules=RULES._replace(session_ms_max=60_000))
    stage.enter("new")
    generation = stage.rejoin("old", session_ms=20_000).generation_id
    stage.synced("old", generation)
    stage.restart()
    assert stage.heartbeat("old", generation) is ErrorCode.NONE
    stage.advance(6000)
    assert stage.kind is ClassicGroup, "the new one was silent for a session of the group's"
    stage.advance(13_999)
    assert stage.machine.groups["g"].roster.members.keys() == {"old"}


def test_the_state_of_a_member_is_kept_when_it_changes_its_protocol() -> None:
    stage = Stage()
    (old,) = stage.classic_group()
    answer = stage.enter(old)
    assert (answer.member_epoch, stage.part(answer)) == (1, {"t": {0, 1, 2, 3}})
    member = stage.group().members[old]
    assert member.subscription.classic is None
    assert member.holding.state is MemberState.STABLE
