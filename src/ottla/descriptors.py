"""File descriptors of this process: raise the limit as far as the system allows, make room for them, and count those
open and free."""

from __future__ import annotations

import fcntl
import os
import resource
from typing import Final

ROOM: Final = 16_384  # entries of the system's table, at eight bytes


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raise the limit of open files as far as the system allows: partitions and clients each need a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS: "unlimited" is more than it allows
            return


def make_room() -> None:
    """Make the system's table of this process large enough for thousands of connections.

    Linux enlarges the table when it is full. In a process with threads that takes tens of milliseconds, in which the
    loop would stand still. It never makes the table smaller.
    """
    spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(spare, fcntl.F_DUPFD_CLOEXEC, min(limit(), ROOM) - 1))
    except OSError:  # the last one is in use, so the table is that large already
        return
    finally:
        os.close(spare)


def count_free() -> int:
    """How many more can be opened. The system assigns the lowest free number, so one more open file shows it."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    os.close(lowest)
    return limit() - lowest


def count_open() -> int | None:
    """How many are open; None if the system does not tell."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return None
