"""Planned writes: one batch for each of several logs, written by one call.

A request may have batches for hundreds of partitions, often of a kilobyte or less. What Python does for each of them
then costs more than the write itself, so it is reduced to this:

    log.plan_write(...)       decides where the batch goes; None: it needs more than a write
    write_planned(...)        sets offset and epoch of the batches and writes them, in native code
    log.finish_write(...)     records that the batch is in the file; `log.undo_write` if its write failed

Nothing else may happen to these logs in between. The first write that fails ends the call, because the directory may be
lost: then nothing is written to the other logs either.

Native code makes the system calls itself only in place of `os.pwritev`. Every other disk, such as one that fails in a
test, gets each write as a call of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.records.batch import LOG_OVERHEAD
from ottla.records.native import batch_writer
from ottla.records.place import STAMP, STAMP_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.disk import Disk, File
    from ottla.records.batch import Header

# Descriptor, position in the file, base offset, leader epoch, start and end of the batch in the frame. Native code uses
# only these. Then the header of a batch with a producer id, and the file, which stays open as long as this exists.
PlannedWrite = tuple[int, int, int, int, int, int, "Header | None", "File"]


def write_planned(disk: Disk, frame: memoryview, writes: Sequence[PlannedWrite]) -> tuple[int, int | OSError]:
    """Write the batches in order, up to the first failure.

    Returns how many were written. The next one, if any, failed with this error, or only so many bytes were written.
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
            STAMP.pack(base, size - LOG_OVERHEAD, epoch),
            frame[start + STAMP_SIZE : end],
        ]
        try:
            written = disk.writev(fd, parts, position)
        except OSError as error:
            return count, error
        if written != size:
            return count, written
    return len(writes), 0
