"""A slow disk delays only the requests that need it: code that waits for a disk runs in threads."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from handlers.wired import Wired
from log.making import NOW_MS, TOPIC_ID, FaultyDisk, StillClock, a_store, append, keep_house, produced, settings
from waiting import until

from ottla import BrokerThread
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.transactions import DescribeTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = 9


class Gate:
    """fsync of one topic's log file blocks until the gate is opened."""

    def __init__(self, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened, self.count = threading.Event(), threading.Event(), 0
        sync = RealDisk.sync

        def wait(fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if f"/{topic}-0/" in path and path.endswith(".log"):
                self.count += 1
                self.reached.set()
                assert self.opened.wait(30)
            sync(fd)

        monkeypatch.setattr(RealDisk, "sync", staticmethod(wait))


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as started:
        yield started


def connect(broker: BrokerThread) -> Wired:
    return Wired(int(broker.bootstrap.rpartition(":")[2]))


def create(wired: Wired, name: str, **configs: str) -> None:
    options = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=options)
    assert wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 5).topics[0].error_code == 0


def request(topic: str) -> ProduceRequest:
    data = batch.build([batch.Record(0, NOW_MS, b"k", b"v", ())])
    partition = PartitionProduceData(index=0, records=data)
    return ProduceRequest(
        acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )


def test_others_are_served_while_one_partition_waits_for_its_disk(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(broker) as slow, connect(broker) as other:
        create(other, "slow", flush_messages="1")
        create(other, "quick")
        gate = Gate("slow", monkeypatch)
        slow.send(request("slow"), VERSION)
        assert gate.reached.wait(30)
        for _ in range(3):
            slow.send(request("slow"), VERSION)
            assert other.ask(request("quick"), VERSION).responses[0].partition_responses[0].error_code == 0
        assert gate.count == 1
        gate.opened.set()
        answers = [slow.receive().responses[0].partition_responses[0] for _ in range(4)]
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, at) for at in range(4)]
        assert gate.count == 2, "those who came meanwhile share one flush"


def test_a_flush_that_fails_is_told_to_those_who_wait(tmp_path: Path) -> None:
    async def story() -> None:
        disk = FaultyDisk()
        store = a_store(tmp_path, disk=disk)
        log = store.create("orders", 0, TOPIC_ID, settings(flush_messages=1), 0)
        append(log, produced())
        disk.broken = 5
        outcomes = await asyncio.gather(*(store.flusher.wait_for(log, 1) for _ in range(3)), return_exceptions=True)
        assert [one.code for one in outcomes if isinstance(one, BrokerError)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3

    asyncio.run(story())


class WatchedDisk(RealDisk):
    """Records calls that wait for the disk on the loop's thread."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.waited: list[str] = []
        for name in ("sync", "sync_folder", "remove", "remove_folder"):
            setattr(self, name, self._watch(name, getattr(self, name)))

    def _watch(self, name: str, method: Any) -> Any:
        def watched(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == self.loop:
                self.waited.append(f"{name} {arguments}")
            return method(*arguments, **options)

        return watched

    def write(self, path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
        if sync and threading.get_ident() == self.loop:
            self.waited.append(f"write {path}")
        super().write(path, data, sync=sync)


def test_the_loop_forces_nothing_to_disk_and_removes_no_files(tmp_path: Path) -> None:
    disk, clock = WatchedDisk(), StillClock()
    store = a_store([tmp_path / "a", tmp_path / "b"], disk=disk, clock=clock)
    old = store.create("old", 0, TOPIC_ID, settings(segment_bytes=200, retention_ms=1000, flush_ms=1), 0)
    compacted = store.create(
        "compacted", 0, TOPIC_ID, settings(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01), 0
    )
    for at in range(25):
        append(old, produced(2))
        append(compacted, memoryview(batch.build([batch.Record(0, NOW_MS, b"k", b"%d" % at)])))
        compacted.roll(NOW_MS)
    disk.waited.clear()

    async def story() -> None:
        assert await store.cleaner.clean_filthiest()
        for _ in range(8):
            await keep_house(store)
            clock.ms += 100_000

    asyncio.run(story())
    assert old.start == old.end == 50
    assert not list(tmp_path.rglob("*.deleted"))
    assert [one for one in disk.waited if ".snapshot" not in one] == []


def test_a_commit_waits_for_its_disk_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1"}
    with BrokerThread(data=tmp_path, options=options) as broker, connect(broker) as slow, connect(broker) as other:
        create(other, "quick", flush_messages="1000")
        find = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
        while slow.ask(find, 4).coordinators[0].error_code:
            pass
        gate = Gate("__consumer_offsets", monkeypatch)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="quick", partitions=[partition])
        commit = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1, topics=[topic]
        )
        slow.send(commit, 8)
        assert gate.reached.wait(30)
        assert other.ask(request("quick"), VERSION).responses[0].partition_responses[0].error_code == 0
        gate.opened.set()
        assert slow.receive().topics[0].partitions[0].error_code == 0


def test_a_transaction_ends_when_its_markers_are_on_disk_and_others_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread(data=tmp_path) as broker, connect(broker) as other:
        create(other, "slow", flush_messages="1")
        create(other, "quick")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("slow", b"v", partition=0)
        assert producer.flush(30) == 0
        gate = Gate("slow", monkeypatch)
        ending = threading.Thread(target=producer.commit_transaction)
        ending.start()
        assert gate.reached.wait(30)
        describe = DescribeTransactionsRequest(transactional_ids=["x"])
        assert other.ask(request("quick"), VERSION).responses[0].partition_responses[0].error_code == 0
        assert other.ask(describe, 0).transaction_states[0].transaction_state == "PrepareCommit"
        gate.opened.set()
        while other.ask(describe, 0).transaction_states[0].transaction_state != "CompleteCommit":
            pass
        ending.join(30)


def test_a_move_holds_up_no_housekeeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.housekeeping.TICK_S", 0)
    monkeypatch.setattr("ottla.log.store.STEP_SIZE", 0)

    async def story() -> None:
        clock = StillClock()
        store = a_store([tmp_path / "a", tmp_path / "b"], clock=clock)
        log = store.create("moved", 0, TOPIC_ID, settings(), 0)
        old = store.create("old", 0, TOPIC_ID, settings(segment_bytes=200, retention_ms=1000), 0)
        for _ in range(4):
            append(log, produced(2))
            append(old, produced(2))
        target = next(one for one in store.directories if one is not log.directory)
        store.move("moved", 0, target.path)
        move, begun, release = store.moves["moved", 0], threading.Event(), threading.Event()
        copy = move.copy

        def slow_copy(pieces: Any) -> None:
            begun.set()
            assert release.wait(30)
            copy(pieces)

        monkeypatch.setattr(move, "copy", slow_copy)
        task = asyncio.create_task(store.run())
        await until(lambda: begun.is_set())
        while old.start < 8 or not (tmp_path / "a" / "recovery-point-offset-checkpoint").exists():
            clock.ms += 60_000
            await asyncio.sleep(0)
        assert log.directory is not target
        release.set()
        await until(lambda: log.directory is target)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), 30))
