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

from typing import TYPE_CHECKING, Final

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
from ottla.records.place import (
    STAMP,
    STAMP_SIZE,
    Accepted,
    Target,
    latest_of,
    rebuild,
    stamp,
    stamp_messages,
    stamp_wrapper,
    target_of,
    too_large,
)
from ottla.records.scan import keyless, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config import TopicConfig
    from ottla.records.batch import Entry

__all__ = ["Accepted", "MalformedError", "RefusedError", "validate"]

NO_KEY: Final = "a compacted topic takes no record without a key"
OPENED_SIZE_MAX: Final = 64 << 20  # what a batch that must be opened may inflate to: everybody waits meanwhile
UNLIMITED: Final = 0x7FFFFFFFFFFFFFFF  # message.timestamp.before.max.ms as Kafka ships it
ZSTD_SINCE: Final = 7  # the first produce version that may carry zstd
BATCH_SINCE: Final = 3  # the first produce version that carries batches instead of message sets

_UNUSUAL: Final = LOG_APPEND_TIME | CONTROL
_ZSTD: Final = int(Codec.ZSTD)  # plain, because comparing with an enum member costs more than the rest of its line
_new = tuple.__new__


class MalformedError(BrokerError):
    """What was sent is not one batch: refused before the log is even asked."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


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
            and packed(data, codec, count)
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
                    [STAMP.pack(base, length, epoch), data[STAMP_SIZE:]],
                    size,
                ),
            )
    return _careful(data, config, base, epoch, now_ms, produce_version, client)


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
    target = target_of(config, base, epoch, now_ms, source)
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
        raise MalformedError("a produce request must have a batch for each of its partitions")
    if first.magic != MAGIC:
        raise MalformedError(f"produce version {produce_version} carries batches of magic 2, not {first.magic}")
    if produce_version < ZSTD_SINCE and batch.header(data).codec == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"produce version {produce_version} cannot carry zstd"
        )
    if next(walk, None) is not None:
        raise MalformedError("a produce request must have only one batch for each of its partitions")
    return [first]


def _check_entry(data: memoryview, entry: Entry, config: TopicConfig, client: bool) -> int:
    """Checks that hold for any magic; the answer is the codec."""
    if entry.magic == MAGIC and client and entry.base_offset != 0:
        raise _invalid(f"a batch from a client starts at offset 0, not {entry.base_offset}")
    if entry.size > config.max_message_bytes:
        raise too_large(entry.size, config)
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


# Batches: magic 2


def _batch(data: memoryview, entry: Entry, target: Target, client: bool) -> Accepted:
    data = data[: entry.size]
    head, config = batch.header(data), target.config
    _check_batch(head, config, client)
    if config.magic != MAGIC or (head.codec != target.codec and not head.control):
        records = list(batch.iterate(data, size_max=OPENED_SIZE_MAX))
        _check_records(records, target, flagged=head.log_append_time)
        return rebuild(records, target, head)
    if config.compacts and client and not _needs_records(head, target):
        return _keyed(data, head, target)
    if _needs_records(head, target):
        records = list(batch.iterate(data, size_max=OPENED_SIZE_MAX))
        _check_records(records, target, flagged=head.log_append_time)
        return stamp(data, head, target, latest_of(records))
    if client and not packed(data, head.codec, head.count):
        raise _invalid(f"the batch does not consist of {head.count} records")
    return stamp(data, head, target, head.max_timestamp)


def _keyed(data: memoryview, head: Header, target: Target) -> Accepted:
    """A batch for a compacted topic of which nothing is asked but that every record has a key."""
    count, found = keyless(data, head.codec, OPENED_SIZE_MAX)
    if count != head.count:
        raise _invalid(f"the batch has {count} records, not {head.count}")
    if found:
        raise _refused(ErrorCode.INVALID_RECORD, [(index, NO_KEY) for index in found], count)
    return stamp(data, head, target, head.max_timestamp)


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


def _needs_records(head: Header, target: Target) -> bool:
    """Whether a batch that is stored as it came must be opened: a rule speaks of its records, or its header is odd."""
    config = target.config
    if head.log_append_time:
        return True
    if not head.codec and head.size - HEADER_SIZE < head.count * RECORD_SIZE_MIN:
        return True
    if target.append_time is not None:
        return False
    if config.message_timestamp_before_max_ms != UNLIMITED:
        return True
    latest = target.now_ms + config.message_timestamp_after_max_ms
    return not 0 <= head.base_timestamp <= head.max_timestamp <= latest


# Messages: magic 0 and 1


def _messages(data: memoryview, entries: list[Entry], target: Target, source: int) -> Accepted:
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
            return stamp_messages(data, entries, target)
        if magic == 1 and all(record.offset == index for index, record in enumerate(records)):
            return stamp_wrapper(data, entries[0], target, len(records), latest_of(records))
    return rebuild(records, target, None)


# Either


def _check_records(
    records: Sequence[Record], target: Target, *, flagged: bool, errors: Sequence[tuple[int, str]] = ()
) -> None:
    """`flagged`: the client claims LogAppendTime, which is the broker's to give. `errors` were found before."""
    config, now_ms = target.config, target.now_ms
    keyed, create_time = config.compacts, target.append_time is None
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    code, found = ErrorCode.INVALID_RECORD, list(errors)
    for index, (offset, timestamp, key, _, _) in enumerate(records):
        if keyed and key is None:
            found.append((index, NO_KEY))
        elif create_time and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                found.append((index, f"timestamp {timestamp} at offset {offset} is not in [{earliest}, {latest}]"))
        elif flagged:
            code = ErrorCode.INVALID_TIMESTAMP
            found.append((index, "LogAppendTime is for the broker to set"))
    if found:
        raise _refused(code, found, len(records))


def _refused(code: ErrorCode, found: list[tuple[int, str]], count: int) -> RefusedError:
    shown = "; ".join(f"{index}: {message}" for index, message in found[:3])
    return RefusedError(code, f"{len(found)} of {count} records refused, first {shown}", found)


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, message)
