"""Batches that no sound client sends, each with a name: the checksum is right, something below it is not."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

from ottla.records import batch
from ottla.records.batch import Record, varint
from ottla.records.compress import Codec, compress
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

NULL = varint(-1)
KEY, VALUE = varint(1) + b"k", varint(5) + b"value"
LZ4_HASH = 6  # where an lz4 frame of ours has the hash of its header


def record(
    *, delta: int = 0, time: int = 0, key: bytes = KEY, value: bytes = VALUE, headers: bytes = b"\0", size: int = 0
) -> bytes:
    """A record from its parts; `size` is how far its length is off."""
    body = b"\0" + varint(time) + varint(delta) + key + value + headers
    return varint(len(body) + size) + body


def wrap(records: bytes, now_ms: int, *, codec: int = Codec.NONE, count: int = 1, **fields: int) -> bytes:
    """A batch of these bytes, which are compressed already if there is a codec."""
    head = batch.header(batch.build([Record(0, now_ms, b"k", b"v")]))
    head = head._replace(attributes=codec, count=count, last_offset_delta=count - 1, length=49 + len(records))
    data = batch.HEADER.pack(*head._replace(**fields)) + records
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def bodies() -> Iterator[tuple[str, bytes, int]]:
    """(name, records, their number)"""
    good = record()
    header = varint(1) + b"h" + varint(1) + b"x"
    yield "key beyond the record", record(key=varint(100) + b"k"), 1
    yield "key beyond everything", record(key=varint(2**31 - 1)), 1
    yield "key of length -2", record(key=varint(-2)), 1
    yield "value beyond the record", record(value=varint(100) + b"value"), 1
    yield "value of length -2", record(value=varint(-2)), 1
    yield "value into the next record", record(value=varint(8) + b"value") + record(delta=1), 2
    yield "many headers", record(headers=varint(2**31 - 1)), 1
    yield "headers without end", record(headers=varint(3) + header), 1
    yield "negative headers", record(headers=varint(-1)), 1
    yield "header key null", record(headers=varint(1) + NULL + varint(1) + b"x"), 1
    yield "header value beyond", record(headers=varint(1) + varint(1) + b"h" + varint(9) + b"x"), 1
    yield "header value -2", record(headers=varint(1) + varint(1) + b"h" + varint(-2)), 1
    yield "record too short", record(size=-1), 1
    yield "record too long", record(size=1), 1
    yield "record too long by a record", record(size=len(good)) + record(delta=1), 2
    yield "record of negative length", varint(-5) + good[1:], 1
    yield "varint without end", b"\xff" * 12, 1
    yield "time without end", varint(14) + b"\0" + b"\xff" * 13, 1
    yield "a byte behind", good + b"\0", 1
    yield "a record behind", good + record(delta=1), 1
    yield "a record less", good, 2
    yield "cut short", good[:-1], 1
    yield "nothing", b"", 1
    yield "offsets twice", good + good, 2
    yield "offsets backwards", record(delta=1) + record(delta=0), 2
    yield "offset negative", record(delta=-1), 1


def frames(now_ms: int) -> Iterator[tuple[str, bytes]]:
    """What is wrong with the compression itself."""
    good = record()
    plain = {codec: compress(codec, good) for codec in Codec if codec}
    for codec, packed in plain.items():
        yield f"{codec.name} cut", wrap(packed[:-1], now_ms, codec=codec)
        yield f"{codec.name} cut in half", wrap(packed[: len(packed) // 2], now_ms, codec=codec)
        yield f"{codec.name} of nothing", wrap(compress(codec, b""), now_ms, codec=codec)
        yield f"{codec.name} empty", wrap(b"", now_ms, codec=codec)
        yield f"{codec.name} garbage", wrap(b"garbage that is no frame at all", now_ms, codec=codec)
    yield "gzip with a wrong sum", wrap(plain[Codec.GZIP][:-6] + b"!!" + plain[Codec.GZIP][-4:], now_ms, codec=1)
    yield "gzip with a wrong size", wrap(plain[Codec.GZIP][:-1] + b"!", now_ms, codec=1)
    yield (
        "gzip members of one record",
        wrap(gzip.compress(good[:4]) + gzip.compress(good[4:]) + b"\x1f\x8b", now_ms, codec=1),
    )
    yield "snappy of 4 GiB", wrap(b"\xff\xff\xff\xff\x0f" + b"\0" * 20, now_ms, codec=2)
    yield (
        "snappy block of 4 GiB",
        wrap(plain[Codec.SNAPPY][:16] + struct.pack(">i", 25) + b"\xff\xff\xff\xff\x0f" + b"\0" * 20, now_ms, codec=2),
    )
    lz4 = plain[Codec.LZ4]
    yield "lz4 with a wrong hash", wrap(lz4[:LZ4_HASH] + b"!" + lz4[LZ4_HASH + 1 :], now_ms, codec=3)
    yield "lz4 without an end", wrap(lz4[:-4], now_ms, codec=3)
    yield "lz4 with a block beyond", wrap(lz4[:7] + struct.pack("<I", 1 << 20) + lz4[11:], now_ms, codec=3)
    yield "zstd of 17 MiB of garbage", wrap(compress(Codec.ZSTD, b"\xfe" * (17 << 20)), now_ms, codec=4)
    yield "zstd behind zstd", wrap(plain[Codec.ZSTD] + compress(Codec.ZSTD, b"more"), now_ms, codec=4)
    yield "zstd with garbage behind", wrap(plain[Codec.ZSTD] + b"garbage", now_ms, codec=4)


def headers(now_ms: int) -> Iterator[tuple[str, bytes]]:
    """What is wrong with the batch's header."""
    good = record()
    yield "epoch -1", wrap(good, now_ms, producer_id=7, producer_epoch=-1, base_sequence=0)
    yield "epoch -2", wrap(good, now_ms, producer_id=7, producer_epoch=-2, base_sequence=0)
    yield "no sequence", wrap(good, now_ms, producer_id=7, producer_epoch=0, base_sequence=-1)
    yield "no records", wrap(b"", now_ms, count=0)
    yield "control", wrap(good, now_ms, attributes=batch.CONTROL)
    yield "codec 5", wrap(good, now_ms, codec=5)
    yield "codec 7", wrap(good, now_ms, codec=7)
    yield "LogAppendTime", wrap(good, now_ms, attributes=batch.LOG_APPEND_TIME, max_timestamp=-1)
    for time in (2**62, -(2**62), 2**63 - 1, -(2**63) + 1):
        yield f"time delta {time}", wrap(record(time=time), now_ms)
    yield "time before 1970", wrap(good, now_ms, base_timestamp=-5, max_timestamp=-5)
    yield "time past its end", wrap(record(time=1), now_ms, base_timestamp=2**63 - 1)


def all_of_them(now_ms: int) -> dict[str, bytes]:
    found = dict(headers(now_ms)) | dict(frames(now_ms))
    for name, body, count in bodies():
        for codec in Codec:
            found[f"{name}, {codec.name}"] = wrap(
                compress(codec, body) if codec else body, now_ms, codec=codec, count=count
            )
    return found
