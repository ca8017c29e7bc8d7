"""The ways to append to a log as the leader.

    append          any data of a producer: validated, and converted if need be
    append_sound    the usual batch, which native code has checked: only its offset and epoch are missing
    append_run      several of those with one write
    append_own      records of the broker itself

`planned_write` writes batches of several logs with one call; `replicate` is for followers.

Each validates once, writes once, and keeps everything else to a few comparisons. State changes only after the write has
succeeded, so a failed append changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import BrokerError, ErrorCode
from ottla.log.recovery import marker_of
from ottla.log.snapshots import SEQUENCE_MASK
from ottla.records import batch
from ottla.records.native import own_batch
from ottla.records.own_batch import IN_TRANSACTION, MARKER, PLAIN
from ottla.records.place import STAMP, STAMP_SIZE, rebase
from ottla.records.validate import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.log import Log
    from ottla.records.batch import Header
    from ottla.records.markers import EndMarker
    from ottla.records.native import Sound
    from ottla.records.own_batch import OwnRecord
    from ottla.records.validate import Accepted

NOBODY = (batch.NO_PRODUCER, -1)  # the producer of records that are in no transaction, and its epoch
PRODUCE_VERSION = 11  # Produce version of our own batches: the newest
RETRY = -1  # returned instead of an offset: the batch is a duplicate, already in the log

_new = tuple.__new__
_stamp = STAMP.pack


class Appended(NamedTuple):
    base: int
    last: int
    append_time: int  # -1 unless the topic has LogAppendTime
    start: int
    duplicate: bool  # a retry: base and last are those of the first try


def append(
    log: Log,
    data: memoryview,
    *,
    epoch: int,
    now_ms: int,
    produce_version: int,
    client: bool = True,
    accepted: Accepted | None = None,
) -> Appended:
    """Append a producer's data. On BrokerError nothing has changed.

    `accepted`: the data was already validated in another thread, after a LargeError here.
    """
    if log.fault is not None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
    if log.durability.owes_cut:
        log.durability.force_cut()
    if accepted is None:
        accepted = validate(
            data,
            log.config,
            base=log.end,
            epoch=epoch,
            now_ms=now_ms,
            produce_version=produce_version,
            client=client,
        )
    else:
        accepted = rebase(accepted, log.end, epoch)
    base, last, max_timestamp, _, append_time, header, parts, size = accepted
    if header is None:
        return _append_messages(log, parts, size, base, last, append_time, now_ms)
    marker = None
    if header.producer_id >= 0:
        if header.attributes & batch.CONTROL:
            marker = _check_marker(log, header, data)
        else:
            duplicate = log.producers.check(header, client=client)
            if duplicate is not None:
                return Appended(duplicate.base, duplicate.last, duplicate.timestamp, log.start, True)
    log.write(parts, size, last, max_timestamp, epoch, now_ms, marks=marker is not None)
    if header.producer_id >= 0:
        log.note_producer(header, base, last, max_timestamp, marker)
    return _new(Appended, (base, last, append_time, log.start, False))


def _append_messages(
    log: Log, parts: Sequence[bytes | memoryview], size: int, base: int, last: int, append_time: int, now_ms: int
) -> Appended:
    """For a topic stored as magic 0 or 1: any number of messages without a common header."""
    if size:
        data = b"".join(parts)
        log.write_entries(data, list(batch.entries(data)), now_ms)
    return Appended(base, last, append_time, log.start, False)


def _check_marker(log: Log, header: Header, data: memoryview) -> EndMarker | None:
    """The end marker in a control batch, None if it has none. BrokerError if the marker is fenced."""
    marker = marker_of(data)
    if marker is not None:
        log.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
    return marker


def append_sound(log: Log, data: memoryview, sound: Sound, epoch: int, now_ms: int) -> int:
    """Fast path: append a client's batch that needs only its offset and epoch filled in.

    Returns its base offset, or RETRY if it is a duplicate. Raises as `append`, which takes any batch but is slower.
    """
    if log.fault is not None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
    if log.durability.owes_cut:
        log.durability.force_cut()
    delta, max_timestamp, producer_id = sound
    header = None
    if producer_id >= 0:
        header = batch.header(data)
        if log.producers.check(header) is not None:
            return RETRY
    base, size = log.end, len(data)
    parts: list[bytes | memoryview] = [_stamp(base, size - batch.LOG_OVERHEAD, epoch), data[STAMP_SIZE:]]
    log.write(parts, size, base + delta, max_timestamp, epoch, now_ms)
    if header is not None:
        log.note_producer(header, base, base + delta, max_timestamp, None)
    return base


def append_run(log: Log, run: Sequence[tuple[memoryview, Sound]], epoch: int) -> int:
    """Append as many of these batches as possible with one write, in order. Returns how many.

    It stops, perhaps before the first, at a batch that needs more work: pass that one to `append_sound`.
    BrokerError: the write of the batches that `fitting` chose has failed, and nothing has changed.
    """
    if log.fault is not None or log.durability.owes_cut:
        return 0
    headers = fitting(log, run)
    base, size, last = log.end, 0, log.end - 1
    parts: list[bytes | memoryview] = []
    entries = []
    for data, (delta, max_timestamp, _) in run[: len(headers)]:
        length = len(data)
        parts += _stamp(last + 1, length - batch.LOG_OVERHEAD, epoch), data[STAMP_SIZE:]
        last += delta + 1
        entries.append((length, last, max_timestamp))
        size += length
    if not entries:
        return 0
    try:
        log.active.append_run(parts, size, entries)
    except OSError as error:
        log.directory.note_failure(error)
        raise log.directory.storage_error(error) from error
    end = log.end = last + 1
    if epoch != log.epochs.latest and epoch >= 0:
        log.epochs.assign(epoch, base)
    first = base
    for header, (_, last, max_timestamp) in zip(headers, entries, strict=True):
        if header is not None:
            log.note_producer(header, first, last, max_timestamp, None)
        first = last + 1
    durability = log.durability
    if end - durability.recovery_point >= durability.flush_messages:
        durability.owe(base)
    return len(entries)


def fitting(log: Log, run: Sequence[tuple[memoryview, Sound]]) -> list[Header | None]:
    """Headers of the leading batches that fit the active segment and are in sequence. None: no producer id."""
    segment, size, last = log.active, log.active.size, log.end - 1
    expected: dict[int, tuple[int, int]] = {}  # epoch and next sequence of producers in the run
    headers: list[Header | None] = []
    for data, (delta, max_timestamp, producer_id) in run:
        size += len(data)
        last += delta + 1
        if size > log.segment_bytes or last > segment.offset_max or max_timestamp > segment.roll_at:
            break
        header = None
        if producer_id >= 0:
            header = batch.header(data)
            number = header.producer_epoch, header.base_sequence
            known = expected.get(producer_id)
            if known != number and (known is not None or not log.producers.admits(header)):
                break
            expected[producer_id] = header.producer_epoch, (header.base_sequence + delta + 1) & SEQUENCE_MASK
        headers.append(header)
        if not segment.size:
            break  # when it is to be rolled is known once it has a batch
    return headers


def append_own(
    log: Log,
    records: Sequence[OwnRecord],
    epoch: int,
    now_ms: int,
    producer: tuple[int, int] | None = None,
    marker: EndMarker | None = None,
) -> tuple[int, int]:
    """Append records of this broker itself, in one batch. Returns the offset of the first and the batch's size.

    `producer`, an id and its epoch: they are part of this producer's transaction, or end it if they are the
    content of a `marker`. On BrokerError nothing has changed.
    """
    if log.fault is not None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
    if log.durability.owes_cut:
        log.durability.force_cut()
    kind = PLAIN if producer is None else IN_TRANSACTION if marker is None else MARKER
    producer_id, producer_epoch = producer or NOBODY
    base, header = log.end, None
    data = own_batch(records, base, epoch, now_ms, producer_id, producer_epoch, kind)
    size, last = len(data), base + len(records) - 1
    if size > log.own_size_max:
        whole = memoryview(data)
        append(log, whole, epoch=epoch, now_ms=now_ms, produce_version=PRODUCE_VERSION, client=False)
        return base, size
    if producer_id >= 0:
        header = batch.header(data)
        if marker is None:
            log.producers.check(header, client=False)
        else:
            log.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
    log.write((data,), size, last, now_ms, epoch, now_ms, marks=marker is not None)
    if header is not None:
        log.note_producer(header, base, last, now_ms, marker)
    return base, size
