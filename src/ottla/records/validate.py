"""What the leader does with produced records before they enter the log: refuse, or stamp offsets and hand on.

The rules, their order and their error codes are Apache Kafka's:

    request   version 3 and later carry exactly one batch, of magic 2; zstd only from version 7
    entry     a client's batch starts at offset 0; max.message.bytes; checksum; a codec that exists
    batch     count agrees with the offsets; no control batches from clients; a producer id comes with a sequence;
              transactions and idempotence only in magic 2
    record    keys where the topic is compacted; timestamps within message.timestamp.before/after.max.ms, refused record
              by record (`record_errors`); -1 is "no timestamp" and always fits
    topic     message.timestamp.type, compression.type and message.format.version decide how the records are stored

Records stay opaque where nothing needs them. A batch of magic 2 whose topic asks for no more than offsets (`validate`)
costs a header look and one checksum: its first sixteen bytes are replaced, the rest goes to disk as it came. Only a
compacted topic, a lower limit on timestamps, another codec or an old format opens it (`_careful`). What its header says
of its timestamps is believed, unless it would be refused for it: then the records are asked.

Old formats are converted, never mixed: everything in one request ends up in one batch; or, where the topic is kept in
magic 0 or 1, in one wrapper, or message by message.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    TRANSACTIONAL,
    Header,
    Record,
)
from ottla.records.compress import Codec, CorruptError
from ottla.records.legacy import ChecksumError
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config import TopicConfig
    from ottla.records.batch import Entry

UNLIMITED: Final = 0x7FFFFFFFFFFFFFFF  # message.timestamp.before.max.ms as Kafka ships it
ZSTD_SINCE: Final = 7  # the first produce version that may carry zstd
BATCH_SINCE: Final = 3  # the first produce version that carries batches instead of message sets

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_STAMP: Final = Struct(">qii")  # base offset, length, leader epoch: what lies before the magic
STAMP_SIZE: Final = 16
_TAIL: Final = Struct(">hiqqqhii")  # what lies between the checksum and the records
_MAGIC_AND_CRC: Final = Struct(">bI")
_UNUSUAL: Final = LOG_APPEND_TIME | CONTROL
_ZSTD: Final = int(Codec.ZSTD)  # plain, because comparing with an enum member costs more than the rest of its line
_new = tuple.__new__


class Accepted(NamedTuple):
    base: int
    last: int
    max_timestamp: int
    offset_of_max_timestamp: int
    append_time: int  # -1 unless the topic has LogAppendTime
    header: Header | None  # as it will stand in the log; None for magic 0 and 1
    parts: list[bytes | memoryview]  # for writev
    size: int


class RefusedError(BrokerError):
    """Some records of a batch are to blame: `record_errors` names them by their index in it."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def validate(
    data: memoryview,
    config: TopicConfig,
    *,
    base: int,
    epoch: int,
    now_ms: int,
    produce_version: int,
    client: bool = True,
) -> Accepted:
    """`base` is the next offset of the log. `client=False` is for what the broker itself writes, such as markers.

    The conjunction below is the common case, in which there is nothing to do but stamp; whatever falls out of it is
    looked at in order by `_careful`, which also knows which rule was broken.
    """
    size = len(data)
    if size >= HEADER_SIZE:
        fields = HEADER.unpack_from(data)
        offset, length, _, magic, crc, attributes, delta, first_ms, last_ms, producer, _, sequence, count = fields
        if (
            magic == MAGIC
            and length + LOG_OVERHEAD == size
            and offset == 0
            and count == delta + 1
            and count > 0
            and not attributes & _UNUSUAL
            and (sequence >= 0 if producer >= 0 else not attributes & TRANSACTIONAL)
            and 0 <= first_ms <= last_ms <= now_ms + config.message_timestamp_after_max_ms
            and size <= config.max_message_bytes
            and size <= config.segment_bytes
            and ((codec := attributes & CODEC_MASK) < _ZSTD or (codec == _ZSTD and produce_version >= ZSTD_SINCE))
            and (codec or size - HEADER_SIZE >= count * RECORD_SIZE_MIN)
            and config.compression_type == "producer"
            and config.message_timestamp_type == "CreateTime"
            and config.message_timestamp_before_max_ms == UNLIMITED
            and config.magic == MAGIC
            and not config.compacts
            and crc32c(data[CRC_POSITION:]) == crc
        ):
            last = base + delta
            return _new(
                Accepted,
                (
                    base,
                    last,
                    last_ms,
                    last,
                    NO_TIMESTAMP,
                    _new(Header, (base, length, epoch, *fields[3:])),
                    [_STAMP.pack(base, length, epoch), data[STAMP_SIZE:]],
                    size,
                ),
            )
    return _careful(data, config, base, epoch, now_ms, produce_version, client)


