"""Each rule by itself. That the rules are Apache Kafka's, in its order, is for `test_judged.py` to show."""

from __future__ import annotations

import struct
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.oracle import FORMATS, NOW, build, read, topic
from records.produce import KEYED, OLD, PLAIN, accept, changed, refuse, stored

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.compress import Codec
from ottla.records.validate import Accepted, RefusedError


@pytest.mark.parametrize("codec", Codec)
def test_a_plain_batch_is_stamped_and_not_touched(codec: int) -> None:
    data = batch.build(KEYED, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    accepted = accept(data)
    assert accepted.parts[1] == data[16:]
    assert accepted.header == batch.header(stored(accepted))
    assert accepted.header == batch.header(data)._replace(base_offset=1000, leader_epoch=7)
    assert accepted[:5] == (1000, 1002, NOW, 1002, -1)
    assert read(stored(accepted)) == [record._replace(offset=1000 + record.offset) for record in KEYED]


def test_a_torn_tail_is_left_out() -> None:
    data = batch.build(KEYED)
    for tail in (b"t", data[:20], data[:-1]):
        accepted = accept(data + tail)
        assert stored(accepted)[16:] == data[16:]
        assert accepted.size == len(data)


# The request


def test_a_batch_must_come_alone() -> None:
    data = batch.build(KEYED)
    refuse(ErrorCode.INVALID_RECORD, data + data)
    refuse(ErrorCode.INVALID_RECORD, data + data, version=2)
    refuse(ErrorCode.INVALID_RECORD, b"")
    refuse(ErrorCode.INVALID_RECORD, data[:-1])
    refuse(ErrorCode.INVALID_RECORD, data[:12])


def test_old_clients_may_send_nothing() -> None:
    assert accept(b"", version=2) == Accepted(-1, -1, -1, -1, -1, None, [], 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_for_old_requests(magic: int) -> None:
    refuse(ErrorCode.INVALID_RECORD, build(KEYED[:1], magic), version=3)


def test_zstd_is_for_new_requests() -> None:
    data = batch.build(KEYED, codec=Codec.ZSTD)
    refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, data, version=6)
    assert accept(data, version=7).size == len(data)


# The entry


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_wrong_checksum_is_corrupt(magic: int) -> None:
    data = build(KEYED[:1], magic)
    refuse(ErrorCode.CORRUPT_MESSAGE, data[:-1] + b"!", version=2)


def test_sizes_and_magics_that_cannot_be_are_corrupt() -> None:
    data = batch.build(KEYED)
    refuse(ErrorCode.CORRUPT_MESSAGE, data[:8] + struct.pack(">i", 13) + data[12:])
    refuse(ErrorCode.CORRUPT_MESSAGE, data[:8] + struct.pack(">i", 48) + data[12:])
    refuse(ErrorCode.CORRUPT_MESSAGE, data[:16] + b"\3" + data[17:])


def test_a_codec_that_does_not_exist_is_unsupported() -> None:
    refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, changed(batch.build(KEYED), attributes=5))


def test_a_client_counts_from_0() -> None:
    data = changed(batch.build(KEYED), base_offset=5)
    refuse(ErrorCode.INVALID_RECORD, data)
    assert accept(data, client=False).base == 1000


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_max_message_bytes(magic: int) -> None:
    data = build([Record(0, NOW, b"k", bytes(1000))], magic)
    config = {"message_format_version": FORMATS[magic]}
    assert accept(data, topic(max_message_bytes=len(data), **config), 2).size == len(data)
    refuse(ErrorCode.MESSAGE_TOO_LARGE, data, topic(max_message_bytes=len(data) - 1, **config), 2)


def test_max_message_bytes_holds_after_conversion() -> None:
    data = batch.build([Record(0, NOW, b"k", bytes(10_000))], codec=Codec.GZIP)
    assert accept(data, topic(max_message_bytes=1000)).size < 1000
    refuse(ErrorCode.MESSAGE_TOO_LARGE, data, topic(max_message_bytes=1000, compression_type="uncompressed"))


