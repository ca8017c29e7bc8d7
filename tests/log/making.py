"""Helpers for the tests of the log: a clock that stands still, batches, a store in a folder."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.log.append import append as leader_append
from ottla.log.store import LogStore
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ottla.config import TopicConfig
    from ottla.disk import Buffer, Disk, File
    from ottla.log.append import Appended
    from ottla.log.log import Log

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class StillClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class FaultyDisk(RealDisk):
    """A disk that fails: every write when `space` is used up, everything when `broken`."""

    def __init__(self) -> None:
        self.space_left: int | None = None
        self.broken: int | None = None
        self.cut_fails = False
        self.synced: list[int] = []

    def _spend(self, size: int) -> int:
        """How much of `size` may be written."""
        if self.broken is not None:
            raise OSError(self.broken, os.strerror(self.broken))
        if self.space_left is None:
            return size
        granted = min(size, self.space_left)
        self.space_left -= granted
        if size and not granted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return granted

    def writev(self, fd: int, parts: Sequence[Buffer], position: int, /) -> int:  # type: ignore[override]
        data = b"".join(parts)
        return os.pwrite(fd, data[: self._spend(len(data))], position)

    def cut(self, fd: int, size: int, /) -> None:
        if self.cut_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size)

    def sync(self, fd: int, /) -> None:  # type: ignore[override]
        self._spend(0)
        self.synced.append(fd)
        os.fsync(fd)

    def write(self, path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
        self._spend(len(data))
        super().write(path, data, sync=sync)

    def append(self, path: str | os.PathLike[str], data: bytes) -> None:
        self._spend(len(data))
        super().append(path, data)

    def open(self, path: str | os.PathLike[str], *, create: bool = False) -> File:
        self._spend(1 if create and not os.path.exists(path) else 0)
        return super().open(path, create=create)


def records(count: int, *, timestamp: int = NOW_MS, size: int = 10, step: int = 0) -> list[batch.Record]:
    return [
        batch.Record(at, timestamp + at * step, b"%d" % at, bytes([65 + at % 26]) * size, ()) for at in range(count)
    ]


def produced(count: int = 1, *, timestamp: int = NOW_MS, size: int = 10, step: int = 0) -> memoryview:
    """A batch as a producer sends it."""
    return memoryview(batch.build(records(count, timestamp=timestamp, size=size, step=step)))


def a_store(
    folder: Path | Sequence[Path],
    *,
    disk: Disk | None = None,
    clock: StillClock | None = None,
    broker: Mapping[str, str] | None = None,
    topic: Mapping[str, str] | None = None,
) -> LogStore:
    """A store, opened."""
    config = load(broker or {})
    folders = [folder] if isinstance(folder, os.PathLike) else list(folder)
    store = LogStore(folders, disk or RealDisk(), clock or StillClock(), config)
    store.open(lambda _: topic_config(config, topic or {}))
    return store


def settings(**options: object) -> TopicConfig:
    """A topic's configuration, options with underscores for dots."""
    return topic_config(load({}), {name.replace("_", "."): str(value) for name, value in options.items()})


def a_log(folder: Path, disk: Disk | None = None, **options: object) -> Log:
    """The log of orders-0 in a store of its own."""
    return a_store(folder, disk=disk).create("orders", 0, TOPIC_ID, settings(**options), 0)


async def keep_house(store: LogStore) -> None:
    """One run of every housekeeping task except compaction."""
    house = store.housekeeping
    for work in (house.retain, house.flush, house.checkpoint, house.move, house.remove, house.look):
        await work()


def append(
    log: Log, data: memoryview, *, epoch: int = 0, now_ms: int = NOW_MS, produce_version: int = 9, client: bool = True
) -> Appended:
    return leader_append(log, data, epoch=epoch, now_ms=now_ms, produce_version=produce_version, client=client)


def from_producer(sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0) -> memoryview:
    return memoryview(
        batch.build(records(count), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


def in_transaction(sequence: int, producer_id: int = 7) -> memoryview:
    return memoryview(
        batch.build(records(2), producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    )


def marker(*, commit: bool, producer_id: int = 7) -> memoryview:
    key, value = b"\0\0" + (b"\0\1" if commit else b"\0\0"), b"\0\0" + b"\0\0\0\0"
    return memoryview(
        batch.build(
            [batch.Record(0, NOW_MS, key, value)],
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def end_transaction(log: Log, *, commit: bool, producer_id: int = 7, epoch: int = 0) -> Appended:
    data = marker(commit=commit, producer_id=producer_id)
    return append(log, data, epoch=epoch, client=False)


def everything(log: Log) -> bytes:
    """All bytes from the start of the log to its end, read segment by segment."""
    parts, offset = [], log.start
    while (found := log.read(offset, 1 << 30, offset_max=log.end)) is not None:
        data = found.read()
        parts.append(data)
        offset = list(batch.entries(data))[-1].last_offset + 1
    return b"".join(parts)
