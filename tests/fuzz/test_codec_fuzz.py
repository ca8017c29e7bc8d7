"""Hostile bytes for every message and version: a decoder returns a message or raises DecodeError, in little time and
memory.

Four kinds of bytes: anything; a good message with some bits flipped; one with a part of it replaced by a length that
promises far too much; one that was cut and continued with something else. Whatever comes out of the decoder must go
into the encoder and come back the same. Memory is watched: the bytes that were sent bound what is held, not the numbers
written in them.

Bytes that fail are kept in `corpus/`, and replayed by test_corpus.py from then on.

SEEDS sets how many rounds; each visits every message at every version once.
"""

from __future__ import annotations

import os
import tracemalloc
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.inputs import CORPUS, keep
from laws.yardstick import least, spent
from wire.samples import every_version, instance

from ottla.wire.codec import DecodeError, decoder, encode

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = max(2, int(os.environ.get("SEEDS", "40")) // 20)
HOSTILE = [
    b"\x7f\xff\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff", b"\x00\x0f\xff\xff", b"\x80" * 9,
]  # fmt: skip
# One list of empty structs takes about this much for each byte that asks for it; anything beyond is a mistake.
MEMORY_PER_BYTE = 400
MEMORY_FIXED = 60_000
TAKEN_MAX = 5_000  # yardsticks for a megabyte


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_hostile_bytes(seed: int) -> None:
    random = Random(seed)
    read = refused = 0
    for cls, version in every_version():
        for data in hostile(cls, version, random):
            if verified(cls, version, data):
                read += 1
            else:
                refused += 1
    assert min(read, refused) > 100, "the bytes are neither all good nor all bad"


def test_memory_follows_the_bytes_that_came() -> None:
    random = Random(99)
    worst = 0.0
    for cls, version in every_version():
        decode = decoder(cls, version)
        for data in hostile(cls, version, random):
            tracemalloc.start()
            try:
                decode(data, 0)
            except DecodeError:
                pass
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            worst = max(worst, peak - MEMORY_PER_BYTE * len(data))
            assert worst < MEMORY_FIXED, f"{cls.__name__} v{version}: {peak} bytes for {len(data)}: {data.hex()}"


def test_a_large_hostile_frame_is_done_with_soon() -> None:
    """A megabyte that declares as many elements as it can, in every message and version."""
    bodies = [
        b"\x00" * (1 << 20),
        b"\x01" * (1 << 20),
        b"\x00\x03\x00\x00" * (1 << 18),
        b"\xff\xff\x3f\x01" * (1 << 18),
    ]
    for cls, version in every_version():
        for body in bodies:
            taken = least(lambda: spent(partial(check, cls, version, body, again=False)), TAKEN_MAX)  # noqa: B023
            assert taken < TAKEN_MAX, f"{cls.__name__} v{version}"


def hostile(cls: type[Any], version: int, random: Random) -> list[bytes]:
    good = encode(instance(cls, version, random), version)
    return [random.randbytes(random.randrange(80)), flipped(good, random), stuffed(good, random), spliced(good, random)]


def flipped(good: bytes, random: Random) -> bytes:
    data = bytearray(good)
    for _ in range(random.randint(1, 4)):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def stuffed(good: bytes, random: Random) -> bytes:
    """Replace a part by a length that is far too large."""
    at = random.randint(0, len(good))
    length = random.choice(HOSTILE)
    return good[:at] + length + good[at + random.choice([0, 1, len(length)]) :]


def spliced(good: bytes, random: Random) -> bytes:
    cut = random.randint(0, len(good))
    return good[:cut] + random.choice([b"", good[random.randint(0, len(good)) :], random.randbytes(20)])


def verified(cls: type[Any], version: int, data: bytes, folder: Path = CORPUS) -> bool:
    """`check`; inputs that fail are kept in the corpus."""
    try:
        return check(cls, version, data)
    except Exception as error:
        keep(str(error) or type(error).__name__, f"message {cls.__name__} {version}", data, folder=folder)
        raise


def check(cls: type[Any], version: int, data: bytes, *, again: bool = True) -> bool:
    """Decode; whatever is no DecodeError goes up and fails the test. True when a message came out."""
    try:
        message, end = decoder(cls, version)(data, 0)
    except DecodeError:
        return False
    assert 0 <= end <= len(data)
    if again:
        written = encode(message, version)
        assert decoder(cls, version)(written, 0)[1] == len(written)
        assert encode(decoder(cls, version)(written, 0)[0], version) == written
    return True
