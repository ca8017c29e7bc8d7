"""How accepted records are stored. `test_judged.py` compares it with what Apache Kafka stores."""

from __future__ import annotations

import pytest
from records.oracle import NOW, build, read, topic
from records.produce import KEYED, OLD, accept, refuse, stored

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.batch import Record
from ottla.records.compress import Codec
from ottla.records.validate import RefusedError


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_replaces_timestamps(codec: int) -> None:
    records = [record._replace(timestamp=NOW - 5000 - record.offset) for record in KEYED]
    accepted = accept(batch.build(records, codec=codec), topic(message_timestamp_type="LogAppendTime"))
    assert (accepted.max_timestamp, accepted.append_time) == (NOW, NOW)
    assert accepted.header == batch.header(stored(accepted))
    assert accepted.header.log_append_time
    assert [record.timestamp for record in read(stored(accepted))] == [NOW] * 3


def test_log_append_time_is_not_for_clients_to_set() -> None:
    data = batch.build(KEYED, append_time=NOW - 7)
    error = refuse(ErrorCode.INVALID_TIMESTAMP, data, topic(message_timestamp_type="LogAppendTime"))
    assert isinstance(error, RefusedError)
    assert len(error.record_errors) == 3
    accepted = accept(data)
    assert accepted.header is not None
    assert not accepted.header.log_append_time, "where create time is wanted the flag is dropped, as Kafka drops it"
    assert read(stored(accepted))[0].timestamp == NOW


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topic_chooses_the_codec(source: int, target: str) -> None:
    headers = [record._replace(headers=(("h", b"x"),)) for record in KEYED]
    data = batch.build(headers, codec=source, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    accepted = accept(data, topic(compression_type=target))
    head = batch.header(stored(accepted))
    assert head == accepted.header
    assert head.codec == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[target]
    assert head[9:12] == (5, 1, 9)
    assert head.transactional
    assert head.leader_epoch == 7
    assert read(stored(accepted)) == [record._replace(offset=1000 + record.offset) for record in headers]


def test_the_topic_chooses_the_level() -> None:
    words = b" ".join(b"%d" % (number * 7919) for number in range(20_000))
    data = batch.build([Record(0, NOW, b"k", words)])
    low, high = (accept(data, topic(compression_type="gzip", compression_gzip_level=level)).size for level in (1, 9))
    assert high < low


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_one_batch(magic: int, codec: int) -> None:
    accepted = accept(build(KEYED, magic, codec), version=2)
    head = batch.header(stored(accepted))
    assert head == accepted.header
    assert (head.base_offset, head.last_offset, head.count, head.codec) == (1000, 1002, 3, codec)
    assert (head.producer_id, head.base_sequence, head.leader_epoch) == (-1, -1, 7)
    time = NOW if magic else -1
    assert (accepted.max_timestamp, head.max_timestamp) == (time, time)
    assert read(stored(accepted)) == [r._replace(offset=1000 + r.offset, timestamp=time) for r in KEYED]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_topics_keep_the_old_format(magic: int, source: int, codec: int) -> None:
    accepted = accept(build(KEYED, source, codec), OLD[magic], version=2)
    entries = list(batch.entries(stored(accepted)))
    assert accepted.header is None
    assert [entry.magic for entry in entries] == [magic] * (3 if codec == Codec.NONE else 1)
    assert (accepted.base, accepted.last, entries[-1].last_offset) == (1000, 1002, 1002)
    time = NOW if magic and source else -1
    assert read(stored(accepted)) == [r._replace(offset=1000 + r.offset, timestamp=time) for r in KEYED]


def test_a_wrapper_of_magic_1_is_stamped_in_place_if_its_offsets_count_from_0() -> None:
    data = build(KEYED, 1, Codec.GZIP)
    assert stored(accept(data, OLD[1], version=2))[8:] == data[8:]
    gaps = build([record._replace(offset=2 * record.offset) for record in KEYED], 1, Codec.GZIP)
    assert [record.offset for record in read(stored(accept(gaps, OLD[1], version=2)))] == [1000, 1001, 1002]


def test_log_append_time_in_magic_1() -> None:
    config = topic(message_format_version="0.10.2", message_timestamp_type="LogAppendTime")
    old = [record._replace(timestamp=5) for record in KEYED]
    for codec, first in ((Codec.NONE, 1000), (Codec.GZIP, 1002)):
        accepted = accept(build(old, 1, codec), config, version=2)
        assert [record.timestamp for record in read(stored(accepted))] == [NOW] * 3
        assert accepted[2:5] == (NOW, first, NOW), "the first entry with the latest timestamp"


def test_the_first_of_equal_timestamps_counts() -> None:
    records = [KEYED[0]._replace(timestamp=5), *KEYED[1:]]
    assert accept(build(records, 1), OLD[1], version=2).offset_of_max_timestamp == 1001
    assert accept(batch.build(records), OLD[1], version=3).offset_of_max_timestamp == 1001
    assert accept(build(records, 1, Codec.GZIP), OLD[1], version=2).offset_of_max_timestamp == 1002


def test_old_formats_cannot_hold_what_is_new() -> None:
    headers = [KEYED[0]._replace(headers=(("h", b"x"),))]
    refuse(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, batch.build(headers), OLD[1])
    refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, batch.build(KEYED, codec=Codec.ZSTD), OLD[1])
