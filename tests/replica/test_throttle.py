"""The rate of throttled replicas: measured over a window of samples; older samples expire."""

from __future__ import annotations

import pytest

from ottla.replica.throttle import Throttle, is_throttled


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def now_ms(self) -> int:
        return 0  # durations must not use the wall clock

    def monotonic(self) -> float:
        return self.now


def make(clock: HandClock, rate: int = 100) -> Throttle:
    return Throttle(clock, lambda: rate, samples=11, sample_s=1)


@pytest.mark.parametrize(
    ("option", "expected"), [((), False), (("*",), True), (("0:1", "2:5"), True), (("2:1", "0:5", "22:5"), False)]
)
def test_a_replica_is_throttled_by_its_pair_or_with_everybody(option: tuple[str, ...], expected: bool) -> None:
    assert is_throttled(option, 2, 5) is expected


def test_nothing_copied_exceeds_nothing() -> None:
    assert not make(HandClock(), rate=0).is_exceeded()


def test_the_first_bytes_count_as_if_the_window_were_whole() -> None:
    clock = HandClock()
    throttle = make(clock)
    throttle.record(1000)
    assert not throttle.is_exceeded()
    throttle.record(1)
    assert throttle.is_exceeded()


def test_time_brings_the_rate_down_and_the_window_forgets() -> None:
    clock = HandClock()
    throttle = make(clock)
    throttle.record(1050)
    assert throttle.is_exceeded()
    clock.now += 10.5
    assert not throttle.is_exceeded()
    throttle.record(900)
    assert throttle.is_exceeded(), "both samples are in the window"
    clock.now += 0.5
    assert not throttle.is_exceeded(), "the first sample is out of it"


def test_a_rate_that_is_changed_counts_at_once() -> None:
    rates = [100]
    throttle = Throttle(HandClock(), lambda: rates[0], samples=11, sample_s=1)
    throttle.record(1001)
    assert throttle.is_exceeded()
    rates[0] = 200
    assert not throttle.is_exceeded()
