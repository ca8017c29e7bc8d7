"""Housekeeping looks for logs to flush every second: only at those where a flush can be due, however many exist."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

from log.making import NOW_MS, TOPIC_ID, FaultyDisk, StillClock, a_store, append, produced, settings

from ottla.log.durability import Durability
from ottla.log.truncation import restart

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ottla.log.log import Log
    from ottla.log.store import LogStore

LOGS = 20


def looked_at(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that one round checks."""
    asked: list[int] = []
    flush_due = Durability.flush_due

    def counted(durability: Durability, now_ms: int) -> object:
        asked.append(durability._log.index)
        return flush_due(durability, now_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Durability, "flush_due", counted)
        asyncio.run(store.housekeeping.flush())
    return sorted(asked)


def many(folder: Path, disk: FaultyDisk | None = None, **options: object) -> tuple[LogStore, list[Log]]:
    """A store whose logs have unflushed records and no flush due, after the first check of each."""
    store = a_store(folder, disk=disk, clock=StillClock())
    logs = [store.create("orders", index, TOPIC_ID, settings(**options), 0) for index in range(LOGS)]
    for log in logs:
        append(log, produced(2))
    asyncio.run(store.housekeeping.flush())
    return store, logs


def test_logs_that_nobody_wants_on_disk_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path)
    assert looked_at(store, monkeypatch) == []
    append(logs[3], produced(2))
    assert looked_at(store, monkeypatch) == []


def test_a_log_that_has_rolled_is_flushed_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path, segment_bytes=200)
    append(logs[3], produced(5))
    assert len(logs[3].segments) == 2
    assert looked_at(store, monkeypatch) == [3]
    assert logs[3].durability.recovery_point == 2
    looked_at(store, monkeypatch)
    assert looked_at(store, monkeypatch) == []


def test_a_debt_of_flush_messages_is_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path, flush_messages=4)
    append(logs[5], produced(2))
    assert looked_at(store, monkeypatch) == [5]
    assert logs[5].durability.recovery_point == 4


def test_an_interval_that_comes_later_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path)
    logs[7].reconfigure(settings(flush_ms=1000))
    store.clock.ms += 1000  # type: ignore[attr-defined]
    assert looked_at(store, monkeypatch) == [7]
    assert logs[7].durability.recovery_point == 2
    append(logs[7], produced(1))
    store.clock.ms += 1000  # type: ignore[attr-defined]
    assert looked_at(store, monkeypatch) == [7]
    assert logs[7].durability.recovery_point == 3


def test_what_a_full_disk_refused_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path)
    logs[9].durability.fail_sync(OSError(errno.ENOSPC, "full"))
    assert looked_at(store, monkeypatch) == [9]
    assert logs[9].durability.recovery_point == 2


def test_a_log_that_is_gone_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, logs = many(tmp_path, flush_ms=1000)
    store.delete(logs[0])
    assert looked_at(store, monkeypatch) == list(range(1, LOGS))


def test_a_moved_log_is_flushed_in_its_new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    store = a_store(folders, clock=StillClock())
    log = store.create("orders", 0, TOPIC_ID, settings(), 0, directory=store.directories[0])
    append(log, produced(2))
    asyncio.run(store.housekeeping.flush())
    store.move("orders", 0, str(folders[1]))
    asyncio.run(store.housekeeping.move())
    assert log.directory is store.directories[1]
    assert looked_at(store, monkeypatch) == [0]
    assert log.durability.recovery_point == 2
    looked_at(store, monkeypatch)
    assert looked_at(store, monkeypatch) == []


def test_a_log_that_began_anew_ahead_of_its_recovery_point_has_nothing_closed(tmp_path: Path) -> None:
    log = many(tmp_path)[1][0]
    restart(log, 500, now_ms=NOW_MS)
    assert log.durability.recovery_point < log.active.base
    assert log.durability.flush_due(NOW_MS) is None
