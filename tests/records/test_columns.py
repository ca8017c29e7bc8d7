"""Columns, on both sides: what the crate and its twin in Python promise alike, and that they give the same answers.

Every test of this file runs on each side that is there: the twin always, the crate where it is built.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.golden import GOLDEN, Golden
from records.oracle import NOW, build, topic

from ottla.records import batch, columns, legacy, native
from ottla.records.batch import CRC_POSITION, HEADER_SIZE, Header, Record
from ottla.records.compress import SIZE_MAX, Codec, compress
from ottla.records.native import Crate, crc32c, decode_columns, encode_columns, murmur2
from ottla.records.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from records.oracle import Kafka

    from ottla.records.columns import Columns

FOUND = native._crate
CRATE = FOUND()
SIDES: dict[str, Crate | None] = {"python": None, **({"native": CRATE} if CRATE else {})}
END = columns.OFFSET_MAX
HEADERS = columns.HEADERS


@contextmanager
def using(crate: Crate | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_crate", lambda: crate)
        yield


@pytest.fixture(params=SIDES, scope="module", autouse=True)
def side(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(SIDES[request.param]):
        yield request.param


def decode(data: bytes | bytearray | memoryview, **options: Any) -> Columns:
    usual: dict[str, Any] = {"start": 0, "stop": END, "headers": True, "aborted": None, "size_max": SIZE_MAX}
    found = decode_columns(data, **usual | options)
    found.batch.validate(full=True)
    return found


def rows(found: Columns) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row.get("headers") or ()),
        )
        for row in found.batch.to_pylist()
    ]


def offsets(data: bytes, **options: Any) -> list[int]:
    found: list[int] = decode(data, **options).batch["offset"].to_pylist()
    return found


# Reading


@pytest.mark.parametrize("golden", GOLDEN)
def test_bytes_of_apache_kafka(golden: Golden) -> None:
    found = decode(golden.data)
    assert rows(found) == golden.seen
    kind = -1 if golden.magic == 0 else int(golden.append_time is not None)
    assert found.batch["timestamp_type"].to_pylist() == [kind] * 4
    assert (found.next_offset, found.bytes_read) == (47, len(golden.data))
    without = decode(golden.data, headers=False)
    assert without.batch == found.batch.drop_columns(["headers"])


def test_the_columns_have_the_types_that_spark_reads() -> None:
    expected = "key: binary, value: binary, offset: int64, timestamp: int64, timestamp_type: int32"
    for headers in (False, True):
        names = expected + ", headers: list<item: struct<key: string, value: binary>>" * headers
        for data in (b"", build([Record(0, 1, None, None, (("a", None),))], 2)):
            schema = decode(data, headers=headers).batch.schema
            assert ", ".join(f"{field.name}: {field.type}" for field in schema) == names
            assert [field.name for field in schema if field.nullable] == ["key", "value", "headers"][: 2 + headers]


def test_a_record_without_headers_has_null_for_them() -> None:
    """As Spark's own source, so that the rows of both are equal."""
    data = build([Record(0, 1, b"", b""), Record(1, 1, None, None, (("a", b"x"), ("a", None)))], 2)
    assert decode(data).batch["headers"].to_pylist() == [
        None,
        [{"key": "a", "value": b"x"}, {"key": "a", "value": None}],
    ]


def test_a_header_key_that_is_no_text_is_mended_as_in_java() -> None:
    data = bytearray(build([Record(0, 1, None, None, (("abcd", b"x"),))], 2))
    at = data.index(b"abcd")
    for key, seen in (
        (b"a\xffbc", "a\ufffdbc"),
        (b"\xf0\x9f\x98a", "\ufffda"),
        (b"\xed\xa0\x80a", "\ufffd\ufffd\ufffda"),
    ):
        data[at : at + 4] = key
        assert rows(decode(data, check_crc=False))[0].headers == ((seen, b"x"),)


def test_any_bytes_like_object_will_do() -> None:
    data = build([Record(0, NOW, b"k", b"v")], 2)
    seen = [rows(decode(each)) for each in (data, bytearray(data), memoryview(b"xx" + data)[2:])]
    assert seen == [[Record(0, NOW, b"k", b"v")]] * 3


GAPS = [Record(offset, NOW + offset, b"k%d" % offset, b"v" * offset) for offset in (3, 4, 9, 10, 12)]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_only_the_asked_range_is_given(magic: int, codec: Codec) -> None:
    data = build(GAPS[:2], magic, codec) + build(GAPS[2:], magic, codec)
    assert offsets(data) == [3, 4, 9, 10, 12]
    for start in range(15):
        for stop in range(start, 15):
            found = decode(data, start=start, stop=stop)
            assert found.batch["offset"].to_pylist() == [each for each in (3, 4, 9, 10, 12) if start <= each < stop]
            assert found.next_offset == min(max(13, start), stop)


