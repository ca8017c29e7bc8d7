"""Rate limit for throttled replicas: bytes per second over a window of samples, as Kafka measures them.

A partition is throttled for a replica if `leader.replication.throttled.replicas` (on the leader) or
`follower.replication.throttled.replicas` (on the follower) of its topic lists the pair, or `*` for all. An in-sync
replica is never throttled: acknowledgements wait for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock

EVERYBODY = "*"


def is_throttled(throttled: tuple[str, ...], index: int, replica: int) -> bool:
    return EVERYBODY in throttled or f"{index}:{replica}" in throttled


class Throttle:
    def __init__(self, clock: Clock, rate_max: Callable[[], int], *, samples: int, sample_s: int) -> None:
        self._clock = clock
        self._rate_max = rate_max  # bytes per second, as configured now
        self._samples_max = samples
        self._sample_s = sample_s
        self._samples: deque[tuple[float, int]] = deque()  # when each began, and its bytes

    def record(self, size: int) -> None:
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1][0] < self._sample_s:
            begun, before = self._samples.pop()
            self._samples.append((begun, before + size))
        else:
            self._samples.append((now, size))
            self._forget(now)

    def is_exceeded(self) -> bool:
        if not self._samples:
            return False
        now = self._clock.monotonic()
        self._forget(now)
        if not self._samples:
            return False
        # Assume a full window from the start. Otherwise the first bytes would look like a very high rate.
        elapsed = max(now - self._samples[0][0], (self._samples_max - 1) * self._sample_s)
        return sum(size for _, size in self._samples) > self._rate_max() * max(elapsed, self._sample_s)

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._samples_max * self._sample_s:
            self._samples.popleft()
