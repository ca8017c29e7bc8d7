"""Inputs that once broke something, or would break a simpler broker. They are small files in `corpus/`, and replayed.

    # what it does, or once did
    frame                         a request as it comes, from its API key on
    batch                         records of a Produce to a topic
    message MetadataRequest 4     the body of a message, for the decoder
    00112233…                     the bytes, in hexadecimal, on as many lines as it takes

`keep` adds what a fuzzer finds, so that it is still tested after the repair.
"""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

CORPUS: Final = Path(__file__).parent / "corpus"
SIZE_MAX: Final = 4096  # bytes; a larger one is told by its seed


class Input(NamedTuple):
    name: str
    why: str
    kind: str  # frame, batch or message
    about: tuple[str, ...]  # of a message: its class and its version
    data: bytes


def read_all() -> list[Input]:
    return [read(path) for path in sorted(CORPUS.glob("*.hex"))]


def read(path: Path) -> Input:
    why, kind, *lines = path.read_text().splitlines()
    word, *about = kind.split()
    return Input(path.stem, why.removeprefix("# "), word, tuple(about), bytes.fromhex("".join(lines)))


def keep(why: str, kind: str, data: bytes, *, name: str = "", folder: Path = CORPUS) -> Path | None:
    """Write an input down; None if it is too large."""
    if len(data) > SIZE_MAX:
        return None
    path = folder / f"{name or hashlib.sha256(data).hexdigest()[:12]}.hex"
    lines = textwrap.wrap(data.hex(), 100) or [""]
    path.write_text("\n".join([f"# {' '.join(why.split())}", kind, *lines, ""]))
    return path
