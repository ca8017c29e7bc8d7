"""Swaps two folders of a local disk in one atomic step."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from pathlib import Path

EXCHANGE: Final = 2  # renameat2: RENAME_EXCHANGE
HERE: Final = -100  # AT_FDCWD


def exchange(one: Path, other: Path) -> None:
    """Raises Failed if the system or the file system cannot do it, OSError for everything else."""
    if not sys.platform.startswith("linux"):
        raise Failed("Parquet files can be compacted on Linux only: set compact to 0, or format to delta")
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    if rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE):
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise Failed(f"the file system of {other} cannot exchange folders: set compact to 0, or format to delta")
        raise OSError(code, os.strerror(code), str(other))
