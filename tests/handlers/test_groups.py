"""Groups over the wire: the same scenarios give the same results on Apache Kafka and Ottla, in every API version.

Not compared: error messages, whose wording is our own; and the choice of protocol when members of one group
prefer different protocols equally, where each broker breaks the tie in its own way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from handlers.conftest import port_of
from handlers.story import FINE, SUBSCRIPTION, TOPIC, Story, describe
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.commits import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {
    "group.initial.rebalance.delay.ms": "800",
    "group.max.size": "4",
    "offsets.topic.num.partitions": "5",
    "group.min.session.timeout.ms": "1000",
}
RANGE = (("range", SUBSCRIPTION),)


def transcript(port: int, tell: Callable[[Story], None]) -> list[str]:
    with Story(port, f"group-{tell.__name__}") as story:
        tell(story)
        return story.transcript


def requests_without_a_group(story: Story) -> None:
    story.ask("described", DescribeGroupsRequest(groups=[story.group], include_authorized_operations=True), 5)
    story.ask("described", DescribeGroupsRequest(groups=[story.group], include_authorized_operations=True), 6)
    story.ask("no such kind", FindCoordinatorRequest(key_type=5, coordinator_keys=["x"]), 4)
    story.ask("no such kind", FindCoordinatorRequest(key_type=5, key="x"), 3)
    story.ask("heartbeat", story.heartbeat("x", 1), 4)
    story.ask("heartbeat, no id", HeartbeatRequest(group_id="", generation_id=1, member_id="x"), 4)
    story.ask("sync", story.sync("x", 1), 5)
    story.ask("sync, no protocol", SyncGroupRequest(group_id="g", generation_id=1, member_id="x", assignments=[]), 5)
    story.ask("leave", story.leave(("x", None)), 5)
    story.ask("leave alone", LeaveGroupRequest(group_id=story.group, member_id="x"), 2)
    story.ask("leave, no id", LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="x")]), 5)
    story.ask("join, no id", story.join(group=""), 9)
    story.ask("join, short session", story.join(session_ms=999), 9)
    story.ask("join, short session", story.join(session_ms=999), 5)
    story.ask("join, long session", story.join(session_ms=1_800_001), 9)
    story.ask("join, not a member", story.join("x"), 9)
    story.ask("delete", DeleteGroupsRequest(groups_names=[story.group, story.group]), 2)
    story.ask("join, no protocols", story.join(protocols=()), 9)
    story.ask("join, no kind", story.join(kind=""), 9)
    story.ask("described", describe(story.group), 5)


def one_member(story: Story) -> None:
    story.invite("A")
    story.until_state("Empty")  # Apache Kafka lists a group a moment after its creation
    story.ask("described", DescribeGroupsRequest(groups=[story.group], include_authorized_operations=True), 5)
    story.ask("anybody commits", story.commit(), 8)
    story.send(story.join("A"), 9, "A")
    story.until_state("PreparingRebalance")
    story.ask("described", describe(story.group), 5)
    story.ask("listed", ListGroupsRequest(states_filter=["preparingrebalance", "DEAD"]), 4)
    story.ask("heartbeat", story.heartbeat("A", 0), 4)
    story.ask("heartbeat, other generation", story.heartbeat("A", 7), 4)
    story.ask("sync", story.sync("A", 0), 5)
    story.ask("anybody commits", story.commit(), 8)
    story.ask("member commits", story.commit("A", 0), 8)
    story.ask("other kind joins", story.join(kind="connect"), 9)
    story.ask("other protocol joins", story.join(protocols=(("sticky", b""),)), 9)
    story.hear("joined", "A")
    story.ask("described", describe(story.group), 5)
    story.ask("heartbeat", story.heartbeat("A", 1), 4)
    story.ask("commit", story.commit("A", 1), 8)
    story.ask("joins again", story.join("A"), 9)
    story.ask("sync, other generation", story.sync("A", 4), 5)
    story.ask("sync, other protocol", story.sync("A", 1, protocol="other"), 5)
    story.ask("sync", story.sync("A", 1, {"A": b"part", "stranger": b"part"}), 5)
    story.ask("described", describe(story.group), 5)
    story.ask("sync again", story.sync("A", 1), 5)
    story.ask("delete", DeleteGroupsRequest(groups_names=[story.group]), 2)
    story.ask("leave", story.leave(("A", None)), 5)
    story.ask("described", describe(story.group), 5)
    story.ask("listed", ListGroupsRequest(states_filter=["Empty"], types_filter=["Classic"]), 5)
    story.ask("listed, other kind", ListGroupsRequest(types_filter=["consumer"]), 5)
    story.ask("listed, no such kind", ListGroupsRequest(types_filter=["bad"]), 5)
    story.ask("delete", DeleteGroupsRequest(groups_names=[story.group]), 2)
    story.ask("listed", ListGroupsRequest(states_filter=["Empty"]), 4)


def two_members(story: Story) -> None:
    story.invite("A")
    story.send(story.join("A"), 9, "A")
    story.hear("A joined", "A")
    story.ask("A shares out", story.sync("A", 1, {"A": b"all"}), 5)
    story.invite("B")
    story.ask("A lives", story.heartbeat("A", 1), 4)
    story.send(story.join("B"), 9, "B")
    story.until_state("PreparingRebalance")
    story.ask("A lives", story.heartbeat("A", 1), 4)
    story.ask("A commits", story.commit("A", 1), 8)
    story.ask("A syncs", story.sync("A", 1), 5)
    story.send(story.join("A"), 9, "A")
    story.hear("A joined", "A")
    story.hear("B joined", "B")
    story.send(story.sync("B", 2), 5, "B")
    story.ask("B lives", story.heartbeat("B", 2), 4)
    story.ask("A shares out", story.sync("A", 2, {"A": b"a", "B": b"b"}), 5)
    story.hear("B has its part", "B")
    story.ask("B joins unchanged", story.join("B"), 9, "B")
    story.ask("B joins unchanged", story.join("B"), 6, "B")
    # A member joins while the leader computes the assignment.
    story.send(story.join("A"), 9, "A")
    story.until_state("PreparingRebalance")
    story.send(story.join("B"), 9, "B")
    story.hear("A joined", "A")
    story.hear("B joined", "B")
    story.send(story.sync("B", 3), 5, "B")
    story.ask("B lives", story.heartbeat("B", 3), 4)
    story.ask("A leaves", story.leave(("A", None), ("x", None), ("", "instance")), 5)
    story.hear("B is refused", "B")
    story.ask("described", describe(story.group), 5)
    story.ask("B joins", story.join("B"), 9, "B")
    story.ask("B leaves", LeaveGroupRequest(group_id=story.group, member_id=story.ids["B"]), 2)
    story.ask("described", describe(story.group), 5)


def static_members(story: Story) -> None:
    def joins(name: str, instance: str, version: int = 9) -> JoinGroupRequest:
        return story.join(name if name in story.ids else "", instance=instance, protocols=RANGE)

    story.send(joins("A", "one"), 9, "A")
    story.hear("A joined", "A", named=True)
    story.ask("A shares out", story.sync("A", 1, {"A": b"a"}, instance="one"), 5)
    for instance in (None, "one", "other"):
        story.ask(f"A lives as {instance}", story.heartbeat("A", 1, instance), 4)
        story.ask(f"x lives as {instance}", story.heartbeat("x", 1, instance), 4)
        story.ask(f"x commits as {instance}", story.commit("x", 1, instance=instance), 8)
        story.ask(f"x syncs as {instance}", story.sync("x", 1, instance=instance), 5)
        story.ask(f"x joins as {instance}", story.join("x", instance=instance, protocols=RANGE), 9)
    story.send(joins("A2", "one"), 9, "A2")
    story.hear("A is back", "A2", named=True)
    story.ask("described", describe(story.group), 5)
    story.ask("its former self lives", story.heartbeat("A", 1, "one"), 4)
    story.ask("it syncs", story.sync("A2", 1, instance="one"), 5)
    story.send(joins("A3", "one"), 8, "A3")
    story.hear("A is back, with an old client", "A3", named=True)
    # Another one joins, and rejoins while the leader computes the assignment.
    story.send(joins("B", "two"), 9, "B")
    story.until_state("PreparingRebalance")
    story.send(joins("A3", "one"), 9, "A3")
    story.hear("B joined", "B", named=True)
    story.hear("A joined", "A3")
    story.send(story.sync("B", 2, instance="two"), 5, "B")
    story.ask("B lives", story.heartbeat("B", 2, "two"), 4)
    story.send(joins("B2", "two"), 9, "B2")
    story.hear("the former B is fenced", "B")
    story.ask("A shares out", story.sync("A3", 2, {"A3": b"x"}, instance="one"), 5)
    story.send(joins("A3", "one"), 9, "A3")
    story.hear("B joined", "B2", named=True)
    story.hear("A joined", "A3")
    story.ask("A shares out", story.sync("A3", 3, {"A3": b"x", "B2": b"y"}, instance="one"), 5)
    story.ask("B syncs", story.sync("B2", 3, instance="two"), 5)
    story.ask("A is removed by nobody", story.leave(("x", "one"), ("", "three"), ("", None)), 5)
    story.ask("both are removed", story.leave(("", "one"), ("B2", "two")), 5)
    story.ask("described", describe(story.group), 5)


def too_many(story: Story) -> None:
    names = ["A", "B", "C", "D", "E"]
    for name in names:
        story.invite(name)
    for count, name in enumerate(names, 1):
        story.send(story.join(name), 9, name)
        story.until_members(min(count, 4))
    story.hear("E is too many", "E")
    story.ask("E leaves", story.leave(("E", None)), 5)
    for name in names[:4]:
        story.hear(f"{name} joined", name)
    story.ask("A shares out", story.sync("A", 1, {name: name.encode() for name in names}), 5)
    story.ask("E comes again", story.join(), 9)


def silence(story: Story) -> None:
    """Members that do not sync or rejoin are removed after the rebalance time-out; then the session ends."""
    short = {"session_ms": 5000, "rebalance_ms": 2000}
    for name in ("A", "B"):
        story.invite(name, **short)
    for name in ("A", "B"):
        story.send(story.join(name, **short), 9, name)  # type: ignore[arg-type]
        story.until_state("PreparingRebalance")
    story.hear("A joined", "A")
    story.hear("B joined", "B")
    story.ask("A shares out", story.sync("A", 1, {"A": b"a", "B": b"b"}), 5)
    story.until_state("PreparingRebalance")
    story.ask("A lives", story.heartbeat("A", 1), 4)
    story.ask("B lives", story.heartbeat("B", 1), 4)
    story.ask("A joins", story.join("A", **short), 9, "A")  # type: ignore[arg-type]
    story.ask("A shares out", story.sync("A", 2, {"A": b"a"}), 5)
    story.until_state("Empty")
    story.ask("described", describe(story.group), 5)
    story.ask("A lives", story.heartbeat("A", 2), 4)


def offsets_of_subscribed_topics(story: Story) -> None:
    def deletion(*topics: tuple[str, int]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=story.group,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
                for name, index in topics
            ],
        )

    story.ask("no group", deletion((TOPIC, 0)), 0)
    story.invite("A")
    story.send(story.join("A"), 9, "A")
    story.hear("A joined", "A")
    story.ask("A shares out", story.sync("A", 1, {"A": b"a"}), 5)
    story.ask("A commits", story.commit("A", 1, (0, 7, ""), (1, 8, "")), 8)
    story.ask("in use", deletion((TOPIC, 0), ("nope", 0)), 0)
    story.ask("no such partition", deletion((TOPIC, 7)), 0)
    story.ask("A leaves", story.leave(("A", None)), 5)
    story.ask("free", deletion((TOPIC, 0), ("nope", 0)), 0)
    story.ask("fetched", story.fetch(8), 8)


STORIES = [
    requests_without_a_group,
    one_member,
    two_members,
    static_members,
    too_many,
    silence,
    offsets_of_subscribed_topics,
]


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_apache_kafka_and_ottla_tell_the_same_story(tell: Callable[[Story], None], kafka: int, ottla: int) -> None:
    with ThreadPoolExecutor(2) as both:  # some stories wait for time-outs
        ours, theirs = both.map(lambda port: transcript(port, tell), (ottla, kafka))
    assert ours == theirs


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_the_protocol_from_join_to_delete(version: int, ottla: int) -> None:
    """Each API at this version, or at its newest where it has fewer."""
    with Story(ottla, f"version-{version}") as story:
        join, member_id = story.join(protocols=FINE), ""
        answer = story.wire("A").ask(join, version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            join.member_id = answer.member_id
            answer = story.wire("A").ask(join, version)
        member_id = answer.member_id
        assert (answer.error_code, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, member_id)
        assert [one.metadata for one in answer.members] == [SUBSCRIPTION]
        assert answer.protocol_name == "range"
        part = SyncGroupRequestAssignment(member_id=member_id, assignment=b"part")
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        sync = SyncGroupRequest(group_id=story.group, generation_id=1, member_id=member_id, assignments=[part], **named)
        assert story.wire().ask(sync, min(version, 5)).assignment == b"part"
        assert story.wire().ask(HeartbeatRequest(**story_member(story, member_id)), min(version, 4)).error_code == 0
        (found,) = story.wire().ask(describe(story.group), min(version, 6)).groups
        assert (found.group_state, found.members[0].member_assignment) == ("Stable", b"part")
        listed = story.wire().ask(ListGroupsRequest(), min(version, 5)).groups
        assert story.group in {one.group_id for one in listed}
        leave = LeaveGroupRequest(
            group_id=story.group, member_id=member_id, members=[MemberIdentity(member_id=member_id)]
        )
        left = story.wire().ask(leave, min(version, 5))
        assert left.error_code == 0
        assert [one.error_code for one in left.members] == ([] if version < 3 else [0])
        deleted = story.wire().ask(DeleteGroupsRequest(groups_names=[story.group]), min(version, 2))
        assert [(one.group_id, one.error_code) for one in deleted.results] == [(story.group, 0)]


def story_member(story: Story, member_id: str) -> dict[str, object]:
    return {"group_id": story.group, "generation_id": 1, "member_id": member_id}


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_at_every_version(version: int, ottla: int) -> None:
    with Story(ottla, "found") as story:
        answer = story.wire().ask(FindCoordinatorRequest(key="a", coordinator_keys=["a", "b"]), version)
        found = answer.coordinators if version >= 4 else [answer]
        assert [(one.error_code, one.node_id, one.host, one.port) for one in found] == [
            (0, 1, "127.0.0.1", ottla)
        ] * len(found)
        assert len(found) == (2 if version >= 4 else 1)


def test_members_outlive_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("kept")
    with BrokerThread(data=folder, options=SETTINGS) as broker, Story(port_of(broker), "g") as story:
        story.invite("A")
        story.send(story.join("A"), 9, "A")
        story.hear("joined", "A")
        story.ask("shares out", story.sync("A", 1, {"A": b"part"}), 5)
        story.ask("commits", story.commit("A", 1, (0, 42, "text")), 8)
        member_id = story.ids["A"]
    with BrokerThread(data=folder, options=SETTINGS) as broker, Story(port_of(broker), "g") as story:
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        assert story.wire().ask(heartbeat, 4).error_code == ErrorCode.NONE
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
        assert story.wire().ask(sync, 3).assignment == b"part"
        (found,) = story.wire().ask(story.fetch(8), 8).groups
        assert [(one.committed_offset, one.metadata) for one in found.topics[0].partitions] == [(42, "text"), (-1, "")]
        protocol = JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        assert story.wire().ask(join, 9).generation_id == 2


def test_who_joins_when_the_broker_stops_is_answered(tmp_path_factory: pytest.TempPathFactory) -> None:
    options = {**SETTINGS, "group.initial.rebalance.delay.ms": "60000"}
    with BrokerThread(data=tmp_path_factory.mktemp("stopped"), options=options) as broker:
        story = Story(port_of(broker), "g")
        story.invite("A")
        story.send(story.join("A"), 9, "A")
        story.until_state("PreparingRebalance")
    with story:
        assert story.hear("sent away", "A").error_code == ErrorCode.NOT_COORDINATOR


def test_a_client_that_leaves_at_once_does_not_keep_the_topic_of_groups_from_being_made(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with BrokerThread(data=tmp_path_factory.mktemp("data"), options=SETTINGS) as broker:
        with Wired(port_of(broker)) as hasty:
            hasty.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        with Wired(port_of(broker)) as wired:
            (found,) = wired.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
            assert found.error_code == ErrorCode.NONE
