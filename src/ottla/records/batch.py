"""Record batches, magic 2: the header as a view, the checksum, lazy iteration, building; and a walk over any magic.

    position  field                  position  field
    0         base_offset      i64   27        base_timestamp   i64
    8         length           i32   35        max_timestamp    i64
    12        leader_epoch     i32   43        producer_id      i64
    16        magic            i8    51        producer_epoch   i16
    17        crc              u32   53        base_sequence    i32
    21        attributes       i16   57        count            i32
    23        last_offset_delta i32  61        records, compressed as one block if a codec is set

`length` counts what follows it, so a batch is length + 12 bytes. The CRC-32C covers everything from the attributes on;
base offset and leader epoch lie before it, so the broker stamps both without touching the checksum.

    attributes   bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 base_timestamp is a delete horizon
    record       length, attributes i8, timestamp delta, offset delta, key, value, header count, (key, value) ...
                 every length, delta and count is a zigzag varint; a length of -1 is null

Under LogAppendTime every record has the batch's max_timestamp, whatever its delta says. After compaction offsets have
gaps and last_offset_delta may lie past the last record. Formats before this one are in `legacy`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records.compress import SIZE_MAX, Codec, CorruptError, InflatedError, compress, decompress
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.records.compress import Buffer

HEADER: Final = Struct(">qiibIhiqqqhii")
TAIL: Final = Struct(">hiqqqhii")  # what lies between the checksum and the records
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, common to every magic
MAGIC: Final = 2
MAGIC_POSITION: Final = 16  # in every magic, by design
CRC_POSITION: Final = 21  # where the checksummed part begins
ENTRY_LENGTH_MIN: Final = 14  # the smallest `length` of any magic: an empty magic 0 message
RECORD_SIZE_MIN: Final = 7
COUNT_MAX: Final = 5_000_000  # the most records of one batch that Python reads

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 0x7FFFFFFF

Headers = tuple[tuple[str, bytes | None], ...]

_INT: Final = Struct(">i")
_new = tuple.__new__  # builds a NamedTuple in a third of the time of calling it


class Header(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # of records; hides the unused tuple.count()

    @property
    def size(self) -> int:
        return self.length + LOG_OVERHEAD

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon(self) -> int | None:
        """When the tombstones and markers of a compacted batch may be removed; None if the cleaner has not set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX  # 0 follows the largest

    @property
    def idempotent(self) -> bool:
        return self.producer_id > NO_PRODUCER


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Entry(NamedTuple):
    """One entry of the log: a v2 batch, a legacy message, or a legacy wrapper of compressed messages."""

    position: int
    size: int
    magic: int
    base_offset: int  # -1: unknown, because it is inside a legacy wrapper
    last_offset: int
    max_timestamp: int


def header(buffer: Buffer, position: int = 0) -> Header:
    """The caller guarantees that there are 61 bytes."""
    return _new(Header, HEADER.unpack_from(buffer, position))


def is_transactional(buffer: Buffer) -> bool:
    """Whether the first batch is part of a transaction. Formats before this one have other bytes in that place."""
    if len(buffer) < HEADER_SIZE or buffer[MAGIC_POSITION] != MAGIC:
        return False
    return bool(header(buffer).attributes & TRANSACTIONAL)


def crc_ok(buffer: Buffer, position: int, header: Header) -> bool:
    view = memoryview(buffer)[position + CRC_POSITION : position + header.length + LOG_OVERHEAD]
    return crc32c(view) == header.crc


def entries(buffer: Buffer) -> Iterator[Entry]:
    """Stops before an incomplete entry at the end. Raises CorruptError if the bytes cannot be an entry."""
    position, end, unpack, new = 0, len(buffer), HEADER.unpack_from, _new
    while (left := end - position) > MAGIC_POSITION:
        magic = buffer[position + MAGIC_POSITION]
        if magic == MAGIC and left >= HEADER_SIZE:
            fields = unpack(buffer, position)
            size = fields[1] + LOG_OVERHEAD
            if size < HEADER_SIZE:
                raise CorruptError(f"a batch of {size} bytes is smaller than its header")
            if size > left:
                return
            yield new(Entry, (position, size, MAGIC, fields[0], fields[0] + fields[6], fields[8]))
        else:
            length: int = _INT.unpack_from(buffer, position + 8)[0]
            if length < ENTRY_LENGTH_MIN:
                raise CorruptError(f"an entry of length {length} is smaller than the smallest, {ENTRY_LENGTH_MIN}")
            if magic > MAGIC:
                raise CorruptError(f"no record format has magic {magic}")
            size = length + LOG_OVERHEAD
            if size > left:
                return
            yield _legacy_entry(buffer, position)
        position += size


def _legacy_entry(buffer: Buffer, position: int) -> Entry:
    if buffer[position + MAGIC_POSITION] == MAGIC:
        raise CorruptError("a batch is smaller than its header")
    from ottla.records import legacy

    outer = legacy.outer(buffer, position)
    first = outer.offset if outer.codec == Codec.NONE else -1
    return Entry(position, outer.length + LOG_OVERHEAD, outer.magic, first, outer.offset, outer.timestamp)


def iterate(
    buffer: Buffer, position: int = 0, size_max: int = SIZE_MAX, count_max: int = COUNT_MAX
) -> Iterator[Record]:
    """The records of the entry at `position`, of any magic. The caller guarantees that all of it is there.

    InflatedError if it would decompress to more than `size_max` bytes, or has more than `count_max` records.
    """
    if buffer[position + MAGIC_POSITION] != MAGIC:
        from ottla.records import legacy

        return legacy.iterate(buffer, position, size_max, count_max)
    fields = header(buffer, position)
    if fields.count > count_max:
        raise InflatedError(f"a batch of {fields.count} records, allowed are {count_max}")
    if fields.count == 0:  # compaction removed all records and kept the offsets
        return iter(())
    view = memoryview(buffer)[position + HEADER_SIZE : position + fields.length + LOG_OVERHEAD]
    return _records(fields, decompress(fields.attributes & CODEC_MASK, view, size_max))


