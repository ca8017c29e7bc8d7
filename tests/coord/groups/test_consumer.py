"""Consumer groups: which member gets which partition and when, who is fenced, and who is removed."""

from __future__ import annotations

from typing import Any

import pytest
from coord.groups.consumer_stage import ConsumerStage
from coord.groups.stage import RULES, done

from ottla.coord.formats import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
    encode_record,
)
from ottla.coord.groups.consumer_member import MemberState
from ottla.coord.groups.consumer_records import subscription
from ottla.coord.groups.describing import describe
from ottla.coord.machine import Caller, Decision
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.commits import OffsetFetchRequestGroup, OffsetFetchRequestTopics


def refusal(answer: Any) -> ErrorCode:
    assert answer.member_id is None
    return ErrorCode(answer.error_code)


# Joining and sharing out.


def test_the_first_member_gets_everything_at_once() -> None:
    stage = ConsumerStage()
    answer = stage.enter("a")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 1000)
    assert stage.part(answer) == {"t": {0, 1, 2, 3}}
    assert stage.group().phase == "Stable"


def test_an_idle_member_is_told_nothing_and_nothing_is_written() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.beat("a", 2)
    before = len(stage.journal)
    answer = stage.beat("a", 2)
    assert (answer.member_epoch, answer.assignment, len(stage.journal)) == (2, None, before)


def test_members_of_version_0_are_given_an_id() -> None:
    stage = ConsumerStage()
    assert stage.enter("", version=0).member_id == "1"


def test_a_member_lets_go_before_another_takes() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    newcomer = stage.enter("b")
    assert (newcomer.member_epoch, stage.part(newcomer)) == (3, {}), "all of its part is still held"
    assert stage.group().members["b"].holding.state is MemberState.UNRELEASED
    told = stage.beat("a", 2)
    assert (told.member_epoch, stage.part(told)) == (2, {"t": {0, 1}}), "it stays in its epoch until it has let go"
    assert stage.group().members["a"].holding.state is MemberState.UNREVOKED
    assert stage.part(stage.beat("b", 3)) is None
    assert stage.beat("a", 2, owned={"t": {0, 1, 2}}).member_epoch == 2, "one of the two is not all"
    done = stage.beat("a", 2, owned={"t": {0, 1}})
    assert (done.member_epoch, stage.part(done)) == (3, None)
    assert stage.part(stage.beat("b", 3)) == {"t": {2, 3}}
    assert stage.group().phase == "Stable"
    stage.check_replay()


def test_a_full_request_is_answered_with_the_assignment() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    answer = stage.beat("a", 2, topics=["t"], rebalance_ms=5000, owned={"t": {0, 1, 2, 3}})
    assert stage.part(answer) == {"t": {0, 1, 2, 3}}


def test_more_members_than_partitions_leave_some_without() -> None:
    stage = ConsumerStage(topics={"t": 1})
    for name in "abc":
        stage.enter(name)
    held = stage.settle("a", "b", "c")
    assert sorted(len(one.get("t", ())) for one in held.values()) == [0, 0, 1]


def test_a_target_is_not_computed_again_too_soon() -> None:
    stage = ConsumerStage(assignment_interval_ms=1000)
    stage.enter("a")
    newcomer = stage.enter("b")
    assert (newcomer.member_epoch, stage.part(newcomer)) == (2, {}), "in the epoch of the target there is"
    assert (stage.group().epoch, stage.group().target_epoch, stage.group().phase) == (3, 2, "Assigning")
    stage.now_ms += 1000
    assert stage.beat("b", 2).member_epoch == 3
    assert stage.settle("a", "b") == {"a": {"t": {0, 1}}, "b": {"t": {2, 3}}}


def test_the_assignor_that_most_members_name_is_used() -> None:
    stage = ConsumerStage(topics={"t": 2, "u": 2})
    stage.enter("b", "t", "u", assignor="range")
    stage.enter("a", "t", "u", assignor="range")
    stage.enter("c", "t", "u")
    held = stage.settle("a", "b", "c")
    assert held == {"a": {"t": {0}, "u": {0}}, "b": {"t": {1}, "u": {1}}, "c": {}}
    stage.beat("c", stage.group().members["c"].epoch, assignor="uniform")
    assert stage.group().epoch == 4, "naming one changes nothing for now"


