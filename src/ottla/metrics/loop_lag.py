"""How late the event loop runs its timers: a lower bound for the wait of a request when the broker is busy."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Final

from ottla.clock import monotonic
from ottla.metrics.family import Distribution

INTERVAL_S: Final = 0.25
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class LoopLag:
    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._sum_s = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def distribution(self) -> Distribution:
        return Distribution(BOUNDS, list(self._buckets), round(self._sum_s, 6))

    def start(self) -> None:
        self._due = monotonic() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        late_s = max(0.0, monotonic() - self._due)
        self._buckets[bisect_left(BOUNDS, late_s)] += 1
        self._sum_s += late_s
        self.start()
