"""With `flush.messages` no consumer reads what a power cut could lose: the high watermark waits for the disk."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, produced, settings
from replica.making import Host, state
from waiting import until

from ottla.disk import RealDisk
from ottla.log.truncation import truncate
from ottla.replica.partition import Partition
from ottla.sim.disk import Device, SimDisk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

EACH = {"log.flush.interval.messages": "1"}


class Gate:
    """fsync of records blocks until the gate is open. A truncation passes: the loop itself forces it to disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        loop = threading.current_thread()
        self.error: OSError | None = None
        sync = RealDisk.sync

        def wait(fd: int) -> None:
            assert threading.current_thread() is loop or self.opened.wait(30)
            if self.error is not None:
                raise self.error
            sync(fd)

        monkeypatch.setattr(RealDisk, "sync", staticmethod(wait))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def play(folder: Path, story: Callable[[Host], Awaitable[None]], gate: Gate, **options: str) -> None:
    async def scene() -> None:
        host = Host(folder, **options)
        try:
            await story(host)
        finally:
            gate.opened.set()
            await host.store.close()

    asyncio.run(scene())


def a_wait(host: Host, partition: Partition, *, committed: bool = False) -> asyncio.Future[Any]:
    return host.waits.add([partition], 1, 60_000, lambda: partition.high, committed=committed)


def test_the_only_replica_shows_what_is_on_disk(tmp_path: Path, gate: Gate) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0,), isr=(0,)))
        waits = [a_wait(host, partition), a_wait(host, partition, committed=True)]
        host.append(partition, 2)
        host.append(partition, 1)
        await asyncio.sleep(0.01)
        assert partition.high == 0
        assert partition.log.last_stable(partition.high) == 0
        assert partition.wait_for_commit(3) is not None
        assert not any(wait.done() for wait in waits)
        gate.opened.set()  # the append has not requested a flush
        assert min(await asyncio.wait_for(asyncio.gather(*waits), 30)) >= 2, "when the first of them is there"
        await until(lambda: partition.high == 3)
        assert partition.wait_for_commit(3) is None

    play(tmp_path, story, gate, **EACH)


def test_a_leader_counts_itself_as_far_as_its_disk(tmp_path: Path, gate: Gate) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        host.append(partition, 3)
        wait, commit = a_wait(host, partition), partition.wait_for_commit(3)
        assert commit is not None
        for replica in (1, 2):
            host.fetch(partition, replica, 3)  # followers read up to the end
        await asyncio.sleep(0.01)
        assert (partition.high, wait.done(), commit.done()) == (0, False, False)
        gate.opened.set()
        assert await asyncio.wait_for(wait, 30) == 3
        await asyncio.wait_for(commit, 30)

    play(tmp_path, story, gate, **EACH)


def test_a_new_leader_counts_what_it_copied_as_far_as_its_disk(tmp_path: Path, gate: Gate) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(leader=1))
        partition.replicate(produced(3), now_ms=NOW_MS)
        host.assign(state(epoch=2, version=1, isr=(0,)))
        assert partition.high == 0
        gate.opened.set()
        await until(lambda: partition.high == 3)

    play(tmp_path, story, gate, **EACH)


def test_up_to_so_many_records_need_not_be_on_disk(tmp_path: Path, gate: Gate) -> None:
    """As in Apache Kafka: the append that reaches `flush.messages` waits for all of them."""

    async def story(host: Host) -> None:
        partition = host.assign(state(replicas=(0,), isr=(0,)))
        wait = a_wait(host, partition)
        host.append(partition, 2)
        assert partition.high == 2
        assert await asyncio.wait_for(wait, 30) == 2
        host.append(partition, 1)
        assert partition.high == 2
        gate.opened.set()
        await until(lambda: partition.high == 3)

    play(tmp_path, story, gate, **{"log.flush.interval.messages": "3"})


def test_after_a_full_disk_what_was_held_back_is_shown(tmp_path: Path, gate: Gate) -> None:
    async def story(host: Host) -> None:
        gate.opened.set()
        gate.error = OSError(28, "No space left on device")
        partition = host.assign(state(replicas=(0,), isr=(0,)))
        host.append(partition)
        await until(lambda: host.store.directories[0].full)
        assert partition.high == 0
        gate.error = None
        await host.store.housekeeping.flush()
        assert partition.high == 1

    play(tmp_path, story, gate, **EACH)


def test_what_is_cut_off_is_not_waited_for(tmp_path: Path, gate: Gate) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state(leader=1))
        partition.replicate(produced(3), now_ms=NOW_MS)
        truncate(partition.log, 0, now_ms=NOW_MS)
        assert partition.log.durability.settled_end == 0
        assert partition.log.durability.held is None

    play(tmp_path, story, gate, **EACH)


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_takes_nothing_that_was_read(seed: int, tmp_path: Path) -> None:
    """Records arrive during flushes; the power fails at any moment, and again after a start without a flush."""
    device, chance = Device(Random(seed)), Random(seed)

    def start() -> tuple[SimDisk, Any]:
        disk = SimDisk(device)
        return disk, a_store(tmp_path, disk=disk, topic={"flush.messages": "1"})

    async def life(*, power: bool) -> None:
        nonlocal seen
        disk, store = start()
        log = store.logs.get(("orders", 0)) or store.create("orders", 0, TOPIC_ID, settings(flush_messages=1), 0)
        partition = Partition("orders", 0, TOPIC_ID, log, 0, store.flusher)
        assert partition.high >= seen
        seen = partition.high
        for _ in range(chance.randrange(20)):
            partition.append(produced(1), StillClock().now_ms(), 9)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.choice((0, 0, 0.002)))
            seen = max(seen, partition.high)
        disk.kill()
        if power:
            device.cut_power()

    seen = 0
    for turn in range(6):
        asyncio.run(life(power=turn % 2 == 1))
    _, store = start()
    assert store.logs["orders", 0].end >= seen
    store.logs["orders", 0].close()
