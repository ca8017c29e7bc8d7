"""A coordinator on a replicated partition never returns what the followers have not fetched yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from coord.test_runtime import Counter, result
from replica.making import Host, state
from waiting import until

from ottla.coord.coordinator import Coordinator, TopicShape
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ottla.replica.partition import Partition

    Story = Callable[[Host, Coordinator[Counter]], Awaitable[None]]


def play(folder: Path, story: Story, **options: str) -> None:
    async def scene() -> None:
        host = Host(folder, **options)
        coordinator: Coordinator[Counter] = Coordinator(
            TopicShape("t", 1, 3, {}),
            lambda _: Counter(),
            host.metadata,
            None,  # type: ignore[arg-type]
            host.replicas,
            host.clock,
        )
        coordinator.start()
        await asyncio.wait_for(story(host, coordinator), 10)
        await coordinator.stop()
        await host.store.close()

    asyncio.run(scene())


async def loaded(coordinator: Coordinator[Counter]) -> None:
    await until(lambda: not coordinator.runtime.loading)


def fetch_all(host: Host, partition: Partition, offset: int) -> None:
    for replica in (1, 2):
        host.fetch(partition, replica, offset)


def add(coordinator: Coordinator[Counter], key: bytes) -> asyncio.Future[int]:
    return coordinator.runtime.run(0, lambda machine, token, _: machine.add(key, token))  # type: ignore[no-any-return]


def test_a_reply_waits_for_the_followers(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: Coordinator[Counter]) -> None:
        partition = host.assign(state())
        await loaded(coordinator)
        first, second = add(coordinator, b"a"), add(coordinator, b"a")
        host.fetch(partition, 1, 2)
        host.fetch(partition, 2, 1)
        assert await result(first) == 1
        assert not second.done()
        host.fetch(partition, 2, 2)
        assert await result(second) == 2

    play(tmp_path, story)


def test_who_loses_the_partition_forgets_and_who_gets_it_back_waits_for_its_followers(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: Coordinator[Counter]) -> None:
        partition = host.assign(state())
        await loaded(coordinator)
        committed = add(coordinator, b"a")
        fetch_all(host, partition, 1)
        assert await result(committed) == 1
        doubtful = add(coordinator, b"a")
        host.assign(state(leader=1, epoch=2, version=1))
        with pytest.raises(BrokerError) as lost:
            await result(doubtful)
        assert lost.value.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(BrokerError) as elsewhere:
            add(coordinator, b"a")
        assert elsewhere.value.code is ErrorCode.NOT_COORDINATOR
        host.assign(state(epoch=3, version=2))  # elected again, with the record that was in doubt
        early = add(coordinator, b"b")
        await asyncio.sleep(0.02)
        assert coordinator.runtime.loading
        fetch_all(host, partition, 2)
        await loaded(coordinator)
        assert coordinator.runtime.peek(0).counts == {b"a": 2}, "it is committed now"
        await asyncio.sleep(0)
        fetch_all(host, partition, 3)
        assert await result(early) == 1

    play(tmp_path, story)


def test_a_newer_epoch_of_the_same_leader_changes_nothing_for_who_waits(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: Coordinator[Counter]) -> None:
        partition = host.assign(state())
        await loaded(coordinator)
        machine = coordinator.runtime.peek(0)
        waiting = add(coordinator, b"a")
        host.assign(state(epoch=2, version=1, isr=(0, 1)))  # a follower's broker is gone
        assert coordinator.runtime.peek(0) is machine
        assert not waiting.done()
        host.fetch(partition, 1, 1)
        assert await result(waiting) == 1
        assert coordinator.runtime.epoch(0) == 2

    play(tmp_path, story)


def test_while_too_few_are_in_sync_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    async def story(host: Host, coordinator: Coordinator[Counter]) -> None:
        partition = host.assign(state())
        await loaded(coordinator)
        written = add(coordinator, b"a")
        fetch_all(host, partition, 1)
        await result(written)
        host.assign(state(epoch=2, version=1, isr=(0,)))
        with pytest.raises(BrokerError) as refused:
            add(coordinator, b"a")
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        machine = coordinator.runtime.peek(0)
        assert coordinator.runtime.pending_commit(0, machine) is None
        assert machine.counts == {b"a": 1}

    play(tmp_path, story, **{"min.insync.replicas": "2"})
