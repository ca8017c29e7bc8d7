"""Java and librdkafka push their metrics to a broker that has a subscription, and both are shown."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import judge
from confluent_kafka import Producer
from metrics.exposed import Exposed, scrape
from waiting import wait_until

from ottla.embed import BrokerThread

if TYPE_CHECKING:
    import pytest

COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
PUSHER = Path(__file__).parent / "Pusher.java"
SENT = "client_org_apache_kafka_producer_record_send_total"
DIALLED = "client_org_apache_kafka_producer_connection_creation_total"


def test_real_clients_push_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.telemetry.receiver.EXPIRY_MS_MIN", 5000)  # a minute, otherwise
    with BrokerThread() as broker:
        to = ("--bootstrap-server", broker.bootstrap)
        judge.tool(COMMAND, *to, "--alter", "--name", "all", "--metrics", "org.apache.kafka.", "--interval", "500")
        assert "interval.ms=500" in judge.tool(COMMAND, *to, "--describe", "--name", "all").out
        assert judge.tool(COMMAND, *to, "--list").out.split() == ["all"]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "librdkafka-pusher"})
        producer.produce("orders", b"x")
        producer.flush()
        words = judge.command(
            PUSHER,
            broker.bootstrap,
            "orders",
            "50",
            path=judge.classpath(judge.NEWEST),
            options=judge.logging_options(judge.NEWEST),
        )
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
            assert java.stdout
            assert java.stdin
            instance_id = java.stdout.readline().strip()

            def found() -> Exposed | None:
                producer.poll(0)
                exposed = scrape(broker.metrics)
                sent = exposed.get(SENT, client_instance_id=instance_id, client_id="java-pusher")
                return exposed if sent == 50 and exposed.total(DIALLED, client_id="librdkafka-pusher") else None

            exposed = wait_until(found)
            assert exposed.value("ottla_client_telemetry_pushes_total", error="NONE") >= 2
            java.stdin.close()
            java.wait(120)
        wait_until(lambda: not scrape(broker.metrics).total(SENT, client_id="java-pusher"))
        judge.tool(COMMAND, *to, "--delete", "--name", "all")
        assert judge.tool(COMMAND, *to, "--list").out.split() == []
