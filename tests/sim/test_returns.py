"""What a broker finds when it rejoins the cluster and has missed changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sim.stage import TOPIC, Stage

from ottla.cluster import znodes
from ottla.cluster.image import NO_LEADER, Partition, Topic
from ottla.cluster.metadata_store import Create

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.cluster.image import Image


def controller(stage: Stage) -> int:
    found = stage.world.store.tree(znodes.CONTROLLER)
    return znodes.decode_controller(found[znodes.CONTROLLER].data) if found else -1


def replicas(stage: Stage) -> list[int]:
    data = stage.world.store.tree(znodes.topic_path(TOPIC))[znodes.topic_path(TOPIC)].data
    return list(json.loads(data)["partitions"]["0"])


def make(stage: Stage, *brokers: int) -> None:
    """Create the topic with replicas on brokers that are down, as tools that write to ZooKeeper do."""
    topic = Topic(TOPIC, b"n" * 16, (Partition(0, brokers, (), NO_LEADER, 0),), {})
    stage.world.store.multi([Create(znodes.topic_path(TOPIC), znodes.encode_topic(topic))])


def image(stage: Stage) -> Image:
    broker = stage.nodes[2].broker
    assert broker is not None
    return broker._founding.metadata.image


@pytest.mark.parametrize("absence", ["paused", "killed"])
@pytest.mark.parametrize("again", [True, False])
def test_what_was_moved_away_goes_whichever_controller_is_there(tmp_path: Path, absence: str, *, again: bool) -> None:
    """Its replica is moved away, its topic deleted, perhaps recreated; then the controller that knew of it dies."""
    stage = Stage(tmp_path, brokers=4)

    async def story() -> None:
        await stage.up(0, 1, 3)
        await stage.up(2)  # started last, so that it is not the controller
        await stage.create((0, 1, 2))
        await stage.produced("old")
        await stage.until(lambda: stage.values(2) == [b"old"])
        if absence == "paused":
            stage.nodes[2].pause()
        else:
            stage.nodes[2].kill()
        await stage.until(lambda: "2" not in stage.registered())
        await stage.move(0, 1)
        await stage.until(lambda: replicas(stage) == [0, 1])
        await stage.delete()
        await stage.until(lambda: not stage.world.store.tree(f"/brokers/topics/{TOPIC}"))
        if again:
            make(stage, 0, 1, 2)
            await stage.until(stage.leads(0, 0, 1))
        former = controller(stage)
        await stage.down(former)
        await stage.until(lambda: controller(stage) not in (former, -1))
        if absence == "paused":
            stage.nodes[2].resume()
        else:
            await stage.up(2)
        await stage.up(former)
        if again:
            await stage.produced("new")
            await stage.until(lambda: stage.values(2) == [b"new"])
            await stage.until(lambda: sorted(stage.state().isr) == [0, 1, 2])
        else:
            await stage.until(lambda: not stage.hosts(2))
            await stage.until(lambda: TOPIC not in image(stage).topics)

    stage.play(story)


def test_a_recreated_topic_has_its_own_options_where_its_deletion_was_not_heard_of(tmp_path: Path) -> None:
    """The controller that deleted it dies before it can say so; the next one only knows the new topic."""
    stage = Stage(tmp_path)

    async def story() -> None:
        await stage.up(0)
        await stage.up(1, 2)
        await stage.create((0, 1), retention_ms="60000", cleanup_policy="compact")
        await stage.until(lambda: TOPIC in image(stage).topics)
        former = image(stage).topics[TOPIC]
        assert controller(stage) == 0
        stage.cut(0, 2)
        await stage.delete()
        await stage.until(lambda: (TOPIC, 0) not in stage.world.checks.states)
        await stage.create((0, 1), max_message_bytes="2000000")
        assert image(stage).topics[TOPIC] is former, "broker 2 must not know yet"
        await stage.down(0)
        await stage.until(lambda: image(stage).topics[TOPIC].id != former.id)
        assert image(stage).topics[TOPIC].configs == {"max.message.bytes": "2000000"}

    stage.play(story)
