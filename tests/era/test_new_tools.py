"""The tools of Apache Kafka 4 with --bootstrap-server on a cluster: what needs more than one broker."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import judge
import pytest
from era.operator import plan, produce, topics_file, wait_led, wait_moved
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.testing import Cluster

pytestmark = [pytest.mark.xdist_group("era"), pytest.mark.timeout(600, func_only=True)]
TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture
def run(cluster: Cluster) -> Callable[..., str]:
    def call(name: str, *arguments: str) -> str:
        return judge.tool(name, "--bootstrap-server", cluster.bootstrap, *arguments).out

    return call


def test_kafka_topics(cluster: Cluster, run: Callable[..., str]) -> None:
    run(TOPICS, "--create", "--topic", "spread", "--partitions", "3", "--replication-factor", "3")

    def described() -> str:
        return run(TOPICS, "--describe", "--topic", "spread")

    def found() -> list[tuple[str, ...]]:
        """Leader, replicas, in-sync replicas; any broker may be asked, and each is told in its turn."""
        rows = re.findall(r"Leader: (\d)\tReplicas: (\d),(\d),(\d)\tIsr: (\d),(\d),(\d)", described())
        return rows if len(rows) == 3 else []

    rows = wait_until(found, described)
    assert sorted(leader for leader, *_ in rows) == ["1", "2", "3"]
    assert all(set(replicas) == {"1", "2", "3"} for _, *replicas in rows)
    run(TOPICS, "--alter", "--topic", "spread", "--partitions", "4")
    wait_until(lambda: described().count("Partition:") == 4, described)
    run(TOPICS, "--delete", "--topic", "spread")
    wait_until(lambda: "spread" not in run(TOPICS, "--list").split(), "it is not deleted")


def test_kafka_reassign_partitions(cluster: Cluster, run: Callable[..., str], tmp_path: Path) -> None:
    run(TOPICS, "--create", "--topic", "new", "--replica-assignment", "1:2")
    produce(cluster, "new", 1000, size=1000)
    words = ("--topics-to-move-json-file", topics_file(tmp_path, "new"), "--broker-list", "2,3")
    proposed = json.loads(run(REASSIGN, "--generate", *words).rpartition("configuration\n")[2])
    assert set(proposed["partitions"][0]["replicas"]) == {2, 3}

    # So slow that it does not come to an end.
    slow = plan(tmp_path, {("new", 0): [3, 1]})
    run(REASSIGN, "--execute", "--reassignment-json-file", slow, "--throttle", "1000")
    assert "new-0: replicas: 3,1,2. adding: 3. removing: 2." in run(REASSIGN, "--list")
    assert "Reassignment of partition new-0 is still in progress." in run(
        REASSIGN, "--verify", "--reassignment-json-file", slow
    )
    said = run(REASSIGN, "--cancel", "--reassignment-json-file", slow)
    assert "Successfully cancelled partition reassignment for: new-0" in said
    assert run(REASSIGN, "--list") == "No partition reassignments found.\n"
    wait_moved(cluster, "new", 0, [1, 2])

    file = plan(tmp_path, {("new", 0): [3, 1, 2]})
    run(REASSIGN, "--execute", "--reassignment-json-file", file, "--throttle", "50000000")
    wait_moved(cluster, "new", 0, [3, 1, 2])
    verified = run(REASSIGN, "--verify", "--reassignment-json-file", file)
    assert "Reassignment of partition new-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified

    assert "(PREFERRED) for partitions new-0" in run(
        ELECT, "--election-type", "preferred", "--topic", "new", "--partition", "0"
    )
    wait_led(cluster, "new", 3)
    answer = run(LOG_DIRS, "--describe", "--topic-list", "new", "--broker-list", "1,2,3").splitlines()[-1]
    sizes = [
        folder["partitions"][0]["size"] for broker in json.loads(answer)["brokers"] for folder in broker["logDirs"]
    ]
    assert len(sizes) == 3
    assert sizes[0] == sizes[1] == sizes[2] > 1_000_000


def test_unclean_election(cluster: Cluster, run: Callable[..., str]) -> None:
    """One replica falls behind; the other, which has all, goes: the operator says that some records may be lost."""
    run(TOPICS, "--create", "--topic", "unclean", "--replica-assignment", "1:2")
    produce(cluster, "unclean", 1)
    cluster.kill(2, expire=True)
    wait_until(lambda: in_sync(cluster) == [1])
    produce(cluster, "unclean", 1)
    cluster.kill(1, expire=True)
    wait_until(lambda: cluster.leader("unclean", 0) is None)
    cluster.start(2)
    said = run(ELECT, "--election-type", "unclean", "--topic", "unclean", "--partition", "0")
    assert "(UNCLEAN) for partitions unclean-0" in said
    wait_led(cluster, "unclean", 2)
    cluster.start(1)
    wait_until(lambda: in_sync(cluster) == [1, 2])


def in_sync(cluster: Cluster) -> list[int]:
    state = cluster.state("unclean", 0)
    return sorted(state["isr"]) if state is not None else []


def test_kafka_configs(cluster: Cluster, run: Callable[..., str]) -> None:
    for words in (("--entity-default",), ("--entity-name", "2")):
        of = ("--entity-type", "brokers", *words)
        run(CONFIGS, "--alter", *of, "--add-config", "log.retention.ms=123456789")
        wait_until(lambda of=of: "log.retention.ms=123456789" in run(CONFIGS, "--describe", *of))
        run(CONFIGS, "--alter", *of, "--delete-config", "log.retention.ms")
        wait_until(lambda of=of: "log.retention.ms=123456789" not in run(CONFIGS, "--describe", *of))


def test_kafka_consumer_groups(cluster: Cluster, run: Callable[..., str]) -> None:
    run(TOPICS, "--create", "--topic", "grouped", "--partitions", "2", "--replication-factor", "3")
    produce(cluster, "grouped", 10)
    for group in ("one", "two", "three"):  # coordinated by different brokers
        run(GROUPS, "--reset-offsets", "--group", group, "--topic", "grouped", "--to-earliest", "--execute")
    wait_until(lambda: {"one", "two", "three"} <= set(run(GROUPS, "--list").split()))
    described = run(GROUPS, "--describe", "--all-groups")
    assert len(re.findall(r"(?:one|two|three) +grouped +0 +0 +10 +10 ", described)) == 3
    run(GROUPS, "--delete", "--group", "one")
    assert "one" not in run(GROUPS, "--list").split()


def test_kafka_cluster_id(cluster: Cluster) -> None:
    words = ("--bootstrap-server", cluster.bootstrap)
    said = {number: broker.cluster_id for number, broker in cluster.brokers.items()}
    assert judge.tool(CLUSTER, "cluster-id", *words).out == f"Cluster ID: {said[1]}\n"
    assert len(set(said.values())) == 1
    listed = judge.tool(CLUSTER, "list-endpoints", *words).out
    assert re.findall(r"^(\d) .*unfenced", listed, re.MULTILINE) == ["1", "2", "3"]
