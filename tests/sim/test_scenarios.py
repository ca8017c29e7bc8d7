"""Replication scenarios from books on Kafka, each in a simulated cluster.

Brokers are 0, 1 and 2, the partition's replicas are (0, 1, 2), its preferred leader is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sim.stage import TOPIC, Stage

from ottla.errors import ErrorCode
from ottla.sim.link import LinkError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_acks_1_loses_what_was_not_replicated(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1", "2", "3")
        await stage.reads("1", "2", "3")
        stage.cut(0, 1)
        stage.cut(0, 2)
        assert await stage.produce("4", "5", acks=1) is ErrorCode.NONE
        assert await stage.read() == ["1", "2", "3"], "a consumer sees only what is committed"
        await stage.down(0)
        await stage.until(lambda: stage.state().leader in (1, 2))
        await stage.reads("1", "2", "3")
        stage.world.network.heal()
        await stage.produced("6")
        await stage.up(0)
        await stage.until(lambda: sorted(stage.state().isr) == [0, 1, 2])
        assert stage.values(0) == [b"1", b"2", b"3", b"6"], "the old leader has let go of what nobody else had"
        await stage.reads("1", "2", "3", "6")

    stage.play(story)


def test_acks_all_does_not_acknowledge_what_was_not_replicated(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create(min_insync_replicas="2")
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1", "2", "3")
        stage.cut(0, 1)
        stage.cut(0, 2)
        assert await stage.produce("4", "5", timeout_s=1.0) is not ErrorCode.NONE
        await stage.down(0)
        await stage.until(lambda: stage.state().leader in (1, 2))
        stage.world.network.heal()
        await stage.produced("4", "5")
        await stage.reads("1", "2", "3", "4", "5")
        await stage.up(0)
        await stage.until(lambda: sorted(stage.state().isr) == [0, 1, 2])
        assert stage.values(0) == [b"1", b"2", b"3", b"4", b"5"]

    stage.play(story)


def test_acks_all_and_the_leader_dies_after_all_have_it(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create(min_insync_replicas="2")
        await stage.produced("1", "2", "3")
        await stage.down(0)
        await stage.reads("1", "2", "3")
        await stage.produced("4")
        await stage.reads("1", "2", "3", "4")

    stage.play(story)


def test_acks_all_with_only_the_leader_in_sync_is_acks_1_unless_min_insync_says_otherwise(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.down(1, 2)
        await stage.until(stage.leads(0, 0))
        assert await stage.produce("1") is ErrorCode.NONE
        await stage.configure(min_insync_replicas="2")
        assert await stage.produce("2") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.reads("1")

    stage.play(story)


async def two_in_sync(stage: Stage, **configs: str) -> None:
    """AR = (0, 1, 2), ISR = (0, 1)."""
    await stage.up(0, 1, 2)
    await stage.create(**configs)
    await stage.until(stage.leads(0, 0, 1, 2))
    await stage.down(2)
    await stage.until(stage.leads(0, 0, 1))
    await stage.produced("1", "2")


def test_isr_0_1_loses_0_and_writes_are_refused_while_reads_go_on(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage, min_insync_replicas="2")
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        await stage.reads("1", "2")
        assert await stage.produce("3") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.up(0)
        await stage.until(stage.leads(1, 0, 1))
        await stage.produced("3")
        await stage.reads("1", "2", "3")

    stage.play(story)


def test_isr_0_1_loses_0_for_good_and_min_insync_1_lets_writes_in_again(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage, min_insync_replicas="2")
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        assert await stage.produce("3") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.configure(min_insync_replicas="1")
        await stage.produced("3")
        await stage.reads("1", "2", "3")

    stage.play(story)


def test_isr_0_1_loses_0_then_1_and_only_1_may_lead_again(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage)
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        await stage.produced("3")
        stage.nodes[1].kill()
        await stage.up(2)  # a live broker must notice it
        await stage.until(stage.leads(-1, 1))
        await stage.up(0)
        with pytest.raises(LinkError):
            await stage.read()
        assert stage.leads(-1, 1)()
        await stage.up(1)
        await stage.until(lambda: stage.state().leader == 1)
        await stage.reads("1", "2", "3")
        await stage.until(stage.leads(1, 0, 1, 2))

    stage.play(story)


def test_unclean_election_lets_0_lead_and_loses_what_only_1_had(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage)
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        await stage.produced("3")
        stage.nodes[1].kill()
        await stage.up(0)
        await stage.until(stage.leads(-1, 1))
        stage.forget_what_was_committed()
        await stage.configure(unclean_leader_election_enable="true")
        await stage.until(stage.leads(0, 0))
        await stage.reads("1", "2")
        await stage.produced("4")
        await stage.up(1)
        await stage.until(stage.leads(0, 0, 1))
        assert stage.values(1) == [b"1", b"2", b"4"], "1 follows, and what only it had is gone"
        await stage.reads("1", "2", "4")

    stage.play(story)


@pytest.mark.parametrize("first", [0, 1])
def test_isr_0_1_loses_both_at_once_and_the_first_that_is_back_serves_reads(stage: Stage, first: int) -> None:
    async def story() -> None:
        await two_in_sync(stage, min_insync_replicas="2")
        stage.nodes[0].kill()
        stage.nodes[1].kill()
        await stage.until(lambda: not stage.registered())
        await stage.up(first)
        await stage.until(stage.leads(first, first))
        await stage.reads("1", "2")
        assert await stage.produce("3") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.up(1 - first)
        await stage.until(stage.leads(first, 0, 1))
        await stage.produced("3")
        await stage.reads("1", "2", "3")

    stage.play(story)


def test_a_new_broker_takes_nothing_until_something_is_moved_to_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, brokers=4)

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create((0, 1))
        await stage.produced("1", "2")
        await stage.up(3)
        await stage.produced("3")
        assert stage.hosts(3) == []
        await stage.move(3, 1)
        await stage.until(lambda: sorted(stage.state().isr) == [1, 3])
        await stage.until(lambda: stage.hosts(0) == [])
        assert stage.values(3) == [b"1", b"2", b"3"]
        await stage.produced("4")
        await stage.reads("1", "2", "3", "4")

    stage.play(story)


def test_a_topic_is_deleted_while_a_broker_is_down(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.produced("old")
        await stage.down(2)
        await stage.delete()
        await stage.until(lambda: not stage.hosts(0) and not stage.hosts(1))
        await stage.up(2)
        await stage.until(lambda: not stage.hosts(2))
        await stage.until(lambda: not stage.world.store.tree(f"/brokers/topics/{TOPIC}"))
        await stage.create()
        await stage.produced("new")
        await stage.reads("new")
        await stage.until(lambda: stage.values(2) == [b"new"])

    stage.play(story)
