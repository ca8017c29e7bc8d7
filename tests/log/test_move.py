"""A partition moves to another directory while it is written to and read; a move that fails changes nothing."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from log.making import (
    NOW_MS,
    TOPIC_ID,
    FaultyDisk,
    a_store,
    append,
    end_transaction,
    everything,
    from_producer,
    in_transaction,
    produced,
    settings,
)

from ottla.errors import BrokerError, ErrorCode
from ottla.log import move as moving
from ottla.log.move import LogMove, MovedPiece, count_bytes
from ottla.log.retention import retain
from ottla.log.truncation import truncate
from ottla.records import batch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.store import LogStore


def begin(folder: Path, disk: FaultyDisk | None = None, **options: object) -> tuple[LogStore, Log]:
    store = a_store([folder / "a", folder / "b"], disk=disk)
    log = store.create("orders", 0, TOPIC_ID, settings(segment_bytes=1000, file_delete_delay_ms=0, **options), 0)
    assert log.folder.parent == folder / "a"
    for at in range(20):
        append(log, produced(3, timestamp=NOW_MS + at), epoch=at // 5)
    append(log, from_producer(0, count=4), epoch=5)
    append(log, in_transaction(0, 9), epoch=5)
    end_transaction(log, commit=False, producer_id=9, epoch=5)
    append(log, in_transaction(0, 10), epoch=5)
    return store, log


def asked(store: LogStore, folder: Path) -> LogMove:
    store.move("orders", 0, str(folder / "b"))
    return store.moves["orders", 0]


def facts(log: Log) -> tuple[object, ...]:
    return (
        log.start,
        log.end,
        everything(log),
        log.epochs.entries,
        sorted(log.producers.active()),
        log.last_stable(log.end),
        log.list_aborted(0, log.end),
        log.offset_for_time(NOW_MS + 7),
        log.topic_id,
    )


def test_the_same_log_lives_in_the_other_directory(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    log.delete_before(2)
    before = facts(log)
    slice_before = log.read(2, 1 << 20, offset_max=log.end)
    assert slice_before is not None
    whole = slice_before.read()
    move = asked(store, tmp_path)
    assert store.usage()[1].futures == {("orders", 0): 0}
    asyncio.run(store.carry_out(move))
    assert log.folder == tmp_path / "b" / "orders-0"
    assert facts(log) == before
    assert store.moves == {}
    assert [len(directory.logs) for directory in store.directories] == [0, 1]
    assert slice_before.read() == whole
    assert append(log, from_producer(4, count=1), epoch=6).base == before[1]
    asyncio.run(store.housekeeping.remove())
    assert not [path for path in (tmp_path / "a").iterdir() if path.is_dir()]
    after = facts(log)
    asyncio.run(store.close())
    reopened = a_store([tmp_path / "a", tmp_path / "b"]).logs["orders", 0]
    assert facts(reopened) == after


def test_what_is_appended_meanwhile_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.store.STEP_SIZE", 200)
    store, log = begin(tmp_path)
    move = asked(store, tmp_path)
    copy, rounds = move.copy, []

    def copy_and_append(pieces: list[MovedPiece]) -> None:
        copy(pieces)
        rounds.append(count_bytes(pieces))
        if len(rounds) < 6:
            append(log, produced(6 - len(rounds), size=100), epoch=6)

    monkeypatch.setattr(move, "copy", copy_and_append)
    asyncio.run(store.carry_out(move))
    assert len(rounds) > 4
    assert log.end == 60 + 4 + 2 + 1 + 2 + 15
    assert log.folder.parent == tmp_path / "b"
    assert [entry.last_offset + 1 for entry in batch.entries(everything(log))][-1] == log.end


def test_large_logs_are_copied_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.store.STEP_SIZE", 500)
    monkeypatch.setattr(moving, "_CHUNK", 64)
    store, log = begin(tmp_path)
    before = facts(log)
    asyncio.run(store.carry_out(asked(store, tmp_path)))
    assert facts(log) == before
    assert log.directory is store.directories[1]


def test_only_small_files_are_copied_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes take 5 MB per GB of log, and what compaction has written so far may be as large as a segment."""
    store, log = begin(tmp_path)
    (log.folder / f"{0:020d}.log.cleaned").write_bytes(b"unfinished")
    before, on_loop, copy = facts(log), [], moving._copy_bytes

    def watched(disk: FaultyDisk, piece: MovedPiece) -> None:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(Path(piece.target).name)
        copy(disk, piece)

    monkeypatch.setattr(moving, "_copy_bytes", watched)
    asyncio.run(store.carry_out(asked(store, tmp_path)))
    assert facts(log) == before
    active = Path(log.active.stem).name
    assert len(log.segments) > 2
    assert {name for name in on_loop if ".index" in name or ".timeindex" in name or ".log" in name} <= {
        f"{active}.log",
        f"{active}.index",
        f"{active}.timeindex",
    }
    assert not list(log.folder.glob("*.cleaned"))
    assert {path.name for path in log.folder.glob("*index")} == {
        f"{Path(segment.stem).name}{suffix}"
        for segment in log.segments
        for suffix in (".index", ".timeindex", *((".txnindex",) if segment.aborts else ()))
    }


