"""Batches made to cost more to open than to send: a few bytes that stand for millions of records.

The records of a bomb have seven or eight bytes (no key, no headers, offset delta 0), in runs of equal ones. So any
codec compresses them to almost nothing, and no reader can skip them all at once. Headers are valid: count and checksum
are right.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import cache
from typing import Final

import lz4.frame
import snappy
import zstandard
from compat.raw import blob, record, seal, varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: Final = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TINY: Final = record(0, None, None)
RUN: Final = 50
UNIT: Final = TINY * RUN + record(0, None, b"v") * RUN
TIME_MS: Final = 1_700_000_000_000
XERIAL: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK: Final = 32 << 10


def packed(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, 9, mtime=0)
    if codec == SNAPPY:
        blocks = (snappy.compress(data[at : at + XERIAL_BLOCK]) for at in range(0, len(data), XERIAL_BLOCK))
        return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    if codec == LZ4:
        return lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    if codec == ZSTD:
        return zstandard.ZstdCompressor(19).compress(data)
    return data


def framed(
    codec: int,
    body: bytes,
    count: int,
    *,
    time_ms: int = TIME_MS,
    max_time_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch around a body that is packed already."""
    most = time_ms if max_time_ms is None else max_time_ms
    return seal(struct.pack(">hiqqqhii", codec, count - 1, time_ms, most, *producer, count) + body)


@cache
def bomb(codec: int, count: int, time_ms: int = TIME_MS) -> bytes:
    """So many tiny records, in hundreds."""
    return framed(codec, packed(codec, UNIT * (count // (2 * RUN))), count, time_ms=time_ms)


@cache
def slow_to_rise(codec: int, count: int) -> bytes:
    """The same, but the last record has the latest time: a search for it reads them all."""
    late_ms = 1000
    body = UNIT * (count // (2 * RUN)) + record(0, None, None, late_ms)
    return framed(codec, packed(codec, body), count + 1, max_time_ms=TIME_MS + late_ms)


@cache
def honest(count: int) -> bytes:
    """So many small records as somebody might really write them: with keys, and values of several lengths."""
    return b"".join(record(index, b"k%d" % (index % 5000), b"v" * (index // 37 % 4)) for index in range(count))


def body_of(*parts: bytes) -> bytes:
    """One record of these parts after its attributes, with its length before it."""
    inside = b"\0" + b"".join(parts)
    return varint(len(inside)) + inside


def malformed() -> dict[str, bytes]:
    """Batches with one record that Apache Kafka refuses."""
    start = varint(0) + varint(0)
    nothing = varint(-1)
    bodies = {
        "key longer than its record": body_of(start, varint(1000), b"k", nothing, varint(0)),
        "value longer than its record": body_of(start, nothing, varint(1 << 30), b"v", varint(0)),
        "key of length -2": body_of(start, varint(-2), nothing, varint(0)),
        "value of length -2": body_of(start, nothing, varint(-2), varint(0)),
        "two thousand million headers": body_of(start, nothing, nothing, varint((1 << 31) - 1)),
        "minus five headers": body_of(start, nothing, nothing, varint(-5)),
        "record longer than its batch": varint(1 << 30) + b"\0" + start + nothing + nothing + varint(0),
    }
    found = {name: framed(NONE, body, 1) for name, body in bodies.items()}
    found |= {f"{name}, in gzip": framed(GZIP, packed(GZIP, body), 1) for name, body in bodies.items()}
    garbage = packed(ZSTD, b"\xff" * (17 << 20))
    declared = b"\xff\xff\xff\xff\x0f" + b"\0" * 20  # a block of 4 GiB, says its length
    whole = body_of(start, nothing, nothing, varint(0))
    return found | {
        "a producer with a negative epoch": framed(NONE, whole, 1, producer=(5, -2, 0)),
        "snappy of garbage": framed(SNAPPY, b"\x07garbage all the way", 1),
        "snappy that declares 4 GiB": framed(SNAPPY, declared, 1),
        "snappy blocks that declare 4 GiB": framed(SNAPPY, XERIAL + blob(declared), 1),
        "zstd that inflates to garbage": framed(ZSTD, garbage, 1),
        "more records than it has": framed(ZSTD, packed(ZSTD, TINY), 1_000_000_000),
    }


def old_bomb(count: int, magic: int) -> bytes:
    """The same in the older format: one gzipped message that holds a set of empty ones."""
    inner = struct.pack(">bb", magic, 0) + (struct.pack(">q", TIME_MS) if magic else b"") + blob(None) + blob(None)
    entry = struct.pack(">I", zlib.crc32(inner)) + inner
    one = struct.pack(">qi", 0, len(entry)) + entry
    outer = struct.pack(">bb", magic, GZIP) + (struct.pack(">q", TIME_MS) if magic else b"")
    outer += blob(None) + blob(packed(GZIP, one * count))
    message = struct.pack(">I", zlib.crc32(outer)) + outer
    return struct.pack(">qi", 0, len(message)) + message
