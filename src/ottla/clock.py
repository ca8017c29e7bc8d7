"""Time as a parameter: code that depends on the time gets a clock, so that tests can control it.

    now_ms        wall time, for data: it is written to records, files and answers, and compared with times in them
    monotonic     seconds that never jump, from an arbitrary start; `steady_ms` gives them in milliseconds

Law: a duration (a delay, an interval, a deadline, a session) is measured in monotonic time. The wall clock may be set
back by an hour at any moment, and nothing may wait an hour because of that.

The function `monotonic` is for scheduling on the loop, which no test needs to control.
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
