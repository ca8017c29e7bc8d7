"""The leader's checks of produced records before they enter the log: refuse, or stamp offsets and pass on.

The rules, their order and their error codes are Apache Kafka's:

    request   version 3 and later carry exactly one batch, of magic 2; zstd only from version 7
    entry     a client's batch starts at offset 0; max.message.bytes; checksum; a codec that exists
    batch     count agrees with the offsets; no control batches from clients; a producer id comes with a sequence and an
              epoch; transactions and idempotence only in magic 2
    record    every field of every record is valid (`check`); keys where the topic is compacted; timestamps within
              message.timestamp.before/after.max.ms, refused record by record (`record_errors`); -1 is "no timestamp"
              and always fits
    topic     message.timestamp.type, compression.type and message.format.version decide how the records are stored

Python does not look into records: one native call walks over all of them and returns what is wrong, or the largest
timestamp; another also recompresses them with the topic's codec. If the topic requires nothing but offsets, the first
sixteen bytes of a batch of magic 2 are replaced and the rest is written unchanged. Only formats before magic 2 are read
record by record, within limits.

A call on the event loop blocks all other clients, so long work is not done there: LargeError reports it. The caller
then calls again from a thread with `thorough`, on its own copy of the bytes, and places the result with `rebase`.

Old formats are converted, never mixed: everything in one request ends up in one batch; or, if the topic is stored in
magic 0 or 1, in one wrapper, or message by message.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch, legacy
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Header,
    Record,
)
from ottla.records.check import BAD_TIME, CHECKSUM, LARGE, OVER, SOUND, WRONG, RecordLimits, Rules, wrap
from ottla.records.check import NO_KEY as KEY_MISSING
from ottla.records.compress import Codec, CorruptError, InflatedError
from ottla.records.legacy import ChecksumError
from ottla.records.native import check, transcode
from ottla.records.place import (
    STAMP,
    STAMP_SIZE,
    Accepted,
    BatchTarget,
    latest_of,
    rebuild,
    repack,
    stamp,
    stamp_messages,
    stamp_wrapper,
    target_of,
    too_large,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config import TopicConfig
    from ottla.records.batch import Entry
    from ottla.records.check import Verdict

__all__ = ["Accepted", "LargeError", "MalformedError", "RefusedError", "Terms", "keeps_own", "terms_of", "validate"]

NO_KEY: Final = "a compacted topic takes no record without a key"
BAD_TYPE_TEXT: Final = "LogAppendTime is for the broker to set"
# How much may be decompressed: on the loop, which blocks all clients (some 10 ms), and in a thread, where only the
# sender waits. Kafka has no limit; the last is a thousand times its largest batch. Uncompressed records are not
# limited.
ON_LOOP: Final = RecordLimits(4 << 20, 1 << 31)
PLAIN_ON_LOOP: Final = RecordLimits(16 << 20, 1 << 31)
IN_THREAD: Final = RecordLimits(1 << 30, 50_000_000)
# Old formats are read in Python, at some microseconds for each message.
OLD_ON_LOOP: Final = RecordLimits(1 << 20, 2_000)
OLD_IN_THREAD: Final = RecordLimits(16 << 20, 200_000)
OLD_TOPIC: Final = RecordLimits(4 << 20, 10_000)  # of a topic that is stored in magic 0 or 1, always on the loop
ERRORS_MAX: Final = 1_000  # how many refused records an answer lists
NO_EPOCH: Final = -1  # of a producer; Kafka accepts it, but nothing below
ZSTD_SINCE: Final = 7  # the first produce version that may carry zstd
BATCH_SINCE: Final = 3  # the first produce version that carries batches instead of message sets

_UNUSUAL: Final = LOG_APPEND_TIME | CONTROL
_ZSTD: Final = int(Codec.ZSTD)  # an int, because comparing with an enum member costs more than the rest of its line
_new = tuple.__new__


class Terms(NamedTuple):
    """A topic's requirements for batches that it stores unchanged: see `validate`."""

    size_max: int
    keyed: bool
    before_ms: int
    after_ms: int


