"""Blocks are reserved ahead of a growing log, and nobody notices: no reader, no stop, no crash, no failed write.

All sizes are a 64th of the real ones. Most tests only note what would be reserved, because the folder of a test may be
in memory. The others reserve it: with native code if this repository is on ext4, otherwise with the same call of the
system, which every other file system of Linux has, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from log.making import NOW_MS, TOPIC_ID, StillClock, a_store, append, everything, keep_house, produced, settings
from log.test_planned_write import CountingDisk, append_sound, framed, logs, planned, state
from waiting import wait_until

from ottla.disk import RealDisk
from ottla.errors import BrokerError
from ottla.log import reservation
from ottla.log import segment as segment_module
from ottla.log.append import append_own, append_run
from ottla.log.planned_write import drop_write, finish_write, write_planned
from ottla.log.replicate import replicate
from ottla.log.truncation import truncate
from ottla.records import batch, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.log.log import Log

GROWN_SIZE = reservation.GROWN_SIZE // 64
RESERVED_SIZE_MAX = reservation.RESERVED_SIZE_MAX // 64
LEFT_MIN = reservation.LEFT_MIN // 64
FREE_MIN = reservation.FREE_MIN
SIZE = 5_000  # of a record
KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
CACHE = Path(__file__).parents[2] / ".pytest_cache"

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="blocks are reserved on Linux only")


class Asked(NamedTuple):
    """A call: where the reservation begins, its size, and the size of the file."""

    position: int
    size: int
    file_size: int


class Reserver:
    """Notes calls and reserves nothing, unless it has a function for that."""

    def __init__(self, reserve: Callable[[int, int, int, int], bool] | None = None) -> None:
        self.asked: list[Asked] = []
        self.succeeds = True
        self._reserve = reserve

    def __call__(self, fd: int, position: int, size: int, free_min: int) -> bool:
        self.asked.append(Asked(position, size, os.fstat(fd).st_size))
        assert free_min == FREE_MIN
        return self.succeeds if self._reserve is None else self._reserve(fd, position, size, 0)


class CutCountingDisk(RealDisk):
    """Its writes are those of the system, so blocks are reserved."""

    def __init__(self) -> None:
        self.cuts: list[int] = []

    def cut(self, fd: int, size: int, /) -> None:
        self.cuts.append(size)
        os.ftruncate(fd, size)


@pytest.fixture(autouse=True)
def reserver(monkeypatch: pytest.MonkeyPatch) -> Reserver:
    for module in (segment_module, reservation):
        monkeypatch.setattr(module, "GROWN_SIZE", GROWN_SIZE)
        monkeypatch.setattr(module, "RESERVED_SIZE_MAX", RESERVED_SIZE_MAX)
        monkeypatch.setattr(module, "LEFT_MIN", LEFT_MIN)
    made = Reserver()
    monkeypatch.setattr(reservation, "block_reserver", lambda: made)
    return made


class Real(NamedTuple):
    """A folder, and what reserves blocks in it."""

    folder: Path
    reserver: Reserver


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Real]:
    crate = native.block_reserver()
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as beside:
        folder = next((one for one in (tmp_path, Path(beside)) if crate is not None and is_ext4(one)), None)

        def reserve(fd: int, position: int, size: int, free_min: int) -> bool:
            """Native code rests for some seconds if the disk was slow."""
            assert crate is not None, "chosen only if it is built"
            return wait_until(lambda: crate(fd, position, size, free_min), "nothing was reserved")

        made = Reserver(allocate if folder is None else reserve)
        monkeypatch.setattr(reservation, "block_reserver", lambda: made)
        yield Real(folder or tmp_path, made)


def is_ext4(folder: Path) -> bool:
    if sys.platform != "linux":
        return False
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return any(one[2] == number and one[one.index("-") + 1] == "ext4" for one in mounts)


def allocate(fd: int, position: int, size: int, _: int) -> bool:
    call = ctypes.CDLL(None).fallocate
    return bool(call(fd, KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(size)) == 0)


def a_log(folder: Path, disk: RealDisk | None = None, **options: object) -> Log:
    return logs(folder, 1, disk, **options)[0]


def singly(log: Log) -> None:
    append_sound(log, produced(size=SIZE))


def in_a_run(log: Log) -> None:
    several = framed([produced(size=SIZE)] * 2)
    data = [several.frame[start:end] for start, end in several.places]
    assert append_run(log, list(zip(data, several.sounds, strict=True)), 0) == 2


def as_planned(log: Log) -> None:
    one = framed([produced(size=SIZE)])
    (write,) = planned([log], one)
    assert write_planned(log.disk, one.frame, [write]) == (1, 0)
    finish_write(log, write, one.sounds[0])


def in_general(log: Log) -> None:
    append(log, produced(size=SIZE))


def as_a_follower(log: Log) -> None:
    data = bytearray(produced(size=SIZE))
    data[:8] = log.end.to_bytes(8)
    replicate(log, memoryview(data), now_ms=NOW_MS)


def as_the_broker(log: Log) -> None:
    append_own(log, [(b"k", b"v" * SIZE)], 0, NOW_MS)


def grow(log: Log, size: int, way: Callable[[Log], None] = singly) -> None:
    while log.active.size < size:
        way(log)


def log_path(log: Log) -> Path:
    return Path(log.active.stem + ".log")


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def check_reserved(log: Log, asked: Asked) -> None:
    """Its blocks are there, but its size is that of the content."""
    assert log_path(log).stat().st_size == log.active.size
    assert allocated(log_path(log)) >= asked.position + asked.size


def check_freed(path: Path) -> None:
    assert allocated(path) < path.stat().st_size + LEFT_MIN


# When, and how much.


@pytest.mark.parametrize("way", [singly, in_a_run, as_planned, in_general, as_a_follower, as_the_broker])
def test_they_double_up_to_the_largest(tmp_path: Path, reserver: Reserver, way: Callable[[Log], None]) -> None:
    log = a_log(tmp_path)
    end = 0  # of what is reserved
    while log.active.size < 4 * RESERVED_SIZE_MAX:
        count = len(reserver.asked)
        way(log)
        size = log.active.size
        wanted = size >= (end - LEFT_MIN if end else GROWN_SIZE)
        assert reserver.asked[count:] == [Asked(size, min(size, RESERVED_SIZE_MAX), size)] * wanted
        if wanted:
            end = sum(reserver.asked[-1][:2])
    sizes = [one.size for one in reserver.asked]
    assert GROWN_SIZE <= sizes[0] < GROWN_SIZE * 2
    assert sizes[-1] == sizes[-2] == sizes[-3] == RESERVED_SIZE_MAX
    assert len(sizes) == 8, "four that grow, and four of the largest size"


def test_many_small_logs_get_nothing(tmp_path: Path, reserver: Reserver) -> None:
    small = logs(tmp_path, 5)
    one = len(produced(size=SIZE))
    for log in small:
        grow(log, GROWN_SIZE - one)
        assert log.active.size < GROWN_SIZE
    assert reserver.asked == []
    singly(small[0])
    assert [asked.position for asked in reserver.asked] == [small[0].active.size]


def test_what_fails_changes_nothing_and_is_tried_much_later(
    tmp_path: Path, reserver: Reserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserver.succeeds = False
    disk = CutCountingDisk()
    log = a_log(tmp_path / "failing", disk)
    one = len(produced(size=SIZE))
    grow(log, GROWN_SIZE + 2 * RESERVED_SIZE_MAX)
    first, second, third = [asked.position for asked in reserver.asked]
    assert GROWN_SIZE <= first < GROWN_SIZE + one
    rest = RESERVED_SIZE_MAX - LEFT_MIN
    assert rest <= second - first < rest + one
    assert rest <= third - second < rest + one
    log.active.seal()
    assert disk.cuts == [], "there is nothing to free"
    monkeypatch.setattr(reservation, "block_reserver", lambda: None)
    other = a_log(tmp_path / "without")
    grow(other, log.active.size)
    other.active.seal()
    assert state(other) == state(log)


def test_a_disk_with_its_own_writes_gets_none(tmp_path: Path, reserver: Reserver) -> None:
    grow(a_log(tmp_path, CountingDisk()), 2 * GROWN_SIZE)
    assert reserver.asked == []


def test_a_preallocated_file_has_its_blocks(tmp_path: Path, reserver: Reserver) -> None:
    log = a_log(tmp_path, preallocate="true", segment_bytes=8 * GROWN_SIZE)
    grow(log, 4 * GROWN_SIZE)
    assert log_path(log).stat().st_size == 8 * GROWN_SIZE
    assert reserver.asked == []


def test_a_log_that_was_stopped_gets_the_next_one(tmp_path: Path, reserver: Reserver) -> None:
    grow(a_log(tmp_path), 3 * GROWN_SIZE)
    reserver.asked.clear()
    log = a_store(tmp_path).logs["orders", 0]
    assert reserver.asked == []
    singly(log)
    assert reserver.asked == [(log.active.size,) * 3]


def test_a_segment_that_stays_in_use_after_a_seal_gets_the_next_one(tmp_path: Path, reserver: Reserver) -> None:
    log = a_log(tmp_path)
    grow(log, 4 * GROWN_SIZE)
    log.active.seal()
    reserver.asked.clear()
    singly(log)
    assert [one.position for one in reserver.asked] == [log.active.size]


def test_a_preallocated_log_gets_none_after_a_cut_either(tmp_path: Path, reserver: Reserver) -> None:
    log = a_log(tmp_path, preallocate="true", segment_bytes=8 * GROWN_SIZE)
    grow(log, 4 * GROWN_SIZE)
    truncate(log, log.end - 3, now_ms=NOW_MS)
    singly(log)
    assert not reserver.asked


def test_no_reservation_goes_beyond_the_segment(tmp_path: Path, reserver: Reserver) -> None:
    log = a_log(tmp_path, segment_bytes=15 * GROWN_SIZE)
    grow(log, 14 * GROWN_SIZE)
    assert sum(reserver.asked[-1][:2]) == 15 * GROWN_SIZE
    count = len(reserver.asked)
    grow(log, 15 * GROWN_SIZE - len(produced(size=SIZE)))
    assert log.active.base == 0
    assert len(reserver.asked) == count, "nothing more is asked for the last bytes of a segment"


# On a file system.


@LINUX
def test_the_file_keeps_its_size_and_loses_the_rest_when_it_is_closed(real: Real) -> None:
    log = a_log(real.folder)
    path = log_path(log)
    grow(log, GROWN_SIZE - len(produced(size=SIZE)))
    check_freed(path)
    for _ in range(50):
        singly(log)
        if log.active.size >= GROWN_SIZE:
            check_reserved(log, real.reserver.asked[-1])
    assert len(real.reserver.asked) > 1
    content = path.read_bytes()
    assert content == everything(log)
    log.active.seal()
    check_freed(path)
    assert path.read_bytes() == content


@LINUX
@pytest.mark.parametrize("end", ["roll", "stop"])
def test_a_closed_segment_takes_no_more_than_its_content(real: Real, end: str) -> None:
    store = a_store(real.folder)
    log = store.create("orders", 0, bytes(range(16)), settings(), 0)
    grow(log, 2 * GROWN_SIZE)
    path = log_path(log)
    check_reserved(log, real.reserver.asked[-1])
    content = path.read_bytes()
    if end == "roll":
        log.roll(NOW_MS)
        assert log_path(log) != path
    else:
        asyncio.run(store.close())
    check_freed(path)
    assert path.read_bytes() == content


@LINUX
@pytest.mark.parametrize("left", [GROWN_SIZE // 2, 2 * GROWN_SIZE])
def test_a_truncated_log_starts_again(real: Real, left: int) -> None:
    log, path = a_log(real.folder), None
    grow(log, 4 * GROWN_SIZE)
    path = log_path(log)
    check_reserved(log, real.reserver.asked[-1])
    one = len(produced(size=SIZE))
    truncate(log, log.end - (log.active.size - left) // one, now_ms=NOW_MS)
    assert left <= log.active.size < left + one
    check_freed(path)
    content = everything(log)
    real.reserver.asked.clear()
    grow(log, GROWN_SIZE - one)
    assert real.reserver.asked == []
    singly(log)
    assert [asked.position for asked in real.reserver.asked] == [log.active.size]
    check_reserved(log, real.reserver.asked[-1])
    assert everything(log).startswith(content)


@LINUX
def test_after_a_failed_write_they_are_reserved_again(real: Real) -> None:
    log = a_log(real.folder)
    grow(log, 2 * GROWN_SIZE)
    content = everything(log)
    real.reserver.asked.clear()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.active.size + 30, limits[1]))
    try:
        with pytest.raises(BrokerError, match="30 of"):
            singly(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log_path(log).read_bytes() == content
    check_freed(log_path(log))
    singly(log)
    check_reserved(log, *real.reserver.asked)


@LINUX
def test_after_a_dropped_write_they_are_reserved_again(real: Real) -> None:
    log = a_log(real.folder)
    grow(log, 2 * GROWN_SIZE)
    content = everything(log)
    real.reserver.asked.clear()
    one = framed([produced(size=SIZE)])
    (write,) = planned([log], one)
    assert write_planned(log.disk, one.frame, [write]) == (1, 0)
    drop_write(log, write)
    assert log_path(log).read_bytes() == content
    check_freed(log_path(log))
    as_planned(log)
    check_reserved(log, *real.reserver.asked)


@LINUX
@pytest.mark.parametrize("torn", [0, 100])
def test_what_a_killed_process_had_reserved_is_freed(real: Real, torn: int) -> None:
    killed = a_log(real.folder)
    grow(killed, 2 * GROWN_SIZE)
    path, content = log_path(killed), everything(killed)
    check_reserved(killed, real.reserver.asked[-1])
    killed_state, count = (killed.start, killed.end), killed.end
    del killed
    with path.open("ab") as file:
        file.write(produced(size=SIZE)[:torn])
    real.reserver.asked.clear()
    assert allocated(path) > path.stat().st_size + LEFT_MIN
    log = a_store(real.folder).logs["orders", 0]
    assert (log.start, log.end) == killed_state
    assert path.read_bytes() == content
    check_freed(path)
    assert append_sound(log, produced(size=SIZE)) == count
    check_reserved(log, *real.reserver.asked)
    assert everything(log)[: len(content)] == content
    assert path.stat().st_size == log.active.size > len(content)


def test_a_killed_process_without_a_reservation_leaves_nothing_to_cut(tmp_path: Path) -> None:
    """A cut would change the time of the file, which counts for retention if its records have none."""
    grow(a_log(tmp_path), GROWN_SIZE // 2)
    disk = CutCountingDisk()
    assert a_store(tmp_path, disk=disk).logs["orders", 0].end > 0
    assert disk.cuts == []


@LINUX
def test_an_idle_log_gives_its_blocks_back(real: Real) -> None:
    """At the first check of retention before which nothing was appended. The file keeps its time, because retention may
    count from it."""
    clock = StillClock()
    store = a_store(real.folder, clock=clock)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)

    def wait() -> None:
        clock.ms += store.config.log_retention_check_interval_ms
        asyncio.run(keep_house(store))

    asyncio.run(keep_house(store))
    grow(log, 2 * GROWN_SIZE)
    for _ in range(2):
        wait()
        check_reserved(log, real.reserver.asked[-1])
        singly(log)
    wait()
    path, content = log_path(log), everything(log)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    check_reserved(log, real.reserver.asked[-1])
    wait()
    check_freed(path)
    assert path.read_bytes() == content
    assert path.stat().st_mtime == 1_600_000_000
    real.reserver.asked.clear()
    singly(log)
    check_reserved(log, *real.reserver.asked)


@LINUX
def test_a_full_disk_gets_all_blocks_back(real: Real) -> None:
    store = a_store(real.folder)
    log, other = (store.create("orders", at, TOPIC_ID, settings(), 0) for at in range(2))
    grow(log, 2 * GROWN_SIZE)
    grow(other, GROWN_SIZE // 2)
    content = everything(log)
    asyncio.run(keep_house(store))
    check_reserved(log, real.reserver.asked[-1])
    log.directory.note_failure(OSError(errno.ENOSPC, "No space left on device"))
    asyncio.run(keep_house(store))
    check_freed(log_path(log))
    assert log_path(log).read_bytes() == content


@LINUX
def test_a_log_that_is_set_aside_keeps_only_its_content(real: Real) -> None:
    store = a_store(real.folder)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    grow(log, 2 * GROWN_SIZE)
    check_reserved(log, real.reserver.asked[-1])
    content = everything(log)
    store.set_aside([log])
    (path,) = real.folder.glob("orders-0.*-stray/*.log")
    check_freed(path)
    assert path.read_bytes() == content


@LINUX
@pytest.mark.parametrize("end", ["roll", "stop", "kill"])
def test_freeing_blocks_keeps_the_time_of_the_file(real: Real, end: str) -> None:
    store = a_store(real.folder)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    grow(log, 2 * GROWN_SIZE)
    path = log_path(log)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    if end == "roll":
        log.roll(NOW_MS)
    elif end == "stop":
        asyncio.run(store.close())
    else:
        del store, log
        a_store(real.folder)
    check_freed(path)
    assert path.stat().st_mtime == 1_600_000_000


# Native code.


@pytest.mark.skipif(sys.platform != "linux" or native.block_reserver() is None, reason="needs the native part")
def test_native_code_reserves_only_where_it_helps(real: Real) -> None:
    reserve = native.block_reserver()
    assert reserve is not None
    if is_ext4(real.folder):
        path = real.folder / "some"
        path.write_bytes(b"content")
        with path.open("rb+") as file:
            for _ in range(2):
                assert not reserve(file.fileno(), 7, 1 << 20, 1 << 62), "less is free"
                check_freed(path)
                wait_until(lambda: reserve(file.fileno(), 7, 1 << 20, 0))
                assert allocated(path) >= 1 << 20
                assert path.read_bytes() == b"content"
                os.ftruncate(file.fileno(), 7)
        with path.open("rb") as file:
            assert not reserve(file.fileno(), 7, 1 << 20, 0), "it may not be written"
    for position, size in ((0, 0), (-1, 100), (100, -1), (0, (1 << 63) - 1)):
        assert not reserve(-1, position, size, 0)
    memory = os.memfd_create("memory")  # a file of tmpfs
    try:
        assert not reserve(memory, 0, 1 << 20, 0)
        assert os.fstat(memory).st_blocks == 0
    finally:
        os.close(memory)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert not reserve(writing, 0, 1 << 20, 0)
    finally:
        os.close(writing)
    assert not reserve(writing, 0, 1 << 20, 0), "it is closed"


def test_a_batch_is_as_large_as_the_tests_think() -> None:
    assert LEFT_MIN // 4 < len(produced(size=SIZE)) < LEFT_MIN // 2
    assert batch.header(produced(size=SIZE)).size == len(produced(size=SIZE))
