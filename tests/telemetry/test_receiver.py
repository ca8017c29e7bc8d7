"""Who may ask and push, and when: Kafka's rules. And what is kept of it, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from telemetry.test_otlp import MetricsData, pushed

from ottla.errors import BrokerError, ErrorCode
from ottla.records.compress import Codec, compress
from ottla.telemetry import receiver
from ottla.telemetry.receiver import CODECS, Telemetry
from ottla.telemetry.subscriptions import Client, choose_metrics

ALL = {"all": {"metrics": "*", "interval.ms": "1000"}}


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


class World:
    def __init__(self, configs: dict[str, dict[str, str]], *, series_max: int = 100, size_max: int = 10_000) -> None:
        self.configs = configs
        self.clock = HandClock()
        self.telemetry = Telemetry(
            self.clock, lambda: self.configs, lambda: bytes(16), size_max=size_max, series_max=series_max
        )

    def ask(self, client: Client) -> ErrorCode | Any:
        try:
            return self.telemetry.ask(client)
        except BrokerError as error:
            return error.code

    def push(
        self, client: Client, id: int, data: bytes = b"", codec: int = 0, *, terminating: bool = False
    ) -> ErrorCode:
        async def run() -> None:
            for awaited in self.telemetry.push(client, id, codec, data, terminating=terminating):
                if awaited is not None:
                    await asyncio.wait((awaited,))

        try:
            asyncio.run(run())
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    def shown(self) -> dict[str, float]:
        return {found[0].name: found[1] for found in self.telemetry.series() if found is not None}


def client(number: int = 1, **facts: str) -> Client:
    return Client(f"id-{number}", "c", "librdkafka", "2.16.0", "10.0.0.1", "4000")._replace(**facts)


def test_a_client_asks_pushes_and_waits_for_its_interval() -> None:
    world, one = World(ALL), client()
    wants = world.ask(one)
    assert (wants.metrics, wants.interval_ms) == (("",), 1000)
    assert world.ask(one) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.now += 0.1
    assert world.push(one, wants.id) is ErrorCode.NONE, "the first one after it has asked"
    assert world.push(one, wants.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.now += 1.0
    assert world.push(one, wants.id) is ErrorCode.NONE
    assert world.push(one, wants.id, terminating=True) is ErrorCode.NONE, "the last one does not wait"
    world.clock.now += 1.0
    assert world.push(one, wants.id) is ErrorCode.INVALID_REQUEST, "after the last one"


def test_after_an_unknown_subscription_it_may_ask_at_once() -> None:
    world, one = World(ALL), client()
    wants = world.ask(one)
    assert world.push(one, wants.id + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert world.ask(one) == wants
    world.clock.now += 1.0
    assert world.push(one, wants.id, b"x", 9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert world.ask(one) == wants


def test_another_subscription_has_another_id() -> None:
    world, one = World(ALL), client()
    before = world.ask(one)
    world.configs = {"some": {"metrics": "org.apache.kafka.producer.", "interval.ms": "500"}}
    assert world.push(one, before.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = world.ask(one)
    assert after.id != before.id
    assert (after.metrics, after.interval_ms) == (("org.apache.kafka.producer.",), 500)


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_what_was_pushed_is_shown_until_the_client_ends(codec: int) -> None:
    world, one = World(ALL), client()
    wants = world.ask(one)
    data = compress(codec, pushed().SerializeToString())
    assert world.push(one, wants.id, data, codec) is ErrorCode.NONE
    assert world.shown()["client_a_gauge"] == -1.5
    assert world.push(one, wants.id, terminating=True) is ErrorCode.NONE
    assert world.shown() == {}


def test_what_was_added_since_the_last_push_is_added_up() -> None:
    world, one = World(ALL), client()
    wants = world.ask(one)
    data = MetricsData()
    total = data.resource_metrics.add().scope_metrics.add().metrics.add(name="total").sum
    total.aggregation_temporality, total.is_monotonic = 1, True
    total.data_points.add(as_double=2.5)
    for _ in range(3):
        assert world.push(one, wants.id, data.SerializeToString()) is ErrorCode.NONE
        world.clock.now += 1.0
    assert world.shown() == {"client_total": 7.5}


def test_bad_pushes() -> None:
    world, one = World(ALL, size_max=1000), client()
    wants = world.ask(one)
    bomb = compress(Codec.GZIP, bytes(1_000_000))
    for data, codec, expected in (
        (bytes(1001), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\x0b", 0, ErrorCode.INVALID_RECORD),
        (b"not zstd", 4, ErrorCode.INVALID_RECORD),
        (bomb[:999], 1, ErrorCode.INVALID_RECORD),
    ):
        assert world.push(one, wants.id, data, codec) is expected
        world.clock.now += 1.0
    assert world.shown() == {}


def test_series_are_bounded_and_those_of_silent_clients_make_room() -> None:
    world = World(ALL, series_max=7)
    data = pushed().SerializeToString()
    for number in (1, 2):
        assert world.push(client(number), world.ask(client(number)).id, data) is ErrorCode.NONE
    assert len([found for found in world.telemetry.series() if found]) == 7
    assert world.telemetry.left_out == 3
    world.clock.now += 61
    assert len(world.telemetry) == 0
    assert world.push(client(3), world.ask(client(3)).id, data) is ErrorCode.NONE
    assert len([found for found in world.telemetry.series() if found]) == 5


def test_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "CLIENTS_MAX", 10)
    world = World(ALL)
    for number in range(50):
        world.ask(client(number))
    assert len(world.telemetry) == 10


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        ("", True),
        ("client_software_name=librdkafka", True),
        ("client_software_name=lib.*,client_software_version=2[.].*", True),
        ("client_software_name=apache-kafka-java", False),
        ("client_source_address=10[.]0[.]0[.]1,client_source_port=4001", False),
        ("client_id=c", True),
        ("client_id=(((", False),
    ],
)
def test_whom_a_subscription_means(match: str, meant: bool) -> None:
    configs = {"one": {"metrics": "a.,b.", "match": match}}
    assert choose_metrics(configs, client()).metrics == (("a.", "b.") if meant else ())


def test_several_subscriptions_add_up() -> None:
    configs = {
        "one": {"metrics": "b.", "interval.ms": "5000"},
        "two": {"metrics": "a.", "interval.ms": "7000"},
        "other": {"metrics": "*", "interval.ms": "100", "match": "client_id=x"},
    }
    assert choose_metrics(configs, client())[1:] == (("a.", "b."), 5000)
    assert choose_metrics({}, client())[1:] == ((), 300_000)
