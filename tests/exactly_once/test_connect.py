"""Kafka Connect in distributed mode, unmodified: lines of a file become records, exactly once, and lines again.

The worker keeps its configurations, offsets and states in topics, its members in a group, and writes what a source
gives in transactions (exactly.once.source.support). The broker is killed in the middle, then the worker.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import judge
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from exactly_once.apache import program
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from exactly_once.conftest import Mortal, MortalKafka

pytestmark = pytest.mark.xdist_group("apache-programs")

WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"


def properties(bootstrap: str, port: int) -> dict[str, str]:
    topics = {f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")}
    factors = {f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")}
    converters = {f"{side}.converter": "org.apache.kafka.connect.storage.StringConverter" for side in ("key", "value")}
    return {
        **topics,
        **factors,
        **converters,
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "exactly.once.source.support": "enabled",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "300",
        "consumer.session.timeout.ms": "3000",
        "consumer.heartbeat.interval.ms": "300",
        "scheduled.rebalance.max.delay.ms": "0",
        "consumer.auto.offset.reset": "earliest",
        "plugin.discovery": "service_load",
    }


class Rest:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def up(self) -> bool:
        try:
            return self.ask("GET", "/health")["status"] == "healthy"
        except (OSError, urllib.error.URLError):
            return False

    def running(self, name: str) -> bool:
        try:
            state = self.ask("GET", f"/connectors/{name}/status")
        except urllib.error.HTTPError:
            return False
        states = [state["connector"]["state"], *(task["state"] for task in state["tasks"])]
        assert "FAILED" not in states, state
        return states == ["RUNNING", "RUNNING"]


def stored(bootstrap: str, topic: str, count: int) -> list[str]:
    """The committed records of the topic, at least so many if they come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False,
                         "isolation.level": "read_committed", "enable.partition.eof": True,
                         "log_level": 2})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    ended = False
    while not ended:
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                ended = True
    consumer.close()
    return values


def test_lines_of_a_file_travel_to_another_file(own_broker: Mortal | MortalKafka, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    (port,) = judge.free_ports(1)
    settings = tmp_path / "connect.properties"
    found = properties(own_broker.bootstrap, port)
    settings.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
    rest = Rest(port)
    lines = [f"line {at}" for at in range(300)]
    source.write_text("".join(f"{line}\n" for line in lines[:100]))

    def add(start: int) -> None:
        with source.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines[start : start + 100]))

    def sunk() -> set[str]:
        return set(sink.read_text().splitlines()) if sink.exists() else set()

    with program("connect", WORKER, [str(settings)], tmp_path / "connect.log") as worker:
        worker.until(rest.up)
        for name, kind, configs in (
            ("from-file", "FileStreamSource", {"file": str(source), "topic": "lines"}),
            ("to-file", "FileStreamSink", {"file": str(sink), "topics": "lines"}),
        ):
            configs |= {"connector.class": kind, "tasks.max": "1"}
            rest.ask("POST", "/connectors", {"name": name, "config": configs})
            wait_until(lambda name=name: rest.running(name), f"{name} runs")  # type: ignore[misc]
        wait_until(lambda: sunk() >= set(lines[:100]), "the first lines")
        own_broker.restart(kill=True)
        add(100)
        wait_until(lambda: sunk() >= set(lines[:200]), "lines after the broker was killed")
        worker.stop(kill=True)
        worker.start()
        worker.until(rest.up)
        add(200)
        wait_until(lambda: sunk() >= set(lines), "lines after the worker was killed")
        assert sorted(rest.ask("GET", "/connectors")) == ["from-file", "to-file"], "it remembers its connectors"
        offsets = rest.ask("GET", "/connectors/from-file/offsets")["offsets"]
        assert offsets == [{"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}]
        rest.ask("DELETE", "/connectors/from-file")
        rest.ask("DELETE", "/connectors/to-file")
        worker.stop()
    assert stored(own_broker.bootstrap, "lines", 300) == lines, "each line once and in order"
    assert sunk() == set(lines)
