"""How long work goes on before the loop is given back: a request for thousands of topics is many short turns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clock import Clock

TURN_S = 0.02  # others wait about this long for one turn


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def pause(self) -> None:
        """Let others have the loop if this turn has been long enough. To be called between short steps."""
        if self._clock.monotonic() - self._began >= TURN_S:
            await asyncio.sleep(0)
            self._began = self._clock.monotonic()