class _Target(NamedTuple):
    """Where the records are going and in what shape."""

    config: TopicConfig
    base: int
    epoch: int
    now_ms: int
    codec: int
    level: int | None

    @property
    def append_time(self) -> int | None:
        return self.now_ms if self.config.message_timestamp_type == "LogAppendTime" else None


def _careful(
    data: memoryview, config: TopicConfig, base: int, epoch: int, now_ms: int, produce_version: int, client: bool
) -> Accepted:
    entries = _entries(data, produce_version)
    if not entries:  # old clients may send nothing, and are told the offset of nothing
        return Accepted(-1, -1, NO_TIMESTAMP, -1, NO_TIMESTAMP, None, [], 0)
    source = 0
    for entry in entries:
        source = _check_entry(data, entry, config, client) or source
    first = entries[0]
    if len(entries) > 1 and (first.magic == MAGIC or source):
        raise _invalid("batches and compressed messages must come alone")
    target = _target(config, base, epoch, now_ms, source)
    try:
        if first.magic == MAGIC:
            accepted = _batch(data, first, target, client)
        else:
            accepted = _messages(data, entries, target, source)
    except ChecksumError:
        raise
    except CorruptError as error:
        # The outer checksum was right, so the client packed the records badly: sending them again cannot help.
        raise _invalid(error.message) from None
    if accepted.size > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{accepted.size} bytes do not fit a segment of {config.segment_bytes}"
        )
    return accepted


def _entries(data: memoryview, produce_version: int) -> list[Entry]:
    walk = batch.entries(data)
    if produce_version < BATCH_SINCE:
        return list(walk)
    first = next(walk, None)
    if first is None:
        raise _invalid("a produce request must have a batch for each of its partitions")
    if first.magic != MAGIC:
        raise _invalid(f"produce version {produce_version} carries batches of magic 2, not {first.magic}")
    if produce_version < ZSTD_SINCE and batch.header(data).codec == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"produce version {produce_version} cannot carry zstd"
        )
    if next(walk, None) is not None:
        raise _invalid("a produce request must have only one batch for each of its partitions")
    return [first]


def _check_entry(data: memoryview, entry: Entry, config: TopicConfig, client: bool) -> int:
    """Checks that hold for any magic; the answer is the codec."""
    if entry.magic == MAGIC and client and entry.base_offset != 0:
        raise _invalid(f"a batch from a client starts at offset 0, not {entry.base_offset}")
    if entry.size > config.max_message_bytes:
        raise _too_large(entry.size, config)
    if entry.magic == MAGIC:
        head = batch.header(data, entry.position)
        sound, codec = batch.crc_ok(data, entry.position, head), head.codec
    else:
        old = legacy.outer(data, entry.position)
        sound, codec = legacy.crc_ok(data, entry.position, old), old.codec
    if not sound:
        raise CorruptError("the records do not match their checksum")
    if codec > Codec.ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {codec}")
    return codec


