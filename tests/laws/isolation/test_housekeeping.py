"""Housekeeping survives every error at every one of its disk calls: the loops keep running, and the work gets done.

A disk that fails its n-th call goes through all calls of retention, flushing, checkpoints, removal, moves and
compaction, for each kind of error. After each fault the logs hold what they held, at once and after a crash.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, append, everything, produced, settings

from ottla.disk import Disk, RealDisk
from ottla.records import batch
from ottla.records.batch import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.log.log import Log
    from ottla.log.store import LogStore

CALLS = [name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if not name.startswith("_")]
ERRORS: dict[str, Callable[[], Exception]] = {
    **{
        name: partial(OSError, getattr(errno, name), os.strerror(getattr(errno, name)))
        for name in ("EMFILE", "ENOSPC", "ENOENT", "EIO")
    },
    "no OSError": lambda: next(OTHERS),
}
OTHERS = itertools.cycle([MemoryError(), RuntimeError("nobody foresaw this")])
TURNS_MAX = 2000


class WalkingDisk(RealDisk):
    """Raises at the n-th call after `arm`, once. fsync is skipped."""

    def __init__(self) -> None:
        self.count = 0
        self.at = -1
        self.error: Callable[[], Exception] = RuntimeError
        self.call = ""
        self._lock = Lock()
        for name in CALLS:
            setattr(self, name, partial(self._pass, name, getattr(self, name)))

    def arm(self, at: int, error: Callable[[], Exception]) -> None:
        self.count, self.at, self.error = 0, at, error

    def _pass(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.count += 1
            if self.count == self.at:
                self.call = f"{name} {arguments}"
                raise self.error()
        if name in ("sync", "sync_folder"):
            return None
        options.pop("sync", None)
        return method(*arguments, **options)


class World:
    """A store with work for every housekeeping loop."""

    def __init__(self, folder: Path, disk: WalkingDisk) -> None:
        self.folders = [folder / "a", folder / "b"]
        self.clock = StillClock()
        self.disk = disk
        broker = {"log.cleaner.backoff.ms": "1"}
        self.store = store = a_store(self.folders, disk=disk, clock=self.clock, broker=broker)
        make = partial(self._make, store)
        self.plain = make("plain", segment_bytes=200, retention_ms=60_000, message_timestamp_after_max_ms=10**13)
        self.compacted = make("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        self.moved = make("moved", flush_ms=1000)
        self.gone = make("gone")
        self.kept = make("kept", segment_bytes=200, flush_ms=1000)
        for log in (self.plain, self.moved, self.gone, self.kept):
            for _ in range(3):
                append(log, produced(2))
        append(self.plain, produced(1, timestamp=NOW_MS + 10**12))
        for at in range(3):
            append(self.compacted, memoryview(batch.build([Record(0, NOW_MS, b"key", b"%d" % at)])))
            self.compacted.roll(NOW_MS)
        self.whole = {log.topic: everything(log) for log in (self.moved, self.kept)}
        store.delete(self.gone)
        self.target = next(one for one in store.directories if one is not self.moved.directory)
        store.move("moved", 0, self.target.path)

    @staticmethod
    def _make(store: LogStore, topic: str, **options: object) -> Log:
        return store.create(topic, 0, TOPIC_ID, settings(file_delete_delay_ms=1000, **options), 0)

    def undone(self) -> list[str]:
        files = [name for top in self.folders for _, folders, own in os.walk(top) for name in (*folders, *own)]
        unfinished = (".deleted", "-delete", "-future", ".cleaned", ".swap")
        works = {
            "retention": self.plain.start == 6,
            "compaction": self.compacted.compacted == 3,
            "move": self.moved.directory is self.target,
            "flush": all(log.durability.recovery_point == log.end for log in (self.moved, self.kept)),
            "removal": not [name for name in files if name.endswith(unfinished)],
            "checkpoints": files.count("replication-offset-checkpoint") == 2 and "cleaner-offset-checkpoint" in files,
        }
        return [work for work, is_done in works.items() if not is_done]

    def check(self, store: LogStore) -> None:
        """Check that nothing is lost, whatever was done already."""
        for topic, whole in self.whole.items():
            assert everything(store.logs[topic, 0]) == whole, f"{topic} after {self.disk.call}"
        assert store.logs["plain", 0].end == 7
        assert values(store.logs["compacted", 0])[-1] == b"2"
        assert ("gone", 0) not in store.logs

    async def look_after(self, *, ends: bool) -> list[asyncio.Task[None]]:
        """Run the loops until everything is done, or for as long as that should take."""
        tasks = [asyncio.create_task(work) for work in (self.store.run(), self.store.cleaner.run())]
        for turn in range(TURNS_MAX):
            await asyncio.sleep(0.0005)
            self.clock.ms += 60_000
            if turn % 10 == 9:
                if not self.undone() or (self.disk.count >= self.disk.at and not ends):
                    break
                if ends and not self.store.moves and self.moved.directory is not self.target:
                    self.store.move("moved", 0, self.target.path)  # abandoned for lack of space
        return tasks


def values(log: Log) -> list[bytes | None]:
    data = everything(log)
    return [one.value for entry in batch.entries(data) for one in batch.iterate(data, entry.position)]


@pytest.mark.parametrize("name", ERRORS)
def test_every_call_may_fail(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.housekeeping.TICK_S", 0.0005)
    monkeypatch.setattr("ottla.log.cleaner.WATCH_S", 0.0005)

    async def story(at: int) -> bool:
        threads = ThreadPoolExecutor(4)
        asyncio.get_running_loop().set_default_executor(threads)
        disk = WalkingDisk()
        world = World(tmp_path / str(at), disk)
        disk.arm(at, ERRORS[name])
        tasks = await world.look_after(ends=name != "EIO")
        triggered, disk.at = disk.count >= at, -1
        told = f"call {at}: {disk.call}"
        assert not any(task.done() for task in tasks), told
        if name != "EIO":
            assert all(directory.online for directory in world.store.directories), told
            assert not world.undone(), told
            world.check(world.store)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        threads.shutdown()  # a removal may be in progress
        opened_again = a_store(world.folders, disk=WalkingDisk())
        world.check(opened_again)
        for log in (*world.store.logs.values(), *opened_again.logs.values()):
            log.drop()  # hundreds of stories must not leave their files open
        return triggered

    async def all_stories() -> int:
        at = 1
        while await story(at):
            at += 1
        return at

    at = asyncio.run(all_stories())
    assert at > 100, "there are that many calls, and each of them has failed once"
