"""Time as a parameter: whoever decides by the clock is handed one, so that a test can own time.

`now_ms` is the wall clock that goes into records, files and answers; `monotonic` measures durations and never jumps.
The function of that name is for those who share out the loop's time, which no test needs to own.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

monotonic: Final = time.monotonic


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