def terms_of(config: TopicConfig) -> Terms | None:
    """None if the topic changes every batch."""
    if config.compression_type != "producer" or config.message_timestamp_type != "CreateTime" or config.magic != MAGIC:
        return None
    return _share(
        Terms(
            min(config.max_message_bytes, config.segment_bytes),
            config.compacts,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
    )


def keeps_own(config: TopicConfig) -> bool:
    """Whether the topic stores batches of the broker itself, which are not compressed, as they are built."""
    return (
        config.compression_type in ("producer", "uncompressed")
        and config.message_timestamp_type == "CreateTime"
        and config.magic == MAGIC
    )


@lru_cache(maxsize=256)
def _share(terms: Terms) -> Terms:
    """One object for equal terms, so that partitions with the same terms are found by identity."""
    return terms


class MalformedError(BrokerError):
    """The request does not contain exactly one batch: refused before the log is looked up."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class LargeError(BrokerError):
    """The records may be valid, but checking them here would take too long."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.RECORD_LIST_TOO_LARGE, "the records are more than is checked at once")


class RefusedError(BrokerError):
    """Some records of a batch are invalid: `record_errors` lists them by their index."""

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
    thorough: bool = False,
) -> Accepted:
    """`base` is the next offset of the log. `client=False` is for what the broker itself writes, such as markers.

    The conjunction below is the common case, which only needs stamping. All other cases are checked in order by
    `_careful`, which also finds the broken rule.
    """
    size = len(data)
    verdict = None
    if size >= HEADER_SIZE and not thorough:
        fields = HEADER.unpack_from(data)
        offset, length, _, magic, _, attributes, delta, _, last_ms, producer, producer_epoch, sequence, count = fields
        if (
            magic == MAGIC
            and length + LOG_OVERHEAD == size
            and offset == 0
            and count == delta + 1
            and count > 0
            and not attributes & _UNUSUAL
            and (sequence >= 0 and producer_epoch >= NO_EPOCH if producer >= 0 else not attributes & TRANSACTIONAL)
            and size <= config.max_message_bytes
            and size <= config.segment_bytes
            and ((codec := attributes & CODEC_MASK) < _ZSTD or (codec == _ZSTD and produce_version >= ZSTD_SINCE))
            and config.compression_type == "producer"
            and config.message_timestamp_type == "CreateTime"
            and config.magic == MAGIC
            and client
        ):
            verdict = check(
                data, _rules(config, now_ms, create_time=True, client=True), ON_LOOP if codec else PLAIN_ON_LOOP
            )
            if verdict[0] == SOUND and verdict[3] == last_ms and not verdict[7]:
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
    return _careful(data, config, base, epoch, now_ms, produce_version, client, thorough, verdict)


def _rules(config: TopicConfig, now_ms: int, *, create_time: bool, client: bool) -> Rules:
    return _new(
        Rules,
        (
            client and config.compacts,
            create_time,
            now_ms,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            ERRORS_MAX,
        ),
    )


def _careful(
    data: memoryview,
    config: TopicConfig,
    base: int,
    epoch: int,
    now_ms: int,
    produce_version: int,
    client: bool,
    thorough: bool,
    verdict: Verdict | None,
) -> Accepted:
    """`verdict`: the result of checking the records, if it is known already."""
    limits = OLD_IN_THREAD if thorough else OLD_ON_LOOP if config.magic == MAGIC else OLD_TOPIC
    entries = _entries(data, produce_version, limits)
    if not entries:  # old clients may send nothing, and get an offset anyway
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
            accepted = _batch(data, first, target, client, thorough, verdict)
        else:
            accepted = _messages(data, entries, target, source, limits)
    except ChecksumError:
        raise
    except InflatedError:
        raise LargeError from None
    except CorruptError as error:
        # The outer checksum was right, so the client built invalid records: sending them again cannot help.
        raise _invalid(error.message) from None
    if accepted.size > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{accepted.size} bytes do not fit a segment of {config.segment_bytes}"
        )
    return accepted


def _entries(data: memoryview, produce_version: int, limits: RecordLimits) -> list[Entry]:
    walk = batch.entries(data)
    if produce_version < BATCH_SINCE:
        found = list(islice(walk, limits.records + 1))
        if len(found) > limits.records:
            raise LargeError
        return found
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
    """Checks for any magic. Returns the codec."""
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