def _records(header: Header, data: bytes) -> Iterator[Record]:
    """Reads varints inline: this loop is most of the cost of compaction, and a call per field would double it."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    count, position, end, new, record = header.count, 0, len(data), _new, Record
    if count < 0:
        raise CorruptError(f"a batch cannot have {count} records")
    try:
        for _ in range(count):
            length = data[position]
            position += 1
            if length > 127:
                length, position = _varint(data, position, length)
            stop = position + (length >> 1)
            if length & 1 or stop > end:
                raise CorruptError("a record is cut short")

            time_delta = data[position + 1]  # after the attributes, which are unused
            position += 2
            if time_delta > 127:
                time_delta, position = _varlong(data, position, time_delta)
            offset_delta = data[position]
            position += 1
            if offset_delta > 127:
                offset_delta, position = _varint(data, position, offset_delta)

            size = data[position]
            position += 1
            if size > 127:
                size, position = _varint(data, position, size)
            key = None if size & 1 else data[position : (position := position + (size >> 1))]
            size = data[position]
            position += 1
            if size > 127:
                size, position = _varint(data, position, size)
            value = None if size & 1 else data[position : (position := position + (size >> 1))]

            headers: Headers = ()
            if data[position] == 0:
                position += 1
            else:
                headers, position = _headers(data, position)
            if position != stop:
                raise CorruptError(f"a record of {length >> 1} bytes ends {position - stop} bytes off")
            yield new(
                record,
                (
                    base_offset + ((offset_delta >> 1) ^ -(offset_delta & 1)),
                    base_timestamp + ((time_delta >> 1) ^ -(time_delta & 1)) if append_time is None else append_time,
                    key,
                    value,
                    headers,
                ),
            )
    except IndexError:
        raise CorruptError("a record is cut short") from None
    if position != end:
        raise CorruptError(f"{end - position} bytes follow the last of {count} records")


def _headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _varint(data, position + 1, data[position])
    if count & 1 or count >> 1 > len(data) - position:
        raise CorruptError(f"a record cannot have {(count >> 1) ^ -(count & 1)} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        size, position = _varint(data, position + 1, data[position])
        if size & 1:
            raise CorruptError("a header key cannot be null")
        key = data[position : (position := position + (size >> 1))]
        size, position = _varint(data, position + 1, data[position])
        value = None if size & 1 else data[position : (position := position + (size >> 1))]
        try:
            found.append((key.decode(), value))
        except UnicodeDecodeError:
            found.append((key.decode(errors="replace"), value))  # as the Java reader does
    return tuple(found), position


def _varint(data: bytes, position: int, low: int) -> tuple[int, int]:
    """The rest of an unsigned 32-bit varint whose first byte was `low`, and the position after it."""
    value, shift = low & 127, 7
    while low > 127:
        low = data[position]
        position += 1
        value |= (low & 127) << shift
        shift += 7
        if shift > 35:
            raise CorruptError("a varint is longer than 5 bytes")
    return value & 0xFFFFFFFF, position


def _varlong(data: bytes, position: int, low: int) -> tuple[int, int]:
    value, shift = low & 127, 7
    while low > 127:
        low = data[position]
        position += 1
        value |= (low & 127) << shift
        shift += 7
        if shift > 70:
            raise CorruptError("a varint is longer than 10 bytes")
    return value & 0xFFFFFFFFFFFFFFFF, position


def build(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: int = Codec.NONE,
    level: int | None = None,
    append_time: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon: int | None = None,
) -> bytes:
    """One batch of these records, at their own offsets and timestamps.

    `append_time` makes it LogAppendTime with that time. `base_offset`, `last_offset` and `max_timestamp` override the
    values from the records: compaction keeps the offset range of a batch that lost some or all of its records.
    """
    records = records if isinstance(records, (list, tuple)) else list(records)
    if base_offset is None:
        assert records, "an empty batch has no offset of its own"
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    base_timestamp = delete_horizon if delete_horizon is not None else records[0].timestamp if records else NO_TIMESTAMP
    if append_time is not None:
        max_timestamp = append_time
    elif max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)

    attributes = codec if records else Codec.NONE  # an empty batch is not compressed: readers expect no bytes
    attributes |= LOG_APPEND_TIME if append_time is not None else 0
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    attributes |= DELETE_HORIZON if delete_horizon is not None else 0
    data = b"".join(encode_record(record, base_offset, base_timestamp) for record in records)
    if codec and records:
        data = compress(codec, data, level)
    tail = TAIL.pack(
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(data, crc32c(tail))
    return _HEAD.pack(base_offset, HEADER_SIZE - LOG_OVERHEAD + len(data), leader_epoch, MAGIC, crc) + tail + data


_HEAD: Final = Struct(">qiibI")


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    parts = [b"\0", varint(timestamp - base_timestamp), varint(offset - base_offset)]
    parts += (_NULL,) if key is None else (varint(len(key)), key)
    parts += (_NULL,) if value is None else (varint(len(value)), value)
    parts.append(varint(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    data = b"".join(parts)
    return varint(len(data)) + data


def varint(value: int) -> bytes:
    """Zigzag: the sign is in the lowest bit, so that small numbers of either sign are short."""
    value = value << 1 if value >= 0 else ~(value << 1)
    if value < 128:
        return _SHORT[value]
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


_SHORT: Final = tuple(bytes((byte,)) for byte in range(128))
_NULL: Final = _SHORT[1]
