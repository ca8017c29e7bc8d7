from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.golden import GOLDEN, Golden
from records.oracle import build

from ottla.records import batch
from ottla.records.batch import Header, Record
from ottla.records.compress import Codec, CorruptError

NOW = 1_700_000_000_000
TIMESTAMPS = st.integers(-1, 2**62)
BLOBS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(1, 2**20), TIMESTAMPS, BLOBS, BLOBS, HEADERS), min_size=1, max_size=8).map(
    lambda rows: [Record(sum(gap for gap, *_ in rows[: i + 1]), *row[1:]) for i, row in enumerate(rows)]
)


def records_of(payload: bytes, **fields: int) -> list[Record]:
    """What a batch with these record bytes and a header that fits them otherwise holds."""
    values = {
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": 1000,
        "max_timestamp": 2000,
        "count": 1,
        **fields,
    }
    head = Header(
        base_offset=7, length=49 + len(payload), leader_epoch=0, magic=2, crc=0,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, **values,
    )  # fmt: skip
    return list(batch.iterate(batch.HEADER.pack(*head) + payload))


@pytest.mark.parametrize("golden", [golden for golden in GOLDEN if golden.magic == 2])
def test_bytes_of_apache_kafka(golden: Golden) -> None:
    head = batch.header(golden.data)
    assert head.size == len(golden.data)
    assert (head.base_offset, head.last_offset, head.count) == (41, 46, 4)
    assert (head.codec, head.log_append_time) == (golden.codec, golden.append_time is not None)
    assert batch.crc_ok(golden.data, 0, head)
    assert list(batch.iterate(golden.data)) == golden.seen
    ours = batch.build(golden.written, codec=golden.codec, append_time=golden.append_time)
    assert list(batch.iterate(ours)) == golden.seen
    if golden.codec == Codec.NONE:
        assert ours == golden.data


@given(records=RECORDS)
@pytest.mark.parametrize("codec", Codec)
def test_what_is_built_is_read_again(codec: Codec, records: list[Record]) -> None:
    data = batch.build(records, codec=codec)
    head = batch.header(data)
    assert list(batch.iterate(data)) == records
    assert list(batch.iterate(b"before" + data + b"after", 6)) == records
    assert batch.crc_ok(data, 0, head)
    assert (head.base_offset, head.last_offset) == (records[0].offset, records[-1].offset)
    assert head.max_timestamp == max(record.timestamp for record in records)


def test_every_field_lands_in_the_header() -> None:
    data = batch.build(
        [Record(10, NOW, b"k", b"v")],
        base_offset=8,
        last_offset=15,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=2**31 - 3,
        transactional=True,
        control=True,
        leader_epoch=9,
        max_timestamp=NOW + 5,
        delete_horizon=NOW - 5,
    )
    head = batch.header(data)
    assert head == Header(8, 58, 9, 2, head.crc, 0x70, 7, NOW - 5, NOW + 5, 2**40, 3, 2**31 - 3, 1)
    assert head.transactional
    assert head.control
    assert head.idempotent
    assert not head.log_append_time
    assert head.delete_horizon == NOW - 5
    assert head.last_offset == 15
    assert head.last_sequence == 4, "0 follows the largest sequence"
    assert list(batch.iterate(data)) == [Record(10, NOW, b"k", b"v")]


def test_a_plain_batch_has_none_of_it() -> None:
    head = batch.header(batch.build([Record(0, NOW, None, None)]))
    assert not any((head.transactional, head.control, head.idempotent, head.log_append_time))
    assert head.delete_horizon is None
    assert head.last_sequence == batch.NO_SEQUENCE
    assert (head.producer_id, head.producer_epoch, head.leader_epoch) == (-1, -1, -1)


def test_a_batch_may_be_empty_after_compaction() -> None:
    data = batch.build([], base_offset=100, last_offset=109, max_timestamp=NOW, codec=Codec.ZSTD, producer_id=1)
    head = batch.header(data)
    assert len(data) == batch.HEADER_SIZE
    assert (head.base_offset, head.last_offset, head.count, head.codec) == (100, 109, 0, 0)
    assert (head.base_timestamp, head.max_timestamp) == (-1, NOW)
    assert list(batch.iterate(data)) == []
    assert batch.header(batch.build([], base_offset=5)).last_offset == 5


def test_log_append_time_hides_the_records_own() -> None:
    data = batch.build([Record(0, 1, None, b"a"), Record(1, 2, None, b"b")], append_time=NOW)
    assert [record.timestamp for record in batch.iterate(data)] == [NOW, NOW]


def test_the_checksum_sees_every_byte_after_it() -> None:
    data = bytearray(batch.build([Record(0, NOW, b"key", b"a value")]))
    head = batch.header(data)
    for position in range(len(data)):
        data[position] ^= 0x40
        assert batch.crc_ok(data, 0, head) == (position < batch.CRC_POSITION)
        data[position] ^= 0x40


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varints_are_zigzag(value: int) -> None:
    data = batch.varint(value)
    decoded, position = batch._varlong(data, 1, data[0])
    assert position == len(data)
    assert (decoded >> 1) ^ -(decoded & 1) == value


