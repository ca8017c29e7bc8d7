"""Brokers that talk to each other through a listener that asks for TLS and a login."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import judge
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from quota.asking import Quotas, entity, list_quotas, set_quota
from security.conftest import PLAIN_MODULE
from waiting import wait_until

from ottla.testing.certificates import Certificate
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USERS = f'{PLAIN_MODULE} required username="broker" password="among us" user_broker="among us";'
COUNT = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two brokers: clients come in by PLAINTEXT, brokers by SASL_SSL with certificates of their own."""
    authority = Certificate("authority")
    store = Certificate("broker", authority, hosts=("127.0.0.1",)).write(folder / "broker.pem")
    ports, inner = free_ports(2), free_ports(2)
    options = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(authority.write_certificate(folder / "ca.pem")),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.brokers.plain.sasl.jaas.config": USERS,
        "listener.name.brokers.connections.max.reauth.ms": "3000",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    own = {
        number: {"listeners": f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{other}"}
        for number, port, other in zip((1, 2), ports, inner, strict=True)
    }
    with Cluster(2, folder=folder / "cluster", options=options, own_options=own, ports=ports) as running:
        yield running


def test_records_are_replicated_through_it_and_survive_the_leader(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 2, config={"min.insync.replicas": "2"})]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 120_000})
    failures: list[object] = []
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(120) == 0
    assert not failures
    cluster.kill(cluster.leader("t", 0))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []

    def read() -> bool:
        found.extend(message.value() for message in consumer.consume(COUNT, 1.0) if message.error() is None)
        return len(found) >= COUNT

    try:
        wait_until(read, lambda: f"{len(found)} records")
    finally:
        consumer.close()
    assert found == [b"%d" % number for number in range(COUNT)]


def test_users_are_kept_where_kafka_keeps_them(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wish = UserScramCredentialUpsertion(
        "a b", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pencil", b"salt"
    )

    def kept() -> bool:
        try:
            return all(future.result(10) is None for future in admin.alter_user_scram_credentials([wish]).values())
        except Exception:  # another broker becomes controller: the former was killed
            return False

    wait_until(kept)
    with cluster.store() as store:
        data, _ = store.get("/config/users/a%20b")
    assert data.startswith(b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=')
    assert b"pencil" not in data


def test_quotas_are_the_clusters(cluster: Cluster) -> None:
    """Set at one broker they hold at every other; and so does what old tools write into ZooKeeper."""
    name = "my app"
    ports = [cluster.port(number) for number in cluster.numbers]
    for number in cluster.numbers:
        if not cluster.brokers[number].running:  # another test has killed it
            cluster.start(number)
    set_quota(ports[0], entity(user="ann", client_id=name), producer_byte_rate=1024)
    set_quota(ports[1], entity(user="ann"), request_percentage=50)
    judge.tool(
        "kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper.address, "--alter", "--add-config",
        "consumer_byte_rate=2048", "--entity-type", "clients", "--entity-name", name, version=judge.LAST_ON_ZOOKEEPER,
    )  # fmt: skip
    expected = {
        (("client-id", name), ("user", "ann")): {"producer_byte_rate": 1024},
        (("user", "ann"),): {"request_percentage": 50},
        (("client-id", name),): {"consumer_byte_rate": 2048},
    }
    for port in ports:
        wait_until(partial(is_set, port, expected))
    shown = judge.tool(
        "kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper.address, "--describe", "--entity-type", "users",
        "--entity-name", "ann", "--entity-type", "clients", "--entity-name", name, version=judge.LAST_ON_ZOOKEEPER,
    )  # fmt: skip
    assert "producer_byte_rate=1024" in shown.out


def is_set(port: int, expected: Quotas) -> bool:
    return {**list_quotas(port), **list_quotas(port, "client-id")} == expected
