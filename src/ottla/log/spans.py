"""Walk over the batches of a log file by their headers, for any magic, in few large reads.

All magics share the layout of the first bytes, so the walk decodes no records:

    0 offset i64 | 8 length i32 | 16 magic i8 |   magic 2: 23 last offset delta i32, 35 largest timestamp i64
                                                  magic 1: 18 timestamp i64 (of a wrapper: the largest inside)

The offset of a magic 2 batch is its first, that of an older message or wrapper its last.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.disk import Disk, File

LOOK = struct.Struct(">qiib6xi")  # offset, length, epoch (magic 2), magic, last offset delta (magic 2)
LOOK_SIZE = LOOK.size
SIZE_MIN = 26  # an empty magic 0 message
SIZE_MIN_V2 = 61
WINDOW = 1 << 16

_TIMESTAMP = struct.Struct(">q")


class Span(NamedTuple):
    """One batch, or one legacy message or wrapper, in a log file."""

    position: int
    size: int
    base: int  # for a legacy wrapper equal to `last`: the first offset is inside the compressed data
    last: int
    max_timestamp: int
    epoch: int  # -1 before magic 2
    magic: int


class FoundSpan(NamedTuple):
    """A span and a buffer that holds it from `at` on."""

    span: Span
    buffer: bytes | memoryview
    at: int


def walk(
    disk: Disk, file: File, position: int, end: int, *, whole: bool = False, window: int = WINDOW
) -> Iterator[FoundSpan]:
    """Spans that start in position..end. Stops at invalid data or a span that does not end before `end`.

    With `whole` the buffer holds the whole span, else at least its header. The walk keeps the file open.
    """
    while end - position >= SIZE_MIN:
        buffer = disk.pread(file.fd, min(window, end - position), position)
        at, length = 0, len(buffer)
        while True:
            span = look(buffer, at, position + at, end)
            if span is None:
                if length - at < SIZE_MIN_V2 and at:
                    break  # the header may continue in the next window
                return
            if whole and at + span.size > length:
                if at:
                    break
                buffer = disk.pread(file.fd, span.size, position)
                length = len(buffer)
                if length < span.size:
                    return
            yield FoundSpan(span, buffer, at)
            at += span.size
            if at >= length:
                break
        position += at


def look(buffer: bytes | memoryview, at: int, position: int, end: int) -> Span | None:
    """The span whose header is at `at` in the buffer and at `position` in the file, None if it is invalid."""
    if len(buffer) - at < SIZE_MIN:
        return None
    if len(buffer) - at < LOOK_SIZE:
        buffer, at = bytes(buffer[at:]).ljust(LOOK_SIZE, b"\0"), 0
    offset, length, epoch, magic, delta = LOOK.unpack_from(buffer, at)
    size = length + 12
    if size < SIZE_MIN or position + size > end or offset < 0:
        return None
    if magic == 2:
        if size < SIZE_MIN_V2 or delta < 0 or len(buffer) - at < SIZE_MIN_V2:
            return None
        return Span(position, size, offset, offset + delta, _TIMESTAMP.unpack_from(buffer, at + 35)[0], epoch, 2)
    if magic not in (0, 1):
        return None
    timestamp = _TIMESTAMP.unpack_from(buffer, at + 18)[0] if magic else -1
    return Span(position, size, offset, offset, timestamp, -1, magic)
