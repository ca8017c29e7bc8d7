"""A lock file that one process at a time holds, until it releases it or ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from pathlib import Path

NAME = "lock"


def try_lock(descriptor: int, how: int) -> bool:
    """Try to take a lock, LOCK_EX or LOCK_SH, without waiting; OSError on a file system without locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class InUse(Failed):
    """Another process holds it."""


class Lock:
    """Acquired on construction. Not `real` on a file system without locks, where everybody gets it."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.real = True
        try:
            free = try_lock(self._descriptor, fcntl.LOCK_EX)
        except OSError:
            free, self.real = True, False
        if not free:
            self.release()
            raise InUse(f"{folder} is in use by another run: stop one of the two")

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
