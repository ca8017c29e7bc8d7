"""The clock of a simulated process: monotonic time is the loop's; each process has its own wall clock that can jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

EPOCH_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.offset_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + round(self._loop.time() * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forwards or back."""
        self.offset_ms += by_ms