def test_the_next_offset_never_passes_a_record_that_was_not_given() -> None:
    one, two = build(GAPS[:2], 2), build(GAPS[2:], 2)
    whole = one + two
    for end in range(len(whole) + 1):
        found = decode(whole[:end])
        assert found.bytes_read == (0 if end < len(one) else len(one) if end < len(whole) else len(whole))
        assert found.next_offset == (0 if end < len(one) else 5 if end < len(whole) else 13)
    assert decode(whole, start=20).next_offset == 20, "a broker that sends what was not asked for moves nobody back"
    assert decode(whole, stop=4)[1:] == (4, len(one)), "the rest of the batch is for whoever reads from 4 on"
    assert decode(whole, stop=7)[1:] == (7, len(one)), "the next batch begins past it"


def test_emptied_batches_and_control_batches_count_as_read() -> None:
    emptied = batch.build([], base_offset=5, last_offset=9)
    commit = marker(10, producer=1, abort=False)
    found = decode(emptied + commit)
    assert (found.batch.num_rows, found.next_offset) == (0, 11)
    assert decode(emptied[:-1]).next_offset == 0
    assert decode(emptied + commit, aborted=[]).next_offset == 11


def test_log_append_time_hides_the_time_of_the_client() -> None:
    found = decode(build(GAPS, 2, append_time=7) + build([Record(20, 8, None, None)], 2))
    assert found.batch["timestamp"].to_pylist() == [7] * 5 + [8]
    assert found.batch["timestamp_type"].to_pylist() == [1] * 5 + [0]


def test_timestamps_wrap_as_in_java() -> None:
    head = batch.header(build([Record(0, 2**62, None, None)], 2))
    payload = record_bytes(batch.varint(2**62 + 5))
    found = decode(made(payload, base_timestamp=head.base_timestamp))
    assert found.batch["timestamp"].to_pylist() == [-(2**63) + 5]


def test_the_call_ends_early_when_the_columns_are_full_and_goes_on_with_the_same_data() -> None:
    many = [build([Record(offset, NOW, b"k", b"v" * 1000)], 2, Codec.LZ4) for offset in range(10)]
    aborted = batch.build([Record(10, NOW, None, b"no")], transactional=True, producer_id=7, producer_epoch=0)
    committed = batch.build([Record(12, NOW, None, b"yes")], transactional=True, producer_id=7, producer_epoch=0)
    data = b"".join([*many, aborted, marker(11, producer=7, abort=True), committed])
    seen, start, calls = [], 0, 0
    while start < 13:
        found = decode(data, start=start, aborted=[(7, 10)], size_max=3000)
        assert found.next_offset > start
        seen += found.batch["offset"].to_pylist()
        start, calls = found.next_offset, calls + 1
    assert seen == [*range(10), 12]
    assert calls == 4


def test_hiding_aborted_transactions_by_the_rule_of_kafkas_consumer() -> None:
    """One story with all there is: two producers, a commit, an abort, a record outside of any, and afterwards again."""
    data = b"".join(
        [
            transactional(0, producer=1),
            transactional(1, producer=2),
            batch.build([Record(2, NOW, None, b"plain")]),
            batch.build([Record(3, NOW, None, b"idempotent")], producer_id=1, producer_epoch=0, base_sequence=0),
            marker(4, producer=1, abort=True),
            transactional(5, producer=1),
            marker(6, producer=2, abort=False),
            marker(7, producer=1, abort=False),
            transactional(8, producer=2),
            marker(9, producer=2, abort=True),
        ]
    )
    assert offsets(data) == [0, 1, 2, 3, 5, 8], "read_uncommitted sees all but the markers"
    found = decode(data, aborted=[(2, 8), (1, 0)])
    assert found.batch["offset"].to_pylist() == [1, 2, 3, 5]
    assert found.next_offset == 10


@pytest.mark.parametrize("seed", range(50))
def test_readers_of_committed_records_see_them_and_no_others(seed: int) -> None:
    """Transactions of several producers interleaved; fetched in pieces, each with what a broker would say of it."""
    chance = Random(seed)
    log, committed, aborted = a_log(chance)
    whole = b"".join(log)
    starts = [sum(map(len, log[:index])) for index in range(len(log) + 1)]
    bases = [batch.header(each).base_offset for each in log]
    seen: list[int] = []
    start = 0
    while start < len(log):
        index = next(index for index, base in enumerate(bases) if base >= start)
        end = min(starts[index] + chance.randrange(len(log[index]), 2000), len(whole))
        known = [(producer, first) for producer, first, last in aborted if last >= start]
        chance.shuffle(known)
        found = decode(whole[starts[index] : end], start=start, aborted=known)
        assert found.next_offset > start
        seen += found.batch["offset"].to_pylist()
        start = found.next_offset
    assert seen == committed


