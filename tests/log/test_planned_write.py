"""Planned writes store what single appends store, and a write that fails concerns its own log alone."""

from __future__ import annotations

import errno
import os
import random
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from log.making import NOW_MS, TOPIC_ID, FaultyDisk, a_store, everything, produced, settings

from ottla.disk import RealDisk
from ottla.errors import BrokerError, ErrorCode
from ottla.log import planned_write
from ottla.log.append import append_sound as leader_append_sound
from ottla.log.planned_write import drop_write, finish_write, plan_write, undo_write, write_planned, write_singly
from ottla.records import batch, native

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.disk import Buffer, Disk
    from ottla.log.log import Log
    from ottla.log.planned_write import PlannedWrite
    from ottla.records.native import Sound

BUILT = pytest.mark.skipif(native.batch_writer() is None, reason="the native part is not built")
BOTH = pytest.mark.parametrize("way", [pytest.param(write_planned, marks=BUILT), write_singly])
SHARED_SIZE_MIN = 256 << 10  # so many bytes are shared by two threads: see native/src/planned_write.rs


class CountingDisk(RealDisk):
    def __init__(self) -> None:
        self.writes: list[tuple[int, int]] = []

    def writev(self, fd: int, parts: Sequence[Buffer], position: int, /) -> int:  # type: ignore[override]
        self.writes.append((position, sum(map(len, parts))))
        return os.pwritev(fd, parts, position)


class UncutDisk(RealDisk):
    """Its writes are those of the system, so native code makes them. Its cuts fail on demand."""

    cut_fails = False

    def cut(self, fd: int, size: int, /) -> None:
        if self.cut_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size)


class Batches(NamedTuple):
    """Batches in one frame, as a request carries them."""

    frame: memoryview
    places: list[tuple[int, int]]
    sounds: list[Sound]


def framed(batches: Sequence[bytes | memoryview]) -> Batches:
    frame, places, sounds = bytearray(b"before"), [], []
    for one in batches:
        head = batch.header(memoryview(one))
        places.append((len(frame), len(frame) + len(one)))
        sounds.append((head.last_offset_delta, head.max_timestamp, head.producer_id))
        frame += one
    return Batches(memoryview(bytes(frame + b"after")), places, sounds)


def logs(folder: Path, count: int, disk: Disk | None = None, **options: object) -> list[Log]:
    """Logs in use: their files are open, and it is known when they will be rolled."""
    store = a_store(folder, disk=disk)
    made = [store.create("orders", at, TOPIC_ID, settings(**options), 0) for at in range(count)]
    for log in made * 2:
        append_sound(log, produced())
    return made


def append_sound(log: Log, data: memoryview, epoch: int = 0) -> int:
    head = batch.header(data)
    return leader_append_sound(log, data, (head.last_offset_delta, head.max_timestamp, head.producer_id), epoch, NOW_MS)


def planned(targets: Sequence[Log], batches: Batches, epoch: int = 0) -> list[PlannedWrite]:
    writes = [
        plan_write(log, batches.frame, *place, sound, epoch)
        for log, place, sound in zip(targets, batches.places, batches.sounds, strict=True)
    ]
    return [write for write in writes if write is not None]


