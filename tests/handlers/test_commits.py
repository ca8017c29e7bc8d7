"""Committed offsets over the wire: the same responses as Apache Kafka's in every version, also those of the 0.8 era."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import judge
import pytest
from handlers.conftest import port_of
from handlers.story import TOPIC, Story, describe
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "100"}
STRANGE = b"\1" * 16  # the id of no topic


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[int]:
    with judge.Kafka(version=judge.ZOOKEEPER, settings=SETTINGS) as kafka:
        yield kafka.port


def transcript(port: int, tell: Callable[[Story], None]) -> list[str]:
    with Story(port, f"group-{tell.__name__}") as story:
        tell(story)
        return story.transcript


def without_members(story: Story) -> None:
    story.ask("committed", story.commit("", -1, (0, 5, "text"), (1, 6, None), (9, 1, "")), 8)
    story.ask("no such topic", story.commit(topic="nope"), 8)
    story.ask("nothing", OffsetCommitRequest(group_id=story.group, topics=[]), 8)
    story.ask("long text", story.commit("", -1, (0, 7, "x" * 4097), (1, 8, "x" * 4096)), 8)
    story.ask("below zero", story.commit("", -1, (0, -5, "")), 8)
    story.ask("generation below zero", story.commit("", -5), 8)
    story.ask("with a name", story.commit("somebody", -1), 8)
    story.ask("with an instance", story.commit("", -1, instance="i"), 8)
    story.ask("a generation", story.commit("somebody", 3), 8)
    for version in (8, 9):
        story.ask("no such group", story.commit("somebody", 3, group=f"none-{version}"), version)
    story.ask("fetched", story.fetch(8, (TOPIC, [0, 1, 7]), ("nope", [0])), 8)
    story.ask("fetched, everything", story.fetch(8, everything=True), 8)
    story.ask("fetched, no topics", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])]), 8)
    story.ask("fetched, no groups", OffsetFetchRequest(groups=[]), 8)
    story.ask("fetched, no such group", story.fetch(8, group="nobody"), 8)
    story.ask("fetched, no such group, everything", story.fetch(8, group="nobody", everything=True), 8)
    story.ask("fetched, stable", story.fetch(8, stable=True), 8)
    story.ask("fetched, by a member", story.fetch(9, member="somebody"), 9)
    story.ask("described", describe(story.group), 5)
    story.ask("deleted", DeleteGroupsRequest(groups_names=[story.group]), 2)
    story.ask("fetched", story.fetch(8), 8)


def by_topic_id(story: Story) -> None:
    known = story.topic_id
    story.ask("committed", story.commit("", -1, (0, 5, "text"), (9, 1, ""), topic_ids=[known]), 10)
    story.ask("no such topic", story.commit(topic_ids=[STRANGE]), 10)
    story.ask("one of two", story.commit(topic_ids=[STRANGE, known]), 10)
    story.ask("no id", story.commit(topic_ids=[bytes(16)]), 10)
    story.ask("refused", story.commit("somebody", 3, topic_ids=[STRANGE, known], group="none"), 10)
    story.ask("fetched", story.fetch(10, ("", [0, 1, 7]), topic_id=known), 10)
    story.ask("fetched, no such topic", story.fetch(10, ("", [0, 1]), topic_id=STRANGE), 10)
    story.ask("fetched, everything", story.fetch(10, everything=True), 10)
    story.ask("fetched, no such group", story.fetch(10, ("", [0]), topic_id=known, group="nobody"), 10)


def the_empty_group(story: Story) -> None:
    story.ask("committed", story.commit(group=""), 8)
    story.ask("fetched", story.fetch(8, group=""), 8)
    story.ask("described", describe(""), 5)
    story.ask("deleted", DeleteGroupsRequest(groups_names=[""]), 2)
    story.ask("fetched", story.fetch(8, group=""), 8)


def every_version(story: Story) -> None:
    for version in range(2, 10):
        group = f"{story.group}-{version}"
        story.ask(f"committed v{version}", story.commit("", -1, (0, version, "x"), (7, 1, None), group=group), version)
        story.ask(f"fetched v{version}", story.fetch(version, group=group), version)
        story.ask(f"fetched v{version}, everything", story.fetch(version, everything=True, group=group), version)
    for version in range(1, 8):
        story.ask(f"fetched v{version}, no such group", story.fetch(version, group="nobody"), version)
    story.ask("kept for a while", story.commit(retention_ms=100_000), 4)
    story.ask("fetched", story.fetch(4), 4)


def the_old_days(story: Story) -> None:
    """Version 0 of both: numbers in the metadata store, apart from those of later versions."""
    story.ask("fetched v0", story.fetch(0), 0)
    story.ask("committed v0", story.commit("", -1, (0, 5, "text"), (1, 7, None), (9, 1, "")), 0)
    story.ask("no such topic", story.commit(topic="nope"), 0)
    story.ask("long text", story.commit("", -1, (0, 6, "x" * 4097)), 0)
    story.ask("fetched v0", story.fetch(0, (TOPIC, [0, 1, 9]), ("nope", [0])), 0)
    story.ask("fetched v1", story.fetch(1, (TOPIC, [0, 1, 9]), ("nope", [0])), 1)
    story.ask("committed v0", story.commit("", -1, (0, 15, "")), 0)
    story.ask("committed v1", story.commit("", -1, (0, 25, "")), 1)
    story.ask("fetched v0", story.fetch(0), 0)
    story.ask("fetched v1", story.fetch(1), 1)
    story.ask("committed v0, a name with slashes", story.commit(group="a/b"), 0)
    story.ask("fetched v0, a name with slashes", story.fetch(0, group="a/b"), 0)
    for version in range(4):
        answer = story.wire("A").ask(story.join(group=f"{story.group}-{version}"), version)
        story.ids["A"] = answer.member_id
        story.note(f"joined v{version}", answer)


STORIES = [without_members, by_topic_id, the_empty_group, every_version]


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_apache_kafka_and_ottla_tell_the_same_story(tell: Callable[[Story], None], kafka: int, ottla: int) -> None:
    assert transcript(ottla, tell) == transcript(kafka, tell)


def test_the_old_days_were_the_same_with_zookeeper(old_kafka: int, ottla: int) -> None:
    assert transcript(ottla, the_old_days) == transcript(old_kafka, the_old_days)


@pytest.mark.parametrize("group", ["", ".", "a//b", "../x"])
def test_a_name_that_makes_no_path_has_no_old_offsets(group: str, ottla: int) -> None:
    with Story(ottla, "paths") as story:
        committed = story.wire().ask(story.commit(group=group), 0)
        fetched = story.wire().ask(story.fetch(0, group=group), 0)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
        assert fetched.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID


def test_old_and_new_offsets_outlive_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("kept")
    with BrokerThread(data=folder, options=SETTINGS) as broker, Story(port_of(broker), "g") as story:
        story.ask("old", story.commit("", -1, (0, 5, "")), 0)
        story.ask("new", story.commit("", -1, (1, 6, "")), 8)
    with BrokerThread(data=folder, options=SETTINGS) as broker, Story(port_of(broker), "g") as story:
        old = story.wire().ask(story.fetch(0), 0).topics[0].partitions
        new = story.wire().ask(story.fetch(7), 7).topics[0].partitions
        assert [one.committed_offset for one in old] == [5, -1]
        assert [one.committed_offset for one in new] == [-1, 6]


def test_a_deleted_topic_takes_its_offsets_with_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    with BrokerThread(data=folder, options=SETTINGS) as broker, Story(port_of(broker), "g") as story:
        topic = CreatableTopic(name="other", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        story.wire().ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        for name in ("other", TOPIC):
            story.wire().ask(story.commit("", -1, (0, 5, ""), topic=name), 8)
        story.wire().ask(DeleteTopicsRequest(topic_names=["other"], timeout_ms=5000), 5)
        (found,) = story.wire().ask(story.fetch(8, everything=True), 8).groups
        assert [(one.name, one.partitions[0].committed_offset) for one in found.topics] == [(TOPIC, 5)]
        story.wire().ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        (found,) = story.wire().ask(story.fetch(8, ("other", [0])), 8).groups
        assert found.topics[0].partitions[0].committed_offset == -1


def test_before_anybody_has_asked_for_a_coordinator_there_is_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerThread(data=tmp_path_factory.mktemp("data")) as broker, Wired(port_of(broker)) as wired:
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        assert wired.ask(fetch, 8).groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        wanted = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        (old,) = wired.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 1).topics
        assert old.partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        deletion = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=[])])
        assert wired.ask(deletion, 0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert wired.ask(describe("g"), 5).groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        deleted = wired.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_with_a_topic_that_is_gone_does_not_overtake_a_later_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with BrokerThread(data=tmp_path_factory.mktemp("data")) as broker, Story(port_of(broker), "g") as story:
        wire, held, released = story.wire(), threading.Event(), threading.Event()
        wire.ask(story.commit("", -1, (0, 1, ""), topic_ids=[story.topic_id]), 10)
        assert broker._loop is not None
        broker._loop.call_soon_threadsafe(
            lambda: (held.set(), released.wait())
        )  # block the loop until both have arrived
        assert held.wait(60)
        wire._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.send(story.commit("", -1, (0, 5, ""), topic_ids=[STRANGE, story.topic_id]), 10)
        wire.send(story.commit("", -1, (0, 6, ""), topic_ids=[story.topic_id]), 10)
        released.set()
        codes = {one.topic_id: one.partitions[0].error_code for one in wire.receive().topics}
        assert codes == {STRANGE: ErrorCode.UNKNOWN_TOPIC_ID, story.topic_id: ErrorCode.NONE}
        wire.receive()
        (found,) = wire.ask(story.fetch(8, (TOPIC, [0])), 8).groups
        assert found.topics[0].partitions[0].committed_offset == 6
