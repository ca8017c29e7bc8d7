"""Samples of this process: CPU time, memory, open files. Read in a thread, since counting many files takes a while."""

from __future__ import annotations

import gc
import resource
import sys
import time
from typing import TYPE_CHECKING, Final

from ottla import __version__, descriptors
from ottla.metrics.catalogue import BUILD, CPU, FILES_MAX, GC_FREED, GC_RUNS, OPEN_FILES, RESIDENT, STARTED
from ottla.metrics.family import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

STATM: Final = "/proc/self/statm"
PAGE_SIZE: Final = resource.getpagesize()
BEGAN_S: Final = round(time.time(), 3)  # when this module was loaded, at the start of the broker


def sample() -> list[Sample]:
    """The current samples of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    samples = [
        Sample(BUILD, (__version__, sys.version.partition(" ")[0]), 1),
        Sample(CPU, (), round(used.ru_utime + used.ru_stime, 6)),
        Sample(RESIDENT, (), resident(used.ru_maxrss)),
        Sample(FILES_MAX, (), descriptors.limit()),
        Sample(STARTED, (), BEGAN_S),
    ]
    files = descriptors.count_open()
    if files is not None:
        samples.append(Sample(OPEN_FILES, (), files))
    return [*samples, *collections()]


def resident(most: int) -> int:
    """Current resident bytes; the peak where only that is known (macOS)."""
    try:
        with open(STATM, "rb") as statm:
            return int(statm.read().split()[1]) * PAGE_SIZE
    except (OSError, IndexError, ValueError):
        return most if sys.platform == "darwin" else most * 1024


def collections() -> Iterator[Sample]:
    for generation, one in enumerate(gc.get_stats()):
        yield Sample(GC_RUNS, (str(generation),), one["collections"])
        yield Sample(GC_FREED, (str(generation),), one["collected"])