def state(log: Log) -> tuple[object, ...]:
    active, durability = log.active, log.durability
    tail = list(active._tail_last), list(active._tail_position)
    index = active.offsets.last_offset, active.offsets.last_position, active.times.last
    owed = durability.owed, durability.held
    return everything(log), log.end, log.epochs.latest, owed, active.size, active.end, tail, index


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_it_does_what_single_appends_do(tmp_path: Path, way: type[object], seed: int) -> None:
    chance = random.Random(seed)
    options = {"flush_messages": 7, "index_interval_bytes": 300}
    single, together = logs(tmp_path / "single", 5, **options), logs(tmp_path / "together", 5, **options)
    for turn in range(30):
        made = [produced(chance.randint(1, 4), timestamp=NOW_MS + chance.randint(-9, 99), size=chance.randint(1, 300))
                for _ in single]  # fmt: skip
        for log, one in zip(single, made, strict=True):
            append_sound(log, one, epoch=turn // 10)
        batches = framed(made)
        writes = planned(together, batches, epoch=turn // 10)
        assert way(RealDisk(), batches.frame, writes) == (5, 0)
        for log, write, sound in zip(together, writes, batches.sounds, strict=True):
            assert finish_write(log, write, sound) == log.end - 1
        assert [state(log) for log in single] == [state(log) for log in together]


def test_sequences_of_producers_go_on(tmp_path: Path) -> None:
    (log,) = logs(tmp_path, 1)

    def numbered(sequence: int) -> Batches:
        record = batch.Record(0, NOW_MS, None, b"v", ())
        return framed([batch.build([record], producer_id=7, producer_epoch=0, base_sequence=sequence)])

    for sequence in range(3):
        one = numbered(sequence)
        (write,) = planned([log], one)
        assert write_planned(log.disk, one.frame, [write]) == (1, 0)
        finish_write(log, write, one.sounds[0])
        assert not planned([log], one), "a retry is not written again"
    assert not planned([log], numbered(9)), "a gap is for the full path to refuse"
    assert planned([log], numbered(3))


def test_a_batch_that_needs_more_is_not_aimed(tmp_path: Path) -> None:
    one = framed([produced(size=300)])
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(segment_bytes=1100, segment_ms=1000), 0)
    assert not planned([log], one), "the log is empty"
    append_sound(log, produced())
    assert not planned([log], one), "when it is to be rolled is not known yet"
    append_sound(log, produced())
    assert planned([log], one)
    late = framed([produced(timestamp=NOW_MS + 5000)])
    assert not planned([log], late), "it belongs in a new segment by its time"
    log.active.let_go()
    assert not planned([log], one), "the file is closed"
    append_sound(log, produced(size=300))
    log.durability.owes_cut = True
    assert not planned([log], one), "a truncation must be on disk first"
    log.durability.owes_cut, log.fault = False, "gone"
    assert not planned([log], one), "the log is offline"
    log.fault = None
    assert planned([log], one)
    append_sound(log, produced(size=300))
    assert not planned([log], one), "the segment is full"


@BUILT
@pytest.mark.parametrize("fails", [0, 1, 3])
def test_a_disk_with_its_own_writes_gets_every_one(tmp_path: Path, fails: int) -> None:
    disk = CountingDisk()
    targets, batches = logs(tmp_path, 4, disk), framed([produced(size=50 * at) for at in range(1, 5)])
    writes = planned(targets, batches)
    disk.writes.clear()
    writes[fails] = (-1, *writes[fails][1:])
    count, error = write_planned(disk, batches.frame, writes)
    assert (count, getattr(error, "errno", None)) == (fails, errno.EBADF)
    assert disk.writes == [(write[1], write[5] - write[4]) for write in writes[: fails + 1]]


@BOTH
def test_the_first_failure_ends_it(tmp_path: Path, way: type[object]) -> None:
    targets, batches = logs(tmp_path, 4), framed([produced(size=100)] * 4)
    sizes = [log.active.size for log in targets]
    writes = planned(targets, batches)
    full = os.open("/dev/full", os.O_RDWR)
    try:
        for fd, code in ((-1, errno.EBADF), (full, errno.ENOSPC)):
            writes[2] = (fd, *writes[2][1:])
            count, error = way(RealDisk(), batches.frame, writes)  # type: ignore[call-arg, misc]
            assert (count, error.errno, error.strerror) == (2, code, os.strerror(code))
    finally:
        os.close(full)
    written = [os.path.getsize(log.active.stem + ".log") for log in targets]
    more = len(produced(size=100))
    assert written == [sizes[0] + more, sizes[1] + more, sizes[2], sizes[3]]


@BOTH
def test_a_part_of_a_batch_is_cut_off_again(tmp_path: Path, way: type[object]) -> None:
    targets, batches = logs(tmp_path, 3), framed([produced(size=200)] * 3)
    append_sound(targets[1], produced(size=300))
    before, writes = [state(log) for log in targets], planned(targets, batches)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (targets[1].active.size + 30, limits[1]))
    try:
        count, result = way(RealDisk(), batches.frame, writes)  # type: ignore[misc]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (count, result) == (1, 30)
    finish_write(targets[0], writes[0], batches.sounds[0])
    error = undo_write(targets[1], writes[1], result)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "30 of" in str(error)
    assert targets[1].directory.full
    assert [state(log) for log in targets[1:]] == before[1:]
    assert os.path.getsize(targets[1].active.stem + ".log") == targets[1].active.size
    assert append_sound(targets[1], produced()) == 3, "it is as if nothing had happened"


def test_a_broken_disk_takes_its_directory_offline(tmp_path: Path) -> None:
    disk = FaultyDisk()
    targets, batches = logs(tmp_path, 2, disk), framed([produced()] * 2)
    writes = planned(targets, batches)
    disk.broken = errno.EIO
    count, result = planned_write.write_planned(disk, batches.frame, writes)
    assert count == 0
    undo_write(targets[0], writes[0], result)
    with pytest.raises(BrokerError, match="offline"):
        append_sound(targets[1], produced())
    assert not planned(targets, batches)


