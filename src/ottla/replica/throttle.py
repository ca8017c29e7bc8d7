"""How fast throttled replicas are copied: bytes a second over a window of samples, as Kafka measures them.

A partition is throttled for a replica if `leader.replication.throttled.replicas` (on the leader's side) or
`follower.replication.throttled.replicas` (on the follower's) of its topic names the pair, or everybody with `*`. A
replica that is in sync is never held back: acknowledgements wait for it.
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
        self._rate_max = rate_max  # bytes a second, as it is set now
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
        # As if the window had been there from the beginning: else the first bytes would look like a flood.
        elapsed = max(now - self._samples[0][0], (self._samples_max - 1) * self._sample_s)
        return sum(size for _, size in self._samples) > self._rate_max() * max(elapsed, self._sample_s)

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._samples_max * self._sample_s:
            self._samples.popleft()