def a_log(chance: Random) -> tuple[list[bytes], list[int], list[tuple[int, int, int]]]:
    """Batches of one offset each; the offsets that were committed; (producer, first, last offset) of the aborted."""
    log: list[bytes] = []
    committed: list[int] = []
    aborted: list[tuple[int, int, int]] = []
    ongoing: dict[int, list[int]] = defaultdict(list)
    for offset in range(60):
        producer = chance.randrange(3)
        what = chance.random()
        if what < 0.1:
            log.append(batch.build([Record(offset, NOW, None, b"plain")]))
            committed.append(offset)
        elif what < 0.7:
            log.append(transactional(offset, producer))
            ongoing[producer].append(offset)
        else:
            abort = chance.random() < 0.5
            log.append(marker(offset, producer, abort=abort))
            if abort and ongoing[producer]:
                aborted.append((producer, ongoing[producer][0], offset))
            if not abort:
                committed += ongoing[producer]
            ongoing[producer] = []
    stable = min((first for first, *_ in filter(None, ongoing.values())), default=60)
    return log[:stable], sorted(each for each in committed if each < stable), aborted


def transactional(offset: int, producer: int) -> bytes:
    return batch.build([Record(offset, NOW, b"k", b"v")], transactional=True, producer_id=producer, producer_epoch=0)


def marker(offset: int, producer: int, *, abort: bool, codec: Codec = Codec.NONE, key: bytes | None = None) -> bytes:
    key = struct.pack(">hh", 0, 0 if abort else 1) if key is None else key
    record = Record(offset, NOW, key, bytes(6))
    return batch.build([record], control=True, transactional=True, producer_id=producer, producer_epoch=0, codec=codec)


def test_markers_of_other_shapes() -> None:
    before, after = transactional(0, producer=1), transactional(2, producer=1)
    emptied = batch.build([], base_offset=1, control=True, producer_id=1, producer_epoch=0)
    newer = struct.pack(">hhq", 7, 0, 1)
    assert offsets(before + marker(1, 1, abort=True, codec=Codec.ZSTD) + after, aborted=[(1, 0)]) == [2]
    assert offsets(before + marker(1, 1, abort=True, key=newer) + after, aborted=[(1, 0)]) == [2]
    assert offsets(before + emptied + after, aborted=[(1, 0)]) == []
    for key in (b"", b"\0\0\0", struct.pack(">hh", -1, 0)):
        wrong = marker(1, 1, abort=True, key=key)
        assert offsets(before + wrong + after) == [0, 2], "who reads all does not look"
        with pytest.raises(ValueError, match="offset 1, byte"):
            decode(before + wrong + after, aborted=[(1, 0)])


# What is wrong


def made(payload: bytes, **fields: int) -> bytes:
    """A batch at offset 7 with these record bytes, sound but for what is given."""
    values: dict[str, int] = {
        "base_offset": 7, "length": 49 + len(payload), "leader_epoch": 0, "magic": 2, "crc": 0, "attributes": 0,
        "last_offset_delta": 0, "base_timestamp": 1000, "max_timestamp": 2000, "producer_id": -1,
        "producer_epoch": -1, "base_sequence": -1, "count": 1, **fields,
    }  # fmt: skip
    return sealed(batch.HEADER.pack(*Header(**values)) + payload)


def sealed(data: bytes) -> bytes:
    """With a checksum that fits."""
    return data[:17] + struct.pack(">I", crc32c(data[CRC_POSITION:])) + data[CRC_POSITION:]


def record_bytes(time_delta: bytes = b"\0", offset_delta: bytes = b"\0", rest: bytes = b"\1\1\0") -> bytes:
    body = b"\0" + time_delta + offset_delta + rest
    return batch.varint(len(body)) + body


