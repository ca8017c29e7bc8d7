"""Append a leader's batches to a follower's log: the same bytes, with the leader's offsets and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.log.recovery import checksum_ok, marker_of
from ottla.log.spans import FoundSpan, look
from ottla.log.truncation import restart
from ottla.records import batch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.records.batch import Header


def replicate(log: Log, data: memoryview, *, now_ms: int) -> int:
    """Append batches from the leader. Returns the new end.

    An incomplete batch at the end is ignored. BrokerError(CORRUPT_MESSAGE) when a checksum is wrong or an offset is
    below the end of the log: then nothing is appended.
    """
    if log.fault is not None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, log.fault)
    entries = list(batch.entries(data))
    if not entries:
        return log.end
    headers = [_check(data, entry) for entry in entries]
    if log.start == log.end and entries[0].base_offset < log.end <= entries[0].last_offset:
        _restart_within(log, entries[0].base_offset, now_ms)
    expected = log.end
    for entry in entries:
        if (entry.base_offset if entry.base_offset >= 0 else entry.last_offset) < expected:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE, f"{log!r}: batch at {entry.base_offset}, expected {expected} or later"
            )
        expected = entry.last_offset + 1
    whole = entries[-1].position + entries[-1].size
    log.write_entries(data[:whole], entries, now_ms)
    for header, entry in zip(headers, entries, strict=True):
        if header is not None:
            log.epochs.recall(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                marker = marker_of(data[entry.position :]) if header.control else None
                log.note_producer(header, header.base_offset, header.last_offset, header.max_timestamp, marker)
    log.epochs.flush()
    return log.end


def _restart_within(log: Log, base: int, now_ms: int) -> None:
    """The leader's log starts inside a batch: an empty log takes the whole batch and keeps that start offset."""
    start = log.start
    restart(log, base, now_ms=now_ms)
    log.start = start


def _check(data: memoryview, entry: batch.Entry) -> Header | None:
    """Check a batch copied from another broker; its header, None before magic 2. BrokerError on a wrong checksum."""
    if entry.magic == batch.MAGIC:
        header = batch.header(data, entry.position)
        if header.last_offset_delta >= 0 and batch.crc_ok(data, entry.position, header):
            return header
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"checksum of the batch at {entry.base_offset} is wrong")
    span = look(data, entry.position, entry.position, len(data))
    if span is None or not checksum_ok(FoundSpan(span, data, entry.position)):
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"checksum of the message at {entry.base_offset} is wrong")
    return None
