"""The broker's check of a batch (magic 2): its checksum, and a complete walk over its records. Reference in Python.

`native.check` does the same in the crate, in windows and without an object for each record. This module defines the
results, and replaces the crate where it is not built. Property tests check that both are equal.

Laws, of both:
- The checksum comes first. Then the records must decompress to exactly `count` records. Each must end where its size
  says, and so must its key, value and headers. A length of -1 is null, smaller ones are invalid. Header keys are not
  null.
- The offset of a record is its index: clients number from 0.
- Timestamps are 64-bit sums that wrap, as in Kafka, and are compared with the limits of the topic as Kafka does.
- Frames are Kafka's: lz4 has one frame of independent blocks, with every checksum right and nothing after it.
- Limits on the decompressed size and the number of records end the walk with OVER. Then the batch may be valid or not.

The limits here are lower than those of the crate, because the walk in Python blocks all other clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records.batch import (
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    header,
)
from ottla.records.compress import Codec, CorruptError, InflatedError, compress, decompress, lz4_check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.records.batch import Header
    from ottla.records.compress import Buffer

SOUND, CHECKSUM, WRONG, OVER, LARGE = range(5)  # Verdict.state; LARGE: too large after recompression
NO_KEY, BAD_TIME, BAD_TYPE = 1, 2, 3  # the rules a record can break
INFLATED_MAX: Final = 16 << 20
RECORDS_MAX: Final = 200_000

LOOP_RECORDS_MAX: Final = 20_000  # on the loop, at about two microseconds each

_LOW: Final = 0xFFFFFFFFFFFFFFFF
_SIGN: Final = 1 << 63


class Rules(NamedTuple):
    """The topic's requirements for each record."""

    keyed: bool
    create_time: bool
    now_ms: int
    before_ms: int
    after_ms: int
    errors_max: int  # how many refused records are listed


class RecordLimits(NamedTuple):
    inflated: int
    records: int


class Verdict(NamedTuple):
    state: int
    detail: str  # what is WRONG
    inflated: int  # bytes
    latest: int  # the largest timestamp, at least -1
    latest_index: int  # of the first record that has it
    negative: bool  # a timestamp is below -1
    errors: list[tuple[int, int, int]]  # index, broken rule, timestamp
    errors_total: int
    bad_times: bool  # whether a broken rule is about timestamps


class CheckedRecord(NamedTuple):
    offset_delta: int
    time_delta: int
    has_key: bool


def on_loop(limits: RecordLimits) -> RecordLimits:
    """The lower limits for a check in Python on the event loop."""
    return RecordLimits(limits.inflated, min(limits.records, LOOP_RECORDS_MAX))


def wrap(value: int) -> int:
    """As a signed 64-bit number."""
    return ((value + _SIGN) & _LOW) - _SIGN


def check(data: Buffer, rules: Rules, limits: RecordLimits) -> Verdict:
    return _check(data, rules, limits)[0]


def transcode(
    data: Buffer, rules: Rules, limits: RecordLimits, codec: int, level: int | None, size_max: int
) -> tuple[Verdict, bytes]:
    """Check, and if no record is refused, recompress all with another codec into at most `size_max` bytes."""
    verdict, content = _check(data, rules, limits)
    if verdict.state != SOUND or verdict.errors_total:
        return verdict, b""
    packed = compress(codec, content, level)
    if len(packed) > size_max:
        return _verdict(LARGE), b""
    return verdict, packed


def _verdict(state: int, detail: str = "") -> Verdict:
    return Verdict(state, detail, 0, NO_TIMESTAMP, -1, False, [], 0, False)


def _check(data: Buffer, rules: Rules, limits: RecordLimits) -> tuple[Verdict, bytes]:
    from ottla.records.native import crc32c

    limits = RecordLimits(min(limits.inflated, INFLATED_MAX), min(limits.records, RECORDS_MAX))
    if len(data) < HEADER_SIZE or data[MAGIC_POSITION] != MAGIC:
        return _verdict(WRONG, "not one batch"), b""
    head = header(data)
    if head.length + LOG_OVERHEAD != len(data):
        return _verdict(WRONG, "not one batch"), b""
    if crc32c(memoryview(data)[CRC_POSITION:]) != head.crc:
        return _verdict(CHECKSUM), b""
    try:
        content = inflate(head.attributes & CODEC_MASK, memoryview(data)[HEADER_SIZE:], limits.inflated)
        return _judge(head, content, rules, limits), content
    except InflatedError:
        return _verdict(OVER), b""
    except CorruptError as error:
        return _verdict(WRONG, error.message), b""


