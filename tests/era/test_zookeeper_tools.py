"""The tools of Apache Kafka 2.3 with --zookeeper: they write nodes, and the controller does what the nodes say."""

from __future__ import annotations

import json
import subprocess
from itertools import islice
from typing import TYPE_CHECKING

import judge
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from era.operator import plan, produce, read_node, replicas_of, topics_file, wait_led, wait_moved
from waiting import wait_until

from ottla.cluster import znodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.testing import Cluster

pytestmark = [pytest.mark.xdist_group("era"), pytest.mark.timeout(600, func_only=True)]
TOPICS = "kafka.admin.TopicCommand"
REASSIGN = "kafka.admin.ReassignPartitionsCommand"
ELECT = "kafka.admin.PreferredReplicaLeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
VERIFY_REPLICAS = "kafka.tools.ReplicaVerificationTool"


@pytest.fixture
def run(cluster: Cluster) -> Callable[..., str]:
    def call(name: str, *arguments: str) -> str:
        words = ("--zookeeper", cluster.zookeeper.address, *arguments)
        return judge.tool(name, *words, version=judge.LAST_ON_ZOOKEEPER).out

    return call


def test_kafka_topics(cluster: Cluster, run: Callable[..., str]) -> None:
    made = run(
        TOPICS, "--create", "--topic", "old", "--replica-assignment", "1:2,2:3", "--config", "retention.ms=7200000"
    )
    assert made == "Created topic old.\n"
    wait_led(cluster, "old", 1, 2)
    produce(cluster, "old", 10)
    assert "old" in run(TOPICS, "--list").split()
    described = run(TOPICS, "--describe", "--topic", "old")
    assert "PartitionCount:2\tReplicationFactor:2\tConfigs:retention.ms=7200000" in described
    assert "Partition: 1\tLeader: 2\tReplicas: 2,3\tIsr: 2,3" in described

    identity = read_node(cluster, znodes.topic_path("old"))["topic_id"]
    run(TOPICS, "--alter", "--topic", "old", "--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    wait_led(cluster, "old", 1, 2, 3)
    produce(cluster, "old", 10, partition=2)
    wait_until(lambda: read_node(cluster, znodes.topic_path("old")).get("topic_id") == identity, "another topic id")

    run(TOPICS, "--delete", "--topic", "old")
    wait_until(lambda: "old" not in run(TOPICS, "--list").split())
    assert not replicas_of(cluster, "old")


def test_kafka_reassign_partitions_and_preferred_replica_election(
    cluster: Cluster, run: Callable[..., str], tmp_path: Path
) -> None:
    run(TOPICS, "--create", "--topic", "moved", "--replica-assignment", "1:2,2:1")
    wait_led(cluster, "moved", 1, 2)
    produce(cluster, "moved", 500, size=1000)
    words = ("--topics-to-move-json-file", topics_file(tmp_path, "moved"), "--broker-list", "2,3")
    proposed = json.loads(run(REASSIGN, "--generate", *words).rpartition("configuration\n")[2])
    assert {broker for one in proposed["partitions"] for broker in one["replicas"]} == {2, 3}

    file = plan(tmp_path, {("moved", 0): [3, 1], ("moved", 1): [1, 2, 3]})
    said = run(REASSIGN, "--execute", "--reassignment-json-file", file, "--throttle", "10000000")
    assert "Successfully started reassignment of partitions." in said
    wait_moved(cluster, "moved", 0, [3, 1])
    wait_moved(cluster, "moved", 1, [1, 2, 3])
    wait_until(lambda: read_node(cluster, "/admin/reassign_partitions") is None)
    assert "throttled" in run(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved")
    verified = run(REASSIGN, "--verify", "--reassignment-json-file", file)
    assert "partition moved-0 completed successfully" in verified
    assert "partition moved-1 completed successfully" in verified
    assert "Throttle was removed." in verified
    assert "throttled" not in run(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved")

    assert "Successfully started preferred replica election" in run(ELECT)
    wait_led(cluster, "moved", 3, 1)
    wait_until(lambda: read_node(cluster, "/admin/preferred_replica_election") is None)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "moved"})
    consumer.assign([TopicPartition("moved", 0, 0)])
    assert len(consumer.consume(500, 60)) == 500
    consumer.close()


def test_kafka_configs(cluster: Cluster, run: Callable[..., str]) -> None:
    run(TOPICS, "--create", "--topic", "set", "--replica-assignment", "1:2")
    wait_led(cluster, "set", 1)
    of_topic = ("--entity-type", "topics", "--entity-name", "set")
    run(CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=77777")
    assert "retention.ms=77777" in run(CONFIGS, "--describe", *of_topic)
    wait_until(lambda: option(cluster, "topic", "set", "retention.ms") == "77777")
    run(CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms")
    wait_until(lambda: option(cluster, "topic", "set", "retention.ms") == "604800000")

    # While a broker runs the tool takes only what throttles it.
    of_broker = ("--entity-type", "brokers", "--entity-name", "2")
    run(CONFIGS, "--alter", *of_broker, "--add-config", "follower.replication.throttled.rate=123456")
    wait_until(lambda: option(cluster, "broker", "2", "follower.replication.throttled.rate") == "123456")
    run(CONFIGS, "--alter", *of_broker, "--delete-config", "follower.replication.throttled.rate")

    of_client = ("--entity-type", "clients", "--entity-name", "somebody")
    run(CONFIGS, "--alter", *of_client, "--add-config", "producer_byte_rate=1024")
    assert "producer_byte_rate=1024" in run(CONFIGS, "--describe", *of_client)
    run(CONFIGS, "--alter", *of_client, "--delete-config", "producer_byte_rate")


def option(cluster: Cluster, kind: str, name: str, key: str) -> str | None:
    """What the broker that it concerns says it is."""
    number = int(name) if kind == "broker" else 3
    admin = AdminClient({"bootstrap.servers": cluster.brokers[number].bootstrap})
    resource = ConfigResource(kind, name)
    entry = admin.describe_configs([resource])[resource].result(30).get(key)
    return None if entry is None else entry.value


def test_kafka_replica_verification(cluster: Cluster, run: Callable[..., str]) -> None:
    """It fetches from every replica as the debugging consumer, and compares; it runs until it is stopped."""
    run(TOPICS, "--create", "--topic", "verified", "--replica-assignment", "1:2:3")
    wait_led(cluster, "verified", 1)
    produce(cluster, "verified", 200)
    words = ["--broker-list", cluster.bootstrap, "--topic-white-list", "verified", "--report-interval-ms", "500"]
    path = judge.scala_classpath(judge.LAST_ON_ZOOKEEPER, "2.12")
    tool = subprocess.Popen(judge.command(VERIFY_REPLICAS, *words, path=path), stdout=subprocess.PIPE, text=True)
    try:
        assert tool.stdout is not None
        reports = (line for line in tool.stdout if "max lag" in line)
        assert any("max lag is 0 for partition verified-0 at offset 200" in one for one in islice(reports, 100))
        produce(cluster, "verified", 200)
        assert any("max lag is 0 for partition verified-0 at offset 400" in one for one in islice(reports, 100))
    finally:
        tool.kill()
        tool.wait()
        assert tool.stdout is not None
        tool.stdout.close()
