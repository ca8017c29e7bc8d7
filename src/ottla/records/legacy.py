"""Messages, magic 0 and 1: reading, building, wrappers of compressed messages, and down-conversion for old clients.

    position  field                     magic 0    magic 1
    0         offset             i64
    8         length             i32               of everything after it
    12        crc                u32               CRC-32 (zlib) from the magic on
    16        magic              i8
    17        attributes         i8     codec      bits 0-2 codec, 3 LogAppendTime
    18        timestamp          i64    -          yes
    18 / 26   key length, key    i32               -1 is null
    ...       value length, value i32              -1 is null

There is no batch. A codec in the attributes makes a message a wrapper: no key, and its value is a compressed run of
messages. The wrapper has the offset of its LAST inner message, so the log never decompresses to find the next offset.
Inner offsets are absolute in magic 0, so the broker must recompress every wrapper it appends; magic 1 counts them from
0 instead. A wrapper at offset 0 is taken as relative to 0 (some librdkafka releases send that).
Under LogAppendTime the wrapper's timestamp and type apply to all inner messages. Wrappers do not nest.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch
from ottla.records.batch import (
    CODEC_MASK,
    COUNT_MAX,
    ENTRY_LENGTH_MIN,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    Record,
)
from ottla.records.check import OVER, WRONG, RecordLimits
from ottla.records.compress import SIZE_MAX, Codec, CorruptError, InflatedError, compress, decompress
from ottla.records.native import portion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.records.compress import Buffer

_HEAD: Final = Struct(">qiIbB")  # offset, length, crc, magic, attributes
_BODY: Final = (18, 26)  # position of the key's length, by magic
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")


# Down-conversion: the limits of one answer, and of decompressing a batch for it.
PORTION: Final = RecordLimits(1 << 20, 2_000)
CONVERTED_MAX: Final = RecordLimits(8 << 20, 1 << 31)


class ChecksumError(CorruptError):
    """A message inside a wrapper was damaged before it was compressed."""


class Outer(NamedTuple):
    """The fixed part of a message. `timestamp` is -1 in magic 0."""

    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME != 0


class Inner(NamedTuple):
    """A complete message with its absolute offset; `magic` is its own, not its wrapper's."""

    record: Record
    magic: int


def outer(buffer: Buffer, position: int = 0) -> Outer:
    """The caller guarantees that length + 12 bytes are there, and that the length is at least 14."""
    offset, length, crc, magic, attributes = _HEAD.unpack_from(buffer, position)
    if magic == 0:
        return Outer(offset, length, crc, magic, attributes, NO_TIMESTAMP)
    if length < 22:
        raise CorruptError(f"a magic 1 message cannot have {length} bytes")
    return Outer(offset, length, crc, magic, attributes, _LONG.unpack_from(buffer, position + 18)[0])


def crc_ok(buffer: Buffer, position: int, outer: Outer) -> bool:
    view = memoryview(buffer)[position + MAGIC_POSITION : position + outer.length + LOG_OVERHEAD]
    return crc32(view) == outer.crc


def iterate(
    buffer: Buffer, position: int = 0, size_max: int = SIZE_MAX, count_max: int = COUNT_MAX
) -> Iterator[Record]:
    """The records of the message or wrapper at `position`."""
    for message in messages(buffer, position, size_max, count_max):
        yield message.record


def messages(
    buffer: Buffer,
    position: int = 0,
    size_max: int = SIZE_MAX,
    count_max: int = COUNT_MAX,
    *,
    check: bool = False,
) -> list[Inner]:
    """Like `iterate`, with the fields that a validator needs. `check` also verifies the CRC of inner messages."""
    head = outer(buffer, position)
    key, value = _content(buffer, position, head)
    if head.codec == Codec.NONE:
        return [Inner(Record(head.offset, head.timestamp, key, value), head.magic)]
    if value is None:
        raise CorruptError("a wrapper has no messages")
    if head.codec == Codec.ZSTD:
        raise CorruptError("zstd came after magic 0 and 1")
    return _unwrap(head, decompress(head.codec, value, size_max, magic=head.magic), count_max, check)


def _unwrap(wrapper: Outer, data: bytes, count_max: int, check: bool) -> list[Inner]:
    found: list[Inner] = []
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD + ENTRY_LENGTH_MIN:
        head = outer(data, position)
        if head.length < ENTRY_LENGTH_MIN:
            raise CorruptError(f"a message cannot have {head.length} bytes")
        if position + LOG_OVERHEAD + head.length > end:
            break
        if head.codec != Codec.NONE:
            raise CorruptError("a wrapper within a wrapper")
        if check and not crc_ok(data, position, head):
            raise ChecksumError("a message inside a wrapper fails its checksum")
        if len(found) == count_max:
            raise InflatedError(f"a wrapper of more than {count_max} messages")
        key, value = _content(data, position, head)
        timestamp = wrapper.timestamp if head.magic != 0 and wrapper.log_append_time else head.timestamp
        found.append(Inner(Record(head.offset, timestamp, key, value), head.magic))
        position += LOG_OVERHEAD + head.length
    if not found:
        raise CorruptError("a wrapper has no messages")
    base = _base_offset(wrapper, found[-1].record.offset)
    if base == 0:
        return found
    return [message._replace(record=message.record._replace(offset=base + message.record.offset)) for message in found]


def _base_offset(wrapper: Outer, last_inner: int) -> int:
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner:
        raise CorruptError(f"a wrapper at offset {wrapper.offset} holds relative offset {last_inner}")
    return wrapper.offset - last_inner


def _content(buffer: Buffer, position: int, head: Outer) -> tuple[bytes | None, bytes | None]:
    end = position + LOG_OVERHEAD + head.length
    key, position = _blob(buffer, position + _BODY[head.magic != 0], end)
    value, _ = _blob(buffer, position, end)
    return key, value


