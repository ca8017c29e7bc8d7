"""Durations are monotonic, wall time is data: setting the wall clock back by an hour delays nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from coord.groups.stage import RULES, subscription
from coord.transactions.test_machine import World
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, append, keep_house, produced, settings
from waiting import until

from ottla.clock import SystemClock
from ottla.coord.groups.machine import GroupMachine
from ottla.coord.machine import Caller, Moment
from ottla.coord.runtime import Runtime
from ottla.coord.transactions.machine import TIMEOUT
from ottla.coord.transactions.transaction import TransactionState
from ottla.log.retention import retain
from ottla.replica.partition import Partition
from ottla.wire.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS


class StillWall(StillClock):
    """The test sets the wall clock; the monotonic clock continues from another number."""

    def __init__(self) -> None:
        super().__init__()
        self.steady_ms = 12_345

    def monotonic(self) -> float:
        return self.steady_ms / 1000


class RunningWall(SystemClock):
    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, -TEN_YEARS_MS])
def test_checkpoints_go_on_and_deleted_files_go(tmp_path: Path, step_ms: int) -> None:
    clock = StillWall()
    store = a_store(tmp_path, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(flush_ms=1000, segment_bytes=200), 0)
    gone = store.create("gone", 0, TOPIC_ID, settings(), 0)
    for _ in range(4):
        append(log, produced(2))
    asyncio.run(keep_house(store))
    log.delete_before(5)
    retain(log, NOW_MS)
    store.delete(gone)
    asyncio.run(keep_house(store))
    clock.ms += step_ms
    clock.steady_ms += 60_000
    asyncio.run(keep_house(store))
    assert log.durability.recovery_point == log.end
    assert {path.name for path in tmp_path.iterdir()} == {
        "orders-0",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert not [path for path in log.folder.iterdir() if path.name.endswith(".deleted")]


def test_nothing_is_done_too_early_either(tmp_path: Path) -> None:
    clock = StillWall()
    store = a_store(tmp_path, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(flush_ms=1000), 0)
    append(log, produced(2))
    asyncio.run(keep_house(store))
    store.delete(store.create("gone", 0, TOPIC_ID, settings(), 0))
    clock.ms += HOUR_MS
    asyncio.run(keep_house(store))
    assert log.durability.recovery_point == 0
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 2, "the folder that is deleted is still there, and no checkpoint"


def test_a_silent_member_leaves(tmp_path: Path) -> None:
    clock = RunningWall()

    async def story() -> None:
        store = a_store(tmp_path)
        log = store.create("__consumer_offsets", 0, TOPIC_ID, settings(), 0)
        rules = RULES._replace(session_ms_min=1, initial_delay_ms=0)
        runtime: Runtime[GroupMachine] = Runtime(lambda _: GroupMachine(rules, lambda: "1"), clock)
        runtime.on_election(Partition("__consumer_offsets", 0, TOPIC_ID, log, 0))
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=300,
            rebalance_timeout_ms=300,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        caller = Caller("c", "/127.0.0.1", 3)

        async def result(answer: Any) -> Any:
            return await answer if asyncio.isfuture(answer) else answer

        joined = await result(
            runtime.run(0, lambda machine, token, now_ms: machine.join(request, caller, token, now_ms))
        )
        assert joined.error_code == 0
        group = runtime.peek(0).groups["g"]
        assert not group.empty
        clock.shift_ms = -HOUR_MS
        await until(lambda: group.empty)
        await runtime.stop()

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_transaction_that_nobody_ends_times_out(restarted: bool) -> None:
    world = World()
    world.now_ms = Moment.of(5_000, NOW_MS)
    producer = world.init(timeout_ms=60_000)
    world.add(producer, ("t", 0))
    assert world.machine.transactions["x"].started_ms == NOW_MS, "what is written down is wall time"
    if restarted:  # the monotonic clock starts again, at another number
        world.machine.finish_load(Moment.of(100, NOW_MS - HOUR_MS))
        world.now_ms = Moment.of(100, NOW_MS - HOUR_MS)
    begin = int(world.now_ms)
    for passed_ms, state in ((59_000, TransactionState.ONGOING), (61_000, TransactionState.PREPARE_ABORT)):
        world.now_ms = Moment.of(begin + passed_ms, NOW_MS - HOUR_MS + passed_ms)
        world.carry_out(world.machine.expire(TIMEOUT, world.now_ms))
        assert world.state is state