def test_a_group_that_is_full_takes_nobody_else() -> None:
    stage = ConsumerStage(size_max=1)
    stage.enter("a")
    assert refusal(stage.enter("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.enter("a").error_code == 0, "who is in it may come again"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 1, "version": 0}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"instance": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"rebalance_ms": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        ({"owned": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": {"t": {1}}}, ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topics": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            {"assignor": "best"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor best is not supported. Supported assignors: uniform, range.",
        ),
        ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(options: dict[str, Any], code: ErrorCode, message: str) -> None:
    stage = ConsumerStage()
    asked = {"member_id": "a", "epoch": 0, "topics": ["t"], "rebalance_ms": 5000, "owned": {}} | options
    answer = stage.beat(asked.pop("member_id"), asked.pop("epoch"), **asked)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert stage.machine.groups == {}
    assert stage.journal == []


# Epochs.


def test_a_member_in_another_epoch_is_fenced() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.settle("a", "b")
    for epoch in (2, 4):
        assert refusal(stage.beat("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(stage.beat("x", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_may_be_one_epoch_behind() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.beat("a", 2)
    assert stage.beat("a", 2, owned={"t": {0, 1}}).member_epoch == 3, "which it never hears"
    assert refusal(stage.beat("a", 2, owned={"t": {0, 1, 2}})) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(stage.beat("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert stage.beat("a", 2, owned={"t": {0, 1}}).member_epoch == 3


def test_a_fenced_member_comes_back_with_nothing_and_gets_its_part() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    assert stage.part(stage.enter("a")) == {"t": {0, 1, 2, 3}}
    assert len(stage.group().members) == 1


# Going.


def test_the_part_of_a_member_that_leaves_goes_to_the_others() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.settle("a", "b")
    answer = stage.beat("b", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "b", -1)
    assert stage.part(stage.beat("a", 3)) == {"t": {0, 1, 2, 3}}
    stage.beat("a", -1)
    assert stage.group().phase == "Empty"
    stage.check_replay()


def test_a_silent_member_is_forgotten_when_its_session_ends() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.settle("a", "b")
    stage.advance(4000)
    stage.beat("a", 3)
    stage.advance(2000)
    assert list(stage.group().members) == ["a"]
    stage.advance(4000)
    assert stage.group().phase == "Empty"
    assert not stage.group().deadlines.sessions


def test_heartbeats_set_no_timers() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.beat("a", 2)
    timers = dict(stage.timers)
    stage.now_ms += 1000
    stage.beat("a", 2)
    assert stage.timers == timers


def test_a_member_that_does_not_let_go_in_time_is_removed() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.beat("a", 2)
    for _ in range(5):
        stage.beat("b", 3)
        stage.beat("a", 2)
        stage.advance(1000)
    assert "a" not in stage.group().members
    assert stage.settle("b") == {"b": {"t": {0, 1, 2, 3}}}


def test_a_member_that_let_go_in_time_is_not() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.beat("a", 2)
    stage.advance(4000)
    stage.beat("a", 2, owned={"t": {0, 1}})
    stage.beat("b", 3)
    stage.advance(3000)
    assert set(stage.group().members) == {"a", "b"}


# Static members.


def test_a_static_member_that_leaves_for_now_keeps_its_part() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i")
    stage.enter("b")
    stage.settle("a", "b", instances={"a": "i"})
    held = stage.group().members["a"].holding.assigned
    assert stage.beat("a", -2, instance="i").member_epoch == -2
    assert stage.part(stage.beat("b", 3)) is None
    epoch = stage.group().epoch
    answer = stage.enter("c", instance="i")
    assert (answer.member_epoch, stage.group().epoch) == (3, epoch), "the group does not notice"
    assert stage.group().members["c"].holding.assigned == held
    assert "a" not in stage.group().members
    assert refusal(stage.beat("a", 3, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    stage.check_replay()


def test_a_static_member_that_comes_back_with_its_own_id_and_falls_silent_is_forgotten() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i")
    held = stage.group().members["a"].holding.assigned
    stage.beat("a", -2, instance="i")
    stage.enter("a", instance="i")
    assert stage.group().members["a"].holding.assigned == held
    stage.check_replay()
    stage.advance(6000)
    assert stage.group().phase == "Empty"


def test_a_static_member_that_stays_away_is_forgotten() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i")
    stage.beat("a", -2, instance="i")
    stage.advance(6000)
    assert stage.group().phase == "Empty"
    assert stage.group().static == {}


def test_a_static_member_that_leaves_while_it_should_let_go_has_a_session_s_time_to_come_back() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i", rebalance_ms=2000)
    stage.enter("b")
    stage.beat("a", 2, instance="i")
    stage.beat("a", -2, instance="i")
    stage.advance(4000)
    stage.beat("b", 3)
    assert set(stage.group().members) == {"a", "b"}
    stage.advance(2000)
    assert set(stage.group().members) == {"b"}


def test_an_instance_is_one_member_at_a_time() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i")
    assert refusal(stage.enter("b", instance="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refusal(stage.beat("b", 2, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(stage.beat("a", 2, instance="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(stage.beat("b", -1, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert stage.beat("a", -1, instance="i").error_code == 0
    assert stage.enter("b", instance="i").error_code == 0


def test_a_static_member_that_comes_back_with_another_subscription_is_assigned_anew() -> None:
    stage = ConsumerStage(topics={"t": 2, "u": 2})
    stage.enter("a", instance="i")
    stage.beat("a", -2, instance="i")
    answer = stage.enter("b", "u", instance="i")
    assert (answer.member_epoch, stage.part(answer)) == (3, {"u": {0, 1}})
    stage.check_replay()


# Subscriptions and topics.


def test_a_member_lets_go_of_topics_that_it_is_no_longer_subscribed_to_before_a_new_target() -> None:
    stage = ConsumerStage(topics={"t": 2, "u": 2}, assignment_interval_ms=10_000)
    stage.enter("a", "t", "u")
    answer = stage.beat("a", 2, topics=["u"])
    assert (answer.member_epoch, stage.part(answer), stage.group().target_epoch) == (2, {"u": {0, 1}}, 2)
    assert stage.group().members["a"].holding.state is MemberState.UNREVOKED
    again = stage.beat("a", 2, topics=[])
    assert stage.part(again) == {}, "while it lets go of one it may have to let go of more"
    stage.beat("a", 2, owned={})
    stage.now_ms += 10_000
    stage.settle("a")
    assert stage.group().members["a"].holding.is_reconciled(stage.group().epoch)


def test_new_partitions_and_new_topics_are_shared_out() -> None:
    stage = ConsumerStage(topics={"t": 1})
    stage.enter("a", "t", "u")
    stage.topic("t", 3)
    assert stage.part(stage.beat("a", 2)) == {"t": {0, 1, 2}}
    stage.topic("u", 1)
    assert stage.part(stage.beat("a", 3)) == {"t": {0, 1, 2}, "u": {0}}
    epoch = stage.group().epoch
    stage.topic("other", 1)
    stage.beat("a", 4)
    assert stage.group().epoch == epoch, "what nobody is subscribed to is nobody's business"


def test_a_topic_that_is_deleted_or_made_anew_is_let_go_of() -> None:
    stage = ConsumerStage(topics={"t": 1, "u": 1})
    stage.enter("a", "t", "u")
    stage.delete_topic("u")
    assert stage.part(stage.beat("a", 2)) == {"t": {0}}
    stage.topic("u", 2)
    stage.beat("a", 2, owned={"t": {0}})
    assert stage.settle("a") == {"a": {"t": {0}, "u": {0, 1}}}


def test_topics_that_changed_while_nobody_looked_are_noticed_after_a_restart() -> None:
    stage = ConsumerStage(topics={"t": 1})
    stage.enter("a")
    stage.topic("t", 2)
    stage.restart()
    assert stage.part(stage.beat("a", 2)) == {"t": {0, 1}}
    epoch = stage.group().epoch
    stage.restart()
    stage.beat("a", epoch)
    assert stage.group().epoch == epoch, "and what did not change is not"


def test_a_member_may_be_subscribed_to_nothing() -> None:
    stage = ConsumerStage()
    answer = stage.enter("a", topics=[])
    assert (answer.member_epoch, stage.part(answer)) == (1, {})
    assert stage.beat("a", 1).member_epoch == 1
    stage.check_replay()


# Regular expressions.


def test_a_pattern_stands_for_all_topics_that_match() -> None:
    stage = ConsumerStage(topics={"orders-eu": 1, "orders-us": 1, "other": 1})
    answer = stage.enter("a", topics=[], pattern="orders-.*")
    assert (answer.member_epoch, stage.part(answer)) == (2, {"orders-eu": {0}, "orders-us": {0}})
    assert stage.group().patterns["orders-.*"].topics == {"orders-eu", "orders-us"}
    stage.check_replay()


def test_a_pattern_adds_to_the_names() -> None:
    stage = ConsumerStage(topics={"orders": 1, "other": 1})
    assert stage.part(stage.enter("a", "other", pattern="or.*")) == {"orders": {0}, "other": {0}}


def test_new_topics_are_found_by_patterns_but_not_all_the_time() -> None:
    stage = ConsumerStage(topics={"orders-eu": 1})
    stage.enter("a", topics=[], pattern="orders-.*")
    stage.topic("orders-us", 1)
    assert stage.part(stage.beat("a", 2)) is None
    stage.advance(5000)
    stage.beat("a", 2)
    stage.advance(5000)
    assert stage.part(stage.beat("a", 2)) == {"orders-eu": {0}, "orders-us": {0}}


def test_a_pattern_that_nobody_asks_for_any_more_is_dropped() -> None:
    stage = ConsumerStage(topics={"orders": 1, "t": 1})
    stage.enter("a", topics=[], pattern="or.*")
    stage.enter("b", topics=[], pattern="or.*")
    stage.beat("b", -1)
    assert set(stage.group().patterns) == {"or.*"}
    stage.beat("a", 2, topics=["t"], pattern="", owned={})
    assert stage.group().patterns == {}
    assert stage.settle("a") == {"a": {"t": {0}}}
    stage.beat("a", stage.group().epoch, pattern="t|u")
    stage.beat("a", -1)
    assert stage.group().patterns == {}
    stage.check_replay()


def test_a_pattern_that_makes_no_sense_is_refused() -> None:
    stage = ConsumerStage()
    answer = stage.enter("a", topics=[], pattern="(")
    assert refusal(answer) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith("SubscribedTopicRegex `(` is not a valid regular expression: missing")
    assert stage.machine.groups == {}


def test_a_pattern_that_another_broker_has_let_in_stands_for_nothing() -> None:
    stage = ConsumerStage(topics={"t": 1})
    stage.enter("a", topics=[], pattern="t")
    member = stage.group().members["a"]
    stage.carry_out(Decision([subscription("g", "a", member.subscription._replace(pattern="(t{100}){100}"))]))
    stage.restart()
    assert stage.part(stage.beat("a", 2)) == {}
    assert stage.group().patterns["(t{100}){100}"].topics == frozenset()


def test_patterns_are_looked_up_again_after_a_restart() -> None:
    stage = ConsumerStage(topics={"orders-eu": 1})
    stage.enter("a", topics=[], pattern="orders-.*")
    stage.topic("orders-us", 1)
    stage.restart()
    assert stage.part(stage.beat("a", 2)) == {"orders-eu": {0}, "orders-us": {0}}


# Offsets.


def test_only_a_member_in_its_epoch_commits_and_fetches() -> None:
    stage = ConsumerStage()
    assert stage.commit(1) is ErrorCode.NONE, "a group that nobody is in"
    stage.enter("a")
    assert stage.commit(2, "a", 2, version=9) is ErrorCode.NONE
    assert stage.commit(3, "a", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert stage.commit(3, "a", 3, version=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert stage.commit(3, "x", 2, version=9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(3, version=9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit_in_transaction(7, 3, member_id="a", generation=3) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit_in_transaction(7, 3) is ErrorCode.NONE

    stage.beat("a", -1)
    assert stage.commit(4) is ErrorCode.NONE, "nobody is in it any more"
    stage.enter("a")

    def fetch(member: str | None, epoch: int) -> ErrorCode:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch, topics=topics)
        try:
            return ErrorCode(done(stage.machine.fetch(request, stable=False)).error_code)
        except BrokerError as error:
            return error.code

    assert [fetch(None, -1), fetch("a", 4), fetch("a", 3), fetch("x", 4)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_a_member_that_is_behind_may_commit_what_it_has_had_for_so_long() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.settle("a", "b")
    stage.beat("b", -1)
    assert stage.part(stage.beat("a", 3)) == {"t": {0, 1, 2, 3}}
    assert stage.commit(1, "a", 3, index=0, version=9) is ErrorCode.NONE, "our last answer may not have reached it"
    assert stage.commit(1, "a", 2, index=1, version=9) is ErrorCode.NONE
    assert stage.commit(1, "a", 3, index=2, version=9) is ErrorCode.STALE_MEMBER_EPOCH, "this one is new to it"
    assert stage.commit(1, "a", 3, topic="gone", version=9) is ErrorCode.STALE_MEMBER_EPOCH


# Groups as a whole.


def test_such_groups_are_listed_described_and_deleted() -> None:
    stage = ConsumerStage()
    stage.enter("a", instance="i", rack="r", client="me")
    (listed,) = done(stage.machine.list((), ()))
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    assert done(stage.machine.list((), ["classic"])) == []
    old, new = stage.machine.describe("g", 5), stage.machine.describe("g", 6)
    assert (old.error_code, old.group_state) == (0, "Dead")
    assert (new.error_code, new.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    told = describe(stage.group(), "g", stage.rules.consumer, stage.image)
    assert (told.group_epoch, told.assignment_epoch, told.assignor_name) == (2, 2, "uniform")
    (member,) = told.members
    assert (member.member_id, member.instance_id, member.rack_id, member.client_id) == ("a", "i", "r", "me")
    assert member.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert member.assignment == member.target_assignment
    assert member.member_type == 1
    deletion = stage.ask(lambda token: stage.machine.delete("g", token))
    assert stage.answer(deletion) is ErrorCode.NON_EMPTY_GROUP
    stage.commit(1, "a", 2, version=9)
    stage.beat("a", -1, instance="i")
    stage.ask(lambda token: stage.machine.delete("g", token))
    assert stage.machine.groups == {}
    assert stage.replayed().durable() == ({}, {}, {}, {})


def test_what_is_no_such_group_is_not_described() -> None:
    stage = ConsumerStage()
    for group, what in ((None, "not found"), (object(), "is not a consumer group")):
        with pytest.raises(BrokerError) as refused:
            describe(group, "g", stage.rules.consumer, stage.image)
        assert refused.value.message == f"Group g {what}."


def test_offsets_of_topics_in_use_are_neither_deleted_nor_expired() -> None:
    stage = ConsumerStage(topics={"t": 1, "u": 1})
    stage.enter("a", topics=[], pattern="t")
    assert stage.group().subscribes("t")
    assert not stage.group().subscribes("u")
    stage.commit(1, "a", 2, version=9)
    stage.commit(1, "a", 2, topic="u", version=9)
    for _ in range(1 + RULES.retention_ms // 5000):
        stage.advance(5000)
        stage.beat("a", 2)
    assert stage.fetched()[0] == 1
    assert stage.fetched(topic="u")[0] == -1


# The journal.


def test_a_group_that_cannot_be_written_down_is_not_there() -> None:
    stage = ConsumerStage()
    stage.full = True
    assert refusal(stage.enter("a")) is ErrorCode.NOT_COORDINATOR
    assert stage.machine.groups == {}
    stage.full = False
    assert stage.enter("a").member_epoch == 2


def test_a_member_that_cannot_be_written_down_leaves_nothing_behind() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.full = True
    assert refusal(stage.enter("b")) is ErrorCode.NOT_COORDINATOR
    stage.full = False
    for _ in range(3):
        stage.advance(3000)
        stage.beat("a", 2)
    assert set(stage.group().deadlines.sessions) == {"a"}


def test_a_change_that_cannot_be_written_down_is_made_later() -> None:
    stage = ConsumerStage(topics={"t": 1, "orders-eu": 1})
    stage.enter("a", pattern="orders-.*")
    stage.topic("t", 2)
    stage.topic("orders-us", 1)
    stage.advance(5000)
    stage.beat("a", 2)
    stage.settle("a")
    stage.advance(5000)
    stage.full = True
    assert refusal(stage.beat("a", 3)) is ErrorCode.NOT_COORDINATOR
    stage.full = False
    assert stage.part(stage.beat("a", 3)) == {"t": {0, 1}, "orders-eu": {0}, "orders-us": {0}}


def test_a_member_whose_end_cannot_be_written_down_ends_later() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.full = True
    stage.advance(7000)
    assert set(stage.group().members) == {"a"}
    stage.full = False
    stage.advance(1000)
    assert stage.group().phase == "Empty"


def test_a_restarted_group_goes_on_where_it_was() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.beat("a", 2)
    stage.restart()
    assert stage.beat("a", 2, owned={"t": {0, 1}}).member_epoch == 3
    assert stage.part(stage.beat("b", 3)) == {"t": {2, 3}}
    stage.restart()
    stage.advance(5999)
    assert set(stage.group().members) == {"a", "b"}, "each has its whole session after a load"
    stage.advance(1)
    assert stage.group().phase == "Empty"


def test_a_member_that_was_letting_go_has_its_time_again_after_a_restart() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    stage.enter("b")
    stage.beat("a", 2)
    stage.restart()
    for _ in range(5):
        stage.advance(1000)
        stage.beat("a", 2)
        stage.beat("b", 3)
    assert set(stage.group().members) == {"b"}


def test_a_group_that_kafka_before_4_1_wrote_is_taken_over() -> None:
    stage = ConsumerStage(topics={"t": 2})
    topic = stage.image.topics["t"].id
    records = [
        encode_record(
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
            ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=["t"],
                subscribed_topic_regex=None,
                rebalance_timeout_ms=5000,
                server_assignor=None,
            ),
        ),
        encode_record(ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue(topics=[])),
        encode_record(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=4)),
        encode_record(
            ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[TopicPartition(topic_id=topic, partitions=[0, 1])]
            ),
        ),
        encode_record(
            ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        ),
        encode_record(
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=4,
                previous_member_epoch=3,
                state=0,
                assigned_partitions=[TopicPartitions(topic_id=topic, partitions=[0, 1])],
                partitions_pending_revocation=[],
            ),
        ),
    ]
    for record in records:
        stage.machine.apply(record.key, record.value, offset=0, timestamp=0, producer_id=-1)
    assert stage.group().members["a"].holding.assigned == {topic: {0: 4, 1: 4}}
    answer = stage.beat("a", 4)
    assert (answer.member_epoch, stage.part(answer)) == (5, None), "its hash is not ours: assigned again, and the same"
    assert not stage.group().partition_metadata


def test_tombstones_of_what_is_not_there_are_passed_over() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    for group, member in (("none", "a"), ("g", "none")):
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member),
            ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member),
            ConsumerGroupMemberMetadataKey(group_id=group, member_id=member),
        ):
            stage.machine.apply(encode_record(key, None).key, None, offset=0, timestamp=0, producer_id=-1)
    assert set(stage.machine.groups) == {"g"}
    assert set(stage.group().members) == {"a"}


def test_a_member_in_a_state_of_the_future_must_begin_anew() -> None:
    stage = ConsumerStage()
    stage.enter("a")
    record = encode_record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=0,
            state=9,
            assigned_partitions=[],
            partitions_pending_revocation=[],
        ),
    )
    stage.machine.apply(record.key, record.value, offset=0, timestamp=0, producer_id=-1)
    answer = stage.beat("a", 2)
    assert refusal(answer) is ErrorCode.FENCED_MEMBER_EPOCH
    assert "is in a unknown state" in answer.error_message
    assert stage.part(stage.enter("a")) == {"t": {0, 1, 2, 3}}


def test_the_caller_is_written_down_when_it_is_another_one() -> None:
    stage = ConsumerStage()
    stage.enter("a", client="me")
    stage.beat("a", 2, client="me")
    before = len(stage.journal)
    stage.beat("a", 2, client="you")
    assert len(stage.journal) == before + 1
    assert stage.group().members["a"].subscription.client_id == "you"
    assert Caller("you", "/127.0.0.1", 1).host == stage.group().members["a"].subscription.host
