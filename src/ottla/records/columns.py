"""Record batches ↔ Arrow columns, in Python: used where the native crate is not built.

    key        binary, may be null           offset          int64
    value      binary, may be null           timestamp       int64, milliseconds, -1 if the format has none
    headers    list of (key: string, value: binary), null for a record without; only if requested
    timestamp_type   int32: 0 the client's time, 1 the broker's, -1 none (magic 0)

The names and meanings are those of Spark's own Kafka source, so that its rows and ours are the same. Callers use
`records.native`, which documents the functions and chooses between the crate and this file. Both follow these laws:

- A batch is checked before it is used: offset range, checksum, sizes, and that every record is in the batch's offset
  range. Errors are a ValueError with the batch's offset. An incomplete batch at the end is no error: the rest was not
  fetched.
- Nothing is lost between calls: `next_offset` is never past a wanted record that is not in the columns.
- Memory is bounded by the input and by `size_max`: at most that many bytes are decompressed for one batch, and no
  further batch is begun once the columns have that size. Both are at most 256 MiB, so that no column exceeds the 32-bit
  positions of Arrow's `binary`, the one layout for bytes that Spark reads without a copy.
- Aborted transactions are left out by the rule of Kafka's consumer; see `_Aborts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ottla.records import batch, legacy
from ottla.records.batch import HEADER_SIZE, MAGIC, NO_PRODUCER, NO_SEQUENCE, SEQUENCE_MAX, Record
from ottla.records.compress import Codec, CorruptError
from ottla.records.markers import ABORT, KEY
from ottla.records.murmur2 import murmur2 as _murmur2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.records.batch import Entry, Header
    from ottla.records.compress import Buffer

OFFSET_MAX: Final = 0x7FFFFFFFFFFFFFFF
EPOCH_MAX: Final = 0x7FFF
PARTITIONS_MAX: Final = 1_000_000
BATCH_SIZE_MAX: Final = 0x7FFFFFFF
RECORD_SIZE_MAX: Final = 0x7FFFFFFF - 100  # of its content: the batch of one such record still has a 32-bit length
NO_TIMESTAMP: Final = -1
ROW_SIZE: Final = 32  # size of a row in the columns, besides its bytes
HEADER_ROW_SIZE: Final = 16
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LEVELS: Final = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}  # as in Kafka

_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.int32(), nullable=False),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", HEADERS)])


class Columns(NamedTuple):
    batch: pa.RecordBatch
    next_offset: int
    bytes_read: int


class Rows(NamedTuple):
    """The rows to write, in the types that both encoders take: see `rows`."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None
    timestamps: pa.Int64Array | None
    partitions: pa.Int32Array | None


class EncodeOptions(NamedTuple):
    """The options of `encode_columns`."""

    partition_count: int
    codec: int
    level: int | None
    batch_bytes: int
    producer_id: int
    producer_epoch: int
    base_sequences: dict[int, int]
    transactional: bool
    now_ms: int

    def check(self) -> None:
        if not 0 < self.partition_count <= PARTITIONS_MAX:
            raise ValueError(f"a topic cannot have {self.partition_count} partitions")
        if self.codec not in tuple(Codec):
            raise ValueError(f"no codec {self.codec}")
        if self.level is not None and self.codec in LEVELS:
            codec = Codec(self.codec)
            least, most = LEVELS[codec]
            if not least <= self.level <= most:
                raise ValueError(f"{codec.name.lower()} has levels {least} to {most}, not {self.level}")
        sequences = all(0 <= sequence <= SEQUENCE_MAX for sequence in self.base_sequences.values())
        for name, sound in (
            ("batch_bytes", 0 < self.batch_bytes <= BATCH_SIZE_MAX),
            ("producer_id", NO_PRODUCER <= self.producer_id <= OFFSET_MAX),
            ("producer_epoch", -1 <= self.producer_epoch <= EPOCH_MAX),
            ("base_sequences", sequences),
            ("now_ms", 0 <= self.now_ms <= OFFSET_MAX),
        ):
            if not sound:
                raise ValueError(f"{name}={getattr(self, name)} cannot be")


