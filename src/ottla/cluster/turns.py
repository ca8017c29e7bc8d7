"""Time slices for long work on the event loop, such as a request for thousands of topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clock import Clock

TURN_S = 0.02  # length of one time slice


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def pause(self) -> None:
        """Yield to the event loop if the time slice is used up. Call it between short steps."""
        if self._clock.monotonic() - self._began >= TURN_S:
            await asyncio.sleep(0)
            self._began = self._clock.monotonic()
