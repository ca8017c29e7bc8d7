"""A full disk is not a failed disk: it refuses writes, logs that once, allows deletion, and recovers by itself."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from typing import TYPE_CHECKING

import pytest
from compat.raw import Raw, create_topic, fetch, produce
from compat.raw import batch as raw_batch
from handlers.conftest import port_of
from log.making import (
    NOW_MS,
    TOPIC_ID,
    FaultyDisk,
    StillClock,
    a_store,
    append,
    end_transaction,
    everything,
    in_transaction,
    keep_house,
    produced,
    settings,
)
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import BrokerError, ErrorCode
from ottla.log import housekeeping, recovery
from ottla.log.log import Log

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.disk import File

NEW_ID = bytes(range(16, 32))


class FullIndexDisk(FaultyDisk):
    """The disk is full just when a transaction index is written."""

    full = False

    def open(self, path: Path | str, *, create: bool = False) -> File:
        if self.full and str(path).endswith(".txnindex"):
            super().append(path, b"\0" * 7)  # the part that fitted
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().open(path, create=create)


def test_a_disk_that_takes_a_part_of_a_batch_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    store = a_store(tmp_path, disk=disk)
    log = store.create("t", 0, TOPIC_ID, settings(), 0)
    disk.space_left = 10
    for _ in range(2):
        with pytest.raises(BrokerError):
            append(log, produced(3))
    assert said(caplog) == ["disk full"]
    assert log.directory.full
    disk.space_left = None
    append(log, produced(3))
    assert log.end == 3


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name == "ottla.log"]
    caplog.clear()
    return found


@pytest.mark.parametrize("end", ["crash", "stop", "flush and crash", "full to the end"])
def test_an_aborted_transaction_is_known_although_its_index_could_not_be_written(tmp_path: Path, end: str) -> None:
    disk = FullIndexDisk()
    store = a_store(tmp_path / "data", disk=disk)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, in_transaction(0))
    disk.full = True
    end_transaction(log, commit=False)
    assert log.directory.online
    aborted = log.list_aborted(0, log.end)
    assert aborted == [(7, 0)]
    with pytest.raises(BrokerError):
        log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == 0, "recovery has to look at the marker again"
    disk.full = end == "full to the end"
    if end == "flush and crash":
        log.durability.flush(NOW_MS)
        assert log.durability.recovery_point == log.end
    elif end != "crash":
        asyncio.run(store.close())
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    if end in ("crash", "full to the end"):  # the index is torn, and recovery makes a new one
        for path in (tmp_path / "copy").rglob("*.txnindex"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 34 * 34])
    found = a_store(tmp_path / "copy").logs["orders", 0]
    assert found.list_aborted(0, found.end) == aborted


def test_it_is_said_once_and_so_is_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla")
    disk, clock = FaultyDisk(), StillClock()
    store = a_store(tmp_path, disk=disk, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    append(log, produced(2))
    caplog.clear()
    disk.space_left = 0
    for _ in range(5):
        with pytest.raises(BrokerError) as refused:
            append(log, produced(2))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        clock.ms += 60_000
        asyncio.run(keep_house(store))
    assert said(caplog) == ["disk full"]
    assert log.directory.online
    disk.space_left = None
    append(log, produced(2))
    for _ in range(5):
        clock.ms += 60_000
        asyncio.run(keep_house(store))
    assert said(caplog) == ["disk has space again"]


def crashed(folder: Path) -> None:
    """Two logs of several segments, and no clean stop: both have to be recovered."""
    store = a_store(folder)
    for topic in ("orders", "other"):
        log = store.create(topic, 0, TOPIC_ID, settings(segment_bytes=100), 0)
        for _ in range(3):
            append(log, produced(1))


def test_a_start_on_a_full_disk_recovers_by_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    crashed(tmp_path)
    caplog.set_level(logging.INFO, "ottla.log")
    disk, clock, opened = FaultyDisk(), StillClock(), list[Log]()
    disk.space_left = 0
    store = a_store(tmp_path, disk=disk, clock=clock)
    store.on_opened = opened.append
    broken = set(store.broken)
    assert broken
    asyncio.run(keep_house(store))
    assert set(store.broken) == broken
    disk.space_left = None
    for _ in range(5):
        clock.ms += 60_000
        asyncio.run(keep_house(store))
    assert not store.broken
    assert {(log.topic, log.index) for log in opened} == broken
    assert {key: log.end for key, log in store.logs.items()} == {("orders", 0): 3, ("other", 0): 3}
    append(store.logs["orders", 0], produced(1))
    assert said(caplog)[-1 - len(broken) :] == ["disk has space again", *["log online"] * len(broken)]


def test_a_broker_serves_what_it_could_open_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BrokerThread(data=tmp_path) as broker, Raw(port_of(broker)) as raw:
        assert create_topic(raw, "orders") == 0
        assert produce(raw, "orders", raw_batch([b"kept"])).error == 0
    load, full = recovery.load, [True]

    def cramped(folder: str, *arguments: object, **options: object) -> object:
        if full and folder.endswith("orders-0"):
            raise OSError(errno.ENOSPC, "No space left on device", folder)
        return load(folder, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "load", cramped)
    monkeypatch.setattr(housekeeping, "TICK_S", 0.01)
    with BrokerThread(data=tmp_path) as broker, Raw(port_of(broker)) as raw:
        assert fetch(raw, "orders", 0).error == ErrorCode.KAFKA_STORAGE_ERROR
        full.clear()
        wait_until(lambda: fetch(raw, "orders", 0).error == 0, "the log")
        assert b"kept" in fetch(raw, "orders", 0).data
        assert produce(raw, "orders", raw_batch([b"more"])).base == 1


def test_a_log_that_still_needs_its_recovery_gets_it_at_the_next_start(tmp_path: Path) -> None:
    """A clean shutdown does not cover a log that was never opened."""
    crashed(tmp_path)
    with (tmp_path / "orders-0" / f"{2:020d}.log").open("ab") as file:
        file.write(b"torn")
    disk = FaultyDisk()
    disk.space_left = 0
    store = a_store(tmp_path, disk=disk)
    disk.space_left = None
    asyncio.run(store.close())
    again = a_store(tmp_path)
    assert {key: log.end for key, log in again.logs.items()} == {("orders", 0): 3, ("other", 0): 3}
    assert again.logs["orders", 0].active.size == (tmp_path / "orders-0" / f"{2:020d}.log").stat().st_size


@pytest.mark.parametrize("renames", [True, False])
def test_deleting_works_and_makes_room(tmp_path: Path, renames: bool) -> None:
    class Cramped(FaultyDisk):
        def rename(self, old: object, new: object) -> None:
            if self.space_left == 0 and not renames:
                raise OSError(errno.ENOSPC, "No space left on device", str(new))
            super().rename(old, new)  # type: ignore[arg-type]

    disk, clock = Cramped(), StillClock()
    store = a_store(tmp_path, disk=disk, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    kept = store.create("kept", 0, TOPIC_ID, settings(segment_bytes=200, retention_ms=1000), 0)
    for _ in range(4):
        append(kept, produced(2))
    disk.space_left = 0
    store.delete(log)
    assert ("orders", 0) not in store.logs
    if not renames:
        disk.space_left = None
        with pytest.raises(BrokerError):  # otherwise the new topic's files would be removed with the old one's
            store.create("orders", 0, NEW_ID, settings(), 0)
        disk.space_left = 0
    for _ in range(9):
        clock.ms += 60_000
        asyncio.run(keep_house(store))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("orders")]
    assert len(list(kept.folder.glob("*.log"))) < 4, "and so does retention"
    disk.space_left = None
    assert store.create("orders", 0, NEW_ID, settings(), 0).end == 0


def test_a_folder_that_somebody_removed_is_one_partition_offline_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StillClock()
    store = a_store(tmp_path, clock=clock)
    gone, stays = (store.create(name, 0, TOPIC_ID, settings(), 0) for name in ("gone", "stays"))
    asyncio.run(keep_house(store))
    for log in (gone, stays):
        append(log, produced(1))
    shutil.rmtree(gone.folder)
    caplog.clear()
    for _ in range(5):
        clock.ms += 5000
        asyncio.run(keep_house(store))
    assert said(caplog) == ["partition offline, its folder is gone"]
    with pytest.raises(BrokerError) as refused:
        append(gone, produced(1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(stays, produced(1))
    assert stays.directory.online
    store.delete(gone)
    assert everything(store.create("gone", 0, NEW_ID, settings(), 0)) == b""
