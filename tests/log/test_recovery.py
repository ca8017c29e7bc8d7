"""After any stop the log opens, ends at the last complete valid batch, and all derived state is as before."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.making import (
    NOW_MS,
    TOPIC_ID,
    StillClock,
    a_store,
    append,
    end_transaction,
    everything,
    from_producer,
    in_transaction,
    produced,
    records,
)

from ottla.config import load, topic_config
from ottla.disk import RealDisk
from ottla.log.checkpoints import write_offsets
from ottla.log.store import LogStore
from ottla.records import batch
from ottla.records.legacy import build as build_legacy
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.log.log import Log

OPTIONS = {"segment.bytes": "1000", "index.interval.bytes": "150"}
NAME = "00000000000000000000"


def begin(folder: Path, **options: str) -> tuple[LogStore, Log]:
    wanted = {**OPTIONS, **{name.replace("_", "."): value for name, value in options.items()}}
    store = a_store(folder, topic=wanted)
    return store, store.create("orders", 0, TOPIC_ID, topic_config(load({}), wanted), 0)


def again(folder: Path) -> Log:
    """The log as another process finds it after a crash of the first."""
    return a_store(folder, topic=OPTIONS).logs["orders", 0]


def contents(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in suffixes}


def varied(log: Log) -> None:
    """Producers, transactions, epochs, times that jump: something for each kind of derived state."""
    for at in range(12):
        append(log, produced(at % 3 + 1, size=at * 7, timestamp=NOW_MS + (at * 37) % 11), epoch=at // 4)
        append(log, from_producer(at, producer_id=100), epoch=at // 4)
    append(log, in_transaction(0, 200), epoch=3)
    append(log, in_transaction(0, 300), epoch=3)
    append(log, in_transaction(0, 400), epoch=3)
    end_transaction(log, commit=False, producer_id=200, epoch=3)
    end_transaction(log, commit=True, producer_id=300, epoch=3)
    append(log, produced(2), epoch=3)


def test_a_crash_loses_nothing_that_the_system_has(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    varied(log)
    found = again(tmp_path)
    assert (found.start, found.end) == (log.start, log.end)
    assert everything(found) == everything(log)
    assert found.epochs.entries == log.epochs.entries
    assert sorted(found.producers.active()) == sorted(log.producers.active())
    assert found.last_stable(found.end) == log.last_stable(log.end) < log.end
    assert (
        found.list_aborted(0, found.end)
        == log.list_aborted(0, log.end)
        == [(200, found.list_aborted(0, found.end)[0][1])]
    )
    assert append(found, from_producer(12, producer_id=100), epoch=4).base == log.end


def test_what_is_rebuilt_is_what_a_clean_stop_leaves(tmp_path: Path) -> None:
    """Byte for byte: indexes, aborted transactions, epochs, producer snapshots."""
    store, log = begin(tmp_path / "clean")
    varied(log)
    shutil.copytree(tmp_path / "clean", tmp_path / "crashed")
    asyncio.run(store.close())
    store = a_store(tmp_path / "crashed", topic=OPTIONS)
    asyncio.run(store.close())
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "", ".metadata")
    clean = contents(tmp_path / "clean" / "orders-0", *suffixes)
    assert len(clean) > 12
    assert contents(tmp_path / "crashed" / "orders-0", *suffixes) == clean


def test_a_torn_tail_is_cut_wherever_it_is_torn(tmp_path: Path) -> None:
    """The last write may have reached the disk up to any byte."""
    _, log = begin(tmp_path / "log")
    for at in range(3):
        append(log, from_producer(at * 2, count=2))
    path = log.folder / f"{NAME}.log"
    whole, one = path.read_bytes(), log.size // 3
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = again(tmp_path / "log")
        kept = size // one
        assert found.end == kept * 2
        assert path.stat().st_size == kept * one
        assert everything(found) == whole[: kept * one]
        assert [producer.last_sequence for producer in found.producers.active()] == [kept * 2 - 1] * bool(kept)


def test_a_flipped_bit_ends_the_log_before_its_batch(tmp_path: Path) -> None:
    """Wherever the checksum covers it. It does not cover offset and epoch; there the offsets must still increase."""
    _, log = begin(tmp_path / "log")
    for _ in range(3):
        append(log, produced(2))
    path = log.folder / f"{NAME}.log"
    whole, one = path.read_bytes(), log.size // 3
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x04]) + whole[at + 1 :])
        found = again(tmp_path / "log")
        data = everything(found)
        entries = list(batch.entries(data))
        assert all(batch.crc_ok(data, entry.position, batch.header(data, entry.position)) for entry in entries)
        if at % one < 8:
            ends = [0, *(entry.last_offset + 1 for entry in entries)]
            assert all(entry.base_offset >= end for entry, end in zip(entries, ends, strict=False))
        elif at % one < 12 or at % one >= 16:
            assert found.end == at // one * 2
        else:
            assert found.end == 6


@pytest.mark.parametrize("junk", [b"\0" * 5000, b"\xff" * 100, bytes(range(256)) * 3])
def test_junk_behind_the_last_batch_is_cut(tmp_path: Path, junk: bytes) -> None:
    """A file system leaves zeros in blocks that were allocated but not written."""
    _, log = begin(tmp_path)
    append(log, produced(2))
    path = log.folder / f"{NAME}.log"
    whole = path.read_bytes()
    path.write_bytes(whole + junk)
    assert everything(again(tmp_path)) == whole
    assert path.read_bytes() == whole


@given(junk=st.binary(max_size=300), at=st.integers(0, 400))
def test_no_bytes_in_the_log_stop_it_from_opening(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("recovery")
    _, log = begin(folder)
    for _ in range(4):
        append(log, produced(2))
    path = log.folder / f"{NAME}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    found = again(folder)
    assert whole.startswith(everything(found)) or found.size <= len(whole) + len(junk)
    assert append(found, produced(1)).base == found.end - 1


@pytest.mark.parametrize("text", [None, "", "0\n1\n0"], ids=["missing", "empty", "torn"])
def test_lost_epochs_are_gathered_from_all_segments_also_if_only_some_are_rebuilt(
    tmp_path: Path, text: str | None
) -> None:
    """A follower would cut off the epochs in between, which its leader does not know."""
    store, log = begin(tmp_path)
    varied(log)
    entries = list(log.epochs.entries)
    assert len(log.segments) >= 3 <= len(entries)
    log.durability.flush(NOW_MS)
    store.directories[0].ledger.write("recovery-point-offset-checkpoint", [log])
    (log.folder / f"{NAME}.timeindex").unlink()  # so that the first segment is rebuilt
    path = log.folder / "leader-epoch-checkpoint"
    path.unlink() if text is None else path.write_text(text)
    assert again(tmp_path).epochs.entries == entries


def test_segments_behind_a_broken_one_are_dropped(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    varied(log)
    assert len(log.segments) >= 3
    second = log.segments[1]
    path = log.folder / f"{second.base:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = again(tmp_path)
    assert [segment.base for segment in found.segments] == [0, second.base]
    assert second.base < found.end < log.segments[2].base
    assert [path.name[:20] for path in sorted(log.folder.glob("*.log"))] == [NAME, f"{second.base:020d}"]
    assert max(found.producers.snapshots, default=0) <= found.end


@pytest.mark.parametrize("replicated", [True, False])
def test_a_segment_that_was_lost_whole_takes_the_later_ones_along_where_there_are_replicas(
    tmp_path: Path, replicated: bool
) -> None:
    """Nothing fills a gap in the middle. Without replicas, later segments are kept: better than nothing."""
    _, log = begin(tmp_path)
    for _ in range(40):
        append(log, produced(1, size=50))
    assert len(log.segments) > 3
    lost, end = log.segments[-2], log.end
    (tmp_path / "orders-0" / f"{lost.base:020d}.log").write_bytes(b"")
    store = LogStore([tmp_path], RealDisk(), StillClock(), load({}))
    store.open(lambda _: topic_config(load({}), OPTIONS), replicated=replicated)
    assert store.logs["orders", 0].end == (lost.base if replicated else end)


def test_below_the_recovery_point_nothing_is_read(tmp_path: Path) -> None:
    """A bad bit there was not caused by a crash, and reading terabytes at every start would be worse."""
    _, log = begin(tmp_path)
    varied(log)
    flush = log.durability.plan_flush(closed_only=True)
    assert flush is not None
    write_offsets(RealDisk(), tmp_path / "recovery-point-offset-checkpoint", {("orders", 0): flush.end})
    path = log.folder / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = again(tmp_path)
    assert (found.end, found.durability.recovery_point) == (log.end, flush.end)
    assert sorted(found.producers.active()) == sorted(log.producers.active())


def test_a_clean_stop_is_believed(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    varied(log)
    expected = (log.end, log.epochs.entries, sorted(log.producers.active()))
    asyncio.run(store.close())
    path = log.folder / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    found = again(tmp_path)
    assert (found.end, found.epochs.entries, sorted(found.producers.active())) == expected
    assert found.durability.recovery_point == found.end


@pytest.mark.parametrize("clean", [True, False])
def test_a_bad_bit_beside_a_missing_index_leaves_the_later_segments(tmp_path: Path, clean: bool) -> None:
    """All of them were on disk. Only a crash says that what follows may be wrong. Apache Kafka keeps them, too."""
    store, log = begin(tmp_path)
    varied(log)
    end, later, producers = log.end, log.segments[1:], sorted(log.producers.active())
    asyncio.run(store.close())
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    path = log.folder / f"{NAME}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    path.with_suffix(".index").unlink()
    found = again(tmp_path)
    assert found.end == end
    assert [segment.base for segment in found.segments[1:]] == [segment.base for segment in later]
    assert sorted(found.producers.active()) == producers
    read = found.read(later[0].base, 1 << 20, offset_max=end)
    assert read is not None
    assert batch.header(read.read()).base_offset == later[0].base


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_files_are_made_again(tmp_path: Path, suffix: str, clean: bool) -> None:
    store, log = begin(tmp_path)
    varied(log)
    end, producers, aborted = log.end, sorted(log.producers.active()), log.list_aborted(0, log.end)
    assert aborted
    asyncio.run(store.close())
    whole = contents(log.folder, ".index", ".timeindex", ".txnindex")
    for path in log.folder.glob(f"*{suffix}"):
        path.unlink()
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    found = again(tmp_path)
    assert found.end == end
    assert found.list_aborted(0, end) == aborted
    assert sorted(found.producers.active()) == producers
    assert contents(log.folder, ".index", ".timeindex", ".txnindex") == whole


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: b"\0" * 4096, lambda data: b"\xff" * len(data)]
)
def test_broken_index_files_are_made_again_after_a_clean_stop(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    store, log = begin(tmp_path)
    varied(log)
    asyncio.run(store.close())
    whole = contents(log.folder, ".index", ".timeindex")
    for path in log.folder.glob(f"*{suffix}"):
        path.write_bytes(damage(path.read_bytes()))
    found = again(tmp_path)
    offset = 0
    while read := found.read(offset, 1, offset_max=found.end):
        offset = batch.header(read.read()).last_offset + 1
    assert offset == found.end
    located = found.offset_for_time(NOW_MS)
    assert located is not None
    assert located.offset == 0
    for segment in found.segments:
        segment.largest()
    assert contents(log.folder, ".index", ".timeindex") == whole


def test_an_index_that_has_no_entry_is_a_file_all_the_same(tmp_path: Path) -> None:
    """Apache Kafka's tools look for it."""
    _, log = begin(tmp_path)
    append(log, produced(1))
    index = log.folder / f"{NAME}.index"
    index.unlink()
    again(tmp_path)
    assert index.read_bytes() == b""


