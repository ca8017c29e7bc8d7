"""Consumer groups on the wire: the same scenarios on Apache Kafka and on Ottla, down to the error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import judge
import pytest
from handlers.conftest import port_of
from handlers.story import TOPIC, Story, describe
from handlers.wired import Wired
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire import codec
from ottla.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.wire.messages.consumers import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from ottla.wire.messages.groups import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    ListGroupsRequest,
    SubscriptionTopicPartition,
)
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.max.size": "3",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
}
GROUP = 32  # resource type
SET, DELETE, APPEND = 0, 1, 2
ALL = [0, 1]  # the partitions of the story's topic
MIXED = "range"
REBALANCE_MS = 60_000  # a busy machine may take long between two requests of a member; it is not to be removed


class ConsumerStory(Story):
    def __init__(self, port: int, group: str) -> None:
        super().__init__(port, group)
        self._held: dict[str, list[Any]] = {}

    def beat(self, member: str, epoch: int, version: int = 1, **options: Any) -> Any:
        """Send a heartbeat; the transcript includes its error message."""
        owned = options.pop("owned", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.pop("group_id", self.group),
            member_id=self.ids.get(member, member),
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self.topic_id, partitions=part)
                for part in ([owned] if owned else [])
            ],
            **options,
        )
        answer = self.wire(member).ask(request, version)
        words = (answer.error_message or "").replace(self.group, "GROUP")
        self.note(f"{member} at {epoch} ({words})", answer)
        return answer

    def enter(self, member: str, **options: Any) -> Any:
        asked = {"subscribed_topic_names": [TOPIC], "rebalance_timeout_ms": REBALANCE_MS, "owned": []} | options
        return self.beat(member, 0, **asked)

    def enter_quietly(self, member: str, **options: Any) -> Any:
        """Join without a transcript entry: brokers may differ in how far they have got by the time they respond."""
        told = self.transcript[:]
        answer = self.enter(member, **options)
        self.transcript = told
        return answer

    def parts(self, member: str) -> list[int]:
        """How many partitions of each topic the member has after reconciliation."""
        asked = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
        group = self.wire().ask(asked, 1).groups[0]
        (present,) = [one for one in group.members if one.member_id == member]
        answer = self.wire(member).ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member,
                member_epoch=present.member_epoch,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=present.subscribed_topic_names,
                topic_partitions=[
                    ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                    for one in self._held.get(member, [])
                ],
            ),
            1,
        )
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        self._held[member] = answer.assignment.topic_partitions
        return [len(one.partitions) for one in answer.assignment.topic_partitions]

    def fetched(self) -> int:
        """The committed offset of the second partition."""
        return int(self.wire().ask(self.fetch(9), 9).groups[0].topics[0].partitions[1].committed_offset)

    def describe(self, what: str = "described", version: int = 1) -> Any:
        asked = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True)
        return self.ask(what, asked, version)

    def state(self) -> tuple[str, list[str]]:
        asked = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
        group = self.wire().ask(asked, 1).groups[0]
        return group.group_state, [one.member_id for one in group.members]

    def groups_with_options(self) -> list[str]:
        found = self.wire().ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
        return [one.resource_name for one in found]


def transcript(port: int, tell: Callable[[ConsumerStory], None]) -> list[str]:
    with ConsumerStory(port, f"group-{tell.__name__}") as story:
        tell(story)
        return story.transcript


def requests_that_make_no_sense(story: ConsumerStory) -> None:
    story.describe("no such group")
    story.beat("A", 3)
    story.beat("A", -1)
    story.beat("A", -2)
    story.beat("A", -3)
    story.beat("", 0)
    story.beat("", 1, 0)
    story.enter("A", group_id="")
    story.enter("A", instance_id="")
    story.enter("A", rack_id="")
    story.enter("A", owned=None)
    story.enter("A", owned=[0])
    story.enter("A", rebalance_timeout_ms=-1)
    story.enter("A", subscribed_topic_names=None)
    story.enter("A", server_assignor="best")
    story.describe("still none")


def two_members(story: ConsumerStory) -> None:
    story.enter("A")
    story.describe("one")
    story.beat("A", 2)
    story.enter("B", rack_id="r")
    story.describe("two, nothing moved yet")
    story.beat("B", 3)
    story.beat("A", 2)
    story.describe("A is to let go")
    story.beat("A", 2)
    story.beat("A", 2, owned=ALL)
    story.beat("A", 2, owned=[0])
    story.describe("A has let go")
    story.beat("B", 3)
    story.describe("B has taken")
    story.describe("the same, before members told their protocol", 0)
    story.beat("A", 3, subscribed_topic_names=[TOPIC], rebalance_timeout_ms=REBALANCE_MS, owned=[0])
    story.beat("B", -1)
    story.beat("A", 3)
    story.describe("B has left")
    story.beat("A", -1)
    story.describe("all have left")


def epochs(story: ConsumerStory) -> None:
    story.enter("A")
    story.beat("A", 3)
    story.beat("B", 2)
    story.enter("B")
    story.beat("A", 2)
    story.beat("A", 2, owned=[0])
    story.beat("A", 2)
    story.beat("A", 2, owned=ALL)
    story.beat("A", 2, owned=[0])
    story.beat("A", 0, subscribed_topic_names=[TOPIC], rebalance_timeout_ms=REBALANCE_MS, owned=[])
    answer = story.enter("C", version=0)
    assert answer.member_id == "C", "though it may let the broker make one"


def static_members(story: ConsumerStory) -> None:
    story.enter("A", instance_id="i")
    story.enter("B", instance_id="i")
    story.beat("B", 2, instance_id="i")
    story.beat("A", 2, instance_id="other")
    story.enter("C")
    story.beat("A", 2, instance_id="i")
    story.beat("A", 2, instance_id="i", owned=[0])
    story.beat("C", 3)
    story.beat("A", -2, instance_id="i")
    story.describe("A is away")
    story.beat("C", 3)
    story.enter("B", instance_id="i")
    story.describe("B is in its place")
    story.beat("A", 3, instance_id="i")
    story.beat("A", -1, instance_id="i")
    story.beat("B", -2, instance_id="i")


def subscriptions(story: ConsumerStory) -> None:
    story.enter("A", subscribed_topic_names=[TOPIC, "nope"])
    story.beat("A", 2, subscribed_topic_names=[])
    story.describe("to nothing")
    story.beat("A", 2, owned=[])
    story.beat("A", 3, subscribed_topic_names=[TOPIC], server_assignor="range")
    story.describe("to the topic, by range")
    story.beat("A", 4, owned=ALL)
    story.beat("A", 4, rack_id="r")
    story.describe("in a rack")


def too_many(story: ConsumerStory) -> None:
    for member in "ABCD":
        story.enter(member)
    story.enter("A")


def groups_as_a_whole(story: ConsumerStory) -> None:
    story.enter("A")

    def listed(what: str, **filters: Any) -> None:
        answer = story.wire().ask(ListGroupsRequest(**filters), 5)
        answer.groups = [one for one in answer.groups if one.group_id == story.group]
        story.note(what, answer)

    listed("all", states_filter=[], types_filter=[])
    listed("consumer", states_filter=[], types_filter=["Consumer"])
    listed("classic", states_filter=[], types_filter=["classic"])
    listed("stable", states_filter=["stable"], types_filter=[])
    story.ask("as a classic one", describe(story.group), 5)
    story.ask("as a classic one", describe(story.group), 6)
    story.ask("not empty", DeleteGroupsRequest(groups_names=[story.group]), 2)
    story.ask("committed", story.commit("A", 2, (0, 5, "")), 9)
    story.beat("A", -1)
    listed("empty", states_filter=["Empty"], types_filter=[])
    story.ask("deleted", DeleteGroupsRequest(groups_names=[story.group]), 2)
    story.describe("gone")
    story.ask("offsets are gone", story.fetch(9), 9)


def offsets(story: ConsumerStory) -> None:
    story.ask("nobody is in it", story.commit("", -1, (0, 4, "")), 9)
    story.enter("A")
    story.ask("in its epoch", story.commit("A", 2, (0, 5, ""), (1, 6, "")), 9)
    story.ask("an old client", story.commit("A", 2), 8)
    story.ask("ahead", story.commit("A", 3), 9)
    story.ask("nobody", story.commit("B", 2), 9)
    story.ask("no member", story.commit("", -1), 9)
    story.ask("no topic", story.commit("A", 2, topic="nope"), 9)
    story.ask("fetched by anybody", story.fetch(9), 9)
    for member, epoch in (("A", 2), ("A", 3), ("A", 0), ("B", 2)):
        request = story.fetch(9, member=member)
        request.groups[0].member_epoch = epoch
        story.ask(f"fetched by {member} in {epoch}", request, 9)
    story.enter("B")
    story.beat("A", 2)
    story.beat("A", 2, owned=[0])
    story.beat("B", 3)
    story.ask("what it has had for so long", story.commit("A", 2, (0, 7, "")), 9)
    story.ask("what it has no longer", story.commit("A", 2, (0, 8, ""), (1, 8, "")), 9)
    story.ask("before it had it", story.commit("B", 2, (1, 8, "")), 9)
    story.ask("fetched", story.fetch(9), 9)


def a_group_that_changes_its_kind(story: ConsumerStory) -> None:
    story.invite("old", protocols=wants())
    story.send(story.join("old", protocols=wants()), 9, "old")
    first = story.hear("old joins", "old")
    story.ask("old has all", story.sync("old", first.generation_id, {"old": part_of(ALL)}), 5, "old")
    story.enter("new")
    story.describe("both kinds")
    story.ask("old goes on", story.heartbeat("old", 1), 4, "old")
    story.ask("old joins again", story.join("old", protocols=wants(ALL)), 9, "old")
    story.ask("old lets go of one", story.sync("old", 1), 5, "old")
    story.beat("new", 2)
    story.ask("old joins once more", story.join("old", protocols=wants([0])), 9, "old")
    story.ask("old keeps the other", story.sync("old", 2), 5, "old")
    story.beat("new", 2)
    story.describe("settled")
    story.ask("old is fine", story.heartbeat("old", 2), 4, "old")
    story.ask("old commits", story.commit("old", 2), 8, "old")
    story.ask("old commits in another generation", story.commit("old", 3), 8, "old")
    story.ask("the wrong protocol", story.sync("old", 2, protocol="sticky"), 5, "old")
    story.ask("the wrong generation", story.sync("old", 3), 5, "old")
    story.ask("new speaks as an old one", story.heartbeat("new", 2), 4)
    story.ask("another kind", story.join(kind="connect"), 9)
    story.ask("another protocol", story.join(protocols=(("sticky", wants()[0][1]),)), 9)
    story.beat("new", -1)
    story.ask("classic again", describe(story.group), 6)
    story.ask("old is to join", story.heartbeat("old", 2), 4, "old")
    story.ask("old joins", story.join("old", protocols=wants()), 9, "old")
    story.ask("old has all again", story.sync("old", 3, {"old": part_of(ALL)}), 5, "old")
    story.ask("settled", describe(story.group), 6)
    story.ask("old leaves", story.leave(("old", None)), 5, "old")
    story.enter("new")
    story.describe("and a consumer group")


def a_static_member_that_changes_its_protocol(story: ConsumerStory) -> None:
    story.enter("new", instance_id="i")
    answer = story.wire("old").ask(story.join(instance="i", protocols=wants()), 9)
    story.ids["old"] = answer.member_id
    story.note("old is in its place", answer)
    story.ask("classic", describe(story.group), 6)
    story.ask("old has its part", story.sync("old", 2, instance="i"), 5, "old")
    story.ask("old is fine", story.heartbeat("old", 2, "i"), 4, "old")
    story.enter("new", instance_id="i")
    story.describe("a consumer group again")


def wants(owned: list[int] | None = None) -> list[tuple[str, bytes]]:
    parts = [SubscriptionTopicPartition(topic=TOPIC, partitions=owned)] if owned else []
    return [(MIXED, b"\0\1" + codec.encode(ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=parts), 1))]


def part_of(indexes: list[int]) -> bytes:
    parts = [AssignmentTopicPartition(topic=TOPIC, partitions=indexes)]
    return b"\0\0" + codec.encode(ConsumerProtocolAssignment(assigned_partitions=parts), 0)


def options_of_a_group(story: ConsumerStory) -> None:
    def described(what: str, name: str, keys: list[str] | None = None, *, synonyms: bool = True) -> None:
        resource = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=keys)
        asked = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
        answer = story.wire().ask(asked, 4)
        for result in answer.results:
            result.configs = [one for one in result.configs if one.name.startswith("consumer")]
        story.note(f"{what} ({answer.results[0].error_message})", answer)

    def set_to(name: str, option: str, value: str | None, operation: int = SET, *, validate: bool = False) -> None:
        change = IncrementalAlterableConfig(name=option, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=name, configs=[change])
        answer = story.wire().ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate), 1)
        story.note(f"{option} = {value} ({answer.responses[0].error_message})", answer)

    described("before", story.group)
    described("no name", "")
    described("some", story.group, ["consumer.session.timeout.ms", "nope"])
    for option, values in {
        "consumer.session.timeout.ms": ("999", "60001", "x", "5000"),
        "consumer.heartbeat.interval.ms": ("499", "15001"),
        "consumer.assignment.interval.ms": ("15001",),
        "nope": ("1",),
    }.items():
        for value in values:
            set_to(story.group, option, value)
    set_to("", "consumer.session.timeout.ms", "5000")
    set_to(story.group, "consumer.session.timeout.ms", "5000", APPEND)
    set_to(story.group, "consumer.heartbeat.interval.ms", "2000", validate=True)
    wait_until(lambda: story.group in story.groups_with_options())
    described("after", story.group)
    described("shortly", story.group, synonyms=False)
    change = AlterableConfig(name="consumer.heartbeat.interval.ms", value="2000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=story.group, configs=[change])
    story.ask("all at once", AlterConfigsRequest(resources=[resource], validate_only=False), 2)
    wait_until(lambda: story.enter_quietly("A").heartbeat_interval_ms == 2000)
    described("after that", story.group)
    set_to(story.group, "consumer.heartbeat.interval.ms", None, DELETE)
    wait_until(lambda: story.group not in story.groups_with_options())
    described("at the end", story.group)


def silence(story: ConsumerStory) -> None:
    change = IncrementalAlterableConfig(name="consumer.session.timeout.ms", config_operation=SET, value="3000")
    resource = IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=story.group, configs=[change])
    story.wire().ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    wait_until(lambda: story.group in story.groups_with_options())
    story.enter("A")
    story.enter("B", instance_id="i")
    story.beat("B", -2, instance_id="i")
    wait_until(lambda: story.state() == ("Empty", []))  # takes one epoch or two
    story.beat("A", 2)


def a_topic_that_grows(story: ConsumerStory) -> None:
    topic = CreatableTopic(name=story.group, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    story.wire().ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
    story.enter_quietly("A", subscribed_topic_names=[story.group])
    grown = CreatePartitionsTopic(name=story.group, count=3, assignments=None)
    story.wire().ask(CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False), 3)
    wait_until(lambda: story.parts("A") == [3])


def a_pattern(story: ConsumerStory) -> None:
    for pattern in ("(", "a**", "[b-a]"):
        answer = story.enter_quietly("A", subscribed_topic_names=[], subscribed_topic_regex=pattern)
        words = answer.error_message.partition(": ")[
            0
        ]  # the rest describes the pattern's error, and differs between brokers
        story.transcript.append(f"{answer.error_code} {words}")
    topic = CreatableTopic(name=f"{story.group}-1", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    story.wire().ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
    story.enter_quietly("A", subscribed_topic_names=[], subscribed_topic_regex=f"{story.group}-[0-9]+")
    wait_until(lambda: story.parts("A") == [2])
    assert (
        story.enter_quietly("B", subscribed_topic_names=[], subscribed_topic_regex=f"{story.group}-.").error_code == 0
    )
    wait_until(lambda: [story.parts("A"), story.parts("B")] == [[1], [1]])


STORIES = [
    requests_that_make_no_sense,
    two_members,
    epochs,
    static_members,
    subscriptions,
    too_many,
    groups_as_a_whole,
    offsets,
    a_group_that_changes_its_kind,
    a_static_member_that_changes_its_protocol,
    options_of_a_group,
    silence,
    a_topic_that_grows,
    a_pattern,
]


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_apache_kafka_and_ottla_tell_the_same_story(
    tell: Callable[[ConsumerStory], None], kafka: int, ottla: int
) -> None:
    assert transcript(ottla, tell) == transcript(kafka, tell)


def test_clients_are_told_that_there_are_such_groups(kafka: int, ottla: int) -> None:
    def told(port: int) -> list[tuple[int, ...]]:
        with Wired(port) as wired:
            answer = wired.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        name = "group.version"
        supported = [(one.min_version, one.max_version) for one in answer.supported_features if one.name == name]
        finalized = [
            (one.min_version_level, one.max_version_level) for one in answer.finalized_features if one.name == name
        ]
        return supported + finalized

    assert told(ottla) == told(kafka) == [(0, 1), (1, 1)]


def test_the_protocol_can_be_switched_off(tmp_path: Path) -> None:
    options = {"group.coordinator.rebalance.protocols": "classic"}
    with BrokerThread(data=tmp_path, options=options) as broker, ConsumerStory(port_of(broker), "g") as story:
        assert story.enter("A").error_code == ErrorCode.UNSUPPORTED_VERSION
        assert story.describe().groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_group_goes_on_after_a_restart(tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path, options=SETTINGS) as broker, ConsumerStory(port_of(broker), "g") as story:
        story.enter("A")
        story.enter("B")
        story.beat("A", 2)
        before = story.describe()
    with BrokerThread(data=tmp_path, options=SETTINGS) as broker, ConsumerStory(port_of(broker), "g") as story:
        assert story.describe() == before
        assert story.beat("A", 2, owned=[0]).member_epoch == 3
        assert story.parts("B") == [1]


def test_a_group_that_apache_kafka_wrote_goes_on(tmp_path: Path) -> None:
    settings = SETTINGS | {"group.consumer.session.timeout.ms": "45000"}

    def members(story: ConsumerStory) -> dict[str, Any]:
        (group,) = story.describe().groups
        return {one.member_id: one for one in group.members} | {"": (group.group_epoch, group.assignment_epoch)}

    with judge.Kafka(tmp_path, settings=settings) as kafka:
        with ConsumerStory(kafka.port, "g") as story:
            story.enter("A", instance_id="i", rack_id="r")
            story.enter("B", subscribed_topic_names=[TOPIC, "nope"], server_assignor="range")
            story.beat("A", 2, instance_id="i")
            story.invite("old", protocols=wants())
            story.ask("old joins", story.join("old", protocols=wants()), 9, "old")
            story.ask("committed", story.commit("B", 3, (1, 5, "")), 9)
            before = members(story)
        kafka.stop()
        with (
            BrokerThread(data=kafka.log_dir, options=settings) as broker,
            ConsumerStory(port_of(broker), "g") as story,
        ):
            assert members(story) == before
            assert story.beat("A", 2, instance_id="i").error_code == ErrorCode.NONE
            assert story.fetched() == 5
