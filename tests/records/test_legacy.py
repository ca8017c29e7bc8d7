from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.golden import GOLDEN, Golden
from records.oracle import build, read

from ottla.errors import BrokerError
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.compress import Codec, CorruptError, compress
from ottla.records.legacy import ChecksumError

NOW = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
BLOBS = st.none() | st.binary(max_size=200)
RECORDS = st.lists(st.tuples(st.integers(1, 1000), st.integers(-1, 2**62), BLOBS, BLOBS), min_size=1, max_size=8).map(
    lambda rows: [Record(sum(gap for gap, *_ in rows[: i + 1]), *row[1:]) for i, row in enumerate(rows)]
)
THREE = [Record(offset, NOW + offset, b"k%d" % offset, b"v" * 50) for offset in (5, 6, 9)]


def wrapper(inside: bytes, *, magic: int = 1, codec: int = Codec.GZIP, offset: int = 0, attributes: int = 0) -> bytes:
    """A wrapper around whatever bytes, with a checksum that fits."""
    return legacy._message(offset, NOW, None, compress(codec, inside, magic=magic), magic, codec | attributes)


def timeless(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [record._replace(timestamp=-1) for record in records]


@pytest.mark.parametrize("golden", [golden for golden in GOLDEN if golden.magic < 2])
def test_bytes_of_apache_kafka(golden: Golden) -> None:
    for entry in batch.entries(golden.data):
        outer = legacy.outer(golden.data, entry.position)
        assert legacy.crc_ok(golden.data, entry.position, outer)
        assert outer.codec == golden.codec
        assert outer.log_append_time == (golden.append_time is not None)
    assert read(golden.data) == golden.seen
    ours = legacy.build(golden.written, magic=golden.magic, codec=golden.codec, append_time=golden.append_time)
    assert read(ours) == golden.seen
    if golden.codec == Codec.NONE:
        assert ours == golden.data


@given(records=RECORDS, append_time=st.none() | st.just(NOW))
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_built_is_read_again(magic: int, codec: int, records: list[Record], append_time: int | None) -> None:
    data = legacy.build(records, magic=magic, codec=codec, append_time=append_time)
    expected = timeless(records, magic)
    if append_time is not None and magic == 1:
        expected = [record._replace(timestamp=append_time) for record in records]
    assert read(data) == expected
    assert all(legacy.crc_ok(data, e.position, legacy.outer(data, e.position)) for e in batch.entries(data))
    assert len(list(batch.entries(data))) == (len(records) if codec == Codec.NONE else 1)


def test_a_wrapper_has_the_offset_and_the_latest_timestamp_of_what_it_holds() -> None:
    for magic, inner in ((0, [5, 6, 9]), (1, [0, 1, 4])):
        data = legacy.build(list(reversed_times(THREE)), magic=magic, codec=Codec.GZIP)
        outer = legacy.outer(data)
        assert outer.offset == 9
        assert outer.timestamp == (NOW + 9 if magic else -1)
        inside = zlib.decompress(data[26 if magic == 0 else 34 :], 31)
        assert [entry.last_offset for entry in batch.entries(inside)] == inner, "absolute in magic 0, relative in 1"


def reversed_times(records: list[Record]) -> list[Record]:
    times = [record.timestamp for record in reversed(records)]
    return [record._replace(timestamp=time) for record, time in zip(records, times, strict=True)]


def test_a_wrapper_at_offset_0_is_relative_to_0() -> None:
    inside = legacy.build([Record(offset, NOW, None, b"v") for offset in range(3)], magic=1)
    assert [record.offset for record in legacy.iterate(wrapper(inside, offset=0))] == [0, 1, 2]
    assert [record.offset for record in legacy.iterate(wrapper(inside, offset=102))] == [100, 101, 102]


def test_the_wrapper_of_another_magic_decides_the_offsets() -> None:
    """Kafka reads messages of magic 0 inside wrappers of magic 1 and the other way round."""
    old, new = (legacy.build([Record(offset, NOW, None, b"v") for offset in range(3)], magic=m) for m in (0, 1))
    assert [r[:2] for r in legacy.iterate(wrapper(old, magic=1, offset=12))] == [(10, -1), (11, -1), (12, -1)]
    append = wrapper(old, magic=1, offset=2, attributes=batch.LOG_APPEND_TIME)
    assert [r[:2] for r in legacy.iterate(append)] == [(0, -1), (1, -1), (2, -1)], "magic 0 has no time to replace"
    assert [r[:2] for r in legacy.iterate(wrapper(new, magic=0, offset=12))] == [(0, NOW), (1, NOW), (2, NOW)]


MALFORMED = {
    "no value": legacy._message(0, NOW, None, None, 1, Codec.GZIP),
    "an empty set": wrapper(b""),
    "half a message": wrapper(legacy.build(THREE[:1], magic=1)[:-1]),
    "a wrapper within": wrapper(wrapper(legacy.build(THREE, magic=1))),
    "zstd": wrapper(legacy.build(THREE, magic=1), codec=Codec.ZSTD),
    "relative offsets past its own": wrapper(legacy.build(THREE, magic=1), offset=3),
    "a message of no length": wrapper(struct.pack(">qi", 0, 13) + bytes(30)),
    "bytes that do not inflate": legacy._message(0, NOW, None, b"not gzip", 1, Codec.GZIP),
    "a key past the end": legacy.build(THREE[:1], magic=1)[:26] + struct.pack(">i", 10_000) + bytes(56),
    "no room for the value": legacy.build([Record(0, 0, bytes(4), None)], magic=0)[:18]
    + struct.pack(">i", 7)
    + bytes(8),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        list(legacy.iterate(data))


def test_a_torn_message_at_the_end_of_a_wrapper_is_left_out() -> None:
    inside = legacy.build(THREE, magic=1)
    found = list(legacy.iterate(wrapper(inside + inside[:30], offset=0)))
    assert [record.value for record in found] == [record.value for record in THREE]


def test_checksums_inside_a_wrapper_are_checked_on_demand() -> None:
    inside = bytearray(legacy.build(THREE, magic=1))
    inside[-1] ^= 1
    data = wrapper(bytes(inside))
    assert len(legacy.messages(data)) == 3
    with pytest.raises(ChecksumError):
        legacy.messages(data, check=True)


def test_inflation_is_capped() -> None:
    data = legacy.build([Record(0, NOW, None, bytes(10**6))], magic=1, codec=Codec.GZIP)
    with pytest.raises(CorruptError, match="more than 1000 bytes"):
        list(batch.iterate(data, 0, 1000))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_restamping_changes_offset_and_time_and_nothing_else(magic: int, codec: int) -> None:
    data = legacy.build(THREE[:1], magic=magic, codec=codec)
    outer = legacy.outer(data)
    for timestamp, append in ((outer.timestamp, False), (NOW + 777, False), (NOW + 777, True)):
        parts = legacy.restamp(memoryview(data), 0, outer, offset=99, timestamp=timestamp, append=append)
        stamped = b"".join(parts)
        after = legacy.outer(stamped)
        assert len(stamped) == len(data)
        assert legacy.crc_ok(stamped, 0, after)
        assert after.offset == 99
        assert (after.timestamp, after.log_append_time) == ((timestamp, append) if magic else (-1, False))
        assert [r[2:] for r in legacy.iterate(stamped)] == [r[2:] for r in THREE[:1]]


# Conversion down; `test_judged.py` compares it with Apache Kafka's


@given(records=RECORDS, append_time=st.none() | st.just(NOW))
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("down_to", [0, 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_conversion_keeps_what_the_old_format_can_hold(
    magic: int, down_to: int, codec: int, records: list[Record], append_time: int | None
) -> None:
    data = build(records, magic, codec, append_time)
    expected = [
        record._replace(timestamp=-1 if min(magic, down_to) == 0 else record.timestamp) for record in read(data)
    ]
    converted = legacy.down_convert(data, down_to)
    assert read(converted) == expected
    assert all(entry.magic <= down_to for entry in batch.entries(converted))
    if magic <= down_to:
        assert converted == data


def test_headers_control_batches_and_producers_are_lost() -> None:
    kept = batch.build([Record(0, NOW, b"k", b"v", (("h", b"x"),))], producer_id=1, producer_epoch=0, base_sequence=0)
    marker = batch.build([Record(1, NOW, b"\0\0\0\1", b"")], control=True, transactional=True, producer_id=1)
    empty = batch.build([], base_offset=2, last_offset=5)
    assert read(legacy.down_convert(kept + marker + empty, 1)) == [Record(0, NOW, b"k", b"v")]
    assert legacy.down_convert(marker + empty, 1) == b""


def test_messages_before_the_first_offset_are_left_out_unless_compressed() -> None:
    for codec, expected in ((Codec.NONE, [6, 9]), (Codec.GZIP, [5, 6, 9])):
        data = batch.build(THREE, codec=codec)
        assert [record.offset for record in read(legacy.down_convert(data, 1, first_offset=6))] == expected


@given(data=st.data())
def test_damage_raises_nothing_but_broker_errors(data: st.DataObject) -> None:
    magic = data.draw(st.integers(0, 2))
    packed = bytearray(build(THREE, magic, data.draw(st.sampled_from(OLD_CODECS))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(12, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BrokerError):
        read(bytes(packed))
    with suppress(BrokerError):
        legacy.down_convert(packed, data.draw(st.integers(0, 1)))