SOUND = record_bytes()
MALFORMED = {
    "a record that is cut short": made(SOUND[:-1]),
    "no record at all": made(b""),
    "a record of negative length": made(b"\x01" + SOUND[1:]),
    "a record that is longer than what is in it": made(b"\x0e\0\0\0\1\1\0\0"),
    "bytes after the last record": made(SOUND + b"\0"),
    "more records than there are": made(SOUND, count=2, last_offset_delta=1),
    "fewer records than there are": made(SOUND * 2),
    "a negative count": made(SOUND, count=-1),
    "two billion records": made(SOUND, count=2**31 - 1),
    "a varint without end": made(record_bytes(time_delta=b"\xff" * 11)),
    "a length without end": made(b"\xff" * 6),
    "a key beyond the record": made(record_bytes(rest=b"\x7e\1\0")),
    "two billion headers": made(record_bytes(rest=b"\1\1\xfe\xff\xff\xff\x0f")),
    "fewer than no headers": made(record_bytes(rest=b"\1\1\1")),
    "a header without a key": made(record_bytes(rest=b"\1\1\2\1\1")),
    "a header that is cut short": made(record_bytes(rest=b"\1\1\2\2a")),
    "an offset before the batch": made(record_bytes(offset_delta=b"\1")),
    "an offset after the batch": made(record_bytes(offset_delta=b"\2")),
    "a span that goes back": made(SOUND, last_offset_delta=-1),
    "a span that goes back, and nothing in it": made(b"", last_offset_delta=-1, count=0),
    "a negative offset": made(SOUND, base_offset=-1),
    "an offset past the last": made(SOUND, base_offset=END - 1, last_offset_delta=1),
    "a size smaller than the header": made(SOUND, length=48),
    "a negative size": made(SOUND, length=-1),
    "an unknown magic": made(SOUND, magic=3),
    "a negative magic": made(SOUND, magic=-1),
    "a batch smaller than its header at the end": made(b"", length=20)[:40],
    "an unknown codec": made(SOUND, attributes=5),
    "nothing to inflate": made(b"", attributes=Codec.ZSTD),
    "what is no gzip": made(SOUND, attributes=Codec.GZIP),
    "what is no snappy": made(SOUND, attributes=Codec.SNAPPY),
    "what is no lz4": made(SOUND, attributes=Codec.LZ4),
    "what is no zstd": made(SOUND, attributes=Codec.ZSTD),
    "an old message with a negative offset": legacy.build([Record(-5, NOW, None, b"v")], magic=1),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
def test_what_makes_no_sense_is_an_error_that_names_the_offset(what: str) -> None:
    before = build(GAPS[:2], 2)
    data = MALFORMED[what]
    offset = int.from_bytes(data[:8], "big", signed=True)
    with pytest.raises(ValueError, match=f"the batch at offset {offset}, byte {len(before)} of the data: ."):
        decode(before + data)


def test_that_is_sound_but_for_what_is_named_above() -> None:
    assert rows(decode(made(SOUND))) == [Record(7, 1000, None, None)]
    assert rows(decode(made(record_bytes(offset_delta=b"\2"), last_offset_delta=1))) == [Record(8, 1000, None, None)]
    assert rows(decode(made(record_bytes(rest=b"\3\5\0")))) == [Record(7, 1000, None, None)], "all negatives are null"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_checksum_that_does_not_match_is_an_error_unless_nobody_looks(magic: int) -> None:
    good, bad = build(GAPS[:2], magic), bytearray(build(GAPS[2:3], magic))
    bad[-1 if magic < 2 else -2] ^= 1
    with pytest.raises(ValueError, match=f"the batch at offset 9, byte {len(good)} of the data: its checksum"):
        decode(good + bad)
    assert len(rows(decode(good + bad, check_crc=False))) == 3
    assert offsets(good + bad, stop=9) == [3, 4], "nor is it looked at when it is not needed"


def test_a_message_inside_a_wrapper_is_checked_too() -> None:
    inside = bytearray(legacy.build(GAPS[:1], magic=1))
    inside[-1] ^= 1
    wrapper = legacy._message(3, NOW, None, compress(Codec.GZIP, inside), 1, Codec.GZIP)
    with pytest.raises(ValueError, match="offset 3, byte 0 of the data: a message inside"):
        decode(wrapper)
    assert offsets(wrapper, check_crc=False) == [3]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_inflation_stops_at_the_limit(codec: Codec) -> None:
    records = [Record(offset, NOW, None, b"x" * 100_000) for offset in range(10)]
    data = build(records, 2, codec)
    size = sum(len(batch.encode_record(record, 0, NOW)) for record in records)
    assert len(rows(decode(data, size_max=size))) == 10
    with pytest.raises(ValueError, match=r"offset 0, byte 0 of the data: .*more than"):
        decode(data, size_max=size - 1)


def test_frames_of_every_kind() -> None:
    """What writers other than ours produce: raw snappy, linked and checked lz4 blocks, several frames in a row."""
    payload = record_bytes(rest=b"\1" + batch.varint(300_000) + bytes(300_000) + b"\0")
    half = len(payload) // 2
    frames = {
        Codec.SNAPPY: [bytes(cramjam.snappy.compress_raw(payload))],
        Codec.LZ4: [
            bytes(cramjam.lz4.compress(payload)),
            bytes(cramjam.lz4.compress(payload[:half])) + compress(Codec.LZ4, payload[half:]),
            compress(Codec.LZ4, payload[:half]) + compress(Codec.LZ4, payload[half:]),
        ],
        Codec.GZIP: [
            compress(Codec.GZIP, payload[:half]) + compress(Codec.GZIP, payload[half:]),
            compress(Codec.GZIP, payload) + b"rest",
        ],
        Codec.ZSTD: [
            struct.pack("<II", 0x184D2A53, 3) + b"abc" + compress(Codec.ZSTD, payload),
            compress(Codec.ZSTD, payload[:half]) + compress(Codec.ZSTD, payload[half:]),
        ],
    }
    for codec, kinds in frames.items():
        for packed in kinds:
            found = decode(made(packed, attributes=codec))
            assert rows(found) == [Record(7, 1000, None, bytes(300_000))]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": -1}, "from -1"),
        ({"start": 5, "stop": 4}, "from 5 to 4"),
        ({"stop": 2**63}, "to 9223372036854775808"),
        ({"size_max": 0}, "size_max=0"),
        ({"size_max": SIZE_MAX + 1}, "at most 268435456 bytes"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(b"", **options)


# The same answers


def answer(crate: Crate | None, data: bytes, **options: Any) -> object:
    with using(crate):
        try:
            found = decode(data, **options)
        except ValueError:
            return "ValueError"
        return found.batch.to_pylist(), *found[1:]


def same(data: bytes, **options: Any) -> None:
    answers = [answer(crate, data, **options) for crate in SIDES.values()]
    assert all(each == answers[0] for each in answers)


BLOBS = st.none() | st.binary(max_size=40)
PAIRS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(1, 300), st.integers(-1, 2**40), BLOBS, BLOBS, PAIRS), min_size=1, max_size=6)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A log of a few batches of all kinds."""
    offset, found = draw(st.integers(0, 5)), []
    for rows_ in draw(st.lists(RECORDS, min_size=1, max_size=4)):
        records = [Record(offset := offset + gap, *rest) for gap, *rest in rows_]
        producer = draw(st.integers(-1, 2))
        codec = draw(st.sampled_from(Codec))
        kind = draw(st.integers(0, 9))
        if kind == 0:
            offset += 1
            found.append(marker(offset, producer, abort=draw(st.booleans()), codec=codec))
        elif kind == 1 and codec != Codec.ZSTD:
            found.append(legacy.build(records, magic=draw(st.integers(0, 1)), codec=codec))
        else:
            found.append(
                batch.build(
                    records,
                    codec=codec,
                    append_time=draw(st.none() | st.just(NOW)),
                    producer_id=producer,
                    transactional=draw(st.booleans()),
                    last_offset=offset + draw(st.integers(0, 2)),
                )
            )
    return b"".join(found)


OPTIONS = st.fixed_dictionaries(
    {
        "start": st.integers(0, 400),
        "stop": st.integers(400, 2000) | st.just(END),
        "headers": st.booleans(),
        "aborted": st.none() | st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900)), max_size=3),
        "size_max": st.sampled_from([100, 1000, SIZE_MAX]),
    }
)


@given(data=batches(), options=OPTIONS)
def test_both_sides_agree_on_sound_logs(data: bytes, options: dict[str, Any]) -> None:
    same(data, **options)


@given(data=batches(), options=OPTIONS, harm=st.data())
def test_both_sides_agree_on_hostile_bytes(data: bytes, options: dict[str, Any], harm: st.DataObject) -> None:
    """Cut, flipped, overwritten; with the checksums made right again or left alone, looked at or not."""
    wrong = bytearray(data)
    for position in harm.draw(st.lists(st.integers(0, len(data) - 1), max_size=4)):
        wrong[position] = harm.draw(st.integers(0, 255) | st.just(wrong[position] ^ 1 << position % 8))
    cut = bytes(wrong[: harm.draw(st.just(len(wrong)) | st.integers(0, len(wrong)))])
    same(resealed(cut) if harm.draw(st.booleans()) else cut, check_crc=harm.draw(st.booleans()), **options)


def resealed(data: bytes) -> bytes:
    """With the checksum of every batch made to fit, as far as the batches can be told apart."""
    found, position = bytearray(data), 0
    while position + HEADER_SIZE <= len(found):
        size = int.from_bytes(found[position + 8 : position + 12], "big", signed=True) + 12
        if size < HEADER_SIZE or found[position + 16] != 2:
            break
        found[position : position + size] = sealed(bytes(found[position : position + size]))
        position += size
    return bytes(found)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("seed", range(30))
def test_both_sides_agree_on_hostile_frames(codec: Codec, seed: int) -> None:
    """Faults inside of what is compressed, where the limits are: each byte of a frame's head, and some of the rest."""
    chance = Random(seed)
    records = b"".join(
        record_bytes(rest=b"\1" + batch.varint(50) + chance.randbytes(5) * 10 + b"\0") for _ in range(40)
    )
    payload = records + record_bytes(rest=b"\1" + batch.varint(200_000) + bytes(200_000) + b"\0") * (seed % 3)
    other = [bytes(cramjam.lz4.compress(payload))] if codec == Codec.LZ4 else []
    for packed in [compress(codec, payload), *other]:
        for position in [*range(min(20, len(packed))), *(chance.randrange(len(packed)) for _ in range(20))]:
            wrong = bytearray(packed)
            wrong[position] ^= 1 << chance.randrange(8)
            same(made(bytes(wrong), attributes=codec, count=40 + seed % 3), size_max=1 << 19)
        end = chance.randrange(len(packed))
        same(made(packed[:end], attributes=codec, count=40 + seed % 3), size_max=1 << 19)


