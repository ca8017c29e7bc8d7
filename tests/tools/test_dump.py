"""The dump: every file of a log as rows, and each kind of disagreement named."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from log import kafka_compacted
from log.making import NOW_MS, TOPIC_ID, a_store, append, settings

from ottla.log.cleaner import Cleaner
from ottla.log.snapshots import encode_snapshot
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.compress import Codec
from ottla.tools.dump import dump

if TYPE_CHECKING:
    from pathlib import Path

STEM = "00000000000000000000"


def rows(*paths: Path, records: bool = False, verify: bool = True) -> tuple[int, list[dict[str, Any]]]:
    out = io.StringIO()
    code = dump(paths, records=records, json=True, verify=verify, out=out)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def problems(*paths: Path, verify: bool = True) -> list[str]:
    code, found = rows(*paths, verify=verify)
    texts = [row["problem"] for row in found if row["kind"] == "problem"]
    assert code == (1 if texts else 0)
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log directory with one partition: two closed segments, an idempotent producer, all kinds of files."""
    store = a_store(tmp_path)
    options = settings(index_interval_bytes=100, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    log = store.create("orders", 0, TOPIC_ID, options, 3)
    for sequence in range(8):
        records = [Record(0, NOW_MS + sequence, b"k%d" % sequence, b"v" * 40, (("h", b"\xff"),))]
        data = batch.build(records, producer_id=5, producer_epoch=1, base_sequence=sequence)
        append(log, memoryview(data), epoch=3)
        if sequence in (4, 6):
            log.roll(NOW_MS)
    asyncio.run(store.close())
    return tmp_path / "orders-0"


def test_a_sound_folder_has_rows_of_every_kind_and_no_problems(folder: Path) -> None:
    code, found = rows(folder.parent, records=True)
    assert code == 0
    kinds = [row["kind"] for row in found]
    assert {kind: kinds.count(kind) for kind in ("batch", "record", "epoch", "partition")} == {
        "batch": 8,
        "record": 8,
        "epoch": 1,
        "partition": 1,
    }
    assert {"index", "time", "producer", "checkpoint"} <= set(kinds)
    batches = [row for row in found if row["kind"] == "batch"]
    assert batches[3] == {
        "file": str(folder / f"{STEM}.log"),
        "kind": "batch",
        "position": 3 * batches[0]["size"],
        "size": batches[0]["size"],
        "magic": 2,
        "base": 3,
        "last": 3,
        "count": 1,
        "codec": "none",
        "leader_epoch": 3,
        "max_timestamp": NOW_MS + 3,
        "log_append_time": False,
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 3,
        "last_sequence": 3,
    }
    record = next(row for row in found if row["kind"] == "record")
    assert record["headers"] == [["h", {"base64": "/w=="}]]
    assert (record["offset"], record["key"], record["value"]) == (0, "k0", "v" * 40)


def test_a_compacted_folder_is_sound(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    options = settings(index_interval_bytes=100, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    log = store.create("orders", 0, TOPIC_ID, options, 0)
    for at in range(30):
        append(
            log, memoryview(batch.build([Record(0, NOW_MS + at % 7, b"k%d" % (at % 9), None if at % 5 else b"v" * 50)]))
        )
        if at % 10 == 9:
            log.roll(NOW_MS)
    assert asyncio.run(Cleaner(store).clean_filthiest())
    asyncio.run(store.close())
    assert problems(tmp_path) == []
    _, found = rows(tmp_path, verify=False)
    assert any("delete_horizon" in row for row in found)
    assert {"topic": "orders", "partition": 0, "offset": 30}.items() <= next(
        row for row in found if row["file"].endswith("cleaner-offset-checkpoint")
    ).items()


def test_people_get_a_line_for_each_row(folder: Path) -> None:
    out = io.StringIO()
    assert dump([folder / f"{STEM}.log"], records=True, json=False, verify=True, out=out) == 0
    lines = out.getvalue().splitlines()
    assert lines[0] == str(folder / f"{STEM}.log")
    assert lines[1].startswith("  batch position=0 size=")
    assert lines[2].startswith('    record offset=0 timestamp=1700000000000 key="k0" value="vvvv')
    (folder / f"{STEM}.log").write_bytes(b"torn tail of something")
    out = io.StringIO()
    assert dump([folder / f"{STEM}.log"], records=False, json=False, verify=False, out=out) == 1
    assert out.getvalue().splitlines()[1] == "  PROBLEM 22 bytes from position 0 on are not a complete batch"


def test_a_wrong_checksum_is_found_only_when_asked_for(folder: Path) -> None:
    path = folder / f"{STEM}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert problems(path, verify=False) == []
    assert [text for text in problems(path) if "checksum" in text] == [
        f"the batch at position {len(data) * 4 // 5} fails its checksum"
    ]


def test_records_that_cannot_be_read_are_a_problem_and_the_rest_goes_on(folder: Path) -> None:
    path = folder / f"{STEM}.log"
    data = bytearray(path.read_bytes())
    data[batch.HEADER_SIZE] = 0xFF
    path.write_bytes(data)
    code, found = rows(path, records=True, verify=False)
    assert code == 1
    assert [row["kind"] for row in found].count("record") == 4


def test_offsets_that_do_not_grow_and_segments_that_overlap_are_found(folder: Path) -> None:
    path = folder / f"{STEM}.log"
    data = path.read_bytes()
    size = len(data) // 5
    path.write_bytes(data[size : 2 * size] + data[:size])
    assert problems(path) == [f"the batch at position {size} begins at 0, expected 2 or later"]
    path.write_bytes(data + struct.pack(">q", 5) + data[8:size])
    assert problems(path) == ["the segment ends at 6, but the next one begins at 5"]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1, 7)], "no batch begins at position 7"),
        ([(3, 0)], "the batch at position 0 ends with offset 0, not 3"),
    ],
)
def test_index_entries_must_point_at_their_batch(folder: Path, entries: list[tuple[int, int]], problem: str) -> None:
    path = folder / f"{STEM}.index"
    path.write_bytes(b"".join(struct.pack(">II", *entry) for entry in entries))
    assert problems(path) == [problem]
    assert problems(path, verify=False) == []