# Reading


def decode(
    data: Buffer,
    *,
    start: int,
    stop: int,
    headers: bool,
    aborted: Iterable[tuple[int, int]] | None,
    check_crc: bool,
    size_max: int,
) -> Columns:
    found, aborts = _Found(headers), None if aborted is None else _Aborts(aborted, size_max)
    position, next_offset, walk = 0, start, batch.entries(data)
    try:
        while next_offset < stop and found.size < size_max and (entry := next(walk, None)):
            if entry.base_offset >= stop:
                next_offset = stop
                break
            if entry.magic == MAGIC:
                records, kind = _batch(data, entry, aborts, check_crc, size_max)
            else:
                records, kind = _message(data, entry, check_crc, size_max)
            found.add((record for record in records if start <= record.offset < stop), kind)
            next_offset = min(max(next_offset, entry.last_offset + 1), stop)
            position += entry.size
    except CorruptError as error:
        offset = int.from_bytes(data[position : position + 8], "big", signed=True)
        raise ValueError(f"the batch at offset {offset}, byte {position} of the data: {error.message}") from None
    return Columns(found.columns(), next_offset, position)


def _batch(
    data: Buffer, entry: Entry, aborts: _Aborts | None, check_crc: bool, size_max: int
) -> tuple[Iterable[Record], int]:
    head = batch.header(data, entry.position)
    if head.base_offset < 0 or head.last_offset_delta < 0 or head.last_offset >= OFFSET_MAX:
        raise CorruptError(f"no batch spans {head.last_offset_delta} offsets from {head.base_offset}")
    if check_crc and not batch.crc_ok(data, entry.position, head):
        raise CorruptError("its checksum does not match")
    hidden = aborts is not None and aborts.hide(head, data, entry.position)
    if hidden or head.control:
        return (), 0
    return _records(data, entry, head, size_max), int(head.log_append_time)


def _records(data: Buffer, entry: Entry, head: Header, size_max: int) -> Iterator[Record]:
    for record in batch.iterate(data, entry.position, size_max):
        if not head.base_offset <= record.offset <= head.last_offset:
            raise CorruptError(f"offset {record.offset} lies outside of the batch")
        if not -OFFSET_MAX <= record.timestamp <= OFFSET_MAX:  # wraps, as 64-bit numbers do in Java
            record = record._replace(timestamp=(record.timestamp + 2**63) % 2**64 - 2**63)
        yield record


def _message(data: Buffer, entry: Entry, check_crc: bool, size_max: int) -> tuple[Iterable[Record], int]:
    head = legacy.outer(data, entry.position)
    if not 0 <= head.offset < OFFSET_MAX:
        raise CorruptError(f"no message has offset {head.offset}")
    if check_crc and not legacy.crc_ok(data, entry.position, head):
        raise CorruptError("its checksum does not match")
    found = legacy.messages(data, entry.position, size_max, check=check_crc)
    return [message.record for message in found], -1 if head.magic == 0 else int(head.log_append_time)


