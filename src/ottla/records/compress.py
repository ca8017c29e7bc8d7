"""The five codecs of the record formats, as one table: compress or decompress one whole block of records.

    0 none     1 gzip     2 snappy     3 lz4     4 zstd        (the id is the low three bits of a batch's attributes)

gzip    RFC 1952. Several members in a row are one stream; what follows the last member is ignored.
snappy  the Java framing (xerial): `82 "SNAPPY" 00 | version i32 | oldest reader i32 | (size i32 | raw snappy) ...`.
        A raw snappy block with no framing, as several clients send, is accepted too.
lz4     LZ4 frames with independent blocks of 64 KiB. The frame header ends in a one-byte hash of its descriptor. The
        first Kafka writer hashed the four magic bytes with it; every magic 0 message in the world carries that wrong
        byte, and readers of magic 0 expect it. So magic 0 is written with the wrong byte, and it is ignored on reading.
zstd    RFC 8878 frames.

Law: decompression never allocates more than `size_max` bytes, whatever the input claims. zlib has a limit of its own,
snappy declares its size up front, and for lz4 and zstd the block headers give an upper bound before anything is
decompressed. The output buffer is the smaller of that bound and the limit, and running out of it is an error.

cramjam (the library behind the last three) is imported on first use: a broker that stores batches unchanged never needs
it.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

# A batch of 1 MiB, Kafka's default maximum, may grow 256 times before it is treated as an attack.
SIZE_MAX: Final = 256 * 1024 * 1024


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptError(BrokerError):
    """The bytes are malformed. Reading records raises only this error."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InflatedError(CorruptError):
    """The bytes may be valid, but would decompress to more than the caller allows."""


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`level` is Kafka's number for the codec; None is the codec's default. `magic` matters only for lz4."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip_compress(data, level)
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if codec == Codec.LZ4:
        return _lz4_compress(data, level, broken=magic == 0)
    if codec == Codec.ZSTD:
        return _zstd_compress(data, level)
    raise ValueError(f"no codec {codec}")


def decompress(codec: int, data: Buffer, size_max: int = SIZE_MAX, *, magic: int = 2) -> bytes:
    """CorruptError for bytes that cannot be decompressed, or would exceed `size_max`."""
    if codec == Codec.NONE:
        return bytes(data)
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise CorruptError(f"unknown compression codec {codec}")
    if len(data) == 0:
        raise CorruptError("there is nothing to inflate")
    if codec == Codec.LZ4 and magic == 0:
        data = _lz4_mend(data)
    return inflate(data, size_max)


def _too_large(size_max: int) -> InflatedError:
    return InflatedError(f"records inflate to more than {size_max} bytes")


# gzip

_GZIP_DEFAULT: Final = -1
_GZIP_WINDOW: Final = 31  # the largest window, with gzip's header and trailer


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    deflate = zlib.compressobj(_GZIP_DEFAULT if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return deflate.compress(data) + deflate.flush()


def _gzip_decompress(data: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = member.decompress(rest, size_max - size + 1)
        except zlib.error as error:
            raise CorruptError(f"gzip: {error}") from None
        size += len(part)
        if size > size_max:
            raise _too_large(size_max)
        if not member.eof:
            raise CorruptError("gzip: the stream ends early")
        parts.append(part)
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":
            return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024  # the block size of the Java writer
_SNAPPY_RATIO_MAX: Final = 32  # a 3-byte copy yields at most 64 bytes: a larger size is invalid


def _snappy_compress(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[position : position + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, size_max)
    parts: list[bytes] = []
    size, position, end = 0, 16, len(view)
    if end < position:
        raise CorruptError("snappy: the header is cut short")
    while position < end:
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # several streams in a row
            position += 16
            continue
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > end - position:
            raise CorruptError("snappy: a block is cut short")
        part = _snappy_block(view[position : position + length], size_max - size)
        parts.append(part)
        size += len(part)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, size_max: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise CorruptError(f"snappy: {len(block)} bytes cannot hold {size}")
        if size > size_max:
            raise _too_large(size_max)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptError(str(error)) from None


# lz4

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR: Final = b"\x60\x40"  # version 1, independent blocks; blocks of 64 KiB; no checksums, no size
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_DEFAULT: Final = 9  # Kafka's default level, for which its writer uses the fast compressor
_LZ4_STORED: Final = 0x80000000
_LZ4_RATIO_MAX: Final = 255


def _lz4_compress(data: Buffer, level: int | None, *, broken: bool) -> bytes:
    view = memoryview(data)
    hashed = _LZ4_MAGIC + _LZ4_DESCRIPTOR if broken else _LZ4_DESCRIPTOR
    parts = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, _descriptor_hash(hashed)]
    for position in range(0, len(view), _LZ4_BLOCK):
        plain = view[position : position + _LZ4_BLOCK]
        block = _lz4_block(plain, level)
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), bytes(plain))
    parts.append(bytes(4))
    return b"".join(parts)