def _target(config: TopicConfig, base: int, epoch: int, now_ms: int, source: int) -> _Target:
    name = config.compression_type
    if name == "producer":
        return _Target(config, base, epoch, now_ms, source, None)
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return _Target(config, base, epoch, now_ms, _CODECS[name], levels.get(name))


# Batches: magic 2


def _batch(data: memoryview, entry: Entry, target: _Target, client: bool) -> Accepted:
    data = data[: entry.size]
    head, config = batch.header(data), target.config
    _check_batch(head, config, client)
    if config.magic != MAGIC or (head.codec != target.codec and not head.control):
        records = list(batch.iterate(data))
        _check_records(records, target, flagged=head.log_append_time)
        return _rebuild(records, target, head)
    if _needs_records(head, target):
        records = list(batch.iterate(data))
        _check_records(records, target, flagged=head.log_append_time)
        return _stamp(data, head, target, _latest(records))
    return _stamp(data, head, target, head.max_timestamp)


def _check_batch(head: Header, config: TopicConfig, client: bool) -> None:
    if client:
        if head.count <= 0 or head.count != head.last_offset_delta + 1:
            raise _invalid(f"{head.count} records do not span {head.last_offset_delta + 1} offsets")
        if head.control:
            raise _invalid("only the broker writes control records")
        if head.idempotent and head.base_sequence < 0:
            raise _invalid(f"producer {head.producer_id} sent sequence {head.base_sequence}")
        if head.transactional and not head.idempotent:
            raise _invalid("a transaction needs a producer id")
    if config.magic != MAGIC and (head.transactional or head.idempotent):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {config.magic} has no idempotence and no transactions"
        )


def _needs_records(head: Header, target: _Target) -> bool:
    """Whether a batch that is stored as it came must be opened: a rule speaks of its records, or its header is odd."""
    config = target.config
    if config.compacts or head.log_append_time:
        return True
    if not head.codec and head.size - HEADER_SIZE < head.count * RECORD_SIZE_MIN:
        return True
    if target.append_time is not None:
        return False
    if config.message_timestamp_before_max_ms != UNLIMITED:
        return True
    latest = target.now_ms + config.message_timestamp_after_max_ms
    return not 0 <= head.base_timestamp <= head.max_timestamp <= latest


def _stamp(data: memoryview, head: Header, target: _Target, latest: int) -> Accepted:
    """The batch in its place. The checksum covers attributes and timestamps, so it is made anew only if they change."""
    append_time = target.append_time
    if append_time is not None:
        latest = append_time
    attributes = head.attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if append_time is not None else 0)
    crc, stamp = head.crc, _STAMP.pack(target.base, head.length, target.epoch)
    parts: list[bytes | memoryview] = [stamp, data[STAMP_SIZE:]]
    if attributes != head.attributes or latest != head.max_timestamp:
        tail = _TAIL.pack(attributes, head.last_offset_delta, head.base_timestamp, latest, *head[9:])
        crc = crc32c(data[HEADER_SIZE:], crc32c(tail))
        parts = [stamp + _MAGIC_AND_CRC.pack(MAGIC, crc) + tail, data[HEADER_SIZE:]]
    final = head._replace(
        base_offset=target.base, leader_epoch=target.epoch, crc=crc, attributes=attributes, max_timestamp=latest
    )
    last = final.last_offset
    return Accepted(target.base, last, latest, last, _time(append_time), final, parts, head.size)


# Messages: magic 0 and 1


def _messages(data: memoryview, entries: list[Entry], target: _Target, source: int) -> Accepted:
    config, magic = target.config, entries[0].magic
    records: list[Record] = []
    for entry in entries:
        if entry.magic != magic:
            raise _invalid("the messages are not all of one magic")
        old = legacy.outer(data, entry.position)
        found = legacy.messages(data, entry.position, check=True)
        wrong = [(i, f"magic {m.magic} within magic {magic}") for i, m in enumerate(found) if m.magic != magic]
        inside = [message.record for message in found]
        _check_records(inside, target, flagged=old.log_append_time, errors=wrong)
        records += inside
    if config.magic == magic and source == target.codec:
        if source == Codec.NONE:
            return _stamp_messages(data, entries, target)
        if magic == 1 and all(record.offset == index for index, record in enumerate(records)):
            return _stamp_wrapper(data, entries[0], target, len(records), _latest(records))
    return _rebuild(records, target, None)


