"""One data folder, two brokers in turn: each continues with the groups and offsets that the other wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import judge
from handlers.conftest import port_of
from handlers.story import TOPIC, Story, describe
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    # Members must still be there when the other broker has started.
    "group.max.session.timeout.ms": "1800000",
}


def live(story: Story, member: str, offset: int) -> tuple[str, str]:
    """A member joins, assigns, commits, and stays. Returns the group and the member's id."""
    story.invite(member, session_ms=600_000)
    story.send(story.join(member, session_ms=600_000), 9, member)
    generation = story.hear("joined", member).generation_id
    story.ask("shared out", story.sync(member, generation, {member: f"part of {member}".encode()}), 5)
    answer = story.ask("committed", story.commit(member, generation, (0, offset, f"by {member}")), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    return story.group, story.ids[member]


def check(story: Story, group: str, member_id: str, member: str, offset: int) -> None:
    """The group that the other broker wrote exists, and its member is still in it."""
    wait_until(lambda: story.wire().ask(describe(group), 5).groups[0].error_code == ErrorCode.NONE)
    (found,) = story.wire().ask(describe(group), 5).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert [(one.member_id, one.member_assignment) for one in found.members] == [
        (member_id, f"part of {member}".encode())
    ]
    (fetched,) = story.wire().ask(story.fetch(8, (TOPIC, [0]), group=group), 8).groups
    (one,) = fetched.topics[0].partitions
    assert (one.committed_offset, one.metadata) == (offset, f"by {member}")


def test_groups_and_offsets_move_between_apache_kafka_and_ottla(tmp_path: Path) -> None:
    kafka = judge.Kafka(tmp_path, settings=SETTINGS)
    with kafka, Story(kafka.port, "of-kafka") as story:
        theirs = live(story, "K", 11)
        story.ask("a group without members", story.commit(group="plain"), 8)
    with BrokerThread(data=kafka.log_dir, options=SETTINGS) as broker, Story(port_of(broker), "of-ottla") as story:
        check(story, *theirs, "K", 11)
        ours = live(story, "O", 22)
        story.ask("the group without members", story.commit("", -1, (0, 6, ""), (1, 7, "new"), group="plain"), 8)
    with kafka, Story(kafka.port, "last") as story:
        check(story, *theirs, "K", 11)
        check(story, *ours, "O", 22)
        (fetched,) = story.wire().ask(story.fetch(8, group="plain"), 8).groups
        assert [one.committed_offset for one in fetched.topics[0].partitions] == [6, 7]