def _lz4_block(plain: memoryview, level: int | None) -> bytes:
    from cramjam import lz4

    if level is None or level == _LZ4_DEFAULT:
        return bytes(lz4.compress_block(plain, store_size=False))
    # The block interface has only one level, so make a frame of one block and take the block out of it.
    frame = bytes(lz4.compress(plain, level=level))
    size = int.from_bytes(frame[7:11], "little")
    return bytes(plain) if size & _LZ4_STORED else frame[11 : 11 + size]


def _lz4_decompress(data: Buffer, size_max: int) -> bytes:
    from cramjam import DecompressionError, lz4

    bound = _lz4_bound(memoryview(data))
    output = bytearray(min(bound, size_max))
    try:
        size = lz4.decompress_into(data, output)
    except DecompressionError as error:
        raise (_too_large(size_max) if bound > size_max else CorruptError(str(error))) from None
    return bytes(memoryview(output)[:size])


def _lz4_bound(view: memoryview) -> int:
    """The most bytes that the frames can decompress to, from their block headers alone."""
    bound, position, end = 0, 0, len(view)
    while position < end:
        if end - position < 7 or bytes(view[position : position + 4]) != _LZ4_MAGIC:
            raise CorruptError("lz4: not a frame")
        flags, block_max = view[position + 4], 1 << (8 + 2 * (view[position + 5] >> 4 & 7))
        position += 7 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)  # content size, dictionary id
        block_checksum = 4 * (flags >> 4 & 1)
        while length := int.from_bytes(view[position : position + 4], "little"):
            stored, length = length & _LZ4_STORED, length & ~_LZ4_STORED
            bound += length if stored else min(block_max, length * _LZ4_RATIO_MAX)
            position += 4 + length + block_checksum
            if position > end:
                raise CorruptError("lz4: a block is cut short")
        position += 4 + 4 * (flags >> 2 & 1)  # end mark, content checksum
    return bound


def lz4_check(view: memoryview) -> None:
    """Check that Kafka can read this: one frame of independent blocks, without a dictionary and with nothing after it.

    The decompression library checks the hashes of blocks and content.
    """
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        raise CorruptError("lz4: not a frame")
    flags, kind = view[4], view[5]
    if flags >> 6 != 1 or flags & 0b11 or kind & 0b1000_1111 or kind >> 4 < 4:
        raise CorruptError("lz4: a frame of no known kind")
    if not flags & 0b10_0000:
        raise CorruptError("lz4: blocks that depend on each other")
    position, end = 6 + 8 * (flags >> 3 & 1), len(view)
    if position >= end or _descriptor_hash(bytes(view[4:position]))[0] != view[position]:
        raise CorruptError("lz4: the header of the frame does not match its checksum")
    position += 1
    while True:
        if end - position < 4:
            raise CorruptError("lz4: the frame is cut short")
        length = int.from_bytes(view[position : position + 4], "little")
        position += 4
        if length == 0:
            break
        length &= ~_LZ4_STORED
        if not 0 < length <= 1 << (8 + 2 * (kind >> 4)):
            raise CorruptError("lz4: a block is empty or larger than the frame allows")
        position += length + 4 * (flags >> 4 & 1)
    if position + 4 * (flags >> 2 & 1) != end:
        raise CorruptError("lz4: bytes follow the frame")