def test_what_does_not_fit_a_segment_is_too_large() -> None:
    data = batch.build([Record(0, NOW, b"k", bytes(2_000_000))])
    refuse(ErrorCode.RECORD_LIST_TOO_LARGE, data, topic(segment_bytes=1_048_576, max_message_bytes=10_000_000))


# The batch


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 2},
        {"count": 0, "last_offset_delta": -1},
        {"count": -3, "last_offset_delta": -4},
        {"last_offset_delta": 3},
        {"count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": batch.CONTROL},
        {"attributes": batch.TRANSACTIONAL},
        {"producer_id": 5, "producer_epoch": 0},
    ],
)
def test_headers_that_contradict_themselves_are_invalid(fields: dict[str, int]) -> None:
    data = changed(batch.build(KEYED), **fields)
    for config in (topic(cleanup_policy="compact"), topic(message_timestamp_type="LogAppendTime"), PLAIN):
        refuse(ErrorCode.INVALID_RECORD, data, config)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_wrong_count_that_agrees_with_the_offsets_is_found(codec: Codec, count: int) -> None:
    assert len(KEYED) == 3
    data = changed(batch.build(KEYED, codec=codec), count=count, last_offset_delta=count - 1)
    for config in (PLAIN, topic(cleanup_policy="compact"), topic(message_timestamp_type="LogAppendTime")):
        refuse(ErrorCode.INVALID_RECORD, data, config)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_does_not_inflate_is_refused(codec: Codec) -> None:
    data = changed(batch.build(KEYED), attributes=int(codec))
    refuse(ErrorCode.INVALID_RECORD, data)


def test_more_records_than_could_fit_are_invalid_without_a_look_inside() -> None:
    data = changed(batch.build(KEYED), count=10_000, last_offset_delta=9_999)
    refuse(ErrorCode.INVALID_RECORD, data)


def test_the_broker_writes_control_records() -> None:
    data = batch.build(
        [Record(0, NOW, b"\0\0\0\1", bytes(6))], control=True, transactional=True, producer_id=5, producer_epoch=0
    )
    for config in (PLAIN, topic(compression_type="gzip"), topic(cleanup_policy="compact")):
        accepted = accept(data, config, client=False)
        assert accepted.header is not None
        assert accepted.header.control
        assert accepted.header.codec == Codec.NONE, "markers are not compressed"


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_producers(magic: int) -> None:
    data = batch.build(KEYED, producer_id=5, producer_epoch=0, base_sequence=0)
    refuse(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, data, OLD[magic])


# The records


@pytest.mark.parametrize("codec", Codec)
def test_compacted_topics_want_keys(codec: int) -> None:
    compacted = topic(cleanup_policy="compact")
    data = batch.build(KEYED, codec=codec)
    assert stored(accept(data, compacted))[16:] == data[16:]
    some = [record._replace(key=None) if record.offset != 1 else record for record in KEYED]
    error = refuse(ErrorCode.INVALID_RECORD, batch.build(some, codec=codec), compacted)
    assert isinstance(error, RefusedError)
    assert [index for index, _ in error.record_errors] == [0, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("limits", "good", "bad"),
    [
        ({}, NOW + 3_600_000, NOW + 3_600_001),
        ({"message_timestamp_after_max_ms": 10}, NOW + 10, NOW + 11),
        ({"message_timestamp_before_max_ms": 10}, NOW - 10, NOW - 11),
    ],
)
def test_timestamps_have_limits(limits: dict[str, object], good: int, bad: int, codec: int) -> None:
    config = topic(**limits)
    records = [KEYED[0], KEYED[1]._replace(timestamp=good)]
    assert accept(batch.build(records, codec=codec), config).max_timestamp == max(NOW, good)
    records[1] = records[1]._replace(timestamp=bad)
    error = refuse(ErrorCode.INVALID_TIMESTAMP, batch.build(records, codec=codec), config)
    assert isinstance(error, RefusedError)
    assert [index for index, _ in error.record_errors] == [1]
    append = topic(message_timestamp_type="LogAppendTime", **limits)
    assert accept(batch.build(records, codec=codec), append).max_timestamp == NOW, "which replaces them anyway"


