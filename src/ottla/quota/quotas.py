"""Records what clients have used, and computes for how long to throttle them.

No I/O: it reads no clock and mutes no connection. Times are in milliseconds and never go back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.quota.entity import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from ottla.quota.limits import Limits
from ottla.quota.rate import Rate, SteadyRate, TokenBucket, Window
from ottla.quota.sensors import Sensors

if TYPE_CHECKING:
    from ottla.quota.limits import Key, Limit


class ThrottleFigures:
    """How often and for how long clients were throttled because of one quota key."""

    __slots__ = ("count", "throttle_ms")

    def __init__(self) -> None:
        self.count = 0
        self.throttle_ms = 0


class Throttle(NamedTuple):
    """How long to throttle, and why."""

    ms: int
    key: str
    limit: Limit


class Quotas:
    def __init__(self, window: Window, mutation_window: Window) -> None:
        self.limits = Limits()
        self.figures = {key: ThrottleFigures() for key in (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)}
        self._window = window
        self._rates: dict[str, Sensors[Rate] | Sensors[SteadyRate]] = {
            PRODUCE: Sensors(lambda: SteadyRate(window)),
            FETCH: Sensors(lambda: SteadyRate(window)),
            REQUEST: Sensors(lambda: Rate(window)),
        }
        self._buckets: Sensors[TokenBucket] = Sensors(lambda: TokenBucket(mutation_window))
        self._connections: Sensors[Rate] = Sensors(lambda: Rate(window))

    def __len__(self) -> int:
        """The number of sensors."""
        return sum(map(len, self._rates.values())) + len(self._buckets) + len(self._connections)

    def record(self, key: str, who: tuple[str, str], value: float, now_ms: int) -> Throttle | None:
        """Record what a user with this client id has used: bytes, or percent of a second. None: no throttling."""
        limit = self.limits.find(key, *who)
        if limit is None:
            return None
        rate = self._rates[key].get(limit.owner, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit.value, now_ms)
        if throttle_ms <= 0:
            return None
        if key == REQUEST:  # as in Kafka: one slow request must not throttle a client for long
            throttle_ms = min(throttle_ms, self._window.sample_ms)
        return Throttle(throttle_ms, key, limit)

    def take_back(self, key: str, who: tuple[str, str], value: float, now_ms: int) -> bool:
        """Undo a record of something that was not used after all. Returns whether the limit is exceeded even without
        it."""
        limit = self.limits.find(key, *who)
        if limit is None:
            return False
        rate = self._rates[key].get(limit.owner, now_ms)
        rate.record(-value, now_ms)
        return rate.throttle_ms(limit.value, now_ms) > 0

    def room(self, key: str, who: tuple[str, str]) -> float | None:
        """The most that can be used at once without being throttled; None: no limit."""
        limit = self.limits.find(key, *who)
        if limit is None:
            return None
        samples, sample_ms = self._window
        return limit.value * (samples - 1) * sample_ms / 1000

    def bucket(self, owner: Key, now_ms: int) -> TokenBucket:
        return self._buckets.get(owner, now_ms)

    def connect(self, address: str, now_ms: int) -> int:
        """Record a new connection from this address. Returns 0 to accept it, or the milliseconds until it is to be
        closed."""
        limit = self.limits.find_address(address)
        if limit is None:
            return 0
        rate = self._connections.get((address,), now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window.sample_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)
            self.note(CONNECTION, throttle_ms)
        return throttle_ms

    def note(self, key: str, throttle_ms: int) -> None:
        figures = self.figures[key]
        figures.count += 1
        figures.throttle_ms += throttle_ms