def inflate(codec: int, payload: memoryview, size_max: int) -> bytes:
    """The decompressed records of a batch. Strict: what Kafka would not read is refused even if our codecs could."""
    if codec == Codec.NONE:
        if len(payload) > size_max:
            raise InflatedError(f"records take more than {size_max} bytes")
        return bytes(payload)
    if codec == Codec.LZ4:
        lz4_check(payload)
    return decompress(codec, payload, size_max)


def _judge(head: Header, content: bytes, rules: Rules, limits: RecordLimits) -> Verdict:
    if head.count * RECORD_SIZE_MIN > len(content):
        raise CorruptError(f"{len(content)} bytes cannot hold {head.count} records")
    if head.count > limits.records:
        return _verdict(OVER)
    keyed, create_time, now_ms, before_ms, after_ms, errors_max = rules
    append_time = head.attributes & LOG_APPEND_TIME != 0
    latest, latest_index, negative, bad_times = NO_TIMESTAMP, -1, False, False
    errors: list[tuple[int, int, int]] = []
    total = 0
    for index, (offset_delta, time_delta, has_key) in enumerate(walk(content, head.count)):
        if offset_delta != index:
            raise CorruptError(f"record {index} has the offset of record {offset_delta}")
        timestamp = head.max_timestamp if append_time else wrap(head.base_timestamp + time_delta)
        if timestamp > latest:
            latest, latest_index = timestamp, index
        elif timestamp < NO_TIMESTAMP:
            negative = True
        broken = 0
        if keyed and not has_key:
            broken = NO_KEY
        elif create_time and timestamp != NO_TIMESTAMP:
            age = wrap(now_ms - timestamp)
            if age > before_ms or wrap(-age) > after_ms:
                broken = BAD_TIME
        elif append_time:
            broken = BAD_TYPE
        if broken:
            total += 1
            bad_times = bad_times or broken != NO_KEY
            if len(errors) < errors_max:
                errors.append((index, broken, timestamp))
    return Verdict(SOUND, "", len(content), latest, latest_index, negative, errors, total, bad_times)


def walk(content: bytes, count: int) -> Iterator[CheckedRecord]:
    """All fields of `count` records. CorruptError if there are fewer or more, or one is malformed."""
    position, end = 0, len(content)
    try:
        for _ in range(count):
            size, position = varint(content, position)
            if size < 0:
                raise CorruptError("a record has a negative size")
            stop = position + size
            time_delta, position = varlong(content, position + 1)
            offset_delta, position = varint(content, position)
            has_key, position = _skip(content, position, stop)
            _, position = _skip(content, position, stop)
            headers, position = varint(content, position)
            if headers:
                if headers < 0 or headers > max(stop - position, 0):
                    raise CorruptError(f"a record cannot have {headers} headers")
                for _ in range(headers):
                    there, position = _skip(content, position, stop)
                    if not there:
                        raise CorruptError("a header key cannot be null")
                    _, position = _skip(content, position, stop)
            if position != stop:
                raise CorruptError("a record does not end where its size says")
            yield CheckedRecord(offset_delta, time_delta, has_key)
    except IndexError:
        raise CorruptError("a record is cut short") from None
    if position != end:
        raise CorruptError(f"bytes follow the last of {count} records")


def _skip(content: bytes, position: int, stop: int) -> tuple[bool, int]:
    """Skip a key or value, which must end before `stop`. Returns whether it is not null, and the position after it."""
    size, position = varint(content, position)
    if size < 0:
        if size < -1:
            raise CorruptError("a length is below -1")
        return False, position
    if size > max(stop - position, 0):
        raise CorruptError("a length reaches past its record")
    if position + size > len(content):
        raise CorruptError("a record is cut short")
    return True, position + size


def varint(content: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of 32 bits, and the position after it."""
    low = content[position]
    if low < 128:
        return (low >> 1) ^ -(low & 1), position + 1
    value, position = _long(content, position, 5)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def varlong(content: bytes, position: int) -> tuple[int, int]:
    low = content[position]
    if low < 128:
        return (low >> 1) ^ -(low & 1), position + 1
    value, position = _long(content, position, 10)
    value &= _LOW
    return (value >> 1) ^ -(value & 1), position


def _long(content: bytes, position: int, size_max: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * size_max, 7):
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise CorruptError("a varint is too long")