def test_a_log_of_many_segments_is_moved_with_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with more segments than the process may open files could not be moved."""
    monkeypatch.setattr(moving, "PIECES_MAX", 2)
    monkeypatch.setattr("ottla.log.store.PIECES_MAX", 2)
    store, log = begin(tmp_path)
    assert len(log.segments) == 3
    move, before, rounds = asked(store, tmp_path), facts(log), []
    copy = move.copy

    def counted(pieces: list[MovedPiece]) -> None:
        rounds.append(len(pieces))
        copy(pieces)

    monkeypatch.setattr(move, "copy", counted)
    asyncio.run(store.carry_out(move))
    assert max(rounds) == 2
    assert facts(log) == before
    assert log.folder.parent == tmp_path / "b"


def test_an_index_that_changes_meanwhile_is_copied_again(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    move = asked(store, tmp_path)
    move.directory.disk.make_folder(move.folder)
    move.copy(move.pieces())
    move.copy_indexes(move.indexes())
    first = Path(log.segments[0].stem + ".index")
    first.write_bytes(b"")
    log.segments[0].reindex()
    rebuilt = first.read_bytes()
    store._switch(move)
    assert (log.folder / first.name).read_bytes() == rebuilt


@pytest.mark.parametrize("what", ["truncate", "retain"])
def test_what_is_cut_off_meanwhile_is_not_brought_back(tmp_path: Path, what: str) -> None:
    store, log = begin(tmp_path)
    move = asked(store, tmp_path)
    move.directory.disk.make_folder(move.folder)
    move.copy(move.pieces())
    if what == "truncate":
        truncate(log, 10, now_ms=NOW_MS)
        append(log, produced(5, size=50), epoch=9)
    else:
        log.delete_before(40)
        retain(log, NOW_MS)
        assert log.segments[0].base > 0
    before = facts(log)
    move.copy(move.pieces())
    store._switch(move)
    assert facts(log) == before
    assert log.folder.parent == tmp_path / "b"
    assert {path.name for path in log.folder.glob("*.log")} == {f"{segment.base:020d}.log" for segment in log.segments}


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_failure_leaves_the_partition_where_it_is(tmp_path: Path, fault: int) -> None:
    disk = FaultyDisk()
    store, log = begin(tmp_path, disk)
    before = facts(log)
    move = asked(store, tmp_path)
    if fault == errno.ENOSPC:
        disk.space_left = 1500
    else:
        disk.broken = fault
    asyncio.run(store.carry_out(move))
    disk.space_left = disk.broken = None
    assert log.folder.parent == tmp_path / "a"
    assert store.moves == {}
    assert store.directories[1].online is (fault == errno.ENOSPC)
    assert facts(log) == before
    append(log, produced(1), epoch=6)
    store.clock.ms += 60_000  # type: ignore[attr-defined]
    asyncio.run(store.housekeeping.remove())
    assert not [path for path in (tmp_path / "b").iterdir() if path.is_dir()]


def test_a_move_can_be_called_off_and_directed_elsewhere(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    move = asked(store, tmp_path)
    store.move("orders", 0, str(tmp_path / "b"))
    assert store.moves["orders", 0] is move, "asking twice is asking once"
    store.move("orders", 0, str(tmp_path / "a"))
    assert store.moves == {}
    asked(store, tmp_path)
    store.delete(log)
    assert store.moves == {}


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    store, _ = begin(tmp_path)
    with pytest.raises(BrokerError) as failure:
        store.move("orders", 0, str(tmp_path / "c"))
    assert failure.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    store.directories[1].fail(OSError(errno.EIO, "broken"))
    with pytest.raises(BrokerError) as failure:
        store.move("orders", 0, str(tmp_path / "b"))
    assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_that_is_yet_to_come_is_created_where_it_is_wanted(tmp_path: Path) -> None:
    store, _ = begin(tmp_path)
    store.move("later", 0, str(tmp_path / "a"))
    assert store.create("later", 0, TOPIC_ID, settings(), 0).folder.parent == tmp_path / "a"


def test_an_unfinished_copy_found_at_start_is_begun_anew(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    before = facts(log)
    move = asked(store, tmp_path)
    move.directory.disk.make_folder(move.folder)
    move.copy(move.pieces()[:1])
    found = a_store([tmp_path / "a", tmp_path / "b"])
    assert not [path for path in (tmp_path / "b").iterdir() if path.is_dir()]
    again = found.logs["orders", 0]
    assert again.end == log.end
    asyncio.run(found.carry_out(found.moves["orders", 0]))
    assert again.folder.parent == tmp_path / "b"
    assert everything(again) == before[2]


@pytest.mark.parametrize("fails", [False, True])
def test_a_flush_that_began_before_the_move_says_nothing_of_the_copy(tmp_path: Path, fails: bool) -> None:
    disk = FaultyDisk()
    store, log = begin(tmp_path, disk)
    planned = log.durability.plan_flush()
    assert planned is not None

    class Late:
        """A disk that is slow, and then may fail."""

        def sync(self, fd: int) -> None:
            asyncio.run(store.carry_out(move))
            if fails:
                raise OSError(errno.EIO, "broken")

        def sync_folder(self, path: str) -> None:
            pass

    move = asked(store, tmp_path)
    late = planned._replace(disk=Late(), files=planned.files[:1], indexes=())  # type: ignore[arg-type]
    asyncio.run(store.flusher.flush(log, late))
    assert log.folder.parent == tmp_path / "b"
    assert log.durability.recovery_point == 0, "nothing of the copy was forced to disk"
    assert store.directories[1].online, "another disk failed"
