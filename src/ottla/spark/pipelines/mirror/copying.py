"""Turns batches of one cluster into batches of a transaction at another, without decoding them.

A batch is copied by rewriting its header and passing its records on unchanged, compressed or not:

    base offset, leader epoch   0 and -1: the target's leader fills them in
    attributes                  the codec stays, the transactional bit is set, what only a broker sets is cleared
    producer id, epoch          those of the transaction at the target
    base sequence               the number of records sent before it under this producer id and epoch
    CRC-32C                     over the new header and the old records, after the old checksum was verified: a new
                                checksum over damaged bytes would hide the damage for ever

A leader accepts such a batch only if it has as many records as offsets. So some batches are decoded after all, and
encoded again with the same codec: those with gaps from compaction or a start in their middle, those whose timestamps
are not their own (LogAppendTime, a delete horizon), those that are too large for the target, and messages of magic 0
and 1. Not copied are control batches, and the batches of aborted transactions, by the rule of Kafka's consumer.

Pure: bytes in, bytes out. Headers are written in place, so the returned batches share the memory of the input. A batch
costs about 5 µs and two passes of the checksum (40 µs each for a megabyte).
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ottla.records import batch, legacy
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    SEQUENCE_MAX,
    TRANSACTIONAL,
    Record,
)
from ottla.records.compress import SIZE_MAX, CorruptError
from ottla.records.markers import ABORT, read_type
from ottla.records.native import crc32c, decode_columns, encode_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CRC_PLACE: Final = 17
_CRC: Final = Struct(">I")
_OPENED: Final = LOG_APPEND_TIME | DELETE_HORIZON
BATCH_SIZE: Final = 1 << 20  # of single messages of the old formats, which had no batches, before compression


class DamagedError(ValueError):
    """The source sent something that is not a batch, or its checksum does not match."""


class Copied(NamedTuple):
    """A batch for the target. `first` and `next` are offsets at the source: of its first record, and the one after its
    last record. `count` is the number of records, and so of offsets."""

    data: memoryview | bytes
    first: int
    next: int
    count: int  # type: ignore[assignment]  # a tuple's own count() is of no use here


def writable(data: memoryview) -> memoryview:
    """The same bytes, writable. A fetched piece is in its own buffer; others are copied."""
    if not data.readonly:
        return data
    whole = data.obj
    if not isinstance(whole, bytearray):
        return memoryview(bytearray(data))
    position = pa.py_buffer(data).address - pa.py_buffer(whole).address
    return memoryview(whole)[position : position + len(data)]


class Copier:
    """Rewrites the batches of one partition, in order, for one producer id and epoch at the target."""

    def __init__(self, producer_id: int, producer_epoch: int, *, size_max: int = SIZE_MAX) -> None:
        self.sequence = 0
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._size_max = size_max

    def copy(self, view: memoryview, *, start: int, aborted: list[tuple[int, int]] | None) -> list[Copied]:
        """The batches to send, from the whole batches of a Fetch response, from the offset `start` on. `aborted` is the
        response's list of (producer id, first offset). The view is written to, and the result refers to it."""
        found: list[Copied] = []
        aborts = Aborts(aborted or ())
        position, end = 0, len(view)
        unpack, pack, pack_crc = HEADER.unpack_from, HEADER.pack_into, _CRC.pack_into
        while end - position > MAGIC_POSITION:
            if view[position + MAGIC_POSITION] != MAGIC:
                position = self._messages(view, position, start, found)
                continue
            if end - position < HEADER_SIZE:
                break
            base, length, _, _, crc, attributes, delta, first_ms, last_ms, producer, _, _, count = unpack(
                view, position
            )
            stop = position + length + LOG_OVERHEAD
            if stop > end:
                break
            if length < HEADER_SIZE - LOG_OVERHEAD or delta < 0:
                raise DamagedError(f"the batch at offset {base} has an impossible header")
            guarded = view[position + CRC_POSITION : stop]
            if crc32c(guarded) != crc:
                raise DamagedError(f"the batch at offset {base} does not match its checksum")
            last = base + delta
            hidden = producer >= 0 and aborts.hides(attributes, producer, last, view, position)
            if hidden or attributes & CONTROL or not count or last < start:
                position = stop
                continue
            fits = stop - position <= self._size_max
            if count == delta + 1 and base >= start and fits and not attributes & _OPENED:
                new = attributes & CODEC_MASK | TRANSACTIONAL
                who = self._producer_id, self._producer_epoch, self.sequence
                pack(view, position, 0, length, -1, MAGIC, 0, new, delta, first_ms, last_ms, *who, count)
                pack_crc(view, position + CRC_PLACE, crc32c(guarded))
                found.append(Copied(view[position:stop], base, last + 1, count))
                self.sequence = (self.sequence + count) & SEQUENCE_MAX
            else:
                found += self._pack(view[position:stop], attributes & CODEC_MASK, max(base, start), last + 1)
            position = stop
        return found

    def _pack(self, data: memoryview, codec: int, start: int, stop: int) -> list[Copied]:
        """The records of one batch, encoded again: as one batch, or as several if it would not fit the target."""
        try:
            columns = decode_columns(
                data, start=start, stop=stop, headers=True, aborted=None, check_crc=False, size_max=SIZE_MAX
            ).batch
        except ValueError as error:
            raise DamagedError(str(error)) from None
        timestamps = columns.column("timestamp")
        if not columns.num_rows:
            return []
        if min(timestamps.to_pylist()) < 0:  # "no timestamp": the columns cannot express it, records can
            records = [record for record in batch.iterate(data) if start <= record.offset < stop]
            return self._build(records, codec, stop)
        for batch_bytes in (SIZE_MAX, self._size_max):
            packed = encode_columns(
                columns.column("key"),
                columns.column("value"),
                columns.column("headers"),
                timestamps,
                None,
                partition_count=1,
                codec=codec,
                level=None,
                batch_bytes=batch_bytes,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequences={0: self.sequence},
                transactional=True,
                now_ms=0,
            )[0]
            if all(len(one) <= self._size_max for one in packed):
                break
        return list(self._place(packed, columns.column("offset").to_pylist(), stop))

    def _messages(self, view: memoryview, position: int, start: int, found: list[Copied]) -> int:
        """Convert the run of old messages at `position` to batches. Returns the position after it."""
        run: list[tuple[int, Record]] = []
        size = 0
        try:
            for entry in batch.entries(view[position:]):
                if entry.magic == MAGIC:
                    break
                place = position + size
                if not _sound(view, place):
                    raise DamagedError(f"the message at offset {entry.last_offset} does not match its checksum")
                codec = view[place + MAGIC_POSITION + 1] & CODEC_MASK
                run += ((codec, record) for record in batch.iterate(view, place) if record.offset >= start)
                size += entry.size
        except CorruptError as error:
            raise DamagedError(f"a message after offset {start}: {error.message}") from None
        if not size:  # a torn tail
            return len(view)
        for codec, group in groupby(run, key=lambda pair: pair[0]):
            for records in _batches([record for _, record in group], min(BATCH_SIZE, self._size_max)):
                found += self._build(records, codec, records[-1].offset + 1)
        return position + size

    def _build(self, records: list[Record], codec: int, stop: int) -> list[Copied]:
        if not records:
            return []
        data = batch.build(
            [record._replace(offset=index) for index, record in enumerate(records)],
            base_offset=0,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        if len(data) > self._size_max and len(records) > 1:
            half = len(records) // 2
            return [
                *self._build(records[:half], codec, records[half].offset),
                *self._build(records[half:], codec, stop),
            ]
        return list(self._place([data], [record.offset for record in records], stop))

    def _place(self, packed: Iterable[bytes], offsets: list[int], stop: int) -> Iterator[Copied]:
        done = 0
        for data in packed:
            count = batch.header(data).count
            after = offsets[done + count] if done + count < len(offsets) else stop
            yield Copied(data, offsets[done], after, count)
            done += count
        assert done == len(offsets), "every record is in one of the batches"
        self.sequence = (self.sequence + done) & SEQUENCE_MAX


class Aborts:
    """Which batches of one Fetch response belong to aborted transactions.

    The response lists (producer, first offset) of every aborted transaction that touches its batches. From the batch
    with that first offset on, transactional batches of that producer are hidden, up to its next ABORT marker.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._producers: set[int] = set()

    def hides(self, attributes: int, producer: int, last: int, view: memoryview, position: int) -> bool:
        while self._ahead and self._ahead[-1][0] <= last:
            self._producers.add(self._ahead.pop()[1])
        if producer not in self._producers:
            return False
        if attributes & CONTROL:
            if _aborts(view, position):
                self._producers.discard(producer)
            return False
        return attributes & TRANSACTIONAL != 0


def _aborts(view: memoryview, position: int) -> bool:
    for record in batch.iterate(view, position):
        return read_type(record.key) == ABORT
    return False


def _batches(records: list[Record], size_max: int) -> Iterator[list[Record]]:
    held: list[Record] = []
    size = HEADER_SIZE
    for record in records:
        more = 40 + len(record.key or b"") + len(record.value or b"")  # more than the varints around them need
        if held and size + more > size_max:
            yield held
            held, size = [], HEADER_SIZE
        held.append(record)
        size += more
    if held:
        yield held


def _sound(view: memoryview, position: int) -> bool:
    return legacy.crc_ok(view, position, legacy.outer(view, position))
