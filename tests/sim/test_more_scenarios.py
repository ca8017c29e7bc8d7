"""More scenarios from books on Kafka: retries after a leader's death, recovery orders, and who detects it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sim.stage import TOPIC, Stage
from sim.test_scenarios import two_in_sync

from ottla.cluster import znodes
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_leader_dies_while_one_follower_has_it_and_the_retry_is_there_twice(stage: Stage) -> None:
    """The producer got no response, and retries. An idempotent producer's record would not be written twice."""

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1", "2", "3")
        stage.cut(0, 2)
        assert await stage.produce("4", "5", timeout_s=1.0) is not ErrorCode.NONE
        await stage.until(lambda: stage.values(1) == [b"1", b"2", b"3", b"4", b"5"])
        assert await stage.read() == ["1", "2", "3"], "a consumer sees only what is committed"
        await stage.down(0)
        await stage.until(lambda: stage.state().leader == 1)
        stage.world.network.heal()
        await stage.produced("4", "5")
        await stage.reads("1", "2", "3", "4", "5", "4", "5")
        await stage.until(lambda: stage.values(2) == stage.values(1))

    stage.play(story)


def test_isr_0_1_loses_0_then_1_and_1_alone_serves_reads_and_writes_with_min_insync_1(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage, min_insync_replicas="2")
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        await stage.down(1)
        await stage.up(1)
        await stage.until(stage.leads(1, 1))
        await stage.reads("1", "2")
        assert await stage.produce("3") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.configure(min_insync_replicas="1")
        await stage.produced("3")
        await stage.reads("1", "2", "3")

    stage.play(story)


def test_isr_0_1_loses_0_then_1_for_good_and_unclean_election_with_min_insync_1_lets_0_serve(stage: Stage) -> None:
    async def story() -> None:
        await two_in_sync(stage, min_insync_replicas="2")
        await stage.down(0)
        await stage.until(stage.leads(1, 1))
        stage.nodes[1].kill()
        await stage.up(0)
        await stage.until(stage.leads(-1, 1))
        stage.forget_what_was_committed()
        await stage.configure(unclean_leader_election_enable="true")
        await stage.until(stage.leads(0, 0))
        await stage.reads("1", "2")
        assert await stage.produce("3") is ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.configure(min_insync_replicas="1")
        await stage.produced("3")
        await stage.reads("1", "2", "3")

    stage.play(story)


def test_a_follower_dies_and_only_the_in_sync_set_changes(stage: Stage) -> None:
    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(stage.leads(0, 0, 1, 2))
        await stage.produced("1")
        await stage.down(2)
        await stage.until(stage.leads(0, 0, 1))
        await stage.produced("2")
        await stage.up(2)
        await stage.until(stage.leads(0, 0, 1, 2))
        assert stage.values(2) == [b"1", b"2"]

    stage.play(story)


def test_the_controller_dies_with_the_partition_that_it_leads(stage: Stage) -> None:
    """There is no leader until another broker has become controller and has elected one."""

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.until(lambda: stage.world.store.tree(znodes.CONTROLLER))
        first = znodes.decode_controller(stage.world.store.get(znodes.CONTROLLER).data)
        others = [number for number in range(3) if number != first]
        await stage.create((first, *others))
        await stage.produced("1")
        await stage.down(first)
        await stage.until(lambda: stage.state().leader in others)
        assert znodes.decode_controller(stage.world.store.get(znodes.CONTROLLER).data) in others
        await stage.produced("2")
        await stage.reads("1", "2")
        await stage.up(first)
        await stage.until(lambda: sorted(stage.state(TOPIC).isr) == [0, 1, 2])
        assert stage.values(first) == [b"1", b"2"]

    stage.play(story)
