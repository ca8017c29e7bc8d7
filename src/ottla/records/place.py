"""How validated records are stored.

Three ways, from cheap to expensive. A batch or message is stamped: new offset, and a new timestamp and checksum if the
topic has LogAppendTime; its payload is kept. A wrapper of magic 1 likewise, at its last offset. Everything else is
rebuilt: another codec, another magic, or inner offsets that only the broker can know (magic 0).

`Accepted.parts` is what is written to disk, in order; large parts are views of the request and not copied.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TAIL,
    TRANSACTIONAL,
    Header,
    Record,
)
from ottla.records.compress import Codec
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from ottla.config import TopicConfig
    from ottla.records.batch import Entry

TIMESTAMP_MAX: Final = 0x7FFFFFFFFFFFFFFF
STAMP: Final = Struct(">qii")  # base offset, length, leader epoch: the fields before the magic
STAMP_SIZE: Final = 16

_MAGIC_AND_CRC: Final = Struct(">bI")
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Accepted(NamedTuple):
    base: int
    last: int
    max_timestamp: int
    offset_of_max_timestamp: int
    append_time: int  # -1 unless the topic has LogAppendTime
    header: Header | None  # as it will be in the log; None for magic 0 and 1
    parts: list[bytes | memoryview]  # for writev
    size: int


class BatchTarget(NamedTuple):
    """Where the records go and in what format."""

    config: TopicConfig
    base: int
    epoch: int
    now_ms: int
    codec: int
    level: int | None

    @property
    def append_time(self) -> int | None:
        return self.now_ms if self.config.message_timestamp_type == "LogAppendTime" else None


def target_of(config: TopicConfig, base: int, epoch: int, now_ms: int, source: int) -> BatchTarget:
    name = config.compression_type
    if name == "producer":
        return BatchTarget(config, base, epoch, now_ms, source, None)
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return BatchTarget(config, base, epoch, now_ms, _CODECS[name], levels.get(name))


def stamp(data: memoryview, head: Header, target: BatchTarget, latest: int) -> Accepted:
    """The stamped batch. The checksum covers attributes and timestamps, so it is computed again only if they change."""
    append_time = target.append_time
    if append_time is not None:
        latest = append_time
    attributes = head.attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if append_time is not None else 0)
    crc, first = head.crc, STAMP.pack(target.base, head.length, target.epoch)
    parts: list[bytes | memoryview] = [first, data[STAMP_SIZE:]]
    if attributes != head.attributes or latest != head.max_timestamp:
        tail = TAIL.pack(attributes, head.last_offset_delta, head.base_timestamp, latest, *head[9:])
        crc = crc32c(data[HEADER_SIZE:], crc32c(tail))
        parts = [first + _MAGIC_AND_CRC.pack(MAGIC, crc) + tail, data[HEADER_SIZE:]]
    final = head._replace(
        base_offset=target.base, leader_epoch=target.epoch, crc=crc, attributes=attributes, max_timestamp=latest
    )
    last = final.last_offset
    return Accepted(target.base, last, latest, last, _time(append_time), final, parts, head.size)


def repack(packed: bytes, head: Header, target: BatchTarget, latest: int) -> Accepted:
    """The batch with the same records in another codec."""
    append_time = target.append_time
    if append_time is not None:
        latest = append_time
    attributes = target.codec | head.attributes & TRANSACTIONAL | (LOG_APPEND_TIME if append_time is not None else 0)
    tail = TAIL.pack(attributes, head.last_offset_delta, head.base_timestamp, latest, *head[9:])
    final = head._replace(
        base_offset=target.base,
        length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
        leader_epoch=target.epoch,
        crc=crc32c(packed, crc32c(tail)),
        attributes=attributes,
        max_timestamp=latest,
    )
    parts: list[bytes | memoryview] = [batch.HEADER.pack(*final), packed]
    last = final.last_offset
    return Accepted(target.base, last, latest, last, _time(append_time), final, parts, final.size)


def rebase(accepted: Accepted, base: int, epoch: int) -> Accepted:
    """Move an accepted batch to another offset and leader epoch. Magic 2 only."""
    assert accepted.header is not None, "older formats have offsets in more places"
    moved = base - accepted.base
    header = accepted.header._replace(base_offset=base, leader_epoch=epoch)
    first = memoryview(accepted.parts[0])
    return accepted._replace(
        base=base,
        last=accepted.last + moved,
        offset_of_max_timestamp=accepted.offset_of_max_timestamp + moved,
        header=header,
        parts=[STAMP.pack(base, header.length, epoch), first[STAMP_SIZE:], *accepted.parts[1:]],
    )


def stamp_messages(data: memoryview, entries: list[Entry], target: BatchTarget) -> Accepted:
    append_time = target.append_time
    parts: list[bytes | memoryview] = []
    latest, latest_offset, size = NO_TIMESTAMP, target.base, 0
    for offset, entry in enumerate(entries, target.base):
        old = legacy.outer(data, entry.position)
        timestamp = old.timestamp if append_time is None or old.magic == 0 else append_time
        parts += legacy.restamp(
            data, entry.position, old, offset=offset, timestamp=timestamp, append=append_time is not None
        )
        if timestamp > latest:
            latest, latest_offset = timestamp, offset
        size += entry.size
    last = target.base + len(entries) - 1
    whole = b"".join(parts)  # one write takes a limited number of parts, and there may be thousands of messages
    return Accepted(target.base, last, latest, latest_offset, _time(append_time), None, [whole], size)


def stamp_wrapper(data: memoryview, entry: Entry, target: BatchTarget, count: int, latest: int) -> Accepted:
    append_time = target.append_time
    if append_time is not None:
        latest = append_time
    last = target.base + count - 1
    old = legacy.outer(data, entry.position)
    parts = legacy.restamp(data, entry.position, old, offset=last, timestamp=latest, append=append_time is not None)
    return Accepted(target.base, last, latest, last, _time(append_time), None, parts, entry.size)


def rebuild(records: list[Record], target: BatchTarget, head: Header | None) -> Accepted:
    """Rebuild the records: another codec, another magic, or inner offsets that only the broker can know."""
    config, base, append_time = target.config, target.base, target.append_time
    if any(record.timestamp < NO_TIMESTAMP for record in records):
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a timestamp cannot be negative")
    latest = latest_of(records) if append_time is None else append_time
    placed = [record._replace(offset=offset) for offset, record in enumerate(records, base)]
    if config.magic == MAGIC:
        data = batch.build(
            placed,
            base_offset=base,
            codec=target.codec,
            level=target.level,
            append_time=append_time,
            producer_id=head.producer_id if head else batch.NO_PRODUCER,
            producer_epoch=head.producer_epoch if head else -1,
            base_sequence=head.base_sequence if head else batch.NO_SEQUENCE,
            transactional=head.transactional if head else False,
            leader_epoch=target.epoch,
        )
    else:
        data = _build_messages(placed, target)
    for entry in batch.entries(data):
        if entry.size > config.max_message_bytes:
            raise too_large(entry.size, config)
    last = placed[-1].offset
    latest_offset = last
    # Each message is an entry, and of equal timestamps the first counts.
    if config.magic != MAGIC and target.codec == Codec.NONE:
        latest_offset = next((r.offset for r in placed if r.timestamp == latest), base)
    if config.magic == 0 and append_time is None:
        latest = NO_TIMESTAMP
    final = batch.header(data) if config.magic == MAGIC else None
    return Accepted(base, last, latest, latest_offset, _time(append_time), final, [data], len(data))


def _build_messages(records: list[Record], target: BatchTarget) -> bytes:
    if target.codec == Codec.ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd came after magic 0 and 1")
    if any(record.headers for record in records):
        raise BrokerError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 0 and 1 have no headers")
    magic, append_time = target.config.magic, target.append_time
    return legacy.build(records, magic=magic, codec=target.codec, level=target.level, append_time=append_time)


def latest_of(records: list[Record]) -> int:
    latest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if latest > TIMESTAMP_MAX:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {latest} does not fit 64 bits")
    return max(latest, NO_TIMESTAMP)


def _time(append_time: int | None) -> int:
    return NO_TIMESTAMP if append_time is None else append_time


def too_large(size: int, config: TopicConfig) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes are more than max.message.bytes, {config.max_message_bytes}"
    )
