"""Planned writes: one batch for each of several logs, written by one call.

A request may have batches for hundreds of partitions, often of a kilobyte or less. What Python does for each of them
then costs more than the write itself, so it is reduced to this:

    plan_write       decides where the batch goes; None: it needs more than a write
    write_planned    sets offset and epoch of the batches and writes them, in native code
    finish_write     records that the batch is in the file; `undo_write` if its write failed, and `drop_write` for
                     every write after that one

Nothing else may happen to these logs in between. The first write that fails ends the call, because the directory may be
lost. Two threads share many bytes, so batches after that one may be in their files, too: they are cut off again.

Native code makes the system calls itself only in place of `os.pwritev`. Every other disk, such as one that fails in a
test, gets each write as a call of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.records import batch
from ottla.records.native import batch_writer
from ottla.records.place import STAMP, STAMP_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.disk import Disk, File
    from ottla.errors import BrokerError
    from ottla.log.log import Log
    from ottla.records.batch import Header
    from ottla.records.native import Sound

# Descriptor, position in the file, base offset, leader epoch, start and end of the batch in the frame. Native code uses
# only these. Then the header of a batch with a producer id, and the file, which stays open as long as this exists.
PlannedWrite = tuple[int, int, int, int, int, int, "Header | None", "File"]


def plan_write(log: Log, frame: memoryview, start: int, end: int, sound: Sound, epoch: int) -> PlannedWrite | None:
    """Decide where a batch of the frame goes. None: pass it to `append_sound`."""
    segment = log.active
    delta, max_timestamp, producer_id = sound
    position, base = segment.size, log.end
    if (
        max_timestamp > segment.roll_at
        or position + end - start > log.segment_bytes
        or base + delta > segment.offset_max
        or not position  # when it is to be rolled is known once it has a batch
        or log.fault is not None
        or log.durability.owes_cut
    ):
        return None
    file, header = segment.opened, None
    segment.used = True
    if producer_id >= 0:
        header = batch.header(frame[start:end])
        if not log.producers.admits(header):
            return None
    return None if file is None else (file.fd, position, base, epoch, start, end, header, file)


def write_planned(disk: Disk, frame: memoryview, writes: Sequence[PlannedWrite]) -> tuple[int, int | OSError]:
    """Write the batches, up to the first failure.

    Returns how many were written before it. The next one, if any, failed with this error, or only so many bytes were
    written. Those after that may have been written, too.
    """
    native = batch_writer()
    if native is None or disk.writev is not os.pwritev:
        return write_singly(disk, frame, writes)
    count, written, error = native(frame, writes)
    return count, OSError(error, os.strerror(error)) if error else written


def write_singly(disk: Disk, frame: memoryview, writes: Sequence[PlannedWrite]) -> tuple[int, int | OSError]:
    """The same with one call of the disk for each batch."""
    for count, (fd, position, base, epoch, start, end, _, _) in enumerate(writes):
        size = end - start
        parts: list[bytes | memoryview] = [
            STAMP.pack(base, size - batch.LOG_OVERHEAD, epoch),
            frame[start + STAMP_SIZE : end],
        ]
        try:
            written = disk.writev(fd, parts, position)
        except OSError as error:
            return count, error
        if written != size:
            return count, written
    return len(writes), 0


def finish_write(log: Log, write: PlannedWrite, sound: Sound) -> int:
    """Record that the batch was written. Returns its last offset."""
    _, position, base, epoch, start, stop, header, _ = write
    delta, max_timestamp, _ = sound
    last = base + delta
    log.active.extend(position, stop - start, last, max_timestamp)
    end = log.end = last + 1
    if epoch != log.epochs.latest and epoch >= 0:
        log.epochs.assign(epoch, base)
    durability = log.durability
    if end - durability.recovery_point >= durability.flush_messages:
        durability.owe(base)
    if header is not None:
        log.note_producer(header, base, last, max_timestamp, None)
    return last


def undo_write(log: Log, write: PlannedWrite, result: int | OSError) -> BrokerError:
    """Cut off what a failed write left in the file. `result` is that of `write_planned`. Returns the error."""
    _, position, _, _, start, end, _, file = write
    try:
        log.active.undo(file, position, end - start, result)
    except OSError as error:
        log.directory.note_failure(error)
        return log.directory.storage_error(error)


def drop_write(log: Log, write: PlannedWrite) -> None:
    """Cut off a batch that was perhaps written, although an earlier write had failed."""
    try:
        log.active.drop_end(write[7])
    except OSError as error:
        log.directory.note_failure(error)
