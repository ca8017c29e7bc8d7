"""Limits the rate of new connections: per address by quotas, and in total by max.connection.creation.rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clock import steady_ms
from ottla.quota.rate import Rate

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.quota.quotas import Quotas
    from ottla.quota.rate import Window


class ConnectionRates:
    def __init__(self, quotas: Quotas, clock: Clock, window: Window, protected: str) -> None:
        """`protected`: the inter-broker listener, exempt from the total rate; empty if there is none."""
        self.rate_max: int | None = None
        self._quotas = quotas
        self._clock = clock
        self._window = window
        self._protected = protected
        self._all = Rate(window)

    def hold(self, address: str) -> float:
        return self._quotas.connect(address, steady_ms(self._clock)) / 1000

    def rest(self, listener: str) -> float:
        if self.rate_max is None or listener == self._protected:
            return 0.0
        now_ms = steady_ms(self._clock)
        self._all.record(1, now_ms)
        return min(self._all.throttle_ms(self.rate_max, now_ms), self._window.sample_ms) / 1000
