"""A clean start reads little and writes nothing: its cost per log, counted in disk operations."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from log.making import a_store, append, produced, settings
from test_broker import create

from ottla import BrokerThread
from ottla.disk import RealDisk

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LOGS = 50
WRITES = ("writev", "cut", "sync", "append", "write", "truncate", "rename", "make_folder", "sync_folder")
READS = ("open", "pread", "read", "stat", "exists", "scan")


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in WRITES or name in READS:
            self.calls[name] += 1
        return super().__getattribute__(name)

    def taken(self, names: tuple[str, ...]) -> int:
        return sum(self.calls[name] for name in names)


def started(folder: Path, *, filled: bool) -> CountingDisk:
    """Stop and start a store with many logs."""
    store = a_store(folder)
    for index in range(LOGS):
        log = store.create("orders", index, bytes([index] * 16), settings(), 0)
        if filled:
            append(log, produced(3))
    asyncio.run(store.close())
    disk = CountingDisk()
    found = a_store(folder, disk=disk)
    for log in found.logs.values():
        log.assign_epoch(7)
    assert len(found.logs) == LOGS
    return disk


def test_a_clean_start_writes_nothing_for_a_log(tmp_path: Path) -> None:
    for filled in (False, True):
        disk = started(tmp_path / str(filled), filled=filled)
        assert disk.taken(WRITES) < LOGS / 2, disk.calls


def test_a_clean_start_reads_a_few_small_files_of_a_log(tmp_path: Path) -> None:
    """For an empty log its folder, epochs and topic id; otherwise also a snapshot, the last timestamps and the tail."""
    assert started(tmp_path / "empty", filled=False).taken(READS) / LOGS < 4
    assert started(tmp_path / "filled", filled=True).taken(READS) / LOGS < 9


def test_a_leader_that_writes_nothing_costs_no_write_at_a_start_nor_at_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start of a broker begins a new leader epoch for each partition that it leads."""
    with BrokerThread(data=tmp_path) as broker:
        create(broker)
    written: list[str] = []
    write = RealDisk.write

    def noted(self: RealDisk, path: Any, data: bytes, *, sync: bool = False) -> None:
        written.append(str(path))
        write(self, path, data, sync=sync)

    monkeypatch.setattr(RealDisk, "write", noted)
    for _ in range(2):
        with BrokerThread(data=tmp_path):
            pass
    assert written, "the checkpoints of the directory are"
    assert not [path for path in written if "/t-" in path]
