"""Touches free memory before a turn, so that a row measures the broker and not the host of the machine.

A virtual machine may give free memory back to its host. The first byte that is then written to a page costs several
times what the write itself costs, and which broker meets such pages is chance: rows that write gigabytes had CPU times
that differed by a factor of two between two copies of the same broker. So before each turn as much as the turn will
write is written to a file that is removed at once. The pages that it has used are likely to be the next to be taken.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PIECE = bytes(1 << 20)


def touch(folder: Path, size: int) -> None:
    """Touch as much free memory as a turn will write to files in this folder."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(size // len(PIECE) + 1):
            file.write(PIECE)