def file_of(log: Log) -> bytes:
    """The whole file, with what may follow the last batch."""
    with open(log.active.stem + ".log", "rb") as file:
        return file.read()


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_two_threads_do_what_single_appends_do(tmp_path: Path, way: type[object], seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(2, 9)
    options = {"flush_messages": 7, "index_interval_bytes": 30_000}
    single, together = logs(tmp_path / "single", count, **options), logs(tmp_path / "together", count, **options)
    for turn in range(15):
        made = [produced(size=chance.randint(1, 20_000)) for _ in single]
        made[chance.randrange(count)] = produced(chance.randint(1, 4), size=SHARED_SIZE_MIN)
        for log, one in zip(single, made, strict=True):
            append_sound(log, one, epoch=turn // 10)
        batches = framed(made)
        writes = planned(together, batches, epoch=turn // 10)
        assert way(RealDisk(), batches.frame, writes) == (count, 0)
        for log, write, sound in zip(together, writes, batches.sounds, strict=True):
            finish_write(log, write, sound)
        assert [state(log) for log in single] == [state(log) for log in together]
    assert list(map(file_of, single)) == list(map(file_of, together))


@contextmanager
def failing(kind: str, writes: list[PlannedWrite], fails: Sequence[int]) -> Iterator[None]:
    """Let these writes fail. "short": the first of them writes 30 bytes, and those that end below write everything."""
    full, limits = os.open("/dev/full", os.O_RDWR), resource.getrlimit(resource.RLIMIT_FSIZE)
    if kind == "short":
        resource.setrlimit(resource.RLIMIT_FSIZE, (writes[fails[0]][1] + 30, limits[1]))
    else:
        for at in fails:
            writes[at] = (full if kind == "full" else -1, *writes[at][1:])
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.close(full)


RESULTS = {"bad": errno.EBADF, "full": errno.ENOSPC, "short": 30}


@BOTH
@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("first", range(6))
def test_two_threads_report_the_first_failure(tmp_path: Path, way: type[object], kind: str, first: int) -> None:
    """Which thread has written what by then is chance, so this is tried several times."""
    size, targets = SHARED_SIZE_MIN // 4, logs(tmp_path, 6)
    for turn in range(12):
        fails = [first] if kind == "short" else [first, *range(first + 1, 6)[turn % 4 :: 2]]
        others = max(log.active.size for log in targets)
        while kind == "short" and targets[first].active.size < others + 2 * size:
            append_sound(targets[first], produced(size=size))
        batches = framed([produced(size=size + at) for at in range(6)])
        states, files, writes = list(map(state, targets)), list(map(file_of, targets)), planned(targets, batches)
        with failing(kind, writes, fails):
            count, result = way(RealDisk(), batches.frame, writes)  # type: ignore[misc]
        assert (count, getattr(result, "errno", result)) == (first, RESULTS[kind])
        for log, write, sound in zip(targets[:first], writes, batches.sounds, strict=False):
            finish_write(log, write, sound)
        assert undo_write(targets[first], writes[first], result).code == ErrorCode.KAFKA_STORAGE_ERROR
        for log, write in zip(targets[first + 1 :], writes[first + 1 :], strict=True):
            drop_write(log, write)
        assert list(map(state, targets[first:])) == states[first:]
        assert list(map(file_of, targets[first:])) == files[first:]
        for at, log in enumerate(targets):
            end = log.end
            assert end == states[at][1] if at >= first else end - 1 == states[at][1]
            assert append_sound(log, produced()) == end
            assert file_of(log) == everything(log)


def test_what_was_written_after_a_failure_is_cut_off(tmp_path: Path) -> None:
    targets, batches = logs(tmp_path, 2), framed([produced(size=SHARED_SIZE_MIN)] * 2)
    states, files, writes = list(map(state, targets)), list(map(file_of, targets)), planned(targets, batches)
    assert write_singly(RealDisk(), batches.frame, writes) == (2, 0)
    assert undo_write(targets[0], writes[0], 30).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert file_of(targets[1]) != files[1]
    drop_write(targets[1], writes[1])
    drop_write(targets[1], writes[1])
    assert (list(map(state, targets)), list(map(file_of, targets))) == (states, files)
    smaller = framed([produced()] * 2)
    writes = planned(targets, smaller)
    assert write_planned(RealDisk(), smaller.frame, writes) == (2, 0)
    for log, write, sound in zip(targets, writes, smaller.sounds, strict=True):
        finish_write(log, write, sound)
        assert file_of(log) == everything(log)


@BOTH
def test_what_cannot_be_cut_off_takes_its_directory_offline(tmp_path: Path, way: type[object]) -> None:
    disk = UncutDisk()
    targets, batches = logs(tmp_path, 3, disk), framed([produced(size=SHARED_SIZE_MIN)] * 3)
    writes = planned(targets, batches)
    with failing("bad", writes, [1]):
        count, result = way(disk, batches.frame, writes)  # type: ignore[misc]
    assert count == 1
    finish_write(targets[0], writes[0], batches.sounds[0])
    undo_write(targets[1], writes[1], result)
    assert targets[2].directory.online, "a bad descriptor says nothing about the disk"
    disk.cut_fails = True
    write_singly(disk, batches.frame, writes[2:])
    drop_write(targets[2], writes[2])
    assert not targets[2].directory.online
    for log in targets:
        with pytest.raises(BrokerError, match="offline"):
            append_sound(log, produced())
    assert not planned(targets, batches)