HOSTILE = {
    "no bytes at all": b"",
    "a length past the end": b"\x7e\x00",
    "a negative length": b"\x01\x00\x00\x00\x01\x01\x00",
    "a record that ends before its length": b"\x10\x00\x00\x00\x01\x01\x00\x00\x00",
    "a record that goes on after its length": b"\x0a\x00\x00\x00\x01\x01\x00",
    "a key past the end": b"\x0c\x00\x00\x00\x7e\x01\x00",
    "a value past the end": b"\x0c\x00\x00\x00\x01\x7e\x00",
    "a negative number of headers": b"\x0c\x00\x00\x00\x01\x01\x01",
    "more headers than bytes": b"\x0c\x00\x00\x00\x01\x01\x7e",
    "a header without a key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "a header value past the end": b"\x10\x00\x00\x00\x01\x01\x02\x00\x7e",
    "a length of six bytes": b"\xff\xff\xff\xff\xff\x01",
    "a timestamp of eleven bytes": b"\x20\x00" + b"\xff" * 10 + b"\x01\x00\x01\x01\x00",
    "bytes after the last record": b"\x0c\x00\x00\x00\x01\x01\x00" + b"more",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_hostile_records_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptError):
        records_of(payload)


def test_hostile_counts_are_corrupt() -> None:
    good = b"\x0c\x00\x00\x00\x01\x01\x00"
    assert records_of(good) == [Record(7, 1000, None, None)]
    assert records_of(good, count=0) == []
    for count in (-1, 2, 2**31 - 1):
        with pytest.raises(CorruptError):
            records_of(good, count=count)
    with pytest.raises(CorruptError, match="codec 6"):
        records_of(good, attributes=6)


def test_a_varint_has_five_bytes_and_32_bits() -> None:
    """Bits past the 32nd are dropped, as Java drops them; a sixth byte is too many."""
    assert records_of(b"\x14\x00\x00\x82\x80\x80\x80\x70\x01\x01\x00") == [Record(8, 1000, None, None)]
    with pytest.raises(CorruptError, match="5 bytes"):
        records_of(b"\x16\x00\x00\x82\x80\x80\x80\x80\x00\x01\x01\x00")


def test_a_header_key_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    assert records_of(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01")[0].headers == (("\ufffd", None),)


def test_long_headers_and_lengths_take_more_than_one_byte() -> None:
    records = [Record(0, NOW, b"k" * 9000, b"v" * 99, tuple((f"{number}" * 99, b"x" * 99) for number in range(200)))]
    assert list(batch.iterate(batch.build(records))) == records


@given(data=st.data())
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_damage_raises_nothing_but_corrupt(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(batch.build(data.draw(RECORDS), codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(16, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = packed[: data.draw(st.integers(0, len(packed)))]
    for hostile in (packed, cut):
        with suppress(CorruptError):
            for entry in batch.entries(hostile):
                for _ in batch.iterate(hostile, entry.position, 10_000):
                    pass


@given(noise=st.binary(min_size=61, max_size=200), magic=st.integers(0, 3))
def test_noise_raises_nothing_but_corrupt(noise: bytes, magic: int) -> None:
    framed = noise[:8] + struct.pack(">i", len(noise) - 12) + noise[12:16] + bytes((magic,)) + noise[17:]
    for hostile in (noise, framed):
        with suppress(CorruptError):
            for entry in batch.entries(hostile):
                for _ in batch.iterate(hostile, entry.position, 10_000):
                    pass


def test_the_walk_covers_every_magic_and_stops_at_a_torn_tail() -> None:
    records = [Record(3, NOW, b"k", b"v"), Record(4, NOW + 1, b"k", b"v")]
    parts = [build(records, 2), build(records[:1], 1), build(records, 1, Codec.GZIP), build(records[:1], 0)]
    data = b"".join(parts)
    expected = [
        (2, 3, 4, NOW + 1),
        (1, 3, 3, NOW),
        (1, -1, 4, NOW + 1),
        (0, 3, 3, -1),
    ]
    for tail in (b"", parts[0][:-1], parts[0][:60], parts[1][:20], parts[0][:16]):
        found = list(batch.entries(data + tail))
        assert [(entry.magic, *entry[3:]) for entry in found] == expected
        assert [data[entry.position : entry.position + entry.size] for entry in found] == parts
    assert list(batch.entries(memoryview(data))) == found


@pytest.mark.parametrize(
    ("length", "magic", "size"), [(13, 0, 100), (-1, 2, 100), (48, 2, 100), (48, 2, 60), (60, 3, 100), (21, 1, 100)]
)
def test_the_walk_refuses_what_cannot_be_an_entry(length: int, magic: int, size: int) -> None:
    data = struct.pack(">qiib", 0, length, 0, magic).ljust(size, b"\0")
    with pytest.raises(CorruptError):
        list(batch.entries(data))


def test_a_transaction_is_an_attribute_of_the_newest_format_only() -> None:
    records = [Record(0, 0x10 << 24, b"k", b"v")]  # in format 1 this is the byte with the attributes of format 2
    transactional = batch.build(records, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert batch.is_transactional(transactional)
    assert batch.is_transactional(memoryview(transactional + transactional))
    for data in (batch.build(records), build(records, 1), build(records, 0), transactional[:60], b""):
        assert not batch.is_transactional(data)