def test_index_entries_must_ascend(folder: Path) -> None:
    size = (folder / f"{STEM}.log").stat().st_size // 5
    path = folder / f"{STEM}.index"
    path.write_bytes(struct.pack(">IIII", 2, 2 * size, 1, size))
    assert problems(path) == [f"the entry after 2 at {2 * size} does not ascend"]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([(NOW_MS, 9)], ["no batch ends with offset 9"]),
        ([(NOW_MS, 3)], [f"the batch that ends with 3 has timestamp {NOW_MS + 3}, not {NOW_MS}"]),
        ([(NOW_MS + 3, 3), (NOW_MS + 1, 1)], [f"timestamp {NOW_MS + 1} follows {NOW_MS + 3}"]),
    ],
)
def test_the_time_index_must_agree(folder: Path, entries: list[tuple[int, int]], found: list[str]) -> None:
    path = folder / f"{STEM}.timeindex"
    path.write_bytes(b"".join(struct.pack(">qI", *entry) for entry in entries))
    assert problems(path) == found


def test_the_zeros_of_an_active_index_are_no_entries(folder: Path) -> None:
    path = folder / f"{STEM}.index"
    entries = rows(path)[1]
    path.write_bytes(path.read_bytes() + bytes(8 * 100))
    assert rows(path) == (0, entries)
    path.write_bytes(bytes(800))
    assert rows(path) == (0, [])


def test_aborted_transactions_need_their_markers(tmp_path: Path) -> None:
    log, transactions = kafka_compacted.SEGMENTS[0]
    (tmp_path / f"{STEM}.log").write_bytes(log)
    path = tmp_path / f"{STEM}.txnindex"
    path.write_bytes(transactions)
    code, found = rows(tmp_path, records=True)
    assert code == 0
    assert {"producer_id": 7, "first": 7, "last": 13, "last_stable": 14}.items() <= found[-1].items()
    assert [row["marker"] for row in found if "marker" in row] == ["commit", "abort"]
    path.write_bytes(transactions[:-16] + struct.pack(">qq", 99, 100))
    assert problems(path) == ["there is no marker at offset 99"]
    path.write_bytes(transactions[:-1])
    assert problems(path, verify=False) == ["33 bytes are not a multiple of 34"]


def test_old_messages_are_shown(tmp_path: Path) -> None:
    path = tmp_path / f"{STEM}.log"
    old = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS, b"b", None)]
    path.write_bytes(legacy.build(old, magic=1, codec=Codec.GZIP) + legacy.build([Record(2, -1, None, b"x")], magic=0))
    code, found = rows(path, records=True)
    assert code == 0
    assert [(row["kind"], row["offset"]) for row in found] == [
        ("message", 1),
        ("record", 0),
        ("record", 1),
        ("message", 2),
        ("record", 2),
    ]
    assert (found[0]["codec"], found[0]["magic"], found[3]["magic"]) == ("gzip", 1, 0)


def test_broken_small_files_and_strange_ones_are_problems(tmp_path: Path) -> None:
    snapshot = tmp_path / f"{STEM}.snapshot"
    snapshot.write_bytes(encode_snapshot([])[:-1] + b"\1")
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n5\norders 0 1\n")
    strange = tmp_path / "notes.txt"
    strange.write_text("")
    assert len(problems(snapshot)) == len(problems(checkpoint)) == 1
    assert problems(strange) == ["not a log file"]
    assert problems(tmp_path / "missing") == ["No such file or directory"]
    assert problems(tmp_path / f"{STEM}.index", verify=False) == ["No such file or directory"]
    assert len(problems(tmp_path)) == 2, "in a folder what is no file of a log is passed over"


def test_files_of_compaction_are_held_against_each_other_not_against_the_log(tmp_path: Path) -> None:
    for base, (log, _) in kafka_compacted.SEGMENTS.items():
        (tmp_path / f"{base:020d}.log").write_bytes(log)
    (tmp_path / f"{STEM}.log.cleaned").write_bytes(kafka_compacted.LOG)
    (tmp_path / f"{STEM}.timeindex.cleaned").write_bytes(kafka_compacted.TIME_INDEX)
    (tmp_path / f"{STEM}.txnindex.cleaned").write_bytes(kafka_compacted.TRANSACTION_INDEX)
    assert problems(tmp_path) == []


def test_meta_properties_are_shown(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=abc\n")
    code, found = rows(tmp_path)
    assert code == 0
    assert (found[0]["kind"], found[0]["node_id"], found[0]["cluster_id"]) == ("directory", 4, "abc")
