"""The cleaner: which log it chooses, how it swaps segments, and that one bad log does not stop the others."""

from __future__ import annotations

import asyncio
import errno
import shutil
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from log.making import NOW_MS, TOPIC_ID, FaultyDisk, StillClock, a_store, append, everything, settings
from waiting import until

from ottla.config import load
from ottla.disk import RealDisk
from ottla.log.cleaner import REST_MS, Cleaner, survey, swap
from ottla.log.compaction import SLICE_SIZE, Compaction, ReadThrottle, StoppedError, plan
from ottla.log.retention import retain
from ottla.log.store import LogStore
from ottla.log.truncation import truncate
from ottla.records import batch
from ottla.records.batch import Record

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.log.compaction import Cleaned
    from ottla.log.log import Log
    from ottla.log.segment import Segment

HOUR_MS = 3_600_000
BROKER = load({})


def put(log: Log, key: bytes, value: bytes | None = b"v", *, timestamp: int = NOW_MS, **producer: Any) -> None:
    append(log, memoryview(batch.build([Record(0, timestamp, key, value)], **producer)))


def a_dirty_log(store: LogStore, topic: str, *, closed: int = 3, **options: object) -> Log:
    """A log with this many closed segments, each with a value for the same key."""
    options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.5, **options}
    log = store.create(topic, 0, TOPIC_ID, settings(**options), 0)
    for at in range(closed):
        put(log, b"k", b"%d" % at)
        log.roll(NOW_MS)
    return log


def offsets(log: Log) -> list[int]:
    data = everything(log)
    return [record.offset for entry in batch.entries(data) for record in batch.iterate(data, entry.position)]


def clean(cleaner: Cleaner) -> bool:
    return asyncio.run(cleaner.clean_filthiest())


