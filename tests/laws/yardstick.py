"""CPU time in units of a fixed piece of Python, so that a bound on it means the same on every machine.

The speed of one machine varies by a factor of three within minutes. So a yardstick is timed on the same thread just
before and just after the measured code, and the slower of the two counts; it takes about a millisecond on the machine
on which the bounds were set. A result over its bound is measured again: an accident does not happen three times in a
row, and a bug does.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIES = 3
PIECES = 3
NORMAL_S = 0.001  # what a yardstick takes where the bounds were set


def yardstick_s() -> float:
    """CPU seconds of this thread for one yardstick, computed from its fastest piece."""
    return PIECES * min(piece_s() for _ in range(PIECES))


def piece_s() -> float:
    began = time.thread_time()
    kept: dict[int, tuple[int, str]] = {}
    for number in range(5_000):
        kept[number & 255] = number, "name"
    return time.thread_time() - began


@contextmanager
def others_set_aside() -> Iterator[None]:
    """Let the garbage collector visit only objects created from now on, not those of earlier tests.

    What is set aside stays so: with `gc.unfreeze` every later collection would visit all collected tests again.
    """
    gc.collect()
    gc.freeze()
    yield


def spent(work: Callable[[], object]) -> float:
    """How many yardsticks of this thread's time the work takes."""
    with others_set_aside():
        before_s, began = yardstick_s(), time.thread_time()
        work()
        taken_s = time.thread_time() - began
        return taken_s / max(before_s, yardstick_s())


def least(measure: Callable[[], float], bound: float) -> float:
    """The least of a few measurements; the first below the bound is enough."""
    found = measure()
    for _ in range(TRIES - 1):
        if found < bound:
            break
        found = min(found, measure())
    return found
