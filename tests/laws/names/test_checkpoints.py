"""A deleted topic does not affect a recreated one: no file of a log directory mentions a log that does not exist."""

from __future__ import annotations

import asyncio
import errno
import shutil
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from judge import until
from log.making import NOW_MS, TOPIC_ID, FaultyDisk, StillClock, a_store, append, everything, produced, settings
from process import Ottla

from ottla.errors import BrokerError, ErrorCode
from ottla.log.ledger import Ledger
from ottla.records import batch
from ottla.records.batch import Record

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.log import Log
    from ottla.log.store import LogStore

NEW_ID = bytes(range(16, 32))
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "file_delete_delay_ms": 60_000}


def crash(folder: Path, to: Path) -> LogStore:
    """The store as a new process finds it after kill -9: the files as they are, nothing closed."""
    shutil.copytree(folder, to)
    places = sorted(path for path in to.iterdir() if path.name in ("a", "b"))
    return a_store(places or to)


async def write_checkpoints(store: LogStore, clock: StillClock) -> None:
    await store.housekeeping.checkpoint()
    clock.ms += 60_000
    await store.housekeeping.checkpoint()


def put(log: Log, key: bytes, value: bytes | None) -> None:
    append(log, memoryview(batch.build([Record(0, NOW_MS, key, value)])))
    log.roll(NOW_MS)