class _Aborts:
    """Which batches a read_committed reader must not see: the rule of Kafka's consumer.

    With the batches, a broker sends (producer, first offset) of every aborted transaction in them. From the batch with
    a first offset on, all transactional batches of that producer are hidden, up to its next ABORT marker. A COMMIT
    marker changes nothing: an aborted transaction of the same producer can only begin in a later batch.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]], size_max: int) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._producers: set[int] = set()
        self._size_max = size_max

    def hide(self, head: Header, data: Buffer, position: int) -> bool:
        if not head.idempotent:
            return False
        while self._ahead and self._ahead[-1][0] <= head.last_offset:
            self._producers.add(self._ahead.pop()[1])
        if head.control:
            if self._aborts(data, position):
                self._producers.discard(head.producer_id)
            return True
        return head.transactional and head.producer_id in self._producers

    def _aborts(self, data: Buffer, position: int) -> bool:
        marker = next(iter(batch.iterate(data, position, self._size_max)), None)
        if marker is None:  # compaction removed the marker and kept the offset
            return False
        if marker.key is None or len(marker.key) < KEY.size:
            raise CorruptError("a control record has no type")
        version, kind = KEY.unpack_from(marker.key)
        if version < 0:
            raise CorruptError(f"a control record has version {version}")
        return bool(kind == ABORT)


class _Found:
    """Columns while they are built."""

    def __init__(self, headers: bool) -> None:
        self.size = 0
        self._records: list[Record] = []
        self._kinds: list[int] = []
        self._headers = headers

    def add(self, records: Iterable[Record], kind: int) -> None:
        before = len(self._records)
        self._records += records
        self._kinds += [kind] * (len(self._records) - before)
        for record in self._records[before:]:
            self.size += ROW_SIZE + len(record.key or b"") + len(record.value or b"")
            if self._headers:
                for key, value in record.headers:
                    self.size += HEADER_ROW_SIZE + len(key.encode()) + len(value or b"")

    def columns(self) -> pa.RecordBatch:
        records = self._records
        arrays = [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()),
            pa.array(self._kinds, pa.int32()),
        ]
        if not self._headers:
            return pa.record_batch(arrays, schema=SCHEMA)
        headers = [
            [{"key": key, "value": value} for key, value in record.headers] if record.headers else None
            for record in records
        ]
        return pa.record_batch([*arrays, pa.array(headers, HEADERS)], schema=SCHEMA_WITH_HEADERS)


# Writing


def rows(keys: object, values: object, headers: object, timestamps: object, partitions: object) -> Rows:
    """The columns, each in one piece, of equal length and the types of `Rows`. ValueError if one is invalid."""
    given = [column for column in (keys, values, headers, timestamps, partitions) if column is not None]
    if not given:
        raise ValueError("there is no column to write")
    length = len(given[0])  # type: ignore[arg-type]
    if any(len(column) != length for column in given):  # type: ignore[arg-type]
        raise ValueError("the columns differ in length")
    return Rows(
        _bytes("key", keys, length),
        _bytes("value", values, length),
        None if headers is None else _headers(_whole("headers", headers)),
        None if timestamps is None else _timestamps(_whole("timestamp", timestamps)),
        None if partitions is None else _partitions(_whole("partition", partitions)),
    )


def _whole(name: str, column: object) -> pa.Array:
    whole = column
    if isinstance(column, pa.ChunkedArray):  # combining copies even a single chunk
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if not isinstance(whole, pa.Array):
        raise ValueError(f"the column {name} is {type(column).__name__}, not one Arrow array of at most 2 GiB")
    return whole


def _bytes(name: str, column: object, length: int) -> pa.BinaryArray:
    if column is None:
        return pa.nulls(length, pa.binary())
    array = _whole(name, column)
    kind, types = array.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    elif not (types.is_null(kind) or any(test(kind) for test in _BYTES)):
        raise ValueError(f"the column {name} has type {kind}: cast it to binary or string before it is written")
    if kind == pa.large_string():
        array = array.cast(pa.large_binary())
    return array.cast(pa.binary())


_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
)


def _headers(array: pa.Array) -> pa.ListArray:
    wrong = f"the column headers has type {array.type}: it must be array<struct<key: string, value: binary>>"
    try:
        cast = array.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise ValueError(wrong) from None
    entries = cast.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise ValueError("the column headers holds a header without a key")
    return cast


def _timestamps(array: pa.Array) -> pa.Int64Array:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    elif not pa.types.is_integer(array.type):
        raise ValueError(
            f"the column timestamp has type {array.type}: it must be a timestamp, or milliseconds as bigint"
        )
    return array.cast(pa.int64())


def _partitions(array: pa.Array) -> pa.Int32Array:
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise ValueError(f"the column partition has type {array.type}: it must be int")
    return array.cast(pa.int32())


def encode(given: Rows, target: EncodeOptions) -> dict[int, list[bytes]]:
    writer = _Writer(target)
    for row, (record, partition) in enumerate(_outgoing(given, target.now_ms)):
        if record.timestamp < NO_TIMESTAMP:
            raise ValueError(f"row {row}: the timestamp {record.timestamp} lies before 1970")
        content = _content_size(record)
        if content > RECORD_SIZE_MAX:
            raise ValueError(f"row {row}: a record of {content} bytes is larger than any batch can be")
        if partition is not None:
            if not 0 <= partition < target.partition_count:
                raise ValueError(f"row {row}: partition {partition}, but the topic has {target.partition_count}")
            writer.put(record, content, partition)
        elif record.key is not None:
            writer.put(record, content, (_murmur2(record.key) & 0x7FFFFFFF) % target.partition_count)
        else:
            writer.spread(record, content)
    return writer.close()


def _outgoing(given: Rows, now_ms: int) -> Iterator[tuple[Record, int | None]]:
    nothing: Sequence[None] = [None] * len(given.keys)
    columns = [nothing if column is None else column.to_pylist() for column in given]
    for key, value, headers, timestamp, partition in zip(*columns, strict=True):
        found = tuple((header["key"], header["value"]) for header in headers) if headers else ()
        yield Record(0, now_ms if timestamp is None else timestamp, key, value, found), partition


class _Open:
    """A batch while it is built: its records, and its size before compression."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size = HEADER_SIZE

    def size_with(self, record: Record, content: int) -> int:
        time_delta = record.timestamp - self.records[0].timestamp if self.records else 0
        body = content + _varint_size(time_delta) + _varint_size(len(self.records))
        return self.size + _varint_size(body) + body


