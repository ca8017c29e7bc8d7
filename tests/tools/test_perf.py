from array import array
from collections.abc import Callable
from typing import Any

from ottla.pytest_plugin import Namespace
from ottla.tools.perf import percentiles, rates

Run = Callable[..., Any]


def test_produce_consume_and_latency_are_measured(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "--partitions", "2")
    sent = run("perf", "produce", topic, "--records", "5000", "--size", "100", "--json").document
    assert sent["records"] == 5000
    assert sent["records_per_second"] > 0
    assert 0 < sent["p50_ms"] <= sent["p95_ms"] <= sent["p99_ms"] <= sent["max_ms"]

    read = run("perf", "consume", topic, "--json").document
    assert read["records"] == 5000
    assert run("perf", "consume", topic, "--records", "100", "--json").document["records"] == 100

    passed = run("perf", "latency", topic, "--records", "20", "--json").document
    assert passed["records"] == 20
    assert 0 < passed["p50_ms"] <= passed["max_ms"]


def test_people_get_a_table(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    measured = run("perf", "produce", topic, "--records", "100", "--throughput", "1000", "--acks", "1")
    assert "records per second" in measured.out
    assert measured.err == "", "no progress bar where no terminal is"


def test_rates_and_percentiles() -> None:
    assert rates(100, 2_000_000, 2.0) == {
        "records": 100,
        "seconds": 2.0,
        "records_per_second": 50.0,
        "megabytes_per_second": 1.0,
    }
    hundred = array("d", range(1, 101))
    assert percentiles(hundred) == {"p50_ms": 51.0, "p95_ms": 96.0, "p99_ms": 100.0, "max_ms": 100.0}
    assert percentiles(array("d")) == {}
