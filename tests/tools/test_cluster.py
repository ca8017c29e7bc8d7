"""`ottla cluster`: a node handed over to a cluster, and several brokers from one command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.embed import BrokerProcess
from ottla.founding import JOURNAL_FILE, METADATA_FILE
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
    assert f"there is no {METADATA_FILE}" in again
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
