"""A rate over a sliding window of samples, and a token bucket: Kafka's `Rate` and `TokenBucket`.

A window has `samples` samples of `sample_ms` each. A sample that began before the window and reaches into it still
counts, so there is one more of them. A new rate is measured as if its window were full of zeros. Otherwise the first
bytes would look like a flood.
"""

from __future__ import annotations

from typing import Final, NamedTuple

THROTTLE_MS_MAX: Final = 2**31 - 1


class Window(NamedTuple):
    samples: int
    sample_ms: int


MINUTE: Final = Window(13, 5000)


class Sample:
    __slots__ = ("begun", "touched", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.begun = self.touched = now_ms
        self.value = 0.0


class Rate:
    """The usage in a window of time, per second."""

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """A negative value undoes a record."""
        if not self._samples:
            self._samples.append(Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.begun >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.touched = now_ms

    def _advance(self, now_ms: int) -> Sample:
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, float]:
        """The rate per second, and the milliseconds over which it was measured."""
        samples, sample_ms = self._window
        oldest, total = now_ms, 0.0
        for sample in self._samples:
            if now_ms - sample.touched >= samples * sample_ms:
                sample.reset(now_ms)
            oldest = min(oldest, sample.begun)
            total += sample.value
        elapsed = now_ms - oldest
        missing = samples - 1 - elapsed // sample_ms
        elapsed = max(elapsed + max(missing, 0) * sample_ms, 1)
        return total * 1000 / elapsed, elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until the rate is at its limit again, if nothing more is recorded."""
        value, elapsed = self.measure(now_ms)
        return whole_ms((value - limit) / limit * elapsed) if value > limit else 0


class SteadyRate:
    """A rate that is also kept over a minute.

    In Kafka a client that sends as fast as it can uses up its window at once, and again when the window has passed.
    With Kafka's windows of 11 seconds that is often more than 10 % too much per minute.
    """

    __slots__ = ("_rates",)

    def __init__(self, window: Window) -> None:
        longer = [MINUTE] if window.samples * window.sample_ms < MINUTE.samples * MINUTE.sample_ms else []
        self._rates = [Rate(one) for one in (window, *longer)]

    def record(self, value: float, now_ms: int) -> None:
        for rate in self._rates:
            rate.record(value, now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        return max(rate.throttle_ms(limit, now_ms) for rate in self._rates)


class TokenBucket:
    """Tokens arrive at the rate of the limit, up to one window's worth. One request may take more than there are."""

    __slots__ = ("_tokens", "_updated", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = 0.0
        self._updated: int | None = None  # None: full

    def _refill(self, limit: float, now_ms: int) -> None:
        most = limit * self._window.samples * self._window.sample_ms / 1000
        if self._updated is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + limit * max(now_ms - self._updated, 0) / 1000)
        self._updated = now_ms

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self._refill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until the debt is paid."""
        self._refill(limit, now_ms)
        return whole_ms(-self._tokens / limit * 1000) if self._tokens < 0 else 0


def whole_ms(value: float) -> int:
    """Rounded as in Java, and limited to what fits into an answer: a tiny limit makes very long times."""
    return int(min(value, THROTTLE_MS_MAX) + 0.5)