def _stamp_messages(data: memoryview, entries: list[Entry], target: _Target) -> Accepted:
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
    return Accepted(target.base, last, latest, latest_offset, _time(append_time), None, parts, size)


def _stamp_wrapper(data: memoryview, entry: Entry, target: _Target, count: int, latest: int) -> Accepted:
    append_time = target.append_time
    if append_time is not None:
        latest = append_time
    last = target.base + count - 1
    old = legacy.outer(data, entry.position)
    parts = legacy.restamp(data, entry.position, old, offset=last, timestamp=latest, append=append_time is not None)
    return Accepted(target.base, last, latest, last, _time(append_time), None, parts, entry.size)


# Either


def _check_records(
    records: Sequence[Record], target: _Target, *, flagged: bool, errors: Sequence[tuple[int, str]] = ()
) -> None:
    """`flagged`: the client claims LogAppendTime, which is the broker's to give. `errors` were found before."""
    config, now_ms = target.config, target.now_ms
    keyed, create_time = config.compacts, target.append_time is None
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    code, found = ErrorCode.INVALID_RECORD, list(errors)
    for index, (offset, timestamp, key, _, _) in enumerate(records):
        if keyed and key is None:
            found.append((index, "a compacted topic takes no record without a key"))
        elif create_time and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                found.append((index, f"timestamp {timestamp} at offset {offset} is not in [{earliest}, {latest}]"))
        elif flagged:
            code = ErrorCode.INVALID_TIMESTAMP
            found.append((index, "LogAppendTime is for the broker to set"))
    if found:
        shown = "; ".join(f"{index}: {message}" for index, message in found[:3])
        raise RefusedError(code, f"{len(found)} of {len(records)} records refused, first {shown}", found)


def _rebuild(records: list[Record], target: _Target, head: Header | None) -> Accepted:
    """The records packed anew: another codec, another magic, or inner offsets that only the broker can know."""
    config, base, append_time = target.config, target.base, target.append_time
    if any(record.timestamp < NO_TIMESTAMP for record in records):
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a timestamp cannot be negative")
    latest = _latest(records) if append_time is None else append_time
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
            raise _too_large(entry.size, config)
    last = placed[-1].offset
    latest_offset = last
    if config.magic != MAGIC and target.codec == Codec.NONE:  # each message is an entry, and the first of equals counts
        latest_offset = next((r.offset for r in placed if r.timestamp == latest), base)
    if config.magic == 0 and append_time is None:
        latest = NO_TIMESTAMP
    final = batch.header(data) if config.magic == MAGIC else None
    return Accepted(base, last, latest, latest_offset, _time(append_time), final, [data], len(data))


def _build_messages(records: list[Record], target: _Target) -> bytes:
    if target.codec == Codec.ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd came after magic 0 and 1")
    if any(record.headers for record in records):
        raise BrokerError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 0 and 1 have no headers")
    magic, append_time = target.config.magic, target.append_time
    return legacy.build(records, magic=magic, codec=target.codec, level=target.level, append_time=append_time)


def _latest(records: list[Record]) -> int:
    latest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if latest > UNLIMITED:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {latest} does not fit 64 bits")
    return max(latest, NO_TIMESTAMP)


def _time(append_time: int | None) -> int:
    return NO_TIMESTAMP if append_time is None else append_time


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, message)


def _too_large(size: int, config: TopicConfig) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes are more than max.message.bytes, {config.max_message_bytes}"
    )
