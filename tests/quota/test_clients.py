"""Unmodified clients under quotas: how much they get through, and what they are told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from quota.asking import entity, make_topic, port_of, set_quota
from security.conftest import PLAIN_MODULE
from waiting import wait_until

from ottla.embed import BrokerThread

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 100_000
COUNT, SIZE = 500, 1000
WINDOW_S = 2
OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required user_ann="secret" user_bob="secret";'
    ),
    "quota.window.num": str(WINDOW_S),
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(options=OPTIONS) as running:
        make_topic(port_of(running), "t")
        yield running


def login(broker: BrokerThread, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "secret",
        "log_level": 0,
    }


def produce_all(told: list[float], **options: Any) -> float:
    """Produce as fast as it goes; return how many seconds it took. `told` gets the throttle times."""
    producer = Producer(
        {
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "batch.size": 20_000,
            "linger.ms": 5,
            "message.timeout.ms": 300_000,
            **options,
        }
    )
    failures: list[Any] = []
    began = time.monotonic()
    for _ in range(COUNT):
        producer.produce("t", bytes(SIZE), on_delivery=lambda error, _: error and failures.append(error))
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not failures
    return time.monotonic() - began


def test_a_user_is_held_to_its_limit_and_another_is_not(broker: BrokerThread) -> None:
    set_quota(port_of(broker), entity(user="ann", client_id="nightly"), producer_byte_rate=LIMIT)
    told: list[float] = []
    took_s = produce_all(told, **login(broker, "ann"), **{"client.id": "nightly"})
    assert any(throttle_s > 0 for throttle_s in told)
    assert 1.1 * LIMIT * (took_s + WINDOW_S) >= COUNT * SIZE, "a slow machine only makes it less"
    for user, client_id in (("ann", "other"), ("bob", "nightly")):
        others: list[float] = []
        produce_all(others, **login(broker, user), **{"client.id": client_id})
        assert not any(others)


def test_a_consumer_gets_all_of_it_at_its_rate(broker: BrokerThread) -> None:
    make_topic(port_of(broker), "read")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 20_000, "log_level": 0})
    for number in range(COUNT):
        producer.produce("read", b"%06d" % number + bytes(SIZE))
    assert producer.flush(300) == 0
    set_quota(port_of(broker), entity(client_id="reader"), consumer_byte_rate=LIMIT)
    told: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "log_level": 0,
        }
    )
    consumer.subscribe(["read"])
    found: list[bytes] = []
    began = time.monotonic()

    def read() -> bool:
        found.extend(message.value()[:6] for message in consumer.consume(COUNT, 1.0) if message.error() is None)
        return len(found) >= COUNT

    try:
        wait_until(read, lambda: f"{len(found)} records", 300)
    finally:
        consumer.close()
    assert found == [b"%06d" % number for number in range(COUNT)]
    assert 1.1 * LIMIT * (time.monotonic() - began + WINDOW_S) >= COUNT * SIZE
    assert any(throttle_s > 0 for throttle_s in told)
