"""How long a broker's loop was blocked: the most CPU time of its thread between two beats on it, in yardsticks.

CPU time of that thread, not wall time: a slow or busy machine makes no difference, see `yardstick`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from laws.yardstick import least, others_set_aside, yardstick_s

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ottla.embed import BrokerThread

Found = TypeVar("Found")
BEAT_S = 0.005
HELD_MAX = 100.0  # yardsticks: 0.1 s where one is a millisecond; time slices are 0.02 s at most


class Gaps:
    """Measures beats on the current loop."""

    async def begin(self) -> None:
        self._largest_s = 0.0
        self._yardstick_s = yardstick_s()
        self._last = time.thread_time()
        self._handle = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:  # not a task: a sleeping task resumes two loop iterations later
        now = time.thread_time()
        self._largest_s, self._last = max(self._largest_s, now - self._last), now
        self._handle = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    async def end(self) -> float:
        """The most CPU time between two beats."""
        await asyncio.sleep(3 * BEAT_S)  # what was done since the last beat counts as well
        self._handle.cancel()
        return self._largest_s / max(self._yardstick_s, yardstick_s())


def held(broker: BrokerThread, work: Callable[[], object]) -> float:
    """How long a client's `work` blocks the broker's loop: the least of a few measurements."""

    def on_loop(coroutine: Coroutine[Any, Any, Found]) -> Found:
        assert broker._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, broker._loop).result()

    def measure() -> float:
        with others_set_aside():
            gaps = Gaps()
            on_loop(gaps.begin())
            try:
                work()
            finally:
                found = on_loop(gaps.end())
            return found

    return least(measure, HELD_MAX)