def keys(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    data = everything(log)
    return [(one.key, one.value) for entry in batch.entries(data) for one in batch.iterate(data, entry.position)]


def test_records_of_a_successor_are_not_deleted_with_those_of_its_predecessor(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path / "data", clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.durability.flush(NOW_MS)
    log.delete_before(500)
    asyncio.run(write_checkpoints(store, clock))
    assert "orders 0 500" in (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
    store.delete(log)
    new = store.create("orders", 0, NEW_ID, settings(), 0)
    append(new, produced(100))
    found = crash(tmp_path / "data", tmp_path / "copy").logs["orders", 0]
    assert (found.start, found.end, found.durability.recovery_point) == (0, 100, 0)
    assert everything(found) == everything(new)


def test_a_tombstone_of_a_successor_is_not_taken_for_compacted(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path / "data", clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(**COMPACT), 0)
    for at in range(9):
        put(log, b"old", b"%d" % at)
    assert asyncio.run(store.cleaner.clean_filthiest())
    store.delete(log)
    new = store.create("orders", 0, NEW_ID, settings(**COMPACT), 0)
    put(new, b"k", b"value")
    put(new, b"k", None)
    put(new, b"other", b"value")
    found = crash(tmp_path / "data", tmp_path / "copy")
    for one in (store, found):
        log = one.logs["orders", 0]
        log.reconfigure(settings(**COMPACT))
        assert log.compacted is None
        assert asyncio.run(one.cleaner.clean_filthiest())
        assert (b"k", b"value") not in keys(log)


@pytest.mark.parametrize("way", ["delete", "set aside", "move"])
def test_a_name_that_comes_back_finds_nothing_however_it_went(tmp_path: Path, way: str) -> None:
    clock = StillClock()
    store = a_store([tmp_path / "data" / "a", tmp_path / "data" / "b"], clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.durability.flush(NOW_MS)
    log.delete_before(500)
    log.compacted = 550
    asyncio.run(write_checkpoints(store, clock))
    if way == "move":
        store.move("orders", 0, str(tmp_path / "data" / "b"))
        asyncio.run(store.housekeeping.move())
        assert log.folder.parent.name == "b"
        moved = crash(tmp_path / "data", tmp_path / "moved").logs["orders", 0]
        assert (moved.start, moved.compacted) == (500, 550), "a move takes along what is true of the log"
        store.delete(log)
    elif way == "delete":
        store.delete(log)
    else:
        store.set_aside([log])
    for at, directory in enumerate(store.directories):
        new = store.create("orders", 0, NEW_ID, settings(), 0, directory=directory)
        append(new, produced(560))
        found = crash(tmp_path / "data", tmp_path / f"copy{at}").logs["orders", 0]
        assert (found.start, found.end, found.durability.recovery_point, found.compacted) == (0, 560, 0, None)
        store.delete(new)


def test_a_crash_between_the_deletion_and_the_next_checkpoint(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path / "data", clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.delete_before(500)
    asyncio.run(write_checkpoints(store, clock))
    store.delete(log)
    again = crash(tmp_path / "data", tmp_path / "copy")
    assert again.logs == {}
    append(again.create("orders", 0, NEW_ID, settings(), 0), produced(100))
    found = crash(tmp_path / "copy", tmp_path / "copy2").logs["orders", 0]
    assert (found.start, found.end) == (0, 100)


def test_a_checkpoint_on_its_way_to_the_disk_does_not_bring_the_name_back(tmp_path: Path) -> None:
    """A slow thread writes outdated content: it must not be the last to write."""
    store = a_store(tmp_path / "data")
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.delete_before(500)
    slow = log.directory.ledger.plan("log-start-offset-checkpoint", log.directory.logs)
    assert slow is not None
    store.delete(log)
    append(store.create("orders", 0, NEW_ID, settings(), 0), produced(100))
    slow.carry_out()
    slow.page.confirm(slow)
    found = crash(tmp_path / "data", tmp_path / "copy").logs["orders", 0]
    assert (found.start, found.end) == (0, 100)


def test_a_name_is_used_again_while_a_checkpoint_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of many logs is planned in slices. Between two of them a log is deleted and created again."""
    clock = StillClock()
    store = a_store(tmp_path / "data", clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.durability.flush(NOW_MS)
    log.delete_before(500)
    looks, lines = list[str](), Ledger.lines

    def create_again() -> None:
        store.delete(log)
        append(store.create("orders", 0, NEW_ID, settings(), 0), produced(100))

    def look(ledger: Ledger, name: str, logs: list[Log]) -> object:
        if log in logs and log.fault is None:
            looks.append(name)
            asyncio.get_running_loop().call_soon(create_again)
        return lines(ledger, name, logs)

    monkeypatch.setattr(Ledger, "lines", look)
    asyncio.run(write_checkpoints(store, clock))
    assert looks == ["recovery-point-offset-checkpoint"]
    found = crash(tmp_path / "data", tmp_path / "copy").logs["orders", 0]
    assert (found.start, found.end, found.durability.recovery_point) == (0, 100, 0)


def test_a_log_moves_while_a_checkpoint_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the move wrote about it is newer than the checkpoint, which does not mention it."""
    clock = StillClock()
    store = a_store([tmp_path / "data" / "a", tmp_path / "data" / "b"], clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(store.create("other", 0, NEW_ID, settings(), 0, directory=store.directories[1]), produced(9))
    append(log, produced(600))
    log.delete_before(500)
    store.move("orders", 0, str(tmp_path / "data" / "b"))
    moves, lines = list[asyncio.Task[None]](), Ledger.lines

    def look(ledger: Ledger, name: str, logs: list[Log]) -> object:
        if not moves and name == "log-start-offset-checkpoint" and ledger is store.directories[1].ledger:
            moves.append(asyncio.ensure_future(store.housekeeping.move()))
        return lines(ledger, name, logs)

    monkeypatch.setattr(Ledger, "lines", look)
    asyncio.run(write_checkpoints(store, clock))
    assert log.folder.parent.name == "b"
    found = crash(tmp_path / "data", tmp_path / "copy").logs["orders", 0]
    assert (found.start, found.end) == (500, 600)


def test_a_name_that_cannot_be_cleared_is_not_given_again(tmp_path: Path) -> None:
    clock, disk = StillClock(), FaultyDisk()
    store = a_store(tmp_path, clock=clock, disk=disk)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(600))
    log.delete_before(500)
    asyncio.run(write_checkpoints(store, clock))
    store.delete(log)
    disk.space_left = 0
    with pytest.raises(BrokerError) as refused:
        store.create("orders", 0, NEW_ID, settings(), 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.space_left = None
    append(store.create("orders", 0, NEW_ID, settings(), 0), produced(100))
    shutil.copytree(tmp_path, tmp_path / "copy")
    found = a_store(tmp_path / "copy").logs["orders", 0]
    assert (found.start, found.end) == (0, 100)


def test_a_folder_that_could_not_be_put_away_is_not_in_the_way(tmp_path: Path) -> None:
    class Stuck(FaultyDisk):
        stuck = True

        def rename(self, old: object, new: object) -> None:
            if self.stuck:
                raise OSError(errno.EACCES, "no", str(old))
            super().rename(old, new)  # type: ignore[arg-type]

    disk = Stuck()
    store = a_store(tmp_path, disk=disk)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(3))
    with pytest.raises(BrokerError):
        store.delete(log)
    assert store.logs == {}
    with pytest.raises(BrokerError):
        store.create("orders", 0, NEW_ID, settings(), 0)
    disk.stuck = False
    assert store.create("orders", 0, NEW_ID, settings(), 0).end == 0


def test_a_place_that_was_chosen_for_a_deleted_topic_is_not_its_successors(tmp_path: Path) -> None:
    store = a_store([tmp_path / "a", tmp_path / "b"])
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    store.move("orders", 0, str(tmp_path / "b"))
    store.delete(log)
    assert store.moves == {}
    (tmp_path / "b" / "orders-0.0123456789abcdef0123456789abcdef-future").mkdir()
    again = a_store([tmp_path / "a", tmp_path / "b"])
    assert again.preferred == {}
    assert again.create("orders", 0, NEW_ID, settings(), 0).folder.parent == tmp_path / "a"


def test_the_story_with_a_process_that_is_killed(tmp_path: Path) -> None:
    checkpoints = {"log.flush.start.offset.checkpoint.interval.ms": "1", "log.flush.offset.checkpoint.interval.ms": "1"}
    with Ottla(tmp_path, settings=checkpoints) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def make() -> None:
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)

        def produce(count: int) -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
            for at in range(count):
                producer.produce("orders", b"%d" % at, partition=0)
            assert producer.flush(30) == 0

        make()
        produce(600)
        place = TopicPartition("orders", 0, 500)
        admin.delete_records([place])[place].result(30)
        path = broker.log_dir / "log-start-offset-checkpoint"
        until(lambda: path.exists() and "orders 0 500" in path.read_text(), broker.process, broker.log)
        admin.delete_topics(["orders"])["orders"].result(30)
        make()
        produce(100)
        broker.kill()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        found = consumer.get_watermark_offsets(TopicPartition("orders", 0), 30)
        consumer.close()
        assert found == (0, 100)
