from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import compress as module
from ottla.records.compress import Codec, CorruptError, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the same words over and over, " * 10_000
ALL_LEVELS = [
    *((Codec.GZIP, level) for level in (-1, 1, 9)),
    *((Codec.LZ4, level) for level in (1, 9, 12, 17)),
    *((Codec.ZSTD, level) for level in (-131072, -5, 1, 3, 22)),
]


@given(data=st.binary(max_size=300) | st.binary(min_size=1, max_size=50).map(lambda part: part * 5000))
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", Codec)
def test_what_is_compressed_inflates_again(codec: Codec, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, len(data), magic=magic) == data
    assert decompress(codec, memoryview(packed), len(data), magic=magic) == data


@pytest.mark.parametrize(("codec", "level"), ALL_LEVELS)
def test_every_level_inflates_again(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_levels_matter() -> None:
    words = b" ".join(struct.pack(">I", number * 2654435761 % 2**32).hex().encode() for number in range(20_000))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, 1, 19)):
        assert len(compress(codec, words, high)) < len(compress(codec, words, low)), codec


@pytest.mark.parametrize("codec", COMPRESSED)
def test_incompressible_bytes_survive(codec: Codec) -> None:
    noise = compress(Codec.ZSTD, bytes(range(256)) * 7, 19) * 2000
    for level in (None, 1):
        assert decompress(codec, compress(codec, noise, level)) == noise


@pytest.mark.parametrize("codec", COMPRESSED)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(CorruptError, match="inflate to more than"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_streams_one_after_another_are_one(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two")) == b"one two"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_refused_or_a_prefix(codec: Codec) -> None:
    packed = compress(codec, TEXT[:100_000])
    for end in range(len(packed) - 1):
        try:
            found = decompress(codec, packed[:end])
        except CorruptError:
            continue
        assert TEXT.startswith(found), "snappy blocks stand alone, so a cut between them is not seen"
        assert codec == Codec.SNAPPY


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptError, match="codec 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="codec 5"):
        compress(5, b"")


def test_what_follows_the_last_gzip_member_is_ignored() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT) + b"garbage") == TEXT


def test_snappy_is_written_in_the_java_framing_and_read_without_it() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    assert compress(Codec.SNAPPY, b"") == packed[:16]


def test_the_hash_of_an_lz4_header_is_wrong_in_magic_0_and_right_after() -> None:
    """Bytes of the headers as Apache Kafka 3.9.2 writes them."""
    right, wrong = compress(Codec.LZ4, TEXT), compress(Codec.LZ4, TEXT, magic=0)
    assert right[:7] == bytes.fromhex("04224d18604082")
    assert wrong[:7] == bytes.fromhex("04224d1860401a")
    assert right[7:] == wrong[7:]
    assert decompress(Codec.LZ4, right, magic=0) == TEXT, "magic 0 takes both"
    with pytest.raises(CorruptError, match="headerChecksum"):
        decompress(Codec.LZ4, wrong, magic=1)


def test_lz4_frames_of_other_writers() -> None:
    """Content size, block and content checksums, linked blocks: all flags that other libraries set."""
    frame = bytes(cramjam.lz4.compress(TEXT))
    assert decompress(Codec.LZ4, frame) == TEXT
    with_size = struct.pack("<IBBQ", 0x184D2204, 0x68, 0x40, len(TEXT[:50]))
    with_size += module._descriptor_hash(with_size[4:]) + struct.pack("<I", 50 | 1 << 31) + TEXT[:50] + bytes(4)
    assert decompress(Codec.LZ4, with_size) == TEXT[:50]
    assert decompress(Codec.LZ4, with_size, magic=0) == TEXT[:50]


def test_zstd_frames_of_other_writers() -> None:
    """A skippable frame is skipped; raw and repeated blocks count as what they are; a checksum may follow."""
    skipped = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    header = bytes.fromhex("28b52ffd0058")  # no size, no checksum, a window of 2 MiB
    raw = struct.pack("<I", 5 << 3)[:3] + b"plain"
    repeated = struct.pack("<I", 100_000 << 3 | 1 << 1 | 1)[:3] + b"x"
    frame = skipped + header + raw + repeated
    assert decompress(Codec.ZSTD, frame, 100_005) == b"plain" + b"x" * 100_000
    with pytest.raises(CorruptError):
        decompress(Codec.ZSTD, frame, 100_004)


