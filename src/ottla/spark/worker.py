"""Spark's Python worker made a good place to work in. It is forked once and does one task after the other.

    with at_work():
        ...  # a task

- The C library of Linux gives megabytes back to the kernel after each batch and faults them in again for the next: a
  quarter of what reading costs. Other systems have no such call.
- PySpark collects garbage after every task, and looks at each object of each module for it: 45 ms. What is loaded when
  the first task has ended stays, so it need not be looked at again.
- The driver's Python may have the native part and this one may not, as when Ottla came by `--py-files`: no module of
  machine code is loaded from an archive. It reads and writes all the same, slowly, and says so once.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.records.native import warn_if_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("ottla.spark")

M_TRIM_THRESHOLD: Final = -1  # names of malloc.h
M_MMAP_THRESHOLD: Final = -3


@contextmanager
def at_work() -> Iterator[None]:
    warn_if_missing(log)
    _keep_memory()
    try:
        yield
    finally:
        _keep_modules()


@cache
def _keep_memory() -> None:
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
        library.mallopt(M_TRIM_THRESHOLD, 256 << 20)


@cache
def _keep_modules() -> None:
    gc.collect()  # what is garbage now would stay, too
    gc.freeze()
