"""Operations on committed offsets: who may commit and when, what is returned, and what expires."""

from __future__ import annotations

import pytest
from coord.groups.stage import RULES, Stage, done, subscription

from ottla.coord.groups.classic import GroupState
from ottla.coord.groups.machine import FORGET_AGAIN_MS, RETENTION, SLICE
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


def test_who_uses_groups_only_for_offsets_makes_a_group_without_members() -> None:
    stage = Stage()
    assert stage.commit(42) is ErrorCode.NONE
    assert stage.fetched() == (42, ErrorCode.NONE)
    group = stage.machine.groups["g"]
    assert (group.state, group.protocol_type, group.written) == (GroupState.EMPTY, None, None)
    stage.restart()
    assert stage.fetched() == (42, ErrorCode.NONE)


def test_only_members_of_the_generation_commit_to_a_group_that_has_members() -> None:
    stage = Stage()
    (member,) = stage.stable()
    assert stage.commit(5, member, 1) is ErrorCode.NONE
    assert stage.commit(6, member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(6, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(6) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(6, member, -1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.fetched() == (5, ErrorCode.NONE)


def test_members_may_commit_while_the_group_prepares_but_not_while_work_is_shared_out() -> None:
    stage = Stage()
    (member,) = stage.stable()
    _, join = stage.admitted()
    assert stage.commit(5, member, 1) is ErrorCode.NONE
    stage.join(member)
    assert stage.answer(join).generation_id == 2
    assert stage.commit(6, member, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.fetched() == (5, ErrorCode.NONE)


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there(version: int, code: ErrorCode) -> None:
    assert Stage().commit(1, "m", 3, version=version) is code


def test_a_former_group_takes_commits_of_anybody_once_it_is_empty() -> None:
    stage = Stage()
    (member,) = stage.stable()
    stage.leave(member)
    assert stage.commit(9) is ErrorCode.NONE
    assert stage.commit(9, member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_text_beside_an_offset_has_a_limit() -> None:
    stage = Stage()
    assert stage.commit(1, metadata="x" * RULES.metadata_size_max) is ErrorCode.NONE
    assert stage.commit(2, metadata="x" * (RULES.metadata_size_max + 1)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert stage.commit(3, metadata=None) is ErrorCode.NONE
    assert stage.fetched() == (3, ErrorCode.NONE)


def test_partitions_that_there_are_not_are_refused_and_the_others_committed() -> None:
    stage = Stage()
    from ottla.coord.machine import Caller
    from ottla.wire.messages.commits import OffsetCommitRequestPartition, OffsetCommitRequestTopic

    def request(group: str, generation: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                        for index in (0, 1)
                    ],
                )
            ],
        )

    def codes(group: str, generation: int) -> list[int]:
        asked, caller = request(group, generation), Caller("c", "/h", 8)
        token = stage.ask(lambda token: stage.machine.commit(asked, caller, token, stage.now_ms, {("t", 1)}))
        return [one.error_code for one in stage.answer(token).topics[0].partitions]

    assert codes("g", -1) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes("other", 4) == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert list(stage.machine.offsets.partitions("g")) == [("t", 0)]


def test_a_commit_that_cannot_be_written_did_not_happen() -> None:
    stage = Stage()
    stage.commit(1)
    stage.full = True
    assert stage.commit(2) is ErrorCode.NOT_COORDINATOR
    assert stage.fetched() == (1, ErrorCode.NONE)


def test_everything_that_was_committed_is_told_when_no_topic_is_named() -> None:
    stage = Stage()
    for topic, index in (("a", 0), ("a", 1), ("b", 0)):
        stage.commit(7, topic=topic, index=index)
    found = done(stage.machine.fetch(OffsetFetchRequestGroup(group_id="g", topics=None), stable=False))
    assert {(topic.name, one.partition_index) for topic in found.topics for one in topic.partitions} == {
        ("a", 0),
        ("a", 1),
        ("b", 0),
    }
    nobody = done(stage.machine.fetch(OffsetFetchRequestGroup(group_id="nobody", topics=None), stable=False))
    assert nobody.topics == []
    assert stage.fetched(group="nobody") == (-1, ErrorCode.NONE)


def test_an_offset_of_a_former_topic_of_the_same_name_is_not_told() -> None:
    stage = Stage()
    stage.commit(7)
    (index,) = stage.machine.offsets.by_group["g"]["t"].items()
    stage.machine.offsets.by_group["g"]["t"][0] = index[1]._replace(topic_id=b"a" * 16)

    def told(topic_id: bytes) -> int:
        wanted = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])
        found = done(stage.machine.fetch(OffsetFetchRequestGroup(group_id="g", topics=[wanted]), stable=False))
        return found.topics[0].partitions[0].committed_offset

    assert [told(b"a" * 16), told(bytes(16)), told(b"b" * 16)] == [7, 7, -1]


# Transactions.


def test_an_open_transaction_hides_the_offset_from_who_wants_stable_ones() -> None:
    stage = Stage()
    stage.commit(1)
    assert stage.commit_in_transaction(77, 2) is ErrorCode.NONE
    assert stage.fetched() == (1, ErrorCode.NONE)
    assert stage.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert stage.fetched(index=1, stable=True) == (-1, ErrorCode.NONE)
    every = done(stage.machine.fetch(OffsetFetchRequestGroup(group_id="g", topics=None), stable=True))
    assert every.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    stage.end(77, committed=True)
    assert stage.fetched(stable=True) == (2, ErrorCode.NONE)


def test_a_transaction_of_a_former_generation_is_refused() -> None:
    stage = Stage()
    (member,) = stage.stable()
    assert stage.commit_in_transaction(77, 2, member_id=member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit_in_transaction(77, 2, member_id="stranger", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit_in_transaction(77, 2, member_id=member, generation=1) is ErrorCode.NONE
    assert stage.commit_in_transaction(77, 3) is ErrorCode.NONE, "older clients do not tell who they are"
    assert stage.commit_in_transaction(77, 2, group="nobody", generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_a_transaction_may_commit_while_work_is_shared_out() -> None:
    stage = Stage()
    member, _ = stage.admitted()
    stage.advance(3000)
    assert stage.commit_in_transaction(77, 2, member_id=member, generation=1) is ErrorCode.NONE


def test_transactions_survive_a_restart_open_or_ended() -> None:
    stage = Stage()
    stage.commit_in_transaction(77, 2)
    stage.restart()
    assert stage.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stage.end(77, committed=True)
    stage.restart()
    assert stage.fetched(stable=True) == (2, ErrorCode.NONE)


# Deletion.


def delete(stage: Stage, *partitions: tuple[str, int], missing: set[tuple[str, int]] | None = None) -> list[ErrorCode]:
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in partitions
        ],
    )
    answer = stage.answer(stage.ask(lambda token: stage.machine.delete_offsets(request, token, missing or ())))
    if answer.error_code:
        return [ErrorCode(answer.error_code)]
    return [ErrorCode(topic.partitions[0].error_code) for topic in answer.topics]


def test_offsets_are_deleted_unless_the_group_reads_the_topic() -> None:
    stage = Stage()
    (member,) = stage.stable()  # subscribed to t
    stage.commit(1, member, 1)
    stage.commit(1, member, 1, topic="u")
    codes = delete(stage, ("t", 0), ("u", 0), ("u", 5), ("v", 0), missing={("v", 0)})
    assert codes == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert stage.fetched() == (1, ErrorCode.NONE)
    assert stage.fetched(topic="u") == (-1, ErrorCode.NONE)
    stage.leave(member)
    assert delete(stage, ("t", 0)) == [ErrorCode.NONE]
    assert stage.fetched() == (-1, ErrorCode.NONE)


def test_a_group_that_is_not_there_and_one_of_other_members_than_consumers() -> None:
    stage = Stage()
    assert delete(stage, ("t", 0)) == [ErrorCode.GROUP_ID_NOT_FOUND]
    (member,) = stage.stable(kind="connect")
    assert delete(stage, ("t", 0)) == [ErrorCode.NON_EMPTY_GROUP]
    stage.leave(member)
    assert delete(stage, ("t", 0)) == [ErrorCode.NONE]


def test_a_subscription_that_cannot_be_read_may_be_to_anything() -> None:
    stage = Stage()
    (member,) = stage.stable(protocols={"range": b"\0\0\0"})
    stage.commit(1, member, 1)
    assert delete(stage, ("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_deleted_topics_take_their_offsets_with_them() -> None:
    stage = Stage()
    stage.commit(1)
    stage.commit(1, topic="u")
    stage.commit_in_transaction(77, 2, group="h")
    stage.carry_out(stage.machine.forget({"t"}, len(stage.journal), stage.now_ms))
    stage.end(77, committed=True)
    assert stage.fetched() == stage.fetched(group="h") == (-1, ErrorCode.NONE)
    assert stage.fetched(topic="u") == (1, ErrorCode.NONE)


def test_what_is_committed_for_a_new_topic_of_the_same_name_stays() -> None:
    stage = Stage()
    stage.commit(1)
    deleted = len(stage.journal)
    stage.commit(5, group="h")
    stage.carry_out(stage.machine.forget({"t"}, deleted, stage.now_ms))
    assert stage.fetched() == (-1, ErrorCode.NONE)
    assert stage.fetched(group="h") == (5, ErrorCode.NONE)


def test_many_offsets_of_a_deleted_topic_go_a_slice_at_a_time() -> None:
    stage = Stage()
    many = 2 * SLICE + 1
    for number in range(many):
        stage.commit(1, group=f"g{number}")
    stage.carry_out(stage.machine.forget({"t"}, len(stage.journal), stage.now_ms))
    assert len(stage.journal) == many + SLICE
    stage.full = True
    stage.advance(100)
    stage.full = False
    stage.commit(5, group="g0")
    stage.advance(FORGET_AGAIN_MS)
    assert len(stage.machine.offsets.by_group) == 1, "what was committed meanwhile is for another topic"
    assert stage.fetched(group="g0") == (5, ErrorCode.NONE)


# Expiry.


def settle(stage: Stage) -> None:
    """Wait until the next check for expired offsets."""
    stage.advance(RULES.retention_check_ms)


def test_many_offsets_expire_a_slice_at_a_time() -> None:
    stage = Stage()
    many = 2 * SLICE + 1
    for number in range(many):
        stage.commit(1, group=f"g{number}")
    before = len(stage.journal)
    stage.now_ms += RULES.retention_ms
    stage.carry_out(stage.machine.expire(RETENTION, stage.now_ms))
    assert 0 < len(stage.journal) - before <= 2 * SLICE
    stage.advance(0)
    assert stage.machine.offsets.by_group == stage.machine.groups == {}


def test_offsets_without_a_group_s_members_expire_by_the_time_of_their_commit() -> None:
    stage = Stage()
    stage.commit(1)
    stage.advance(RULES.retention_ms // 2)
    stage.commit(2, index=1)
    stage.advance(RULES.retention_ms // 2)
    settle(stage)
    assert stage.fetched() == (-1, ErrorCode.NONE)
    assert stage.fetched(index=1) == (2, ErrorCode.NONE)
    assert "g" in stage.machine.groups
    stage.advance(RULES.retention_ms // 2)
    settle(stage)
    assert stage.machine.groups == {}, "nothing is left to keep"


def test_offsets_of_a_group_expire_when_it_has_been_empty_for_so_long() -> None:
    stage = Stage()
    (member,) = stage.stable(session_ms=60_000)
    stage.commit(1, member, 1)
    for _ in range(3 * RULES.retention_ms // 50_000):
        stage.advance(50_000)
        assert stage.heartbeat(member, 1) is ErrorCode.NONE
    assert stage.fetched() == (1, ErrorCode.NONE), "in use, however old"
    stage.leave(member)
    stage.advance(RULES.retention_ms - RULES.retention_check_ms)
    assert stage.fetched() == (1, ErrorCode.NONE)
    stage.restart()
    stage.advance(RULES.retention_check_ms)
    settle(stage)
    assert stage.fetched() == (-1, ErrorCode.NONE)
    assert stage.machine.groups == {}


def test_a_stable_group_keeps_what_it_is_subscribed_to_and_nothing_else() -> None:
    stage = Stage()
    (member,) = stage.stable(session_ms=60_000)
    stage.commit(1, member, 1)
    stage.commit(1, member, 1, topic="u")
    for _ in range(2 * RULES.retention_ms // 50_000):
        stage.advance(50_000)
        stage.heartbeat(member, 1)
    assert stage.fetched() == (1, ErrorCode.NONE)
    assert stage.fetched(topic="u") == (-1, ErrorCode.NONE)
    assert stage.machine.groups["g"].state is GroupState.STABLE


def test_a_group_whose_subscriptions_are_unknown_keeps_everything() -> None:
    stage = Stage()
    (member,) = stage.stable(kind="connect", session_ms=60_000)
    stage.commit(1, member, 1)
    for _ in range(2 * RULES.retention_ms // 50_000):
        stage.advance(50_000)
        stage.heartbeat(member, 1)
    assert stage.fetched() == (1, ErrorCode.NONE)


def test_a_commit_may_say_itself_how_long_it_is_kept() -> None:
    stage = Stage()
    stage.commit(1, version=3, retention_ms=10)
    stage.commit(2, index=1, version=3, retention_ms=RULES.retention_ms * 2)
    stage.restart()
    settle(stage)
    assert stage.fetched() == (-1, ErrorCode.NONE)
    stage.advance(RULES.retention_ms)
    assert stage.fetched(index=1) == (2, ErrorCode.NONE)
    stage.advance(RULES.retention_ms + RULES.retention_check_ms)
    assert stage.fetched(index=1) == (-1, ErrorCode.NONE)


def test_a_client_may_want_its_offset_kept_for_ever() -> None:
    stage = Stage()
    stage.commit(1, version=3, retention_ms=(1 << 63) - 1)
    stage.advance(RULES.retention_ms * 2)
    assert stage.fetched() == (1, ErrorCode.NONE)
    stage.restart()
    assert stage.fetched() == (1, ErrorCode.NONE)


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire() -> None:
    stage = Stage()
    stage.commit(1)
    stage.commit_in_transaction(77, 2)
    stage.advance(RULES.retention_ms * 2)
    assert stage.fetched() == (1, ErrorCode.NONE)
    stage.end(77, committed=False)
    settle(stage)
    assert stage.machine.groups == {}


def test_expiry_that_cannot_be_written_is_tried_again() -> None:
    stage = Stage()
    stage.commit(1)
    stage.full = True
    stage.advance(RULES.retention_ms * 2)
    assert stage.fetched() == (1, ErrorCode.NONE)
    stage.full = False
    settle(stage)
    assert stage.machine.groups == {}


def test_an_empty_group_without_offsets_goes_with_the_next_look() -> None:
    stage = Stage()
    stage.join()
    assert "g" in stage.machine.groups
    settle(stage)
    assert stage.machine.groups == {}
    assert stage.machine.durable() == stage.replayed().durable()


def test_topics_of_all_members_count() -> None:
    stage = Stage()
    stage.admitted(protocols={"range": subscription("a")})
    stage.admitted(protocols={"range": subscription("b", "c")})
    stage.advance(6000)
    group = stage.machine.groups["g"]
    assert group.topics == {"a", "b", "c"}
    assert group.subscribes("b")
    assert not group.subscribes("d")


def test_a_long_name_is_refused_before_anything_is_written() -> None:
    stage = Stage()
    with pytest.raises(BrokerError):
        stage.commit(1, group="g" * 40_000)
    assert stage.journal == []


def test_before_its_first_generation_a_group_may_be_subscribed_to_anything() -> None:
    stage = Stage()
    stage.commit(1)
    member, _ = stage.admitted()
    assert delete(stage, ("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    stage.leave(member)
    stage.advance(3000)
    assert delete(stage, ("t", 0)) == [ErrorCode.NONE]


def test_subscriptions_are_those_of_the_generation_whatever_members_want_by_now() -> None:
    stage = Stage()
    leader, other = stage.stable(2, protocols={"x": subscription("t"), "y": subscription("t")})
    stage.commit(1, leader, 1)
    stage.commit(1, leader, 1, topic="u")
    stage.join(other, protocols={"y": subscription("u")})
    assert delete(stage, ("t", 0), ("u", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    stage.restart()
    assert delete(stage, ("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
