"""Memory follows the bytes that were sent: a batch is checked in windows, whatever it decompresses to or declares.

Peak memory is measured per process, so each check runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest
from records.malformed import wrap
from records.oracle import NOW

from ottla.records.batch import varint
from ottla.records.compress import Codec, compress

if TYPE_CHECKING:
    from pathlib import Path

PEAK_MAX = 48 << 20  # above what the process had before; the codecs' own windows are up to 32 MiB
SIZE = 150 << 20

CHECK = """
import resource, sys
from ottla.records import native
from ottla.records.check import RecordLimits, Rules
native.is_built()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
data = open(sys.argv[1], "rb").read()
rules = Rules(False, True, 0, 2**63 - 1, 2**63 - 1, 10)
before = peak()
limits = RecordLimits(1 << 30, 1 << 31)
for release in (False, True):
    verdict = native.check(data, rules, limits, release=release)
    native.transcode(data, rules, limits, codec=4, level=None, size_max=1 << 20, release=release)
print(native.is_built(), verdict[0], peak() - before)
"""


def bomb(codec: int) -> bytes:
    """One valid record of 150 MiB, compressed to a few hundred kilobytes at most."""
    lead = b"\0" + varint(0) + varint(0) + varint(-1) + varint(SIZE)
    content = varint(len(lead) + SIZE + 1) + lead
    if codec != Codec.GZIP:
        return compress(codec, content + bytes(SIZE + 1))
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
    return deflate.compress(content) + deflate.compress(bytes(SIZE + 1)) + deflate.flush()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_takes_no_memory(tmp_path: Path, codec: Codec) -> None:
    (tmp_path / "batch").write_bytes(wrap(bomb(codec), NOW, codec=codec))
    words = [sys.executable, "-c", CHECK, str(tmp_path / "batch")]
    built, state, grown = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert int(grown) < PEAK_MAX
    assert state == ("0" if built == "True" else "3"), "150 MiB are more than Python inflates"


def test_a_declared_size_is_not_believed(tmp_path: Path) -> None:
    """A zstd frame with a window of 128 MiB and no content, and a snappy block that declares 4 GiB."""
    window = b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3]) + b"\x01\x00\x00"
    for codec, frame in ((Codec.ZSTD, window), (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20))):
        (tmp_path / "batch").write_bytes(wrap(frame, NOW, codec=codec))
        words = [sys.executable, "-c", CHECK, str(tmp_path / "batch")]
        _, state, grown = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert (state, int(grown) < PEAK_MAX) == ("2", True)