def _batch(
    data: memoryview, entry: Entry, target: BatchTarget, client: bool, thorough: bool, verdict: Verdict | None
) -> Accepted:
    data = data[: entry.size]
    head, config = batch.header(data), target.config
    _check_batch(head, config, client)
    if config.magic != MAGIC or (head.codec != target.codec and head.log_append_time):
        # Each record is rewritten with its effective timestamp.
        most = OLD_TOPIC if config.magic != MAGIC else OLD_IN_THREAD if thorough else OLD_ON_LOOP
        records = list(batch.iterate(data, size_max=most.inflated, count_max=most.records))
        _check_records(records, target, flagged=head.log_append_time)
        return rebuild(records, target, head)
    if head.control:
        return stamp(data, head, target, head.max_timestamp)
    create_time = target.append_time is None
    rules = _rules(config, target.now_ms, create_time=create_time, client=client)
    limits, packed = IN_THREAD if thorough or not client else ON_LOOP if head.codec else PLAIN_ON_LOOP, None
    if head.codec != target.codec:
        room = max(0, config.max_message_bytes - HEADER_SIZE)
        verdict, packed = transcode(
            data, rules, limits, codec=target.codec, level=target.level, size_max=room, release=thorough
        )
    elif verdict is None:
        verdict = check(data, rules, limits, release=thorough)
    state, detail, _, latest, _, negative, errors, total, bad_times = verdict
    if state != SOUND:
        raise _fault(state, detail, target)
    if total:
        found = [(index, _reason(rule, timestamp, target)) for index, rule, timestamp in errors]
        raise _refusal(ErrorCode.INVALID_TIMESTAMP if bad_times else ErrorCode.INVALID_RECORD, found, total, head.count)
    if packed is None:
        return stamp(data, head, target, latest)
    if negative:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a timestamp cannot be negative")
    accepted = repack(packed, head, target, latest)
    if accepted.size > config.max_message_bytes:
        raise too_large(accepted.size, config)
    return accepted


def _fault(state: int, detail: str, target: BatchTarget) -> BrokerError:
    if state == OVER:
        return LargeError()
    if state == LARGE:
        return BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"as {target.config.compression_type} they take more than max.message.bytes,"
            f" {target.config.max_message_bytes}",
        )
    assert state in (WRONG, CHECKSUM), state
    return _invalid(detail) if state == WRONG else CorruptError("the records do not match their checksum")


def _reason(rule: int, timestamp: int, target: BatchTarget) -> str:
    if rule == KEY_MISSING:
        return NO_KEY
    return _bad_time(timestamp, target) if rule == BAD_TIME else BAD_TYPE_TEXT


def _bad_time(timestamp: int, target: BatchTarget) -> str:
    config, now_ms = target.config, target.now_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    return f"timestamp {timestamp} is not in [{earliest}, {now_ms + config.message_timestamp_after_max_ms}]"


def _check_batch(head: Header, config: TopicConfig, client: bool) -> None:
    if client:
        if head.count <= 0 or head.count != head.last_offset_delta + 1:
            raise _invalid(f"{head.count} records do not span {head.last_offset_delta + 1} offsets")
        if head.control:
            raise _invalid("only the broker writes control records")
        if head.idempotent and head.base_sequence < 0:
            raise _invalid(f"producer {head.producer_id} sent sequence {head.base_sequence}")
        if head.idempotent and head.producer_epoch < NO_EPOCH:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {head.producer_id} sent epoch {head.producer_epoch}"
            )
        if head.transactional and not head.idempotent:
            raise _invalid("a transaction needs a producer id")
    if config.magic != MAGIC and (head.transactional or head.idempotent):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {config.magic} has no idempotence and no transactions"
        )


# Messages: magic 0 and 1


def _messages(
    data: memoryview, entries: list[Entry], target: BatchTarget, source: int, limits: RecordLimits
) -> Accepted:
    config, magic = target.config, entries[0].magic
    records: list[Record] = []
    for entry in entries:
        if entry.magic != magic:
            raise _invalid("the messages are not all of one magic")
        old = legacy.outer(data, entry.position)
        found = legacy.messages(data, entry.position, limits.inflated, limits.records, check=True)
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
    records: Sequence[Record], target: BatchTarget, *, flagged: bool, errors: Sequence[tuple[int, str]] = ()
) -> None:
    """`flagged`: the client set LogAppendTime, which only the broker may. `errors` were found before."""
    config, now_ms = target.config, target.now_ms
    keyed, create_time = config.compacts, target.append_time is None
    code, found = ErrorCode.INVALID_RECORD, list(errors)
    for index, (_, timestamp, key, _, _) in enumerate(records):
        if keyed and key is None:
            found.append((index, NO_KEY))
        elif create_time and timestamp != NO_TIMESTAMP:
            age = wrap(now_ms - timestamp)
            if age > config.message_timestamp_before_max_ms or wrap(-age) > config.message_timestamp_after_max_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                found.append((index, _bad_time(timestamp, target)))
        elif flagged:
            code = ErrorCode.INVALID_TIMESTAMP
            found.append((index, BAD_TYPE_TEXT))
    if found:
        raise _refusal(code, found[:ERRORS_MAX], len(found), len(records))


def _refusal(code: ErrorCode, found: list[tuple[int, str]], total: int, count: int) -> RefusedError:
    """`found` are the first ones of `total`."""
    shown = "; ".join(f"{index}: {message}" for index, message in found[:3])
    return RefusedError(code, f"{total} of {count} records refused, first {shown}", found)


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_RECORD, message)