# Writing


def encode(
    keys: object = None,
    values: object = None,
    headers: object = None,
    timestamps: object = None,
    partitions: object = None,
    **options: Any,
) -> dict[int, list[bytes]]:
    usual: dict[str, Any] = {
        "partition_count": 1, "codec": Codec.NONE, "level": None, "batch_bytes": 16384, "now_ms": 0,
    }  # fmt: skip
    return encode_columns(keys, values, headers, timestamps, partitions, **usual | options)


def blobs(column: Sequence[bytes | None]) -> pa.Array:
    return pa.array(column, pa.binary())


def read(found: dict[int, list[bytes]]) -> dict[int, list[Record]]:
    """What a broker accepts of it, and a reader then sees; offsets count from 0 in each partition."""
    seen: dict[int, list[Record]] = {}
    for partition, made_ in found.items():
        stored, base = b"", 0
        for data in made_:
            accepted = validate(memoryview(data), TOPIC, base=base, epoch=0, now_ms=NOW, produce_version=9)
            stored += b"".join(accepted.parts)
            base = accepted.last + 1
        seen[partition] = rows(decode(stored))
    return seen


TOPIC = topic(max_message_bytes=10_000_000)


TABLES = st.lists(
    st.tuples(
        BLOBS, BLOBS, st.none() | PAIRS.map(list), st.none() | st.integers(0, NOW), st.none() | st.integers(0, 2)
    ),
    max_size=30,
)