MALFORMED = {
    Codec.GZIP: ["", "1f8b", "ff" * 30, gzip.compress(TEXT)[:-9].hex()],
    Codec.SNAPPY: [
        "",
        "82534e4150505900",  # a framed stream that ends in its header
        "82534e4150505900" "0000000100000001" "7fffffff00",  # a block longer than what is left
        "82534e4150505900" "0000000100000001" "0000",  # a cut size
        "ffffffff0f" "00",  # 4 GiB from one byte
        "ffffffffffffff",  # no size at all
        "0a" "00",  # ten bytes from one
    ],
    Codec.LZ4: [
        "",
        "04",
        "04224d186040",
        "00000000000000",
        "04224d18604082" "ffffff7f" "00",  # a block longer than what is left
        "04224d18604082" "02000000" "ffff" "00000000",  # a block that is no block
    ],
    Codec.ZSTD: [
        "",
        "28b5",
        "28b52ffd00",
        "00000000000000",
        "28b52ffd" "0058" "0500",  # a cut block header
        "28b52ffd" "0058" "ffffff",  # a reserved kind of block
        "502a4d18ffffff",  # a cut skippable frame
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        pytest.param(codec, text, id=f"{codec.name}-{at}")
        for codec, texts in MALFORMED.items()
        for at, text in enumerate(texts)
    ],
)
def test_malformed_bytes_are_refused(codec: Codec, text: str) -> None:
    for magic in (0, 2):
        with pytest.raises(CorruptError):
            decompress(codec, bytes.fromhex(text), magic=magic)


@given(data=st.data())
@pytest.mark.parametrize("codec", COMPRESSED)
def test_damage_raises_nothing_but_corrupt(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptError):
        assert len(decompress(codec, packed, 10_000, magic=data.draw(st.sampled_from((0, 2))))) <= 10_000


BOMBS = """
import resource, struct, zlib
import cramjam
from ottla.records.compress import Codec, CorruptError, compress, decompress

MIB = 1 << 20
big = zlib.compressobj(9, zlib.DEFLATED, 31)
lines = [big.compress(bytes(MIB)) for _ in range(512)]
frame = compress(Codec.LZ4, bytes(64 * 1024))
repeat = struct.pack("<I", 131072 << 3 | 2)[:3] + b"x"
bombs = {
    Codec.GZIP: b"".join(lines) + big.flush(),
    Codec.SNAPPY: b"\\xff\\xff\\xff\\xff\\x0f" + b"\\xfe\\x01\\x00" * MIB,
    Codec.LZ4: frame[:7] + frame[7:-4] * 16384 + bytes(4),
    Codec.ZSTD: bytes.fromhex("28b52ffd0058") + repeat * 16384 + bytes.fromhex("010000"),
}
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 64 * MIB
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for codec, bomb in bombs.items():
    try:
        print("inflated", len(decompress(codec, bomb, 8 * MIB)))
    except CorruptError as error:
        print(codec.name, error.message)
claims = {
    Codec.SNAPPY: "ffffffff0f00",
    Codec.LZ4: "04224d186840ffffffffffff0000d60100008078" "00000000",
    Codec.ZSTD: "28b52ffde0ffffffffffff0000" "090000" "78",
}
for codec, claim in claims.items():
    try:
        print("inflated", decompress(codec, bytes.fromhex(claim), 1 << 40))
    except CorruptError:
        print(codec.name)
"""


def test_bombs_are_refused_in_little_memory() -> None:
    """Half a gigabyte and more in a few kilobytes; then a few bytes that claim to be terabytes. The limit on memory is
    such that none would fit in it."""
    source = Path(module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", BOMBS], capture_output=True, text=True, env={"PYTHONPATH": str(source)}, timeout=60
    )
    assert done.stderr == ""
    said = done.stdout.splitlines()
    for codec, line in zip(COMPRESSED, said, strict=False):
        too_large = f"{codec.name} records inflate to more than {8 << 20} bytes"
        assert line == too_large or (codec is Codec.SNAPPY and "cannot hold" in line)
    assert said[len(COMPRESSED) :] == ["SNAPPY", "LZ4", "ZSTD"]
