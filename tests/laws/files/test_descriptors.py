"""Logs hold few descriptors: none when idle, one when used, and never more than the process can spare."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from log.making import a_store, append, everything, produced, settings

from ottla.disk import File, RealDisk
from ottla.log import files, index, segment
from ottla.log.files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = 8
LOGS = 40


def descriptors(folder: Path) -> int:
    """How many of this process are files below the folder. Others come and go: clients of other tests have threads."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it is closed by now
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/")
    return count


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """A process that may keep a few log files open."""
    pool = OpenFiles(KEPT)
    for module in (files, index, segment):
        monkeypatch.setattr(module, "OPEN_FILES", pool)
    return pool


@pytest.fixture
def crowded(few: OpenFiles) -> Iterator[OpenFiles]:
    """The same, with all but a handful of the remaining descriptors taken."""
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 5, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_idle_log_holds_no_descriptor_and_a_used_one_a_single_one(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    before = descriptors(tmp_path)
    log = store.create("orders", 0, bytes(16), settings(index_interval_bytes=10), 0)
    assert descriptors(tmp_path) == before
    for _ in range(20):
        append(log, produced(3))
        everything(log)
    assert descriptors(tmp_path) == before + 1


def test_many_logs_share_a_few_descriptors(tmp_path: Path, few: OpenFiles) -> None:
    store = a_store(tmp_path)
    before = descriptors(tmp_path)
    logs = [store.create("orders", at, bytes(16), settings(segment_bytes=300), 0) for at in range(LOGS)]
    for _ in range(5):
        for log in logs:
            append(log, produced(3))
            assert descriptors(tmp_path) <= before + KEPT + 1
    whole = [everything(log) for log in logs]
    assert len({len(data) for data in whole}) == 1
    assert len(few) <= KEPT


def test_bytes_on_their_way_keep_their_file(tmp_path: Path, few: OpenFiles) -> None:
    store = a_store(tmp_path)
    logs = [store.create("orders", at, bytes(16), settings(), 0) for at in range(LOGS)]
    append(logs[0], produced(3))
    found = logs[0].read(0, 1 << 20, offset_max=3)
    assert found is not None
    data = found.read()
    for log in logs[1:]:
        append(log, produced(1))
    assert logs[0].active.opened is None, "the log has let go of it"
    assert found.read() == data


def test_a_log_that_is_used_keeps_its_file_while_others_come_and_go(tmp_path: Path, few: OpenFiles) -> None:
    store = a_store(tmp_path)
    logs = [store.create("orders", at, bytes(16), settings(), 0) for at in range(LOGS)]
    append(logs[0], produced(1))
    file = logs[0].active.opened
    for log in logs[1:]:
        append(logs[0], produced(1))
        append(log, produced(1))
    assert logs[0].active.opened is file


def test_when_descriptors_are_exhausted_log_files_are_closed_first(tmp_path: Path, crowded: OpenFiles) -> None:
    store = a_store(tmp_path)
    logs = [store.create("orders", at, bytes(16), settings(index_interval_bytes=10), 0) for at in range(LOGS)]
    for _ in range(3):
        for log in logs:
            append(log, produced(2))
    assert {log.end for log in logs} == {6}
    assert all(log.fault is None for log in logs)


def test_a_segment_that_is_forgotten_closes_its_file(tmp_path: Path) -> None:
    pool = OpenFiles(KEPT)

    class Holder:
        used = True
        file: File | None

        def let_go(self) -> None:
            self.file = None

    holder = Holder()
    holder.file = pool.open(RealDisk(), str(tmp_path / "a"), create=True)
    pool.keep(holder)
    descriptor = holder.file.fd
    del holder
    assert len(pool) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
