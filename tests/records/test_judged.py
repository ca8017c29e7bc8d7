"""Apache Kafka reads what we build, we read what it builds, and both convert and validate alike.

The same bytes go to Kafka's own classes and to ours. Libraries compress differently, so results are compared as bytes
where nothing is compressed, and field by field and record by record where something is.
"""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from records.golden import GOLDEN, Golden
from records.oracle import CODECS, FORMATS, NOW, build, read, topic

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import Record
from ottla.records.compress import Codec
from ottla.records.native import crc32c
from ottla.records.validate import RefusedError, validate

if TYPE_CHECKING:
    from records.oracle import Kafka

    from ottla.config import TopicConfig

SHAPES = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec != Codec.ZSTD]
TIMES = [None, NOW]
GAVE_UP = str(int(ErrorCode.UNKNOWN_SERVER_ERROR))


def sample(random: Random, count: int, *, magic: int, first: int = 0, gaps: bool = False) -> list[Record]:
    found, offset = [], first
    for _ in range(count):
        headers = tuple(
            ("é" * random.randrange(3), random.choice((None, b"", b"h"))) for _ in range(random.randrange(3))
        )
        found.append(
            Record(
                offset,
                random.choice((-1, NOW, NOW - random.randrange(10**6))) if magic else -1,
                random.choice((None, b"", b"key", random.randbytes(200))),
                random.choice((None, b"", b"value" * 50, random.randbytes(70_000))),
                headers if magic == 2 else (),
            )
        )
        offset += 1 + (random.randrange(5) if gaps else 0)
    return found


def seen(records: list[Record], magic: int, append_time: int | None) -> list[Record]:
    """The records as a reader sees them: log append time hides their own, magic 0 has none."""
    if magic == 0 or append_time is None:
        return records
    return [record._replace(timestamp=append_time) for record in records]


@pytest.mark.parametrize("append_time", TIMES)
@pytest.mark.parametrize(("magic", "codec"), SHAPES)
def test_kafka_reads_what_we_build(kafka: Kafka, magic: int, codec: int, append_time: int | None) -> None:
    records = sample(Random(1), 20, magic=magic, first=1000, gaps=True)
    assert kafka.read(build(records, magic, codec, append_time)) == seen(records, magic, append_time)


@pytest.mark.parametrize("append_time", TIMES)
@pytest.mark.parametrize(("magic", "codec"), SHAPES)
def test_we_read_what_kafka_builds(kafka: Kafka, magic: int, codec: int, append_time: int | None) -> None:
    records = sample(Random(2), 20, magic=magic, first=1000, gaps=True)
    theirs = kafka.build(records, magic, codec, append_time)
    assert read(theirs) == seen(records, magic, append_time)
    ours = build(records, magic, codec, append_time)
    if codec == Codec.NONE:
        assert ours == theirs
    assert same(ours, theirs)


@pytest.mark.parametrize("golden", GOLDEN)
def test_kafka_still_builds_the_golden_bytes(kafka: Kafka, golden: Golden) -> None:
    again = kafka.build(golden.written, golden.magic, golden.codec, golden.append_time)
    assert same(golden.data, again)
    assert golden.codec == Codec.GZIP or golden.data == again, "gzip differs with the release of Java"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("level", [1, 9])
def test_kafka_reads_every_level(kafka: Kafka, codec: int, level: int) -> None:
    records = sample(Random(3), 20, magic=2)
    assert kafka.read(batch.build(records, codec=codec, level=level)) == records


@pytest.mark.parametrize("append_time", TIMES)
@pytest.mark.parametrize("down_to", [0, 1])
@pytest.mark.parametrize(("magic", "codec"), [shape for shape in SHAPES if shape[1] != Codec.ZSTD])
def test_old_fetchers_get_the_same_from_both(
    kafka: Kafka, magic: int, codec: int, append_time: int | None, down_to: int
) -> None:
    random = Random(4)
    data = b"".join(
        build(sample(random, 5, magic=magic, first=first, gaps=True), magic, codec, append_time)
        for first in (100, 200, 300)
    )
    control = batch.build([Record(400, NOW, b"\0\0\0\1", b"")], control=True, transactional=True, producer_id=1)
    empty = batch.build([], base_offset=401, last_offset=409)
    data += control + empty
    for first_offset in (0, 102, 207):
        assert same(legacy.down_convert(data, down_to, first_offset), kafka.down(data, down_to, first_offset))


def test_zstd_is_not_converted_down(kafka: Kafka) -> None:
    records = [Record(0, NOW, b"k", b"v")]
    data = batch.build(records, codec=Codec.ZSTD)
    assert "UnsupportedCompressionType" in kafka.ask("down", 1, 0, data.hex())[1]
    with pytest.raises(BrokerError) as caught:
        legacy.down_convert(data, 1)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    before = batch.build(records)
    assert read(legacy.down_convert(before + data, 1)) == records, "what comes before it is served"


def same(ours: bytes, theirs: bytes) -> bool:
    """Equal but for the compressed bytes themselves, and the sizes and checksums that follow from them."""
    return facts(ours) == facts(theirs) and read(ours) == read(theirs)


