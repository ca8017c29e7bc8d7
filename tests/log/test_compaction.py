"""Compaction: the same result as Apache Kafka's and as a dict's, and nothing lost wherever it is interrupted."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log import kafka_compacted
from log.making import NOW_MS, TOPIC_ID, FaultyDisk, a_log, a_store, append, everything, settings

from ottla.config import load
from ottla.config.option import LONG_MAX
from ottla.disk import RealDisk
from ottla.log.cleaner import survey, swap
from ottla.log.compaction import Compaction, CompactionPlan, SegmentSource, StoppedError, group, name, plan
from ottla.log.producers import LastBatch, Producers
from ottla.log.recovery import load as load_folder
from ottla.log.recovery import marker_of
from ottla.log.sieve import sift
from ottla.log.transactions import decode
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.compress import Codec, CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.disk import Disk
    from ottla.log.log import Log

HOUR_MS = 3_600_000
BROKER = load({})
OPTIONS: dict[str, Any] = {"cleanup_policy": "compact", "delete_retention_ms": HOUR_MS, "index_interval_bytes": 100}


class HastyDisk(RealDisk):
    """A disk without fsync: these tests check names and bytes, and there are many."""

    def sync(self, fd: int, /) -> None:  # type: ignore[override]
        pass

    def write(self, path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
        super().write(path, data)


class Sent(NamedTuple):
    """One batch to append: (key, value) pairs, and whether a new segment begins before it."""

    pairs: list[tuple[bytes, bytes | None]]
    codec: Codec
    roll: bool


keys = st.sampled_from([b"", b"a", b"b", b"c", b"a key that is longer than a digest", b"d"])
values = st.one_of(st.none(), st.binary(max_size=12))
histories = st.lists(
    st.builds(
        Sent, st.lists(st.tuples(keys, values), min_size=1, max_size=6), st.sampled_from(list(Codec)), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


def fill(log: Log, history: Iterable[Sent]) -> list[Record]:
    """Append, close the last segment, and return the records as a reader sees them."""
    for at, sent in enumerate(history):
        if sent.roll:
            log.roll(NOW_MS)
        records = [
            Record(n, NOW_MS + at * 10 + n, key, value, (("n", b"%d" % n),))
            for n, (key, value) in enumerate(sent.pairs)
        ]
        append(log, memoryview(batch.build(records, codec=sent.codec)))
    log.roll(NOW_MS)
    return read(log)


def read(log: Log) -> list[Record]:
    data = everything(log)
    return [record for entry in batch.entries(data) for record in batch.iterate(data, entry.position)]


def compact(log: Log, first_dirty: int = 0, *, now_ms: int = NOW_MS, keys_max: int = 1000) -> int:
    """One run, as the cleaner does it. Returns the new first dirty offset."""
    segments = log.segments[:-1]
    run = Compaction(
        plan(*survey(log, first_dirty, now_ms)[:3], BROKER, now_ms)._replace(keys_max=keys_max, read_size=256), log.disk
    )
    run.map_keys()
    for sources in run.groups:
        assert swap(log, segments, run.clean(sources))
    return run.end


def expected(records: Sequence[Record], *, tombstones: bool) -> list[Record]:
    """What a dict that remembers the last value of each key would keep."""
    last = {record.key: record for record in records}
    return [r for r in records if last[r.key] is r and (tombstones or r.value is not None)]


# Against a model.


@given(histories)
def test_the_last_value_of_each_key_stays_in_order_and_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory, history: list[Sent]
) -> None:
    log = a_log(tmp_path_factory.mktemp("log"), disk=HastyDisk(), **OPTIONS)
    before = fill(log, history)
    assert compact(log) == log.end
    assert read(log) == expected(before, tombstones=True)
    assert len(log.segments) == 2, "they all fit into one"


@given(histories, st.data())
def test_reading_from_any_offset_gives_the_next_batch_there_is(
    tmp_path_factory: pytest.TempPathFactory, history: list[Sent], data: st.DataObject
) -> None:
    log = a_log(tmp_path_factory.mktemp("log"), disk=HastyDisk(), **OPTIONS)
    fill(log, history)
    compact(log)
    left = read(log)
    offset = data.draw(st.integers(0, log.end - 1))
    found = log.read(offset, 1 << 20, offset_max=log.end)
    assert found is not None, "the last batch of a run keeps its offsets even when it is empty"
    raw = found.read()
    entries = list(batch.entries(raw))
    assert entries[0].last_offset >= offset
    seen = [record for entry in entries for record in batch.iterate(raw, entry.position) if record.offset >= offset]
    assert seen == [record for record in left if record.offset >= offset]


@given(histories, st.integers(1, 4))
def test_small_memory_takes_more_runs_to_the_same_end(
    tmp_path_factory: pytest.TempPathFactory, history: list[Sent], keys_max: int
) -> None:
    log = a_log(tmp_path_factory.mktemp("log"), disk=HastyDisk(), **OPTIONS)
    before = fill(log, history)
    dirty = 0
    while dirty < log.end:
        reached = compact(log, dirty, keys_max=keys_max)
        assert reached > dirty
        dirty = reached
    assert read(log) == expected(before, tombstones=True)


@given(histories)
def test_tombstones_go_after_their_horizon_and_not_before(
    tmp_path_factory: pytest.TempPathFactory, history: list[Sent]
) -> None:
    log = a_log(tmp_path_factory.mktemp("log"), disk=HastyDisk(), **OPTIONS)
    before = fill(log, history)
    compact(log)
    compact(log, now_ms=NOW_MS + HOUR_MS - 1)
    assert read(log) == expected(before, tombstones=True)
    compact(log, now_ms=NOW_MS + HOUR_MS)
    assert read(log) == expected(before, tombstones=False)


@given(histories, histories)
def test_a_second_run_compacts_what_came_since_against_what_was_clean(
    tmp_path_factory: pytest.TempPathFactory, first: list[Sent], second: list[Sent]
) -> None:
    log = a_log(tmp_path_factory.mktemp("log"), disk=HastyDisk(), **OPTIONS)
    fill(log, first)
    dirty = compact(log)
    between = fill(log, second)
    compact(log, dirty)
    assert read(log) == expected(between, tombstones=True)


@given(histories)
def test_a_compacted_folder_opens_again_with_all_that_was_in_it(
    tmp_path_factory: pytest.TempPathFactory, history: list[Sent]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = a_log(folder, disk=HastyDisk(), **OPTIONS)
    fill(log, history)
    compact(log)
    left, end = read(log), log.end
    again = a_store(folder).logs["orders", 0]
    assert read(again) == left
    assert again.end == end
    for segment in again.segments[:-1]:
        positions, times = segment.offsets.entries(), segment.times.entries()
        empty = [found.span for found in segment.spans() if batch.header(found.buffer, found.at).count == 0]
        assert not {mark.offset for mark in times} & {span.last for span in empty}, "an empty batch has no time"
        segment.reindex()
        assert segment.offsets.entries() == positions, "the index is what recovery would build"
        assert empty or segment.times.entries() == times


# Against Apache Kafka.


def kafka_plan(folder: Path, /, **changes: object) -> CompactionPlan:
    """The plan for the partition that Apache Kafka compacted, made from the same state."""
    producers, sources, aborted = Producers(str(folder), RealDisk()), [], []
    bases = list(kafka_compacted.SEGMENTS)
    for at, (base, (log, transactions)) in enumerate(kafka_compacted.SEGMENTS.items()):
        for entry in batch.entries(log):
            head = batch.header(log, entry.position)
            producers.replay(head, marker_of(log[entry.position :]) if head.control else None)
        path = folder / f"{base:020d}.log"
        path.write_bytes(log)
        aborted += decode(transactions, base)
        if at + 1 < len(bases):
            sources.append(SegmentSource(base, bases[at + 1], str(path), len(log), 0, 12, NOW_MS))
    made = CompactionPlan(
        folder=str(folder),
        sources=tuple(sources),
        first_dirty=0,
        first_uncleanable=bases[-1],
        aborted=tuple(aborted),
        last_batches=producers.last_batches(),
        now_ms=NOW_MS,
        delete_retention_ms=HOUR_MS,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        keys_max=1000,
        read_size=1 << 16,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


def run(made: CompactionPlan, disk: Disk | None = None, pause: Callable[[int], None] = lambda _: None) -> Compaction:
    compaction = Compaction(made, disk or RealDisk(), pause)
    compaction.map_keys()
    for sources in compaction.groups:
        compaction.clean(sources)
    return compaction


def test_transactions_are_compacted_to_the_bytes_that_kafka_leaves(tmp_path: Path) -> None:
    assert run(kafka_plan(tmp_path)).end == 43
    stem = tmp_path / "00000000000000000000"
    assert Path(f"{stem}.log.cleaned").read_bytes() == kafka_compacted.LOG
    assert Path(f"{stem}.index.cleaned").read_bytes() == b""
    assert Path(f"{stem}.timeindex.cleaned").read_bytes() == kafka_compacted.TIME_INDEX
    assert Path(f"{stem}.txnindex.cleaned").read_bytes() == kafka_compacted.TRANSACTION_INDEX


def again(folder: Path, log: bytes, transactions: bytes, made: CompactionPlan, now_ms: int) -> tuple[bytes, bytes]:
    """Compact a result of compaction once more."""
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(log)
    source = SegmentSource(0, made.first_uncleanable, str(path), len(log), 0, 12, NOW_MS)
    aborted = tuple(decode(transactions, 0))
    run(made._replace(folder=str(folder), sources=(source,), aborted=aborted, now_ms=now_ms))
    index = folder / "00000000000000000000.txnindex.cleaned"
    return Path(f"{path}.cleaned").read_bytes(), index.read_bytes() if index.exists() else b""


def test_markers_stay_for_their_time_when_their_data_is_gone(tmp_path: Path) -> None:
    made = kafka_plan(tmp_path, last_batches={})
    run(made)
    stem = tmp_path / "00000000000000000000"
    log, index = Path(f"{stem}.log.cleaned").read_bytes(), Path(f"{stem}.txnindex.cleaned").read_bytes()
    assert len(decode(index, 0)) == 3, "data of the aborted transactions was there until now"

    log, index = again(tmp_path / "second", log, index, made, NOW_MS)
    horizons = [batch.header(log, e.position).delete_horizon for e in batch.entries(log)]
    assert index == b""
    assert sorted(map(str, horizons)).count(str(NOW_MS + HOUR_MS)) == 5, "all markers but that of the last commit"

    before_horizon, _ = again(tmp_path / "third", log, index, made, NOW_MS + HOUR_MS - 1)
    assert before_horizon == log
    log, _ = again(tmp_path / "fourth", log, index, made, NOW_MS + HOUR_MS)
    heads = [batch.header(log, e.position) for e in batch.entries(log)]
    assert [(head.base_offset, head.control) for head in heads] == [(28, False), (34, True), (42, False)]


def test_the_newest_batch_of_a_producer_keeps_its_sequence_as_an_empty_batch(tmp_path: Path) -> None:
    made = kafka_plan(tmp_path)
    run(made)
    data = (tmp_path / "00000000000000000000.log.cleaned").read_bytes()
    heads = [batch.header(data, entry.position) for entry in batch.entries(data)]
    found = {head.producer_id: head for head in heads if head.last_offset == made.last_batches[head.producer_id].offset}
    assert found[7].count == 0, "its last data was aborted"
    assert (found[7].base_sequence, found[7].last_offset_delta, found[7].control) == (0, 5, False)
    assert batch.crc_ok(data, next(e.position for e in batch.entries(data) if e.base_offset == 35), found[7])


# What stays of one batch.


def sifted(data: bytes, keep: Callable[[Record], bool], **options: bool) -> tuple[batch.Header, list[Record]] | None:
    result = sift(memoryview(data), batch.header(data), keep, new_horizon_ms=NOW_MS + HOUR_MS, **options)
    if result.data is None:
        return None
    head = batch.header(result.data)
    assert batch.crc_ok(result.data, 0, head)
    return head, list(batch.iterate(result.data))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("append_time", [None, NOW_MS + 5])
def test_a_rewritten_batch_keeps_its_identity_codec_and_timestamps(codec: Codec, append_time: int | None) -> None:
    records = [Record(100 + n, NOW_MS + n, b"k%d" % n, b"v" * 40 if n % 2 else None, (("h", None),)) for n in range(8)]
    data = batch.build(
        records, codec=codec, append_time=append_time, producer_id=5, producer_epoch=2, base_sequence=9, leader_epoch=4
    )
    before, original = batch.header(data), list(batch.iterate(data))
    found = sifted(data, lambda record: record.offset in (102, 103))
    assert found is not None
    head, left = found
    assert left == original[2:4]
    assert head.delete_horizon == NOW_MS + HOUR_MS, "a tombstone is left"
    same = ("base_offset", "last_offset", "leader_epoch", "codec", "producer_id", "producer_epoch", "last_sequence")
    assert [getattr(head, field) for field in same] == [getattr(before, field) for field in same]
    assert head.max_timestamp == (append_time or NOW_MS + 3)


def test_a_batch_that_keeps_everything_is_not_touched() -> None:
    data = batch.build([Record(n, NOW_MS, b"k%d" % n, b"v") for n in range(3)])
    result = sift(memoryview(data), batch.header(data), lambda _: True, new_horizon_ms=0)
    assert result.data == data
    assert (result.read, result.kept) == (3, 3)


@pytest.mark.parametrize(
    ("timestamp", "horizon_ms"),
    [(NOW_MS, NOW_MS + LONG_MAX), (NOW_MS - LONG_MAX, NOW_MS + HOUR_MS)],
    ids=["delete.retention.ms without end", "a timestamp far in the past"],
)
def test_a_horizon_that_a_batch_cannot_hold_is_not_set(timestamp: int, horizon_ms: int) -> None:
    """Compaction failed each time, or the records got other timestamps."""
    made = [
        Record(0, timestamp, b"a", None, ()),
        Record(1, timestamp, b"a", b"1", ()),
        Record(2, timestamp, b"b", b"2", ()),
    ]
    data = batch.build(made)
    result = sift(memoryview(data), batch.header(data), lambda record: record.offset != 1, new_horizon_ms=horizon_ms)
    assert result.data is not None
    assert batch.header(result.data).delete_horizon is None
    assert list(batch.iterate(result.data)) == [made[0], made[2]]


def test_compaction_works_with_the_longest_delete_retention(tmp_path: Path) -> None:
    log = a_log(tmp_path, **{**OPTIONS, "delete_retention_ms": LONG_MAX})
    fill(log, [Sent([(b"a", b"1"), (b"b", b"2"), (b"a", None)], Codec.NONE, roll=False)])
    run = Compaction(plan(log, 0, log.active.base, BROKER, NOW_MS), RealDisk())
    run.map_keys()
    assert [run.clean(group).records for group in run.groups] == [2]


def test_a_delete_horizon_is_set_once_and_survives_later_runs() -> None:
    data = batch.build([Record(0, NOW_MS, b"a", None), Record(1, NOW_MS + 1, b"b", b"v")])
    first = sift(memoryview(data), batch.header(data), lambda _: True, new_horizon_ms=7).data
    assert first is not None
    later = sift(memoryview(first), batch.header(first), lambda r: r.offset == 1, new_horizon_ms=99).data
    assert later is not None
    assert batch.header(later).delete_horizon == 7
    assert list(batch.iterate(later)) == [Record(1, NOW_MS + 1, b"b", b"v")]


def test_nothing_or_a_bare_header_is_left_of_an_empty_batch() -> None:
    data = batch.build([Record(5, NOW_MS, b"a", b"v")], codec=Codec.GZIP, producer_id=3, base_sequence=8)
    assert sifted(data, lambda _: False) is None
    found = sifted(data, lambda _: False, retain_empty=True)
    assert found is not None
    head, left = found
    assert left == []
    assert (head.base_offset, head.last_offset, head.base_sequence, head.count, head.codec) == (5, 5, 8, 0, 0)
    assert head.max_timestamp == NOW_MS


# Old formats.


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_and_wrappers_are_compacted_in_their_format(tmp_path: Path, magic: int, codec: Codec) -> None:
    timestamp = NOW_MS if magic else -1
    pairs = [(b"a", b"1"), (b"b", b"2"), (None, b"no key"), (b"a", b"3"), (b"c", None), (b"d", b"4")]
    records = [Record(n, timestamp, key, value) for n, (key, value) in enumerate(pairs)]
    data = legacy.build(records[:4], magic=magic, codec=codec) + legacy.build(records[4:], magic=magic, codec=codec)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)

    def left(modified_ms: int, clean: bool) -> list[int]:
        dirty = SegmentSource(6, 7, str(tmp_path / "00000000000000000006.log"), 0, 0, 0, modified_ms)
        Path(dirty.path).write_bytes(b"")
        source = SegmentSource(0, 6, str(path), len(data), 0, 0, modified_ms)
        run(
            kafka_plan(
                tmp_path / "unused",
                folder=str(tmp_path),
                sources=(source, dirty),
                first_dirty=6 if clean else 0,
                first_uncleanable=7,
                aborted=(),
            )
        )
        out = (tmp_path / "00000000000000000000.log.cleaned").read_bytes()
        assert all(entry.magic == magic for entry in batch.entries(out))
        found = [record for entry in batch.entries(out) for record in batch.iterate(out, entry.position)]
        assert [record._replace(offset=0) for record in found] == [records[r.offset]._replace(offset=0) for r in found]
        return [record.offset for record in found]

    (tmp_path / "unused").mkdir()
    assert left(NOW_MS, clean=False) == [1, 3, 4, 5]
    assert left(NOW_MS, clean=True) == [0, 1, 3, 4, 5], "nothing is known of keys in the clean part; no key, no stay"
    assert os.stat(tmp_path / "00000000000000000000.log.cleaned").st_mtime * 1000 == pytest.approx(NOW_MS, abs=2)


def test_old_tombstones_go_when_their_segment_is_older_than_the_retention(tmp_path: Path) -> None:
    records = [Record(0, NOW_MS, b"a", None), Record(1, NOW_MS, b"b", b"v")]
    sources = []
    for base, modified_ms, content in ((0, NOW_MS, records), (2, NOW_MS + HOUR_MS + 1, []), (4, NOW_MS, [])):
        path = tmp_path / f"{base:020d}.log"
        path.write_bytes(legacy.build(content, magic=1))
        sources.append(SegmentSource(base, base + 2, str(path), path.stat().st_size, 0, 0, modified_ms))
    unused = tmp_path / "unused"
    unused.mkdir()
    run(
        kafka_plan(unused, folder=str(tmp_path), sources=tuple(sources), first_dirty=4, first_uncleanable=6, aborted=())
    )
    out = (tmp_path / "00000000000000000000.log.cleaned").read_bytes()
    assert [record.offset for entry in batch.entries(out) for record in batch.iterate(out, entry.position)] == [1]


# Producers.


def idempotent(sequence: int, key: bytes, value: bytes = b"v") -> memoryview:
    records = [Record(0, NOW_MS, key, value)]
    return memoryview(batch.build(records, producer_id=77, producer_epoch=0, base_sequence=sequence))


def test_a_retry_is_recognised_after_its_records_were_compacted_away(tmp_path: Path) -> None:
    log = a_log(tmp_path, **OPTIONS)
    append(log, idempotent(0, b"k"))
    log.roll(NOW_MS)
    append(log, memoryview(batch.build([Record(0, NOW_MS, b"k", b"newer")])))
    log.roll(NOW_MS)
    compact(log)
    assert [record.value for record in read(log)] == [b"newer"]
    for path in tmp_path.glob("orders-0/*.snapshot"):
        path.unlink()
    again = a_store(tmp_path).logs["orders", 0]
    repeated = append(again, idempotent(0, b"k"))
    assert (repeated.base, repeated.duplicate) == (0, True)
    assert not append(again, idempotent(1, b"k")).duplicate


def test_snapshots_of_merged_segments_go_and_that_of_the_first_stays(tmp_path: Path) -> None:
    log = a_log(tmp_path, **OPTIONS)
    for sequence in range(4):
        append(log, idempotent(sequence, b"k%d" % sequence))
        log.roll(NOW_MS)
    assert log.producers.snapshots == [1, 2, 3, 4]
    compact(log)
    assert log.producers.snapshots == [4]
    assert [path.name for path in (tmp_path / "orders-0").glob("*.snapshot")] == ["00000000000000000004.snapshot"]


# Groups, bounds, interruptions.


def test_neighbours_are_grouped_as_long_as_they_fit_into_one_segment(tmp_path: Path) -> None:
    sources = [
        SegmentSource(10 * n, 10 * n + 10, "", size, 8, 12, 0) for n, size in enumerate([40, 60, 1, 100, 100, 0, 101])
    ]
    made = kafka_plan(tmp_path, segment_bytes=100)
    assert [[s.size for s in found] for found in group(sources, made)] == [[40, 60], [1], [100], [100, 0], [101]]
    made = kafka_plan(tmp_path, segment_index_bytes=24)
    assert [len(found) for found in group(sources, made)] == [2, 2, 2, 1], "the time indexes bound it too"
    far = [
        SegmentSource(0, 10, "", 5, 0, 0, 0),
        SegmentSource(2**31, 2**31 + 1, "", 5, 0, 0, 0),
        SegmentSource(2**31 + 1, 2**31 + 2, "", 5, 0, 0, 0),
    ]
    assert [len(found) for found in group(far, kafka_plan(tmp_path))] == [1, 2]


def test_long_keys_are_held_as_digests_that_no_short_key_can_be() -> None:
    assert name(b"short") == b"short"
    assert len(name(b"x" * 16)) == len(name(b"x" * 10_000)) == 16
    assert len(name(b"y" * 15)) == 15


def test_batches_larger_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    log = a_log(tmp_path, **OPTIONS)
    before = fill(log, [Sent([(b"a", b"x" * 5000), (b"b", b"y" * 3000)], Codec.NONE, False)] * 2)
    compact(log)
    assert read(log) == expected(before, tombstones=True)


def test_a_segment_that_ends_in_half_a_batch_is_not_compacted(tmp_path: Path) -> None:
    made = kafka_plan(tmp_path)
    cut = made.sources[0]._replace(size=made.sources[0].size - 1)
    with pytest.raises(CorruptError):
        run(made._replace(sources=(cut, *made.sources[1:])))


@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_with_a_wrong_checksum_stops_the_run_before_anything_is_written(tmp_path: Path, magic: int) -> None:
    made = kafka_plan(tmp_path)
    path = Path(made.sources[2].path)
    if magic == 1:
        path.write_bytes(legacy.build([Record(30, NOW_MS, b"a", b"v")], magic=1))
    path.write_bytes(path.read_bytes()[:-1] + b"\x77")
    source = made.sources[2]._replace(size=path.stat().st_size)
    with pytest.raises(CorruptError, match="checksum"):
        run(made._replace(sources=(*made.sources[:2], source)))
    assert leftovers(tmp_path) == []


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith((".cleaned", ".swap"))]


def test_a_run_that_is_stopped_leaves_no_files(tmp_path: Path) -> None:
    made, calls = kafka_plan(tmp_path), []

    def pause(size: int) -> None:
        calls.append(size)
        if len(calls) == 20:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(made, pause=pause)
    assert leftovers(tmp_path) == []


def test_a_full_disk_ends_the_run_and_leaves_no_files(tmp_path: Path) -> None:
    made, disk = kafka_plan(tmp_path), FaultyDisk()
    disk.space_left = 300
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        run(made, disk)
    assert leftovers(tmp_path) == []


def test_files_of_an_earlier_run_are_not_appended_to(tmp_path: Path) -> None:
    for suffix in (".log", ".txnindex"):
        (tmp_path / f"00000000000000000000{suffix}.cleaned").write_bytes(b"x" * 5000)
    run(kafka_plan(tmp_path))
    assert (tmp_path / "00000000000000000000.log.cleaned").read_bytes() == kafka_compacted.LOG


class CrashError(BaseException):
    """The process died."""


class CrashingDisk(HastyDisk):
    """Crashes at the n-th rename from now, before or after it took effect."""

    def __init__(self) -> None:
        self.renames_left = -1
        self.after = False
        self.dead = False

    def rename(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
        self.renames_left -= 1
        last, self.dead = self.renames_left == 0, self.dead or self.renames_left == 0
        if self.dead and not (last and self.after):
            raise CrashError
        super().rename(old, new)
        if last:
            raise CrashError


def crashed(folder: Path, renames: int, *, after: bool) -> tuple[list[Record], bool]:
    """A log whose process died at a rename of the swap. Returns its records before, and whether it died at all."""
    disk = CrashingDisk()
    log = a_store(folder, disk=disk).create("orders", 0, TOPIC_ID, settings(**OPTIONS), 0)
    before = fill(
        log,
        [
            Sent([(b"a", b"1"), (b"b", b"1")], Codec.NONE, False),
            Sent([(b"a", b"2"), (b"c", None)], Codec.LZ4, True),
            Sent([(b"b", b"3")], Codec.NONE, True),
        ],
    )
    disk.renames_left, disk.after = renames, after
    try:
        compact(log)
    except CrashError:
        return before, True
    return before, False


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_rename_loses_nothing_and_leaves_a_sound_log(tmp_path: Path, after: bool) -> None:
    results = []
    for renames in range(1, 100):
        folder = tmp_path / str(renames)
        before, died = crashed(folder, renames, after=after)
        if not died:
            break
        # Twice: the second time from where recovery itself was interrupted, halfway through its own renames.
        copy = tmp_path / f"{renames} again"
        shutil.copytree(folder, copy)
        disk = CrashingDisk()
        disk.renames_left = 1
        with suppress(CrashError):
            load_again(copy, disk)
        for place in (folder, copy):
            found = load_again(place, RealDisk())
            assert [
                record for record in found if record.offset in {r.offset for r in expected(before, tombstones=True)}
            ]
            assert {record.offset for record in expected(before, tombstones=True)} <= {r.offset for r in found}
            assert all(record in before for record in found), "what is there is what was there"
            assert leftovers(place / "orders-0") == []
        results.append(found == expected(before, tombstones=True))
    else:
        pytest.fail("the swap never came to its end")
    assert not results[0], "first the old segments are still in place"
    assert results[-1], "in the end it is all compacted"
    assert results == sorted(results), "and between them there is one moment of change"


def load_again(folder: Path, disk: Disk) -> list[Record]:
    store = a_store(folder, disk=disk)
    return read(store.logs["orders", 0])


def test_the_loader_takes_a_swap_without_the_clean_marker_too(tmp_path: Path) -> None:
    before, died = crashed(tmp_path, 4, after=False)
    assert died
    loaded = load_folder(
        str(tmp_path / "orders-0"),
        RealDisk(),
        settings(**OPTIONS),
        clean=False,
        recovery_point=0,
        start=0,
        now_ms=NOW_MS,
        expiration_ms=HOUR_MS,
    )
    assert loaded.end == len(before)


def test_a_last_batch_of_a_producer_known_by_its_marker_stays(tmp_path: Path) -> None:
    control = batch.build(
        [Record(0, NOW_MS, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0))],
        producer_id=9,
        producer_epoch=3,
        transactional=True,
        control=True,
        delete_horizon=NOW_MS - 1,
    )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(control)
    source = SegmentSource(0, 1, str(path), len(control), 0, 0, NOW_MS)
    unused = tmp_path / "unused"
    unused.mkdir()
    sizes = []
    for last_batches in ({9: LastBatch(None, 3)}, {9: LastBatch(None, 4)}):
        made = kafka_plan(unused, folder=str(tmp_path), sources=(source,), aborted=(), last_batches=last_batches)
        run(made)
        sizes.append((tmp_path / "00000000000000000000.log.cleaned").stat().st_size)
    assert sizes == [batch.HEADER_SIZE, 0], "an empty batch that holds the epoch, or nothing"
