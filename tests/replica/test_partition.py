"""One partition in each of its roles: what is accepted, what is committed, and who is notified."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
from log.making import produced, records
from replica.making import Host, state

from ottla.errors import BrokerError, ErrorCode
from ottla.log.replicate import replicate
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def play(folder: Path, story: Callable[[Host], Awaitable[None]], **options: str) -> None:
    async def scene() -> None:
        host = Host(folder, **options)
        await story(host)
        await host.store.close()

    asyncio.run(scene())


def numbered(sequence: int) -> memoryview:
    """A batch of an idempotent producer."""
    return memoryview(batch.build(records(1), producer_id=7, producer_epoch=0, base_sequence=sequence))


def code_of(future: asyncio.Future[Any] | None) -> ErrorCode:
    assert future is not None
    error = future.exception()
    assert isinstance(error, BrokerError)
    return error.code


def test_the_only_replica_commits_at_once(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0,), isr=(0,)))
        host.append(partition, 3)
        assert partition.high == 3
        assert partition.wait_for_commit(3) is None
        assert partition.followers is None

    play(tmp_path, story)


def test_a_leader_of_several_commits_when_all_in_sync_have_it(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        host.append(partition, 3)
        assert partition.high == 0
        early, late = partition.wait_for_commit(1), partition.wait_for_commit(3)
        assert early is not None
        assert late is not None
        host.fetch(partition, 1, 3)
        assert not early.done()
        host.fetch(partition, 2, 2)
        assert early.done()
        assert not late.done()
        host.fetch(partition, 2, 3)
        assert late.result() is None
        assert partition.wait_for_commit(3) is None
        assert partition.high == partition.log.high == 3

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("fetches", "pause_ms", "code"),
    [
        ([], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([1, 2], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([30_000, 1, 2, 1], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([1, 2, 1, 2], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([30_000, 1, 2, 1, 2], 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([30_000, 1, 2, 1, 2], 7000, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([30_000, 1, 2, 1, 2, 7000, 1, 2], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_a_gap_in_a_sequence_counts_only_at_a_settled_leader(
    tmp_path: Path, fetches: list[int], pause_ms: int, code: ErrorCode
) -> None:
    """A leader that was paused may have been replaced: the next one may have the missing batch. Fetches that arrived
    while it was paused prove nothing, so each follower has to fetch twice. And a client may still wait for the previous
    leader's response to the missing batch."""

    async def story(host: Host) -> None:
        partition = host.assign(state())
        for one in fetches:
            if one > 2:
                host.clock.ms += one
            else:
                host.fetch(partition, one, 0)
        host.clock.ms += pause_ms
        partition.append(numbered(0), host.clock.now_ms(), 9)
        with pytest.raises(BrokerError) as refused:
            partition.append(numbered(9), host.clock.now_ms(), 9)
        assert refused.value.code is code
        entry = memoryview(numbered(9))
        sound = 0, host.clock.now_ms(), batch.header(entry).producer_id
        with pytest.raises(BrokerError) as refused:
            partition.append_sound(entry, sound, host.clock.now_ms(), 1)
        assert refused.value.code is code

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("isr", "fetches", "abandoned"),
    [
        ((0, 1, 2), [], False),
        ((0, 1, 2), [7000], False),
        ((0, 1, 2), [1, 2, 1, 2], False),
        ((0, 1, 2), [1, 2, 1, 2, 7000], True),
        ((0, 1, 2), [1, 2, 1, 2, 7000, 1, 2], True),
        ((0, 1, 2), [1, 2, 1, 2, 7000, 2, 2], False),
        ((0, 1), [1, 2, 1, 2, 7000, 2, 2], True),
        ((0,), [1, 2, 1, 2, 7000], False),
    ],
)
def test_a_leader_is_abandoned_when_all_in_sync_have_stopped_to_follow(
    tmp_path: Path, isr: tuple[int, ...], fetches: list[int], abandoned: bool
) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(isr=isr))
        for one in fetches:
            if one > 2:
                host.clock.ms += one
            else:
                host.fetch(partition, one, 0)
        assert partition.is_abandoned() is abandoned

    play(tmp_path, story)


def test_a_gap_in_a_sequence_counts_where_nobody_else_may_lead(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(isr=(0,)))
        host.clock.ms += 30_000
        partition.append(numbered(0), host.clock.now_ms(), 9)
        with pytest.raises(BrokerError) as refused:
            partition.append(numbered(9), host.clock.now_ms(), 9)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    play(tmp_path, story)


