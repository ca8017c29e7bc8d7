"""Tunes Spark's Python worker, which is forked once and runs one task after another.

    with at_work():
        ...  # a task

- On Linux, malloc returns megabytes to the kernel after each batch and faults them in again for the next: a quarter of
  the cost of reading. Other systems have no such call.
- PySpark collects garbage after every task, which visits each object of each module: 45 ms. What is loaded at the end
  of the first task stays, so it is excluded from then on.
- The driver's Python may have the native module and this one may not, as when Ottla came by `--py-files`: extension
  modules are not loaded from an archive. Reading and writing still work, slowly, and a warning is logged once.
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

M_TRIM_THRESHOLD: Final = -1  # constants of malloc.h
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
        library.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest value it accepts
        library.mallopt(M_TRIM_THRESHOLD, 256 << 20)


@cache
def _keep_modules() -> None:
    gc.collect()  # what is garbage now would stay as well
    gc.freeze()