def test_no_timestamp_is_within_any_limits() -> None:
    records = [record._replace(timestamp=-1) for record in KEYED]
    accepted = accept(batch.build(records), topic(message_timestamp_before_max_ms=10))
    assert accepted.max_timestamp == -1
    assert accepted.last == 1002


def test_a_header_with_a_wrong_latest_timestamp_is_put_right() -> None:
    """Where the header alone would get the batch refused, or says nothing, the records are asked."""
    for wrong in (NOW + 10**9, NOW - 1, -1):
        accepted = accept(changed(batch.build(KEYED), max_timestamp=wrong))
        assert accepted.max_timestamp == NOW
        assert batch.header(stored(accepted)).max_timestamp == NOW


def test_timestamps_past_64_bits_are_refused() -> None:
    """The delta of a hostile record may carry the sum past what any field holds; in Kafka it wraps."""
    data = changed(batch.build([KEYED[0]]), base_timestamp=2**63 - 1, max_timestamp=-1)
    record = batch.encode_record(Record(0, 1, None, None), 0, 0)
    data = changed(data[:61] + record, length=49 + len(record))
    refuse(ErrorCode.INVALID_TIMESTAMP, data)


def test_negative_timestamps_cannot_be_packed_anew() -> None:
    data = build([KEYED[0]._replace(timestamp=-5)], 1)
    refuse(ErrorCode.INVALID_TIMESTAMP, data, version=2)


def test_records_that_do_not_parse_are_invalid() -> None:
    data = changed(batch.build(KEYED)[:-1] + b"\x7e")
    refuse(ErrorCode.INVALID_RECORD, data)
    refuse(ErrorCode.INVALID_RECORD, data, topic(compression_type="lz4"))
    refuse(ErrorCode.INVALID_RECORD, changed(batch.build(KEYED), attributes=Codec.GZIP), topic(compression_type="lz4"))


def test_messages_are_not_mixed() -> None:
    zero, one, wrapped = build(KEYED[:1], 0), build(KEYED[:1], 1), build(KEYED, 1, Codec.GZIP)
    refuse(ErrorCode.INVALID_RECORD, zero + one, version=2)
    refuse(ErrorCode.INVALID_RECORD, one + wrapped, version=2)
    refuse(ErrorCode.INVALID_RECORD, wrapped + wrapped, version=2)


def test_what_is_inside_a_wrapper_is_checked() -> None:
    def wrap(inside: bytes) -> bytes:
        from ottla.records.compress import compress

        return legacy._message(0, NOW, None, compress(Codec.GZIP, inside), 1, Codec.GZIP)

    inside = build(KEYED, 1)
    assert accept(wrap(inside), version=2).last == 1002
    refuse(ErrorCode.CORRUPT_MESSAGE, wrap(inside[:-1] + b"!"), version=2)
    refuse(ErrorCode.INVALID_RECORD, wrap(b""), version=2)
    refuse(ErrorCode.INVALID_RECORD, wrap(wrap(inside)), version=2)
    error = refuse(ErrorCode.INVALID_RECORD, wrap(inside + build(KEYED[:1], 0)), version=2)
    assert isinstance(error, RefusedError)
    assert [index for index, _ in error.record_errors] == [3]


CONFIGS = [
    PLAIN,
    topic(cleanup_policy="compact"),
    topic(compression_type="gzip"),
    topic(message_timestamp_type="LogAppendTime"),
    topic(message_timestamp_before_max_ms=10),
    *OLD.values(),
]


@given(data=st.data())
def test_damage_raises_nothing_but_broker_errors(data: st.DataObject) -> None:
    magic = data.draw(st.integers(0, 2))
    packed = bytearray(build(KEYED, magic, data.draw(st.sampled_from((Codec.NONE, Codec.GZIP, Codec.LZ4)))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    hostile = bytes(packed[: data.draw(st.integers(len(packed) // 2, len(packed)))])
    if len(hostile) >= 61 and magic == 2:
        hostile = changed(hostile)  # so that the damage is not just caught by the checksum
    elif len(hostile) >= 30:
        hostile = hostile[:12] + struct.pack(">I", crc32(hostile[16:])) + hostile[16:]
    for config in CONFIGS:
        for version in (2, 9):
            with suppress(BrokerError):
                accept(hostile, config, version)