def test_the_filthiest_log_is_compacted_first_and_none_when_all_are_clean(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    cleaner = Cleaner(store)
    first, second = a_dirty_log(store, "first"), a_dirty_log(store, "second")
    store.create("plain", 0, TOPIC_ID, settings(cleanup_policy="delete"), 0)
    assert clean(cleaner)
    assert clean(cleaner)
    assert offsets(first) == offsets(second) == [2]
    assert not clean(cleaner)
    put(second, b"other")
    second.roll(NOW_MS)
    put(first, b"other")
    put(first, b"third")
    first.roll(NOW_MS)
    candidate = cleaner.choose(NOW_MS)
    assert candidate is not None
    assert candidate.log is first
    assert candidate.ratio > survey(second, second.compacted, NOW_MS).ratio > 0.5


def test_the_checkpoint_is_kafkas_and_the_next_start_goes_on_from_it(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log, gone = a_dirty_log(store, "orders"), a_dirty_log(store, "gone")
    cleaner = Cleaner(store)
    assert clean(cleaner)
    assert clean(cleaner)
    store.delete(gone)
    put(log, b"k", b"more than half")
    log.roll(NOW_MS)
    assert log.compacted == 3
    assert clean(cleaner)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"
    assert a_store(tmp_path).logs["orders", 0].compacted == 4
    store.truncate(log, 2)
    assert log.compacted == log.end == 2
    assert a_store(tmp_path).logs["orders", 0].compacted == 2


def test_a_replica_that_dies_in_its_first_compaction_keeps_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gaps that compaction leaves are not those of a power cut, also before any checkpoint says how far it came."""
    store = a_replicated_store(tmp_path / "log")
    a_dirty_log(store, "orders", segment_bytes=100)  # so that each segment is replaced on its own
    copies: list[Path] = []

    def swap_and_die(log: Log, segments: list[Segment], cleaned: Cleaned) -> bool:
        swapped = swap(log, segments, cleaned)
        copies.append(tmp_path / f"after {len(copies)}")
        shutil.copytree(tmp_path / "log", copies[-1])
        return swapped

    monkeypatch.setattr("ottla.log.cleaner.swap", swap_and_die)
    assert clean(Cleaner(store))
    assert len(copies) == 3
    (tmp_path / "log" / "cleaner-offset-checkpoint").unlink()
    for folder in [*copies, tmp_path / "log"]:
        shutil.copytree(folder, tmp_path / f"{folder.name} without an index")
        copies.append(tmp_path / f"{folder.name} without an index")
        for index in copies[-1].glob("orders-0/*.timeindex"):
            index.unlink()  # the segments are rebuilt, although they are below the recovery point
    copies.append(tmp_path / "without checkpoints")
    shutil.copytree(tmp_path / "log", copies[-1])
    (copies[-1] / "recovery-point-offset-checkpoint").write_text("nonsense")
    (copies[-1] / "cleaner-offset-checkpoint").write_text("nonsense")
    for folder in [*copies, tmp_path / "log"]:
        again = a_replicated_store(folder).logs["orders", 0]
        assert offsets(again)[-1] == 2, folder
        assert again.end == 3


def a_replicated_store(folder: Path) -> LogStore:
    """The store of a member of a cluster."""
    store = LogStore([folder], RealDisk(), StillClock(), BROKER)
    store.open(lambda _: settings(cleanup_policy="compact"), replicated=True)
    return store


def test_a_broken_or_impossible_checkpoint_means_that_all_is_dirty(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = a_dirty_log(store, "orders")
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    assert a_store(tmp_path).logs["orders", 0].compacted is None
    assert survey(log, 4, NOW_MS).first_dirty == 0
    log.delete_before(1)
    assert survey(log, 0, NOW_MS).first_dirty == survey(log, None, NOW_MS).first_dirty == 1


def test_the_active_segment_and_all_above_the_last_stable_offset_stay_out(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = a_dirty_log(store, "orders")
    put(log, b"k")
    assert survey(log, None, NOW_MS).first_uncleanable == 3
    log.high = 2
    assert survey(log, None, NOW_MS).first_uncleanable == 2
    log.high = log.end
    put(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for _ in range(2):
        log.roll(NOW_MS)
        put(log, b"k")
    assert survey(log, None, NOW_MS).first_uncleanable == 3, "its segment holds the first undecided offset"


def test_a_segment_with_an_open_transaction_stays_out_although_the_dirty_part_begins_in_it(tmp_path: Path) -> None:
    """Otherwise a value would be replaced by one that may still be aborted."""
    store = a_store(tmp_path)
    log = a_dirty_log(store, "a", closed=0, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0)
    put(log, b"other")
    put(log, b"k", b"committed")
    put(log, b"k", b"undecided", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW_MS)
    log.delete_before(1)
    assert not clean(store.cleaner)
    assert offsets(log)[-2:] == [1, 2]


def test_segments_younger_than_the_least_lag_stay_out(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(cleanup_policy="compact", min_compaction_lag_ms=1000), 0)
    for at in range(4):
        put(log, b"k", timestamp=NOW_MS + at * 500)
        log.roll(NOW_MS)
    assert [survey(log, None, NOW_MS + ahead).first_uncleanable for ahead in (0, 999, 1000, 1500, 2500)] == [
        0,
        0,
        1,
        2,
        4,
    ]
    assert survey(log, None, NOW_MS).dirty_size == 0
    assert not survey(log, None, NOW_MS).due


def test_a_record_older_than_the_most_lag_makes_its_log_due_whatever_the_ratio(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    options = {"min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": HOUR_MS}
    log = a_dirty_log(store, "orders", **options)
    cleaner = Cleaner(store)
    clock.ms = NOW_MS + HOUR_MS
    assert cleaner.choose(clock.ms) is None
    clock.ms += 1
    assert clean(cleaner)
    assert offsets(log) == [2]
    assert cleaner.choose(clock.ms) is None, "nothing dirty is left"


def test_a_segment_is_closed_in_time_for_the_most_lag(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for policy, bases in (("compact", [0, 2]), ("delete", [0])):
        options = settings(cleanup_policy=policy, max_compaction_lag_ms=1000)
        log = store.create(policy, 0, TOPIC_ID, options, 0)
        for ahead in (0, 1000, 1001):
            put(log, b"k", timestamp=NOW_MS + ahead)
        assert [segment.base for segment in log.segments] == bases


def test_a_log_that_cannot_be_compacted_is_left_alone_and_the_others_go_on(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    bad, good = a_dirty_log(store, "bad", closed=9), a_dirty_log(store, "good")
    path = tmp_path / "bad-0" / "00000000000000000001.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    cleaner = Cleaner(store)
    while (candidate := cleaner.choose(NOW_MS)) is not None:
        clean(cleaner)
    assert candidate is None
    assert offsets(good) == [2]
    assert len(bad.segments) == 10, "untouched"
    assert not list((tmp_path / "bad-0").glob("*.cleaned"))
    store.delete(bad)
    again = a_dirty_log(store, "bad")
    assert clean(cleaner), "a new log of the same name starts anew"
    assert offsets(again) == [2]


def test_a_full_disk_is_no_reason_to_give_up_a_log(tmp_path: Path) -> None:
    clock, disk = StillClock(), FaultyDisk()
    store = a_store(tmp_path, disk=disk, clock=clock)
    log = a_dirty_log(store, "orders")
    cleaner = Cleaner(store)
    disk.space_left = 10
    assert not clean(cleaner)
    assert log.directory.online
    assert len(offsets(log)) == 3
    disk.space_left = None
    assert not clean(cleaner), "it rests"
    clock.ms += REST_MS
    assert clean(cleaner)
    assert offsets(log) == [2]


class StuckDisk(FaultyDisk):
    """The first rename to a name with this ending fails; with `for_good`, all later ones too."""

    def __init__(self, suffix: str, *, for_good: bool) -> None:
        super().__init__()
        self.suffix = suffix
        self.for_good = for_good
        self.stuck = False

    def rename(self, old: Any, new: Any) -> None:
        meant = not self.stuck and str(new).endswith(self.suffix)
        self.stuck |= meant
        if meant or (self.stuck and self.for_good):
            raise OSError(errno.EACCES, "no")
        super().rename(old, new)


@pytest.mark.parametrize("suffix", [".index.swap", "2.index.deleted", "0.timeindex"])
def test_a_failure_in_the_middle_of_the_renames_is_undone(tmp_path: Path, suffix: str) -> None:
    clock, disk = StillClock(), StuckDisk(suffix, for_good=False)
    store = a_store(tmp_path, disk=disk, clock=clock)
    log = a_dirty_log(store, "orders")
    before = everything(log)
    cleaner = Cleaner(store)
    assert not clean(cleaner)
    assert log.directory.online
    assert everything(log) == before
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert everything(a_store(tmp_path / "copy").logs["orders", 0]) == before
    clock.ms += REST_MS
    assert clean(cleaner)
    assert offsets(log) == [2]


def test_one_that_cannot_be_undone_is_the_trouble_of_that_log(tmp_path: Path) -> None:
    store = a_store(tmp_path, disk=StuckDisk("1.log.deleted", for_good=True))
    log, other = a_dirty_log(store, "orders", closed=9), store.create("other", 0, TOPIC_ID, settings(), 0)
    assert not clean(Cleaner(store))
    assert log.directory.online
    assert log.fault is not None
    assert other.fault is None
    assert offsets(a_store(tmp_path).logs["orders", 0]) == [8], "recovery finishes it"


@pytest.mark.parametrize("change", ["retention", "truncation", "deletion", "another result"])
def test_a_result_is_thrown_away_when_the_log_has_changed_meanwhile(tmp_path: Path, change: str) -> None:
    store = a_store(tmp_path)
    log = a_dirty_log(store, "orders", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    segments = log.segments[:-1]
    run = Compaction(plan(*survey(log, None, NOW_MS)[:3], BROKER, NOW_MS), store.disk)
    run.map_keys()
    cleaned = run.clean(run.groups[0])
    if change == "retention":
        assert retain(log, NOW_MS + 2 * HOUR_MS) == 3
    elif change == "truncation":
        truncate(log, 2, now_ms=NOW_MS)
        put(log, b"x", b"a longer value")
        log.roll(NOW_MS)
    elif change == "deletion":
        store.delete(log)
    else:
        assert swap(log, segments, cleaned)
    before = [segment.base for segment in log.segments]
    assert not swap(log, segments, cleaned)
    assert [segment.base for segment in log.segments] == before
    if change != "deletion":
        assert not list((tmp_path / "orders-0").glob("*.cleaned"))


def test_replaced_files_are_removed_after_the_delay_and_readers_keep_theirs(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    log = a_dirty_log(store, "orders")
    reading = log.read(0, 1 << 20, offset_max=log.end)
    assert reading is not None
    before = reading.read()
    assert clean(Cleaner(store))
    assert len(list((tmp_path / "orders-0").glob("*.log.deleted"))) == 3
    asyncio.run(store.housekeeping.remove())
    assert len(list((tmp_path / "orders-0").glob("*.log.deleted"))) == 3
    clock.ms += log.config.file_delete_delay_ms
    asyncio.run(store.housekeeping.remove())
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    assert reading.read() == before
    assert offsets(log) == [2]


def test_a_policy_of_both_compacts_and_deletes(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = a_dirty_log(store, "orders", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    assert clean(Cleaner(store))
    assert offsets(log) == [2]
    assert retain(log, NOW_MS + 2 * HOUR_MS) == 1
    assert offsets(log) == []
    assert log.start == 3


def test_running_it_compacts_until_it_is_cancelled(tmp_path: Path) -> None:
    async def story() -> None:
        store = a_store(tmp_path, broker={"log.cleaner.backoff.ms": "0"})
        log = a_dirty_log(store, "orders")
        task = asyncio.create_task(Cleaner(store).run())
        await until(lambda: len(log.segments) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert offsets(log) == [2]

    asyncio.run(story())


def test_cancelling_stops_the_thread_before_it_returns(tmp_path: Path) -> None:
    async def story() -> None:
        store = a_store(tmp_path, broker={"log.cleaner.io.max.bytes.per.second": "1"})
        log = a_dirty_log(store, "orders", closed=2)
        for _ in range(4):
            put(log, b"big", b"x" * SLICE_SIZE)
            log.roll(NOW_MS)
        cleaner = Cleaner(store)
        task = asyncio.create_task(cleaner.run())
        await until(lambda: log in cleaner._busy)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(offsets(log)) == 6
        assert not list((tmp_path / "orders-0").glob("*.cleaned"))

    asyncio.run(story())


def test_it_does_nothing_when_it_is_switched_off(tmp_path: Path) -> None:
    store = a_store(tmp_path, broker={"log.cleaner.enable": "false"})
    log = a_dirty_log(store, "orders")
    asyncio.run(Cleaner(store).run())
    assert len(offsets(log)) == 3


def test_the_throttle_waits_for_as_long_as_the_bytes_are_ahead_of_the_rate() -> None:
    class Waited(Event):
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float | None] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.seconds.append(timeout)
            return self.is_set()

    stop = Waited()
    throttle = ReadThrottle(load({"log.cleaner.io.max.bytes.per.second": str(SLICE_SIZE)}), StillClock(), stop)
    throttle(SLICE_SIZE // 2)
    assert stop.seconds == []
    throttle(SLICE_SIZE // 2)
    assert stop.seconds == [1.0]
    stop.set()
    with pytest.raises(StoppedError):
        throttle(SLICE_SIZE)


def test_another_number_of_threads_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.cleaner.WATCH_S", 0)

    async def story() -> None:
        store = a_store(tmp_path, broker={"log.cleaner.backoff.ms": "0", "log.cleaner.threads": "1"})
        cleaner = Cleaner(store)
        gates: list[asyncio.Event] = []

        async def clean_filthiest() -> bool:
            gates.append(gate := asyncio.Event())
            await gate.wait()
            gates.remove(gate)
            return True

        monkeypatch.setattr(cleaner, "clean_filthiest", clean_filthiest)
        task = asyncio.create_task(cleaner.run())
        for threads in (1, 3, 2, 0, 1):
            store.config = store.config.overlay({"log.cleaner.threads": str(threads)})
            for gate in gates[threads:]:
                gate.set()
            await until(lambda: len(gates) == threads)  # noqa: B023
            for _ in range(9):
                await asyncio.sleep(0)
            assert len(gates) == threads
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(story(), 20))
