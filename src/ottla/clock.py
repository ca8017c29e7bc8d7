"""Time as a parameter: whoever decides by the clock is handed one, so that a test can own time.

    now_ms        wall time: data. It goes into records, files and answers, and is compared with what stands there
    monotonic     seconds that never jump, from an unknown moment on; `steady_ms` gives them in milliseconds

Law: a duration (a delay, an interval, a deadline, a session) is measured on the steady time. Somebody may set the wall
clock back by an hour at any moment, and nothing may wait an hour for it.

The function `monotonic` is for those who share out the loop's time, which no test needs to own.
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


def steady_ms(clock: Clock) -> int:
    return round(clock.monotonic() * 1000)