class _Writer:
    def __init__(self, target: EncodeOptions) -> None:
        self._target = target
        self._open: dict[int, _Open] = {}
        self._sequences = dict(target.base_sequences)
        self._sticky = target.now_ms % target.partition_count
        self._done: dict[int, list[bytes]] = {}

    def spread(self, record: Record, content: int) -> None:
        """Records without a key stay on one partition for a batch: full batches, and few of them."""
        held = self._open.get(self._sticky)
        if held is not None and held.size_with(record, content) > self._target.batch_bytes:
            self._finish(self._sticky)
            self._sticky = (self._sticky + 1) % self._target.partition_count
        self.put(record, content, self._sticky)

    def put(self, record: Record, content: int, partition: int) -> None:
        """An empty batch takes any record: one that is larger than a batch gets its own."""
        held = self._open.get(partition) or _Open()
        size = held.size_with(record, content)
        if size > self._target.batch_bytes and held.records:
            self._finish(partition)
            held = _Open()
            size = held.size_with(record, content)
        held.records.append(Record(len(held.records), *record[1:]))
        held.size = size
        self._open[partition] = held

    def _finish(self, partition: int) -> None:
        target, records = self._target, self._open.pop(partition).records
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + len(records)) & SEQUENCE_MAX
        data = batch.build(
            records,
            base_offset=0,
            codec=target.codec,
            level=target.level,
            producer_id=target.producer_id,
            producer_epoch=target.producer_epoch,
            base_sequence=NO_SEQUENCE if target.producer_id == NO_PRODUCER else sequence,
            transactional=target.transactional,
        )
        self._done.setdefault(partition, []).append(data)

    def close(self) -> dict[int, list[bytes]]:
        for partition in list(self._open):
            self._finish(partition)
        return dict(sorted(self._done.items()))


def _content_size(record: Record) -> int:
    """The encoded size without the two deltas and the leading length."""
    size = 1 + _blob_size(record.key) + _blob_size(record.value)
    if not record.headers:
        return size + 1
    size += _varint_size(len(record.headers))
    for key, value in record.headers:
        size += _blob_size(key.encode()) + _blob_size(value)
    return size


def _blob_size(blob: bytes | None) -> int:
    return 1 if blob is None else _varint_size(len(blob)) + len(blob)


def _varint_size(value: int) -> int:
    if -64 <= value < 64:
        return 1
    return ((value << 1 if value >= 0 else ~(value << 1)).bit_length() + 6) // 7


def murmur2(keys: pa.BinaryArray) -> pa.Int32Array:
    return pa.array([None if key is None else _murmur2(key) for key in keys.to_pylist()], pa.int32())