def facts(data: bytes) -> list[Any]:
    found: list[Any] = []
    for entry in batch.entries(data):
        if entry.magic == batch.MAGIC:
            head = batch.header(data, entry.position)
            assert batch.crc_ok(data, entry.position, head)
            found.append(head if head.codec == Codec.NONE else head._replace(length=0, crc=0))
        else:
            old = legacy.outer(data, entry.position)
            assert legacy.crc_ok(data, entry.position, old)
            found.append(old if old.codec == Codec.NONE else old._replace(length=0, crc=0))
    return found


# Validation


def with_fields(data: bytes, **changes: int) -> bytes:
    """A v2 batch with some header fields changed, and a checksum that fits."""
    head = batch.header(data)._replace(**changes)
    changed = batch.HEADER.pack(*head) + data[batch.HEADER_SIZE :]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def produced(random: Random) -> bytes:
    """What some client, not always a sane one, may send."""
    magic, codec = random.choice(SHAPES)
    count = random.randrange(1, 6)
    records = [
        Record(
            offset,
            random.choice((NOW, NOW, NOW, NOW - 1000, NOW - 10**7, NOW + 10**6, NOW + 10**8, -1)) if magic else -1,
            random.choice((None, b"k", b"k", b"k")),
            random.choice((None, b"v", b"v" * 300)),
            (("h", b"x"),) if magic == 2 and random.random() < 0.2 else (),
        )
        for offset in range(count)
    ]
    append_time = random.choice((None,) * 8 + (NOW,))
    data = build(records, magic, codec, append_time)
    odd = random.randrange(12)
    if odd == 0:
        return flipped(data)
    if odd == 1:
        return data + random.choice((b"", b"tail", data[:-1], data, build(records, random.randrange(3))))
    if odd == 2 and magic == 1 and codec:
        return struct.pack(">q", 0) + data[8:]  # as some librdkafka releases number wrappers
    if odd == 3 and magic == 1 and codec:
        return build([record._replace(offset=2 * record.offset) for record in records], magic, codec, append_time)
    if odd in (4, 5, 6) and magic == 2:
        changes = random.choice(
            (
                {"base_offset": 5},
                {"last_offset_delta": count},
                {"last_offset_delta": -1, "count": 0},
                {"count": count + 1},
                {"attributes": codec | batch.CONTROL},
                {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
                {"producer_id": 5, "producer_epoch": 0, "base_sequence": 3},
                {"producer_id": 5, "producer_epoch": 0, "base_sequence": 3, "attributes": codec | batch.TRANSACTIONAL},
                {"max_timestamp": NOW + 10**9},
                {"max_timestamp": -1},
            )
        )
        return with_fields(data, **changes)
    return data


def settings(random: Random) -> dict[str, object]:
    return {
        "compression_type": random.choice(("producer", "producer", "producer", "uncompressed", *CODECS[1:])),
        "message_format_version": random.choice((*FORMATS, "3.0", "3.0", "3.0")),
        "message_timestamp_type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "message_timestamp_before_max_ms": random.choice((2**63 - 1, 10**6)),
        "message_timestamp_after_max_ms": random.choice((3_600_000, 3_600_000, 2 * 10**8)),
        "cleanup_policy": random.choice(("delete", "delete", "compact")),
        "max_message_bytes": random.choice((1_048_588, 1_048_588, 300)),
    }


@pytest.mark.parametrize("seed", range(40))
def test_both_accept_and_refuse_the_same(kafka: Kafka, seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        data, options, version = produced(random), settings(random), random.choice((0, 2, 2, 3, 6, 7, 9, 9))
        config = topic(**options)
        theirs = kafka.ask(
            "validate", version, 1000, NOW, config.compression_type, config.magic, config.message_timestamp_type,
            config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms, str(config.compacts).lower(),
            config.max_message_bytes, data.hex(),
        )  # fmt: skip
        ours = answer(data, config, version)
        where = f"seed {seed}: produce v{version} of {data.hex()} with {options}: {' '.join(theirs)} against {ours}"
        assert ours[0] == theirs[0], where
        if theirs[0] == "ok":
            assert ours[1:3] == theirs[1:3], where
            assert same(bytes.fromhex(ours[3]), bytes.fromhex(theirs[3])), where
        elif theirs[1] != GAVE_UP:
            assert ours[1:] == theirs[1:], where
        else:  # where Kafka has no answer ours must have one, and not one that makes the client try again
            assert int(ours[1]) not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE), where


def answer(data: bytes, config: TopicConfig, version: int) -> list[str]:
    """What we do with the data, in the oracle's words."""
    try:
        accepted = validate(memoryview(data), config, base=1000, epoch=7, now_ms=NOW, produce_version=version)
    except RefusedError as error:
        return ["refused", str(int(error.code)), ",".join(str(index) for index, _ in error.record_errors)]
    except BrokerError as error:
        return ["refused", str(int(error.code)), ""]
    stored = b"".join(accepted.parts)
    assert len(stored) == accepted.size
    return ["ok", str(accepted.last), str(accepted.max_timestamp), stored.hex()]