def test_who_waits_for_a_commit_is_told_when_the_leadership_goes(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        host.append(partition)
        future = partition.wait_for_commit(1)
        host.assign(state(leader=1, epoch=2, version=1))
        assert code_of(future) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(partition.wait_for_commit(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(BrokerError) as refused:
            host.append(partition)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.end == 1

    play(tmp_path, story)


def test_too_few_in_sync_refuse_before_the_append_unless_one_acknowledgement_is_enough(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(isr=(0,)))
        with pytest.raises(BrokerError) as refused:
            host.append(partition)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.end == 0
        partition.append(produced(), host.clock.now_ms(), 9, acks=1)
        assert partition.high == 1, "min.insync.replicas does not hold the high watermark back"

    play(tmp_path, story, **{"min.insync.replicas": "2"})


def test_a_set_that_shrinks_after_the_append_is_said(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(isr=(0, 1)))
        host.append(partition)
        future = partition.wait_for_commit(1)
        host.clock.ms += 60_000  # 1 has not fetched for longer than the allowed lag
        host.assign(state(isr=(0,), version=1))
        assert code_of(future) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert code_of(partition.wait_for_commit(1)) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    play(tmp_path, story, **{"min.insync.replicas": "2"})


def test_more_than_all_replicas_are_never_asked_for(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0, 1), isr=(0, 1)))
        host.append(partition)
        alone = host.assign(state(replicas=(0,), isr=(0,), index=1))
        host.append(alone)

    play(tmp_path, story, **{"min.insync.replicas": "3"})


def test_an_append_wakes_followers_and_a_commit_wakes_consumers(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        consumer = host.waits.add([partition], 1, 60_000, lambda: "consumer")
        follower = host.waits.add([partition], 1, 60_000, lambda: "follower", to_end=True)
        host.append(partition)
        await turns()
        assert follower.done()
        assert not consumer.done()
        host.fetch(partition, 1, 1)
        await turns()
        assert not consumer.done()
        host.fetch(partition, 2, 1)
        await turns()
        assert consumer.result() == "consumer"
        assert not partition.waits
        assert not partition.commit_waits

    play(tmp_path, story)


def test_a_consumer_of_a_follower_is_woken_by_the_high_watermark(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(leader=1))
        replicate(partition.log, produced(), now_ms=0)
        wait = host.waits.add([partition], 1, 60_000, lambda: "read")
        partition.advance(1)
        await turns()
        assert wait.done()
        partition.advance(0)
        assert partition.high == 1

    play(tmp_path, story)


def test_any_change_of_role_wakes_everybody(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        consumer = host.waits.add([partition], 1, 60_000, lambda: "consumer")
        follower = host.waits.add([partition], 1, 60_000, lambda: "follower", to_end=True)
        host.assign(state(leader=2, epoch=2, version=1))
        await turns()
        assert consumer.done()
        assert follower.done()

    play(tmp_path, story)


def test_a_stranger_is_not_counted(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0, 1), isr=(0, 1)))
        with pytest.raises(BrokerError) as unknown:
            partition.note_fetch(7, 0, 0, -1, epoch_known=True)
        assert unknown.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
        with pytest.raises(BrokerError) as unknown:
            partition.note_fetch(7, 0, 0, -1, epoch_known=False)
        assert unknown.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, story)


def test_a_follower_that_has_caught_up_is_proposed(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(isr=(0,)))
        host.append(partition)
        host.fetch(partition, 1, 0)
        assert not host.told.proposed
        host.fetch(partition, 1, 1)
        assert host.told.proposed == [partition]

    play(tmp_path, story)


def test_an_acknowledgement_waits_for_the_disk_too(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0, 1), isr=(0, 1)))
        host.append(partition)
        future = partition.wait_for_commit(1)
        assert future is not None
        host.fetch(partition, 1, 1)
        await asyncio.wait_for(future, 60)
        assert partition.log.durability.recovery_point == 1
        host.append(partition)
        future = partition.wait_for_commit(2)
        assert future is not None
        await asyncio.sleep(0.05)
        assert not future.done(), "on this disk, not on the other"
        host.fetch(partition, 1, 2)
        await asyncio.wait_for(future, 60)

    play(tmp_path, story, **{"log.flush.interval.messages": "1"})


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_nobody_is_told_of_a_commit_that_nobody_waits_for(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        troubles: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
        partition = host.assign(state())
        host.append(partition)
        assert partition.wait_for_commit(1) is not None  # and its client has disconnected
        host.assign(state(leader=1, epoch=2, version=1))
        gc.collect()
        await asyncio.sleep(0)
        assert not troubles

    play(tmp_path, story)