def arrays(table: list[tuple[Any, ...]], hidden: int = 0) -> list[pa.Array]:
    """The columns of a table; `hidden` rows lie before the first and one after the last, out of sight."""
    filler = (b"filler", b"filler", [("filler", b"filler")], 99, 1)
    keys, values, headers, timestamps, partitions = zip(*[filler] * hidden, *table, filler, strict=True)
    lists = [pairs and [{"key": key, "value": value} for key, value in pairs] for pairs in headers]
    kinds = (
        (keys, pa.binary()),
        (values, pa.binary()),
        (lists, HEADERS),
        (timestamps, pa.int64()),
        (partitions, pa.int32()),
    )
    return [pa.array(column, kind).slice(hidden, len(table)) for column, kind in kinds]


@given(table=TABLES, codec=st.sampled_from(Codec), batch_bytes=st.integers(1, 400), hidden=st.integers(0, 9))
def test_every_row_is_written_once_and_in_order(
    table: list[tuple[Any, ...]], codec: Codec, batch_bytes: int, hidden: int
) -> None:
    numbered = [(key, b"%d " % row, *rest) for row, (key, _, *rest) in enumerate(table)]
    found = encode(*arrays(numbered, hidden), partition_count=3, codec=codec, batch_bytes=batch_bytes, now_ms=NOW)
    seen = {partition: [int(record.value or b"") for record in records] for partition, records in read(found).items()}
    assert list(found) == sorted(found)
    assert sorted(chain(*seen.values())) == list(range(len(table)))
    assert all(sorted(numbers) == numbers for numbers in seen.values())
    for partition, records in read(found).items():
        for record in records:
            key, value, pairs, timestamp, chosen = numbered[int(record.value or b"")]
            assert record[1:] == (NOW if timestamp is None else timestamp, key, value, tuple(pairs or ()))
            if chosen is None and key is not None:
                chosen = (columns._murmur2(key) & 0x7FFFFFFF) % 3
            assert chosen in (None, partition)


