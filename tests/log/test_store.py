"""All logs of a broker: opened, spread over directories, deleted, checkpointed, stopped; bad directories left out."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from log.making import (
    NOW_MS,
    TOPIC_ID,
    FaultyDisk,
    StillClock,
    a_store,
    append,
    everything,
    keep_house,
    produced,
    settings,
)

from ottla.config import load
from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.log.checkpoints import Meta, read_offsets
from ottla.log.store import LogStore

if TYPE_CHECKING:
    from pathlib import Path

UNIQUE = "0123456789abcdef0123456789abcdef"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class BrokenFolderDisk(FaultyDisk):
    """Every operation under one folder fails."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = str(folder)
        self.on = True

    def scan(self, folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
        if self.on and os.fspath(folder).startswith(self.folder):
            raise OSError(errno.EIO, "broken")
        return super().scan(folder)  # type: ignore[return-value]


def test_a_partition_is_a_folder_with_kafkas_files(tmp_path: Path) -> None:
    log = a_store(tmp_path).create("orders", 3, TOPIC_ID, settings(), 0)
    files = {f"00000000000000000000{suffix}" for suffix in (".log", ".index", ".timeindex")}
    assert names(log.folder) == {*files, "partition.metadata"}
    append(log, produced())
    log.durability.flush(0)
    assert names(log.folder) == {*files, "partition.metadata", "leader-epoch-checkpoint"}
    assert log.folder == tmp_path / "orders-3"


def test_new_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    store = a_store([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    for index in range(7):
        store.create("orders", index, TOPIC_ID, settings(), 0)
    assert [len(names(tmp_path / folder)) for folder in "abc"] == [3, 2, 2]
    store.delete(store.logs["orders", 0])
    store.delete(store.logs["orders", 3])
    assert store.create("more", 0, TOPIC_ID, settings(), 0).folder.parent == tmp_path / "a"


def test_a_partition_that_cannot_be_created_is_no_partition(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = a_store(tmp_path, disk=disk)
    disk.space_left = 0
    with pytest.raises(BrokerError) as failure:
        store.create("orders", 0, TOPIC_ID, settings(), 0)
    assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.logs == {}
    assert names(tmp_path) == set(), "and leaves nothing that a later try would stumble over"
    disk.space_left = None
    assert store.create("orders", 0, TOPIC_ID, settings(), 0).end == 0


def test_a_clean_stop_leaves_the_marker_and_the_checkpoints(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for index, count in ((0, 5), (1, 0)):
        log = store.create("orders", index, TOPIC_ID, settings(), 0)
        if count:
            append(log, produced(count))
    store.logs["orders", 0].delete_before(2)
    store.logs["orders", 0].high = 4
    asyncio.run(store.close())
    assert store.logs == {}
    disk = RealDisk()
    assert read_offsets(disk, tmp_path / "recovery-point-offset-checkpoint") == {("orders", 0): 5, ("orders", 1): 0}
    assert read_offsets(disk, tmp_path / "log-start-offset-checkpoint") == {("orders", 0): 2}
    assert read_offsets(disk, tmp_path / "replication-offset-checkpoint") == {("orders", 0): 4, ("orders", 1): 0}
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    found = a_store(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "a crash from now on is a crash"
    assert {key: (log.start, log.end) for key, log in found.logs.items()} == {
        ("orders", 0): (2, 5),
        ("orders", 1): (0, 0),
    }


def test_a_log_that_was_closed_is_of_no_use(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    asyncio.run(store.close())
    with pytest.raises(BrokerError):
        append(log, produced())


def test_index_files_are_cut_to_their_entries_at_a_clean_stop(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(index_interval_bytes=50), 0)
    for _ in range(10):
        append(log, produced(2))
    entries = len(log.active.offsets.entries())
    asyncio.run(store.close())
    assert os.path.getsize(log.folder / "00000000000000000000.index") == entries * 8
    assert os.path.getsize(log.folder / "00000000000000000000.timeindex") == 12


def test_deletion_takes_the_name_at_once_and_the_files_after_the_delay(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(file_delete_delay_ms=5000), 0)
    append(log, produced(3))
    found = log.read(0, 1000, offset_max=3)
    assert found is not None
    whole = found.read()
    store.delete(log)
    assert ("orders", 0) not in store.logs
    (left,) = names(tmp_path)
    assert left.startswith("orders-0.")
    assert left.endswith("-delete")
    again = store.create("orders", 0, b"z" * 16, settings(), 0)
    assert again.end == 0
    clock.ms += 4999
    asyncio.run(store.housekeeping.remove())
    assert left in names(tmp_path)
    clock.ms += 1
    asyncio.run(store.housekeeping.remove())
    assert names(tmp_path) == {"orders-0"}
    assert found.read() == whole


def test_a_deleted_folder_found_at_start_goes_too_and_a_stray_one_stays(tmp_path: Path) -> None:
    clock = StillClock()
    for kind in ("delete", "stray"):
        (tmp_path / f"orders-0.{UNIQUE}-{kind}").mkdir()
    (tmp_path / "lost+found").mkdir()
    store = a_store(tmp_path, clock=clock)
    assert store.logs == {}
    clock.ms += 60_000
    asyncio.run(store.housekeeping.remove())
    assert names(tmp_path) == {f"orders-0.{UNIQUE}-stray", "lost+found"}


def test_a_stray_folder_of_a_log_in_another_directory_stays_as_it_is(tmp_path: Path) -> None:
    dirs = tmp_path / "a", tmp_path / "b"
    a_store(dirs[0]).create("orders", 0, TOPIC_ID, settings(), 0)
    (dirs[1] / f"orders-0.{UNIQUE}-stray").mkdir(parents=True)
    store = a_store(dirs)
    assert set(store.logs) == {("orders", 0)}
    assert f"orders-0.{UNIQUE}-stray" in names(dirs[1])


def test_logs_the_cluster_does_not_want_are_set_aside(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    store.set_aside([log])
    assert store.logs == {}
    (left,) = names(tmp_path)
    assert left.endswith("-stray")


def test_checkpoints_are_written_when_they_are_due(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(4))
    log.durability.flush(NOW_MS)
    log.delete_before(1)
    store.logs["orders", 0].high = 3
    asyncio.run(keep_house(store))
    assert not (tmp_path / "replication-offset-checkpoint").exists()
    clock.ms += 5000
    asyncio.run(keep_house(store))
    assert names(tmp_path) == {"orders-0", "replication-offset-checkpoint"}
    clock.ms += 55_000
    asyncio.run(keep_house(store))
    disk = RealDisk()
    assert read_offsets(disk, tmp_path / "recovery-point-offset-checkpoint") == {("orders", 0): 4}
    assert read_offsets(disk, tmp_path / "log-start-offset-checkpoint") == {("orders", 0): 1}


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_broken_checkpoint_costs_time_and_nothing_else(tmp_path: Path, name: str) -> None:
    store = a_store(tmp_path)
    append(store.create("orders", 0, TOPIC_ID, settings(), 0), produced(4))
    (tmp_path / name).write_bytes(b"\xff\xfejunk")
    log = a_store(tmp_path).logs["orders", 0]
    assert (log.start, log.end) == (0, 4)


def test_retention_runs_when_it_is_due(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(retention_ms=1000, segment_bytes=200), 0)
    for _ in range(4):
        append(log, produced(2))
    asyncio.run(keep_house(store))
    assert log.start == 0
    clock.ms += 300_000
    asyncio.run(keep_house(store))
    assert log.start == log.end == 8


def test_closed_segments_are_flushed_by_and_by(tmp_path: Path) -> None:
    async def story() -> None:
        store = a_store(tmp_path)
        log = store.create("orders", 0, TOPIC_ID, settings(segment_bytes=200), 0)
        for _ in range(4):
            append(log, produced(2))
        await keep_house(store)
        assert log.durability.recovery_point == log.active.base > 0

    asyncio.run(story())


def test_one_broken_directory_does_not_stop_the_others(tmp_path: Path) -> None:
    store = a_store([tmp_path / "a", tmp_path / "b"])
    for index in range(4):
        append(store.create("orders", index, TOPIC_ID, settings(), 0), produced(2))
    asyncio.run(store.close())
    found = a_store([tmp_path / "a", tmp_path / "b"], disk=BrokenFolderDisk(tmp_path / "a"))
    assert [directory.online for directory in found.directories] == [False, True]
    assert set(found.logs) == {("orders", 1), ("orders", 3)}
    assert found.create("more", 0, TOPIC_ID, settings(), 0).folder.parent == tmp_path / "b"
    usage = found.usage()
    assert [one.error is None for one in usage] == [False, True]
    assert usage[1].sizes["orders", 1] == len(produced(2))
    assert (usage[0].total, usage[1].total > 0) == (-1, True)


def test_without_any_directory_there_is_no_broker(tmp_path: Path) -> None:
    store = LogStore([tmp_path / "a"], BrokenFolderDisk(tmp_path / "a"), StillClock(), load({}))
    with pytest.raises(BrokerError) as failure:
        store.open(lambda _: settings())
    assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_that_breaks_takes_only_its_own_logs_along(tmp_path: Path) -> None:
    store = a_store([tmp_path / "a", tmp_path / "b"])
    bad, good = (store.create("orders", index, TOPIC_ID, settings(), 0) for index in range(2))
    bad.directory.fail(OSError(errno.EIO, "broken"))
    with pytest.raises(BrokerError):
        append(bad, produced())
    assert append(good, produced()).base == 0
    asyncio.run(keep_house(store))
    asyncio.run(store.close())
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_flush_that_fails_at_the_stop_leaves_no_marker(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = a_store(tmp_path, disk=disk)
    append(store.create("orders", 0, TOPIC_ID, settings(), 0), produced(2))
    disk.broken = errno.EIO
    asyncio.run(store.close())
    disk.broken = None
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert a_store(tmp_path).logs["orders", 0].end == 2


def test_a_full_disk_at_the_stop_loses_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = a_store(tmp_path, disk=disk)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(2))
    whole = everything(log)
    disk.space_left = 0
    asyncio.run(store.close())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert everything(a_store(tmp_path).logs["orders", 0]) == whole


def test_whose_directories_these_are(tmp_path: Path) -> None:
    store = a_store([tmp_path / "a", tmp_path / "b"])
    assert store.read_meta() is None
    store.write_meta(Meta(0, 1, "cluster"))
    assert (tmp_path / "b" / "meta.properties").read_text() == "#\nversion=0\nbroker.id=1\ncluster.id=cluster\n"
    assert store.read_meta() == Meta(0, 1, "cluster")
    (tmp_path / "a" / "meta.properties").unlink()
    assert store.read_meta() == Meta(0, 1, "cluster")
    store.write_meta(Meta(0, 1, "other"))
    assert (tmp_path / "b" / "meta.properties").read_text().endswith("cluster.id=cluster\n"), "what is said stays said"


def test_the_same_partition_in_two_directories_is_used_once(tmp_path: Path) -> None:
    for folder in "ab":
        store = a_store(tmp_path / folder)
        append(store.create("orders", 0, TOPIC_ID, settings(), 0), produced(2))
        asyncio.run(store.close())
    store = a_store([tmp_path / "a", tmp_path / "b"])
    assert store.logs["orders", 0].folder.parent == tmp_path / "a"
    assert [name.endswith("-stray") for name in names(tmp_path / "b") if name.startswith("orders")] == [True]


def test_run_looks_after_everything_until_it_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.housekeeping.TICK_S", 0)

    async def story() -> None:
        clock = StillClock()
        store = a_store([tmp_path / "a", tmp_path / "b"], clock=clock)
        log = store.create("orders", 0, TOPIC_ID, settings(flush_ms=100), 0)
        append(log, produced(2))
        store.move("orders", 0, str(tmp_path / "b"))
        task = asyncio.create_task(store.run())
        clock.ms += 1000
        while log.directory.path != str(tmp_path / "b") or log.durability.recovery_point < 2:
            await asyncio.sleep(0)
            clock.ms += 100
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_directory_that_somebody_removed_goes_offline_and_the_others_go_on(tmp_path: Path) -> None:
    clock = StillClock()
    store = a_store([tmp_path / "a", tmp_path / "b"], clock=clock)
    logs = [store.create("orders", index, TOPIC_ID, settings(), 0) for index in range(2)]
    gone, stays = sorted(logs, key=lambda log: log.folder.parent != tmp_path / "a")
    asyncio.run(keep_house(store))
    shutil.rmtree(tmp_path / "a")
    append(stays, produced(1))
    clock.ms += 5000
    asyncio.run(keep_house(store))
    assert [directory.online for directory in store.directories] == [False, True]
    assert [usage.total > 0 for usage in store.usage()] == [False, True]
    with pytest.raises(BrokerError) as refused:
        append(gone, produced(1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(stays, produced(1))
