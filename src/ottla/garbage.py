"""Keeps garbage collections short in a process that is only a broker: `Garbage`.

A collection stops the loop while it walks over objects, and a broker has many that live long: connections, partitions,
groups. Almost everything is freed without the collector: only objects that refer to each other need it, such as an
exception and its traceback, and they mostly become garbage soon.

So each object is walked over once, soon after it was created. What is in use then is set aside (`gc.freeze`), and
later collections do not visit it. Garbage may appear among that, too. So from time to time the objects set aside are
counted, which is much cheaper than walking over them, and if there are twice as many as there were in use, all are
walked over.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

YOUNG_MAX: Final = 1_000  # how many new objects are walked over at once: a fraction of a millisecond
LOOK_S: Final = 60.0
USED_MIN: Final = 100_000  # with fewer objects in use, this many are taken as used


class Garbage:
    def __init__(self) -> None:
        self._used: int | None = None  # how many objects were in use when they were walked over, or at the first look
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From now on, collect. What exists already is set aside."""
        gc.freeze()
        gc.set_threshold(YOUNG_MAX, 1_000_000, 1_000_000)  # only the youngest: nothing gets any older
        gc.callbacks.append(set_aside)
        gc.enable()
        self._wait()

    def stop(self) -> None:
        gc.disable()
        gc.callbacks.remove(set_aside)
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Walk over everything, if there may be much garbage."""
        count = gc.get_freeze_count()
        if self._used is not None and count >= 2 * self._used:
            gc.unfreeze()
            gc.collect()
            count, self._used = gc.get_freeze_count(), None
        if self._used is None:
            self._used = max(USED_MIN, count)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._wait()
        self.look()


def set_aside(phase: str, _: dict[str, Any]) -> None:
    """Called before and after each collection."""
    if phase == "stop":
        gc.freeze()