def _blob(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < 4:
        raise CorruptError("a message is cut short")
    size: int = _INT.unpack_from(buffer, position)[0]
    position += 4
    if size < 0:
        return None, position
    if size > end - position:
        raise CorruptError("a message is cut short")
    return bytes(buffer[position : position + size]), position + size


def build(
    records: Sequence[Record],
    *,
    magic: int,
    codec: int = Codec.NONE,
    level: int | None = None,
    append_time: int | None = None,
) -> bytes:
    """The records at their own offsets as messages, or in one wrapper if a codec is given. Headers are lost."""
    attributes = LOG_APPEND_TIME if magic == 1 and append_time is not None else 0
    # Inner offsets of magic 1 count from the first record; all others are absolute.
    base = records[0].offset if magic == 1 and codec != Codec.NONE else 0
    data = b"".join(
        _message(offset - base, timestamp if append_time is None else append_time, key, value, magic, attributes)
        for offset, timestamp, key, value, _ in records
    )
    if codec == Codec.NONE:
        return data
    assert codec != Codec.ZSTD, "zstd came after magic 0 and 1"
    latest = max(record.timestamp for record in records) if append_time is None else append_time
    inside = compress(codec, data, level, magic=magic)
    return _message(records[-1].offset, latest, None, inside, magic, attributes | codec)


def _message(offset: int, timestamp: int, key: bytes | None, value: bytes | None, magic: int, attributes: int) -> bytes:
    parts = [bytes((magic, attributes))]
    if magic == 1:
        parts.append(_LONG.pack(timestamp))
    for content in (key, value):
        parts += (_NULL,) if content is None else (_INT.pack(len(content)), content)
    data = b"".join(parts)
    return _FRAME.pack(offset, len(data) + 4, crc32(data)) + data


_FRAME: Final = Struct(">qiI")
_NULL: Final = _INT.pack(-1)


def restamp(
    data: memoryview, position: int, head: Outer, *, offset: int, timestamp: int, append: bool
) -> list[bytes | memoryview]:
    """The message with its final offset and, in magic 1, its final timestamp and type. As parts, to avoid a copy."""
    end = position + LOG_OVERHEAD + head.length
    if head.magic == 0 or (head.timestamp == timestamp and head.log_append_time == append):
        return [_LONG.pack(offset), data[position + 8 : end]]
    attributes = head.codec | (LOG_APPEND_TIME if append else 0)
    fixed = bytes((head.magic, attributes)) + _LONG.pack(timestamp)
    rest = data[position + _BODY[1] : end]
    return [_FRAME.pack(offset, head.length, crc32(rest, crc32(fixed))) + fixed, rest]


def down_convert(data: Buffer, magic: int, first_offset: int = 0) -> bytes:
    """Convert `data` for a client that knows no newer format than `magic` (0 or 1).

    Entries of an old format are sent unchanged. From newer ones control batches are dropped, and headers, producer
    fields and (for magic 0) timestamps are lost; offsets stay, and what was compressed stays compressed. Uncompressed
    messages before `first_offset` are left out, because some librdkafka releases assume that the first message is the
    requested one. The old formats cannot hold zstd: if nothing was converted yet, that is an error; otherwise the
    answer ends there and the next fetch gets the error.

    This blocks all other clients, so an answer ends after `PORTION`. A larger batch is sent in portions, each from
    `first_offset` on. A batch that decompresses to more than `CONVERTED_MAX` is refused.
    """
    found: list[bytes] = []
    left = PORTION
    for entry in batch.entries(data):
        view = memoryview(data)[entry.position : entry.position + entry.size]
        if entry.magic == batch.MAGIC:
            head = batch.header(view)
            if head.control:
                continue
            codec, append_time = head.codec, head.max_timestamp if head.log_append_time else None
        else:
            old = outer(view)
            codec, append_time = old.codec, old.timestamp if old.log_append_time else None
        if codec == Codec.ZSTD:
            if found:
                break
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd batches cannot be converted down")
        if entry.magic <= magic:
            found.append(bytes(view))
            continue
        if left.records <= 0 or left.inflated <= 0:
            break
        try:
            records, whole = _portion(view, first_offset, codec)
        except InflatedError:
            if found:
                break
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "a batch is too large to be converted down") from None
        if records:
            found.append(build(records, magic=magic, codec=codec, append_time=append_time))
        if not whole:
            break
        size = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        left = RecordLimits(left.inflated - size, left.records - len(records))
    return b"".join(found)


def _portion(view: memoryview, first_offset: int, codec: int) -> tuple[list[Record], bool]:
    """The records of one entry to convert, and whether they are the rest of it. InflatedError if it is too large."""
    if view[MAGIC_POSITION] != batch.MAGIC:
        messages = iterate(view, 0, CONVERTED_MAX.inflated, PORTION.records)
        return [one for one in messages if codec != Codec.NONE or one.offset >= first_offset], True
    count = batch.header(view).count
    if codec != Codec.NONE and count <= PORTION.records:
        picked = _pick(view, 0)
        if len(picked) == count:
            return picked, True
    picked = _pick(view, first_offset)
    last = batch.header(view).last_offset
    return picked, not picked or picked[-1].offset >= last


def _pick(view: memoryview, start: int) -> list[Record]:
    state, detail, picked = portion(
        view, start, records_max=PORTION.records, bytes_max=PORTION.inflated, limits=CONVERTED_MAX
    )
    if state == OVER:
        raise InflatedError(f"a batch inflates to more than {CONVERTED_MAX.inflated} bytes")
    if state == WRONG:
        raise CorruptError(detail)
    return [Record(*one[:4]) for one in picked]
