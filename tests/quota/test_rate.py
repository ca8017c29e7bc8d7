"""Rates and buckets: the figures of Apache Kafka's own classes, and limits that hold over minutes of made-up time."""

from __future__ import annotations

import random
from pathlib import Path

import judge
import pytest

from ottla.quota.rate import THROTTLE_MS_MAX, Rate, SteadyRate, TokenBucket, Window

KAFKA = Window(11, 1000)  # the defaults
MINUTE_MS = 60_000


def stories() -> list[tuple[str, Window, float, list[tuple[int, float]]]]:
    chance = random.Random(14)
    made = []
    for number in range(60):
        window = Window(chance.choice((1, 2, 5, 11)), 1000 * chance.choice((1, 1, 2, 10)))
        now, uses = 1_000_000_000, []
        for _ in range(60):
            now += chance.choice((0, 1, 7, 300, 999, 1000, 1001, 2500, window.samples * window.sample_ms, 60_000))
            uses.append((now, float(chance.choice((0, 1, 100, 1000, 54321, -50)))))
        made.append(("rate" if number % 3 else "bucket", window, float(chance.choice((1, 50, 100_000))), uses))
    return made


@pytest.mark.xdist_group("client")  # with those that start a JVM anyway
def test_the_figures_are_those_of_kafka(tmp_path: Path) -> None:
    told = stories()
    lines = []
    for kind, window, limit, uses in told:
        lines.append(f"{kind} {window.samples} {window.sample_ms // 1000} {limit}")
        lines += (f"{now} {value}" for now, value in uses)
    (tmp_path / "story").write_text("\n".join(lines))
    said = iter(judge.java(Path(__file__).parent / "Rates.java", str(tmp_path / "story")).out.split())
    for kind, window, limit, uses in told:
        rate, bucket = Rate(window), TokenBucket(window)
        for now, value in uses:
            measured, over = float(next(said)), float(next(said))
            if kind == "rate":
                rate.record(value, now)
                assert rate.measure(now) == pytest.approx((measured, over)), (window, now)
            else:
                bucket.record(value, limit, now)
                owed = bucket.throttle_ms(limit, now)
                assert owed == (int(min(-measured / limit * 1000, THROTTLE_MS_MAX) + 0.5) if measured < 0 else 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_client_that_waits_as_told_stays_at_its_limit(seed: int) -> None:
    """Requests of any size, as fast as it can, for ten minutes: in each the limit holds within 10 %."""
    chance = random.Random(seed)
    limit = float(chance.choice((10_000, 1_000_000, 50_000_000)))
    rate, now, minutes = SteadyRate(KAFKA), 0, [0.0] * 10
    most = limit * chance.choice((0.01, 0.1, 1))
    while now < 10 * MINUTE_MS:
        size = chance.uniform(most / 10, most)
        rate.record(size, now)
        minutes[now // MINUTE_MS] += size
        now += rate.throttle_ms(limit, now) + chance.choice((0, 1, 3))
    for used in minutes:
        assert used == pytest.approx(limit * 60, rel=0.1)


def test_two_clients_of_one_owner_share_the_limit() -> None:
    rate, free_at, used = SteadyRate(KAFKA), [0, 0], [0.0, 0.0]
    for now in range(0, 5 * MINUTE_MS, 2):
        for one in (0, 1):
            if free_at[one] <= now:
                rate.record(16_384, now)
                used[one] += 16_384
                free_at[one] = now + rate.throttle_ms(100_000, now)
    assert sum(used) == pytest.approx(100_000 * 300, rel=0.1)
    assert min(used) > 0.1 * sum(used)


def test_a_first_flood_is_paid_for() -> None:
    rate = Rate(KAFKA)
    rate.record(1_000_000, 0)
    assert rate.throttle_ms(10_000, 0) == 90_000  # a million at 10,000 a second, less the ten seconds of the window
    assert rate.throttle_ms(10_000, 5_000) == 90_000
    assert rate.throttle_ms(10_000, 20_000) == 0, "what is out of the window is forgotten"


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9, 1e308, float("inf")])
def test_extreme_limits_give_times_that_fit_into_an_answer(limit: float) -> None:
    rate, bucket = Rate(KAFKA), TokenBucket(KAFKA)
    rate.record(1e18, 5)
    bucket.record(1e18, limit, 5)
    assert 0 <= rate.throttle_ms(limit, 5) <= THROTTLE_MS_MAX
    assert 0 <= bucket.throttle_ms(limit, 5) <= THROTTLE_MS_MAX


def test_a_clock_that_goes_back_throttles_nobody_for_ever() -> None:
    rate, bucket = Rate(KAFKA), TokenBucket(KAFKA)
    for now in (1_000_000, 1_000, 2_000):
        rate.record(10, now)
        bucket.record(1, 10, now)
        assert rate.throttle_ms(10, now) <= 5_000
        assert bucket.throttle_ms(10, now) == 0


def test_what_is_taken_back_never_was() -> None:
    rate = Rate(KAFKA)
    rate.record(500, 0)
    rate.record(-500, 0)
    assert rate.measure(0)[0] == 0
