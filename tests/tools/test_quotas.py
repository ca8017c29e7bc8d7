"""Quotas that `ottla quotas` sets, shows and removes; those of Apache Kafka are shown as well."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.embed import BrokerThread

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def here() -> Iterator[tuple[str, str]]:
    with BrokerThread() as broker:
        yield "--bootstrap", broker.bootstrap


def test_quotas_come_and_go(run: Run, here: tuple[str, str]) -> None:
    assert run("quotas", "list", *here).out == "No quotas.\n"
    said = run("quotas", "set", "--user", "ann", "--produce", "10MB", "--requests", "50", *here).out
    assert said == "user ann: producer_byte_rate = 10,000,000 (9.5 MiB/s)\nuser ann: request_percentage = 50 %\n"
    run("quotas", "set", "-u", "ann", "-c", "my app", "--fetch", "1KiB", *here)
    run("quotas", "set", "--default", "client", "--changes", "0.5", *here)
    run("quotas", "set", "--default", "ip", "--connections", "1000", *here)
    assert run("quotas", "list", "--json", *here).document == [
        {"entity": {"client-id": None}, "quotas": {"controller_mutation_rate": 0.5}},
        {"entity": {"client-id": "my app", "user": "ann"}, "quotas": {"consumer_byte_rate": 1024.0}},
        {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 1000.0}},
        {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1e7, "request_percentage": 50.0}},
    ]
    assert len(run("quotas", "list", "--user", "ann", "--json", *here).document) == 2
    assert len(run("quotas", "list", "--user", "ann", "--client", "my app", "--json", *here).document) == 1
    shown = run("quotas", "list", *here).out
    assert "(default)" in shown
    assert "1,024 (1.0 KiB/s)" in shown
    said = run("quotas", "remove", "--user", "ann", "--produce", *here).out
    assert said == "user ann: producer_byte_rate removed\n"
    assert run("quotas", "remove", "--user", "ann", *here).out == "user ann: request_percentage removed\n"
    assert "user ann has no quota" in run("quotas", "remove", "--user", "ann", *here, code=1).err
    assert "has no consumer_byte_rate" in run("quotas", "remove", "--default", "client", "--fetch", *here, code=1).err
    for entity in (("--user", "ann", "--client", "my app"), ("--default", "client"), ("-d", "ip")):
        run("quotas", "remove", *entity, *here)
    assert run("quotas", "list", *here).out == "No quotas.\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("set", "--produce", "1MB"), 2, "--user"),
        (("set", "--user", "ann"), 2, "--produce"),
        (("set", "--user", "ann", "--produce", "much"), 2, "such as 500kB"),
        (("set", "--user", "ann", "--ip", "1.1.1.1", "--produce", "1MB"), 2, "an address"),
        (("set", "--user", "ann", "--default", "user", "--produce", "1MB"), 2, "not both"),
        (("set", "--user", "ann", "--produce", "0"), 1, "greater than 0"),
        (("set", "--user", "ann", "--connections", "5"), 1, "connection_creation_rate"),
        (("remove",), 2, "--user"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, here: tuple[str, str], words: tuple[str, ...], code: int, reason: str
) -> None:
    assert reason in " ".join(run("quotas", *words, *here, code=code).err.split())
