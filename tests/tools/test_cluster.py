"""`ottla cluster`: a node handed over to a cluster, and several brokers from one command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from waiting import wait_until

from ottla.embed import BrokerProcess
from ottla.founding.alone import JOURNAL_FILE, METADATA_FILE
from ottla.testing.zookeeper import ZooKeeperServer
from ottla.tools import cluster
from ottla.tools.session import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Run = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def test_a_node_is_handed_over_whole_and_once(run: Run, server: ZooKeeperServer, tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path) as broker:
        cluster_id, node_id = broker.cluster_id, broker.node_id
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wish = NewTopic("orders", 2, 1, config={"retention.ms": "1234567"})
        admin.create_topics([wish])["orders"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        refused = run("cluster", "join", "--data", str(tmp_path), "--zookeeper", server.address, code=1).err
        assert "is in use by another broker" in refused
    place = f"{server.address}/joined"
    assert run("cluster", "join", "--data", str(tmp_path), "--zookeeper", place).out.startswith("1 topics are in Zoo")
    assert not (tmp_path / METADATA_FILE).exists()
    assert (tmp_path / f"{JOURNAL_FILE}.joined").exists()

    client = KazooClient(place)
    client.start()
    topic = json.loads(client.get("/brokers/topics/orders")[0])
    assert topic["partitions"] == {"0": [node_id], "1": [node_id]}
    assert json.loads(client.get("/brokers/topics/orders/partitions/1/state")[0])["isr"] == [node_id]
    assert json.loads(client.get("/config/topics/orders")[0])["config"] == {"retention.ms": "1234567"}
    assert json.loads(client.get("/latest_producer_id_block")[0])["block_end"] == "999"
    assert json.loads(client.get("/cluster/id")[0])["id"] == cluster_id
    assert client.get_children("/brokers/ids") == []
    client.stop()
    client.close()

    again = run("cluster", "join", "--data", str(tmp_path), "--zookeeper", place, code=1).err
    assert f"it has no {METADATA_FILE}" in again
    with BrokerProcess(data=tmp_path / "other"):
        pass
    refused = run("cluster", "join", "--data", str(tmp_path / "other"), "--zookeeper", place, code=1).err
    assert f"keeps a cluster already ({cluster_id})" in refused


def test_no_zookeeper_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_MS_MAX", 100)
    with BrokerProcess(data=tmp_path):
        pass
    with pytest.raises(Failed, match=r"no ZooKeeper answers at 127\.0\.0\.1:1"):
        cluster.join(zookeeper="127.0.0.1:1", data=tmp_path)
    assert (tmp_path / METADATA_FILE).exists()


def test_one_command_brings_a_cluster_up_and_down(tmp_path: Path) -> None:
    """What is shown is where it is; a second start finds what the first has kept."""
    port = 20_000 + 10 * (os.getpid() % 1000)
    with started(tmp_path, port) as (shown, process):
        addresses = re.findall(r"broker +\d+ +(\S+)", shown)
        assert addresses == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
        producer = Producer({"bootstrap.servers": ",".join(addresses)})
        producer.produce("kept", b"first")
        assert producer.flush(60) == 0
        known = AdminClient({"bootstrap.servers": addresses[1]}).list_topics(timeout=60)
        assert sorted(known.brokers) == [1, 2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with started(tmp_path, port) as (_, process):
        consumer = Consumer({"bootstrap.servers": addresses[0], "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["kept"])
        values: list[bytes] = []
        wait_until(lambda: values or values.extend(r.value() for r in consumer.consume(1, 1) if not r.error()))
        assert values == [b"first"]
        consumer.close()


@contextmanager
def started(data: Path, port: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command, and what it says when it is ready: up to the empty line after the facts."""
    command = [
        sys.executable,
        "-m",
        "ottla",
        "cluster",
        "up",
        "--brokers",
        "2",
        "--port",
        str(port),
        "--data",
        str(data),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline()]
        while lines[-1] and not (len(lines) > 3 and not lines[-1].strip()):
            lines.append(process.stdout.readline())
        try:
            assert lines[-1], process.stderr.read()
            yield "".join(lines), process
        finally:
            process.kill()
