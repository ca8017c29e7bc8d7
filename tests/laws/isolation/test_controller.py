"""One partition that cannot be written or hosted does not stop the controller from serving the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster.control.test_driver import Setup, run
from cluster.control.world import World
from waiting import until

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.metadata_store import Set, StoreError
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from ottla.cluster.metadata_store import Op


def test_a_state_that_may_not_be_written_does_not_stop_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(0, 1)
    world.write_topic("t", (0, 1), (0, 1), (0, 1))
    world.elect()
    world.settle()
    bad, multi = znodes.state_path("t", 1), world.tree.multi

    def refuse(ops: Sequence[Op]) -> StoreError | None:
        return StoreError("not allowed") if any(isinstance(op, Set) and op.path == bad for op in ops) else multi(ops)

    monkeypatch.setattr(world.tree, "multi", refuse)
    world.unregister(0)
    world.run(events.BrokersChanged())
    world.settle()
    assert [world.lead("t", index).leader for index in range(3)] == [1, 0, 1]


def test_a_replica_that_had_no_room_is_tried_again() -> None:
    """The disk may have been full, or too many files open; no event says when that ends."""
    world = World(0, 1)
    world.failed_folders = {1: {("t", 0)}}
    world.write_topic("t", (0, 1))
    world.elect()
    world.settle()
    assert world.lead("t").isr == (0,)
    world.run(events.CheckBalance())
    world.settle()
    assert world.propose("t", 0, [0, 1]) == ErrorCode.INELIGIBLE_REPLICA
    world.failed_folders.clear()
    world.run(events.CheckBalance())
    world.settle()
    assert world.propose("t", 0, [0, 1]) == ErrorCode.NONE
    assert world.lead("t").isr == (0, 1)


def test_the_only_replica_leads_when_there_is_room_again() -> None:
    world = World(0, 1)
    world.failed_folders = {1: {("t", 0)}}
    world.write_topic("t", (1,))
    world.elect()
    world.settle()
    assert world.lead("t").leader == -1
    world.failed_folders.clear()
    world.run(events.CheckBalance())
    world.settle()
    assert world.lead("t").leader == 1


def test_a_client_that_leaves_before_it_is_refused_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """An abandoned request must not make the controller pause and read everything again."""

    async def work(setup: Setup) -> None:
        engine = setup.control._engine
        asked = asyncio.ensure_future(engine.ask(events.TakeProducerIds(99, 5)))
        await until(lambda: engine._current is not None)
        asked.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not [one for one in caplog.records if "failed" in one.message]

    run(work)