@given(table=TABLES, codec=st.sampled_from(Codec), batch_bytes=st.integers(1, 400), hidden=st.integers(0, 9))
def test_batches_are_full_but_not_too_full(
    table: list[tuple[Any, ...]], codec: Codec, batch_bytes: int, hidden: int
) -> None:
    found = encode(*arrays(table, hidden), partition_count=3, codec=codec, batch_bytes=batch_bytes, now_ms=NOW)
    for data in chain(*found.values()):
        head = batch.header(data)
        assert (head.codec, head.leader_epoch, head.base_offset) == (codec, -1, 0)
        assert (head.producer_id, head.producer_epoch, head.base_sequence) == (-1, -1, -1)
        plain = [batch.encode_record(record, 0, head.base_timestamp) for record in batch.iterate(data)]
        assert head.count == 1 or HEADER_SIZE + sum(map(len, plain)) <= batch_bytes
    plain = encode(*arrays(table, hidden), partition_count=3, batch_bytes=batch_bytes, now_ms=NOW)
    counts = [[batch.header(data).count for data in made_] for made_ in found.values()]
    assert counts == [[batch.header(data).count for data in made_] for made_ in plain.values()], "whatever the codec"


@given(table=TABLES, batch_bytes=st.integers(1, 400), hidden=st.integers(0, 9), sequence=st.integers(0, 2**31 - 1))
def test_both_sides_write_the_same_bytes(
    table: list[tuple[Any, ...]], batch_bytes: int, hidden: int, sequence: int
) -> None:
    answers = []
    for crate in SIDES.values():
        with using(crate):
            answers.append(
                encode(
                    *arrays(table, hidden), partition_count=3, batch_bytes=batch_bytes, now_ms=NOW,
                    producer_id=5, producer_epoch=6, base_sequences={1: sequence}, transactional=True,
                )
            )  # fmt: skip
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize("codec", Codec)
def test_apache_kafka_reads_what_is_written(kafka: Kafka, codec: Codec) -> None:
    table = [
        (b"k", b"v" * 70_000, [("h", b"x"), ("é", None)], NOW, None),
        (None, None, None, None, None),
        (b"", b"", [], 0, 0),
    ]
    for level in (None, 1, 9) if codec in columns.LEVELS else (None,):
        found = encode(*arrays(table), codec=codec, level=level, batch_bytes=1 << 20, now_ms=NOW - 1)
        assert kafka.read(found[0][0]) == [
            Record(0, NOW, b"k", b"v" * 70_000, (("h", b"x"), ("é", None))),
            Record(1, NOW - 1, None, None),
            Record(2, 0, b"", b""),
        ]


def test_sequences_go_on_from_batch_to_batch_and_around() -> None:
    values = blobs([b"0123456789"] * 10)
    found = encode(
        values=values, partitions=pa.array([0, 1] * 5), partition_count=2, batch_bytes=HEADER_SIZE + 40,
        producer_id=9, producer_epoch=3, base_sequences={1: 2**31 - 3}, transactional=True,
    )  # fmt: skip
    heads = {partition: [batch.header(data) for data in made_] for partition, made_ in found.items()}
    assert [head.base_sequence for head in heads[0]] == [0, 2, 4]
    assert [head.base_sequence for head in heads[1]] == [2**31 - 3, 2**31 - 1, 1]
    for head in heads[0] + heads[1]:
        assert (head.producer_id, head.producer_epoch, head.transactional, head.control) == (9, 3, True, False)


def test_rows_without_a_key_fill_one_batch_after_the_other() -> None:
    values = blobs([b"0123456789"] * 9)
    found = encode(values=values, partition_count=4, batch_bytes=HEADER_SIZE + 40, now_ms=7)
    counts = {partition: [batch.header(data).count for data in made_] for partition, made_ in found.items()}
    assert counts == {3: [2, 1], 0: [2], 1: [2], 2: [2]}


def test_a_record_larger_than_a_batch_may_be_has_one_for_itself() -> None:
    found = encode(values=blobs([b"a", b"b" * 1000, b"c", b"d"]), batch_bytes=100)
    assert [record.value for record in read(found)[0]] == [b"a", b"b" * 1000, b"c", b"d"]
    assert [batch.header(data).count for data in found[0]] == [1, 1, 2]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.binary(2)],
)
def test_bytes_and_text_of_any_width(kind: pa.DataType) -> None:
    column = pa.array([b"ab", None, b"cd"], pa.binary()).cast(pa.string()).cast(kind) if kind != pa.binary(2) else None
    column = pa.array([b"ab", None, b"cd"], kind) if column is None else column
    for each in (column, pa.chunked_array([column.slice(0, 1), column.slice(1)])):
        found = read(encode(each, each, partitions=pa.array([0, 0, 0])))[0]
        assert [(record.key, record.value) for record in found] == [(b"ab", b"ab"), (None, None), (b"cd", b"cd")]
        assert murmur2(each).to_pylist() == [columns._murmur2(b"ab"), None, columns._murmur2(b"cd")]