def _lz4_mend(data: Buffer) -> Buffer:
    """A magic 0 frame with the corrected hash byte of its header."""
    if len(data) < 7:
        raise CorruptError("lz4: not a frame")
    position = 6 + 8 * (data[4] >> 3 & 1)
    return b"".join((data[:position], _descriptor_hash(bytes(data[4:position])), data[position + 1 :]))


def _descriptor_hash(descriptor: bytes) -> bytes:
    return bytes((_xxhash32_short(descriptor) >> 8 & 0xFF,))


def _xxhash32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is enough for a frame descriptor."""
    assert len(data) < 16, "longer input is hashed in four lanes"
    prime2, prime3, prime4, prime5 = 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    digest = prime5 + len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        digest = (digest + word * prime3) & mask
        digest = (digest << 17 | digest >> 15) * prime4 & mask
    for byte in data[whole:]:
        digest = (digest + byte * prime5) & mask
        digest = (digest << 11 | digest >> 21) * 2654435761 & mask
    digest = (digest ^ digest >> 15) * prime2 & mask
    digest = (digest ^ digest >> 13) * prime3 & mask
    return digest ^ digest >> 16


# zstd

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_DEFAULT: Final = 3
_ZSTD_BLOCK_MAX: Final = 128 * 1024
_ZSTD_DICTIONARY_SIZES: Final = (0, 1, 2, 4)
_ZSTD_REPEAT: Final = 1
_ZSTD_COMPRESSED: Final = 2


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=_ZSTD_DEFAULT if level is None else level))


def _zstd_decompress(data: Buffer, size_max: int) -> bytes:
    from cramjam import DecompressionError, zstd

    bound = _zstd_bound(memoryview(data))
    output = bytearray(min(bound, size_max))
    try:
        size = zstd.decompress_into(data, output)
    except DecompressionError as error:
        raise (_too_large(size_max) if bound > size_max else CorruptError(f"zstd: {error}")) from None
    return bytes(memoryview(output)[:size])


def _zstd_bound(view: memoryview) -> int:
    """The most bytes that the frames can decompress to, from their block headers alone: a block is at most 128 KiB."""
    bound, position, end = 0, 0, len(view)
    while position < end:
        magic = bytes(view[position : position + 4])
        if len(magic) < 4:
            raise CorruptError("zstd: not a frame")
        if magic[0] >> 4 == 5 and magic[1:] == b"\x2a\x4d\x18":  # a skippable frame
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC or end - position < 6:
            raise CorruptError("zstd: not a frame")
        descriptor = view[position + 4]
        single, size_flag = descriptor >> 5 & 1, descriptor >> 6
        position += 5 + (1 - single) + _ZSTD_DICTIONARY_SIZES[descriptor & 3]
        size_length = 1 << size_flag if size_flag else single
        content = int.from_bytes(view[position : position + size_length], "little") + 256 * (size_flag == 1)
        position += size_length
        last, blocks = 0, 0
        while not last:
            if end - position < 3:
                raise CorruptError("zstd: a block is cut short")
            block = int.from_bytes(view[position : position + 3], "little")
            last, kind, length = block & 1, block >> 1 & 3, block >> 3
            blocks += _ZSTD_BLOCK_MAX if kind == _ZSTD_COMPRESSED else length
            position += 3 + (1 if kind == _ZSTD_REPEAT else length)
        bound += min(blocks, content) if size_length else blocks
        position += 4 * (descriptor >> 2 & 1)  # content checksum
    return bound


_INFLATE: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
