"""The machine of quotas: what is recorded for whom, for how long they are throttled, and in how much memory."""

from __future__ import annotations

import sys

import pytest

from ottla.errors import BrokerError, ErrorCode
from ottla.quota import sensors
from ottla.quota.entity import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from ottla.quota.limits import Limits
from ottla.quota.mutations import mutations_of
from ottla.quota.quotas import Quotas
from ottla.quota.rate import Rate, Window
from ottla.quota.sensors import UNUSED_MS_MAX, Sensors

WINDOW = Window(11, 1000)
CREATE = 19


def quotas(**of_clients: dict[str, str]) -> Quotas:
    made = Quotas(WINDOW, WINDOW)
    made.limits = Limits({}, {f"clients/{name}": pairs for name, pairs in of_clients.items()})
    return made


def test_nobody_without_a_quota_is_measured() -> None:
    machine = quotas(slow={PRODUCE: "1000"})
    assert machine.record(PRODUCE, ("u", "fast"), 1e9, 0) is None
    assert machine.record(FETCH, ("u", "slow"), 1e9, 0) is None
    assert len(machine) == 0


def test_a_producer_is_held_at_its_limit_and_another_is_not() -> None:
    """For ten minutes of made-up time, requests of 16 kB as fast as their connections let them."""
    machine, second = quotas(slow={PRODUCE: "100000"}), 1000
    free_at, used = {"slow": 0, "fast": 0}, {"slow": 0, "fast": 0}
    for now in range(0, 600 * second, 5):
        for client, free in free_at.items():
            if free <= now:
                throttle = machine.record(PRODUCE, ("u", client), 16_384, now)
                used[client] += 16_384
                free_at[client] = now + (0 if throttle is None else throttle.ms)
    assert used["slow"] == pytest.approx(100_000 * 600, rel=0.1)
    assert used["fast"] == 600 * second // 5 * 16_384


def test_request_time_is_throttled_for_a_sample_at_most() -> None:
    machine = quotas(c={REQUEST: "1"})
    assert machine.record(REQUEST, ("u", "c"), 5, 0) is None
    throttle = machine.record(REQUEST, ("u", "c"), 500_000, 0)
    assert throttle is not None
    assert throttle.ms == WINDOW.sample_ms


def test_a_limit_that_changes_holds_at_once_for_what_was_used_before() -> None:
    machine = quotas(c={PRODUCE: "1000"})
    assert machine.record(PRODUCE, ("u", "c"), 10_000, 0) is None
    machine.limits = Limits({}, {"clients/c": {PRODUCE: "100"}})
    assert machine.record(PRODUCE, ("u", "c"), 1, 0) is not None
    machine.limits = Limits({}, {})
    assert machine.record(PRODUCE, ("u", "c"), 1e9, 0) is None


def test_a_fetch_can_be_as_large_as_its_window() -> None:
    machine = quotas(c={FETCH: "1000"})
    assert machine.room(FETCH, ("u", "c")) == 10_000
    assert machine.room(FETCH, ("u", "d")) is None
    assert machine.record(FETCH, ("u", "c"), 10_000, 0) is None
    assert machine.record(FETCH, ("u", "c"), 1, 0) is not None
    assert not machine.take_back(FETCH, ("u", "c"), 1, 0)
    assert machine.record(FETCH, ("u", "c"), 5_000, 0) is not None
    assert machine.take_back(FETCH, ("u", "c"), 100, 0)


def test_connections_from_one_address() -> None:
    machine = Quotas(WINDOW, WINDOW)
    machine.limits = Limits({}, {"ips/10.0.0.1": {CONNECTION: "5"}})
    welcome = sum(machine.connect("10.0.0.1", now) == 0 for now in range(0, 300_000, 20))
    assert welcome == pytest.approx(5 * 300, rel=0.1)
    assert all(machine.connect("10.0.0.2", 0) == 0 for _ in range(1000))
    assert 0 < max(machine.connect("10.0.0.1", 300_000) for _ in range(100)) <= WINDOW.sample_ms


def test_newer_requests_are_refused_while_anything_is_owed() -> None:
    machine = quotas(c={MUTATION: "1"})
    newer = mutations_of(machine, ("u", "c"), CREATE, 6)
    assert newer is not None
    newer.charge(100, 0)  # more than a window's worth, once
    assert newer.throttle is None
    with pytest.raises(BrokerError) as refused:
        newer.charge(1, 0)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert newer.throttle is not None
    assert newer.throttle.ms == 89_000  # 100 at 1 a second, less the 11 of a window
    mutations_of(machine, ("u", "c"), CREATE, 7).charge(1, 89_000)  # type: ignore[union-attr]


def test_older_requests_are_carried_out_and_throttled() -> None:
    machine = quotas(c={MUTATION: "1"})
    older = mutations_of(machine, ("u", "c"), CREATE, 5)
    assert older is not None
    older.charge(100, 0)
    assert older.throttle is not None
    older.charge(1, 0)
    assert older.throttle.ms == 90_000
    assert mutations_of(machine, ("u", "d"), CREATE, 5) is None


def test_a_million_client_ids_are_not_remembered() -> None:
    """Long ones neither: of each, a few bytes are kept."""
    known = Sensors(lambda: Rate(WINDOW), sensors_max=100)
    for number in range(20_000):
        known.get(("u", f"{number}" + "x" * 30_000), number)
    assert len(known) == 100
    assert sum(sys.getsizeof(part) for key in known._known for part in key) < 100 * 200  # type: ignore[attr-defined]


def test_sensors_that_were_not_used_for_an_hour_go_away() -> None:
    known = Sensors(lambda: Rate(WINDOW))
    for number in range(1000):
        known.get((f"{number}",), number)
    for now in range(UNUSED_MS_MAX, UNUSED_MS_MAX + 1000):
        known.get(("busy",), now)
    assert len(known) < 10


def test_who_is_in_use_is_not_forgotten_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Sensors(lambda: Rate(WINDOW), sensors_max=10)
    mine = known.get(("mine",), 0)
    for number in range(1000):
        known.get((f"{number}",), number)
        assert known.get(("mine",), number) is mine
    assert sensors.SENSORS_MAX < 100_000