def test_timestamps_of_any_unit() -> None:
    for unit, each in (("s", 10**3), ("ms", 1), ("us", 1), ("ns", 1)):
        column = pa.array([5, None], pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp(unit, "UTC"), safe=False)
        expected = 5 if each == 1 else 0
        found = read(encode(values=blobs([b"", b""]), timestamps=column, now_ms=7))[0]
        assert [record.timestamp for record in found] == [expected, 7]


def test_nothing_makes_no_batch() -> None:
    assert encode(blobs([]), blobs([])) == {}
    assert murmur2(blobs([])).to_pylist() == []


TWO = blobs([b"a", b"b"])
REFUSED: dict[str, dict[str, Any]] = {
    "the column key has type int64: cast it": {"keys": pa.array([1, 2])},
    "the column value has type list": {"values": pa.array([[1], [2]])},
    "the column value is list": {"values": [b"a", b"b"]},
    "the columns differ in length": {"keys": blobs([b"a"])},
    "there is no column": {"values": None},
    "the column headers has type string": {"headers": pa.array(["a", "b"])},
    "the column headers holds a header without a key": {
        "headers": pa.array([None, [{"key": None, "value": b"x"}]], HEADERS)
    },
    "holds a header without": {"headers": pa.array([None, [None]], HEADERS)},
    "the column timestamp has type string": {"timestamps": pa.array(["a", "b"])},
    "row 1: the timestamp -2 lies before 1970": {"timestamps": pa.array([0, -2])},
    "the column partition has type string": {"partitions": pa.array(["a", "b"])},
    "row 1: partition 1, but the topic has 1": {"partitions": pa.array([0, 1])},
    "row 0: partition -1, but": {"partitions": pa.array([-1, 0])},
    "a topic cannot have 0 partitions": {"partition_count": 0},
    "no codec 5": {"codec": 5},
    "gzip has levels -1 to 9, not 10": {"codec": Codec.GZIP, "level": 10},
    "lz4 has levels 1 to 17, not 0": {"codec": Codec.LZ4, "level": 0},
    "zstd has levels -131072 to 22, not 23": {"codec": Codec.ZSTD, "level": 23},
    "batch_bytes=0": {"batch_bytes": 0},
    "now_ms=-1": {"now_ms": -1},
    "base_sequences={0: -1}": {"producer_id": 1, "base_sequences": {0: -1}},
    "producer_epoch=32768": {"producer_epoch": 32768},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_written_is_named(words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        encode(**{"values": TWO} | REFUSED[words])


def test_hashes_are_those_of_the_java_client() -> None:
    known = {
        "": 275646681,
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert murmur2(pa.array([*known, None])).to_pylist() == [*known.values(), None]
    assert murmur2(pa.array(["filler", *known]).slice(1)).to_pylist() == [*known.values()]


@given(keys=st.lists(BLOBS))
def test_both_sides_hash_alike(keys: list[bytes | None]) -> None:
    answers = []
    for crate in SIDES.values():
        with using(crate):
            answers.append(murmur2(blobs(keys)))
    assert all(each == answers[0] for each in answers)


# The door


def test_a_broker_loads_neither_the_crate_nor_pyarrow() -> None:
    code = "import sys, ottla.broker; print({'pyarrow', 'ottla._native', 'ottla.records.columns'} & sys.modules.keys())"
    source = str(Path(native.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source})
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_without_the_crate_or_with_another_one_the_twin_serves() -> None:
    find = FOUND.__wrapped__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ottla._native", None)
        assert find() is None
        patch.setitem(sys.modules, "ottla._native", SimpleNamespace(INTERFACE=native.INTERFACE + 1))
        assert find() is None
        right = SimpleNamespace(INTERFACE=native.INTERFACE)
        patch.setitem(sys.modules, "ottla._native", right)
        assert find() is right


def test_which_side_serves_can_be_asked(side: str) -> None:
    assert native.is_built() == (side == "native")


def test_a_column_of_one_piece_is_not_copied() -> None:
    piece = pa.array([b"a", b"b"])
    for column in (piece, pa.chunked_array([piece])):
        assert columns._whole("value", column).buffers()[2].address == piece.buffers()[2].address
    assert columns._whole("value", pa.chunked_array([piece, piece])).to_pylist() == [b"a", b"b"] * 2