def test_an_index_without_a_log_is_removed(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    append(log, produced(2))
    for suffix in (".index", ".timeindex", ".txnindex"):
        (log.folder / f"00000000000000000777{suffix}").write_bytes(b"")
    found = again(tmp_path)
    assert not list(log.folder.glob("*777*"))
    assert found.end == 2


def test_leftovers_of_deletion_and_compaction_are_removed(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    append(log, produced(2))
    for name in (f"{NAME}.log.deleted", f"{NAME}.index.cleaned", f"{NAME}.log.cleaned", "leader-epoch-checkpoint.tmp"):
        (log.folder / name).write_bytes(b"leftover")
    (log.folder / "00000000000000000001.log.swap").write_bytes(b"behind what was being cleaned")
    before = log.end
    found = again(tmp_path)
    assert found.end == before
    assert sorted(path.name for path in log.folder.iterdir()) == sorted(
        [f"{NAME}.log", f"{NAME}.index", f"{NAME}.timeindex", "leader-epoch-checkpoint", "partition.metadata"]
    )


def test_a_finished_swap_replaces_what_it_covers(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    varied(log)
    first, second, third = log.segments[:3]
    compacted = batch.build([batch.Record(third.base - 1, NOW_MS, b"key", b"last value")], leader_epoch=0)
    (log.folder / f"{NAME}.log.swap").write_bytes(compacted)
    (log.folder / f"{NAME}.index.swap").write_bytes(b"")
    (log.folder / f"{NAME}.timeindex.swap").write_bytes(b"")
    rest = everything(log)[first.size + second.size :]
    found = again(tmp_path)
    assert [segment.base for segment in found.segments] == [0, *[segment.base for segment in log.segments[2:]]]
    assert everything(found) == compacted + rest
    assert not list(log.folder.glob("*.swap"))


@pytest.mark.parametrize("content", [b"", b"0\n1\n", b"junk"])
def test_epochs_are_gathered_from_the_batches(tmp_path: Path, content: bytes) -> None:
    _, log = begin(tmp_path)
    varied(log)
    (log.folder / "leader-epoch-checkpoint").write_bytes(content)
    assert again(tmp_path).epochs.entries == log.epochs.entries


def test_epochs_past_the_end_are_forgotten(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    append(log, produced(2), epoch=1)
    log.assign_epoch(9)
    path = log.folder / f"{NAME}.log"
    path.write_bytes(path.read_bytes()[:-1])
    assert again(tmp_path).epochs.entries == []


def test_the_start_survives_and_wins_over_files_that_are_gone(tmp_path: Path) -> None:
    store, log = begin(tmp_path)
    varied(log)
    log.delete_before(5)
    asyncio.run(store.close())
    found = again(tmp_path)
    assert (found.start, found.epochs.entries[0]) == (5, (0, 5))
    for path in log.folder.glob("0*"):
        path.unlink()
    found = again(tmp_path)
    assert (found.start, found.end) == (5, 5)


def test_a_start_beyond_the_end_empties_the_log(tmp_path: Path) -> None:
    _, log = begin(tmp_path)
    varied(log)
    write_offsets(RealDisk(), tmp_path / "log-start-offset-checkpoint", {("orders", 0): 1000})
    found = again(tmp_path)
    assert (found.start, found.end, found.size) == (1000, 1000, 0)
    assert [path.name for path in log.folder.glob("*.log")] == ["00000000000000001000.log"]
    assert append(found, produced(1)).base == 1000


@pytest.mark.parametrize("content", [None, b"", b"junk"])
def test_a_folder_without_a_readable_topic_id_opens(tmp_path: Path, content: bytes | None) -> None:
    _, log = begin(tmp_path)
    if content is None:
        (log.folder / "partition.metadata").unlink()
    else:
        (log.folder / "partition.metadata").write_bytes(content)
    found = again(tmp_path)
    assert found.topic_id == bytes(16)
    found.set_topic_id(TOPIC_ID)
    assert again(tmp_path).topic_id == TOPIC_ID


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_recovered_too(tmp_path: Path, magic: int) -> None:
    _, log = begin(tmp_path)
    append(log, produced(1))
    old = [build_legacy([batch.Record(at, NOW_MS, b"k", b"v" * at)], magic=magic) for at in range(5)]
    path = log.folder / f"{NAME}.log"
    broken = bytearray(old[4])
    broken[-1] ^= 1
    path.write_bytes(b"".join(old[:4]) + broken)
    found = again(tmp_path)
    assert found.end == 4
    assert everything(found) == b"".join(old[:4])


def test_batches_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    wanted = {"segment.bytes": str(64 << 20), "max.message.bytes": str(32 << 20)}
    store = a_store(tmp_path, topic=wanted)
    log = store.create("orders", 0, TOPIC_ID, topic_config(load({}), wanted), 0)
    append(log, produced(1))
    append(log, produced(1, size=9 << 20))
    append(log, produced(1))
    append(log, produced(1, size=5 << 20))
    found = a_store(tmp_path, topic=wanted).logs["orders", 0]
    assert found.end == 4
    assert found.size == log.size


def test_many_partitions_recover_side_by_side(tmp_path: Path) -> None:
    store = a_store(tmp_path, broker={"num.recovery.threads.per.data.dir": "3"})
    for index in range(20):
        log = store.create("orders", index, TOPIC_ID, topic_config(load({}), {}), 0)
        for _ in range(index):
            append(log, produced(2))
    found = a_store(tmp_path, broker={"num.recovery.threads.per.data.dir": "3"})
    assert {key: log.end for key, log in found.logs.items()} == {("orders", index): index * 2 for index in range(20)}


def test_records_are_not_needed_to_recover(tmp_path: Path) -> None:
    """A batch with a correct checksum stays even if its records cannot be parsed."""
    _, log = begin(tmp_path)
    data = bytearray(batch.build(records(1)))
    data[-3:] = b"\xff\xff\xff"
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    (log.folder / f"{NAME}.log").write_bytes(data)
    assert again(tmp_path).end == 1


@pytest.mark.parametrize("left", [0, 1])
def test_a_replica_cuts_what_follows_a_segment_that_a_power_cut_took(tmp_path: Path, left: int) -> None:
    _, log = begin(tmp_path / "data", segment_bytes="500")
    for _ in range(30):
        append(log, produced(3))
    second = log.segments[1]
    path = log.folder / f"{second.base:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: left * next(batch.entries(data)).size])
    ends = {}
    for replicated in (False, True):
        copy = tmp_path / f"copy-{replicated}"
        shutil.copytree(tmp_path / "data", copy)
        store = a_store(tmp_path / "none")
        found = type(store)([copy], RealDisk(), store.clock, store.config)
        found.open(lambda _: log.config, replicated=replicated)
        ends[replicated] = found.logs["orders", 0].end
    assert ends == {False: log.end, True: second.base + 3 * left}
