"""Users made by `ottla users` log in with unmodified clients, by the mechanisms that were named."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from waiting import wait_until

from ottla.embed import BrokerThread

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with BrokerThread(options=options) as running:
        yield running


def client(broker: BrokerThread, user: str, password: str, mechanism: str, **options: object) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            **options,
        }
    )


def topics(broker: BrokerThread, user: str, password: str, mechanism: str) -> set[str]:
    return set(client(broker, user, password, mechanism).list_topics(timeout=5).topics)


def check_refused(broker: BrokerThread, user: str, password: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    refused = client(broker, user, password, mechanism, error_cb=errors.append)
    wait_until(lambda: refused.poll(0.05) > 0 and errors, "the broker has said nothing")
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_users_come_log_in_and_go(run: Run, broker: BrokerThread) -> None:
    here = ("--bootstrap", broker.bootstrap)
    assert run("users", "list", *here).out == "No users.\n"
    assert (
        run("users", "set", "ann", *here, text="sesame\n").out
        == "ann can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    )
    run("users", "set", "bob", "-m", "scram-sha-512", "--iterations", "5000", *here, text="pencil\n")
    assert run("users", "list", "--json", *here).document == [
        {"user": "ann", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-512": 5000}},
    ]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        topics(broker, "ann", "sesame", mechanism)
    topics(broker, "bob", "pencil", "SCRAM-SHA-512")
    check_refused(broker, "ann", "open", "SCRAM-SHA-256")
    check_refused(broker, "bob", "pencil", "SCRAM-SHA-256")
    run("users", "remove", "ann", "-m", "SCRAM-SHA-256", *here)
    check_refused(broker, "ann", "sesame", "SCRAM-SHA-256")
    topics(broker, "ann", "sesame", "SCRAM-SHA-512")
    assert run("users", "remove", "ann", *here).out == "ann is removed\n"
    assert "no user ann" in run("users", "remove", "ann", *here, code=1).err
    assert "standard input" in run("users", "set", "carl", *here, code=1).err
    assert "unknown mechanism MD5" in run("users", "set", "carl", "-m", "md5", *here, code=2, text="x\n").err
