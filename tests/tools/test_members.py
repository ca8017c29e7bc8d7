"""Commands for clusters, against three brokers: reassign, elect, replicas, brokers, offsets, zookeeper, top."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import commands
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., Any]

pytestmark = pytest.mark.xdist_group("tools-members")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, options={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster) -> Run:
    def call(*arguments: str, code: int = 0) -> Any:
        here = {"OTTLA_BOOTSTRAP": cluster.bootstrap, "OTTLA_ZOOKEEPER": cluster.zookeeper.address, "NO_COLOR": "1"}
        done = commands.run(arguments, environment=here)
        assert done.returncode == code, (done, cluster.report())
        if "--json" in arguments and code in (0, 1):
            return json.loads(done.stdout)
        return (done.stdout + done.stderr).decode()

    return call


def make_topic(cluster: Cluster, name: str, placement: list[list[int]], records: int = 0, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wish = NewTopic(name, len(placement), replica_assignment=placement, config=options)
    admin.create_topics([wish])[name].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(records):
        producer.produce(name, key=str(number % 5), value=f"{number}".encode() * 20, partition=number % len(placement))
    assert producer.flush(60) == 0


def values(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "check", "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    ends = sum(consumer.get_watermark_offsets(TopicPartition(topic, index), 60)[1] for index in range(partitions))
    found: list[bytes] = []

    def read_all() -> bool:
        found.extend(one.value() for one in consumer.consume(500, 1.0))
        return len(found) >= ends

    wait_until(read_all)
    consumer.close()
    return found


def test_a_broker_is_drained_by_the_plan_that_was_generated(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    make_topic(cluster, "drained", [[1, 2], [2, 3], [3, 1], [1, 3]], records=400)
    plan, before = tmp_path / "plan.json", tmp_path / "before.json"
    saved = ("--save", str(plan), "--save-current", str(before))
    assert "to copy" in run("reassign", "generate", "--topic", "drained", "--drain", "3", *saved)
    assert all(set(one["replicas"]) == {1, 2} for one in json.loads(plan.read_text())["partitions"])

    done = run("reassign", "execute", str(plan), "--throttle", "50MB", "--wait", "--json")
    assert done["complete"]
    assert sum(len(set(one["to"]) - set(one["from"])) for one in done["started"]) == 3
    assert run("reassign", "verify", str(plan), "--json")["complete"]
    options = run("configs", "describe", "--topic", "drained")
    assert "throttled" not in options, "the throttle was lifted"
    assert "throttled" not in run("configs", "describe", "--broker", "1")
    assert len(values(cluster, "drained", 4)) == 400

    assert "not done" in run("reassign", "verify", str(before), code=1)
    assert "moved" in run("reassign", "execute", str(before), "--wait")
    assert cluster.state("drained", 1) is not None
    assert run("reassign", "list", "--json") == []


def test_a_move_that_is_slow_can_be_seen_and_cancelled(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    make_topic(cluster, "slow", [[1]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "compression.type": "none"})
    for _ in range(200):
        producer.produce("slow", os.urandom(20_000))
    assert producer.flush(60) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [2]}]}))
    run("reassign", "execute", str(plan), "--throttle", "1kB")
    assert "throttled" in run("configs", "describe", "--topic", "slow")
    assert run("reassign", "list", "--json") == [
        {"topic": "slow", "partition": 0, "replicas": [2, 1], "adding": [2], "removing": [1]}
    ]
    assert "in progress" in run("reassign", "verify", str(plan), code=1)
    assert "already being moved" in run("reassign", "execute", str(plan), code=1)
    assert "cancelled the moves of 1" in run("reassign", "cancel", "--all")
    assert run("reassign", "list", "--json") == []
    assert "throttled" not in run("configs", "describe", "--topic", "slow")
    assert run("topics", "describe", "slow", "--json")[0]["partitions"][0]["replicas"] == [1]


def test_a_broker_that_is_gone_is_drained(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    make_topic(cluster, "left", [[3, 1], [1, 3]], records=20)
    cluster.kill(3, expire=True)
    wait_until(lambda: [one["broker"] for one in run("brokers", "list", "--json")["brokers"]] == [1, 2])
    plan = tmp_path / "plan.json"
    assert "there is no broker 9" in run("reassign", "generate", "--topic", "left", "--drain", "9", code=1)
    run("reassign", "generate", "--topic", "left", "--drain", "3", "--save", str(plan))
    assert run("reassign", "execute", str(plan), "--throttle", "50MB", "--wait", "--json")["complete"]
    described = run("topics", "describe", "left", "--json")[0]["partitions"]
    assert [sorted(one["replicas"]) for one in described] == [sorted(one["isr"]) for one in described] == [[1, 2]] * 2
    assert len(values(cluster, "left", 2)) == 20
    cluster.start(3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", 'expected {"partitions"'),
        ('{"partitions": [{"topic": "slow", "partition": 0, "replicas": []}]}', "a list of replicas"),
        ('{"partitions": [{"topic": "slow", "partition": 0, "replicas": [1, 1]}]}', "names a broker twice"),
        ('{"partitions": [{"topic": "slow", "partition": 7, "replicas": [1]}]}', "has no partition 7"),
        ('{"partitions": [{"topic": "slow", "partition": 0, "replicas": [9]}]}', "there is no broker 9"),
        ('{"partitions": [{"topic": "nosuch", "partition": 0, "replicas": [1]}]}', "UNKNOWN_TOPIC"),
    ],
)
def test_a_wrong_plan_is_refused_in_a_sentence(run: Run, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert reason in run("reassign", "execute", str(tmp_path / "plan.json"), code=1)


def test_leadership_goes_back_to_the_preferred_replica(cluster: Cluster, run: Run) -> None:
    make_topic(cluster, "preferred", [[3, 1], [1, 3]])
    assert "No partition needed" in run("elect", "preferred", "--topic", "preferred")
    cluster.restart(3)
    wait_until(lambda: cluster.state("preferred", 0)["isr"] == [1, 3] or cluster.state("preferred", 0)["leader"] == 1)
    wait_until(lambda: len(cluster.state("preferred", 0)["isr"]) == 2)
    assert run("elect", "preferred", "--topic", "preferred:0", "--json") == {
        "elected": [{"topic": "preferred", "partition": 0, "leader": 3}],
        "failed": [],
    }
    assert "preferred has no partition 7" in run("elect", "preferred", "--topic", "preferred:7", code=1)
    assert "give --topic or --file" in run("elect", "preferred", code=2)


def test_replicas_are_compared_and_a_changed_byte_is_found(cluster: Cluster, run: Run) -> None:
    make_topic(cluster, "equal", [[1, 2, 3], [2, 3, 1]], records=100)
    make_topic(cluster, "compacted", [[1, 2]], records=50, **{"cleanup.policy": "compact"})
    report = run("replicas", "verify", "equal", "compacted", "--json")
    assert report["equal"]
    assert [one["end"] for one in report["partitions"]] == [50, 50, 50]
    assert "All replicas of 2 partitions are equal" in run("replicas", "verify", "equal")

    file = cluster.folder / "broker-2" / "equal-0" / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[-3] ^= 0xFF
    with file.open("r+b") as segment:  # the same file: the broker has it open
        segment.write(content)
    assert "the records at offset" in run("replicas", "verify", "equal", code=1)
    file = cluster.folder / "broker-2" / "compacted-0" / f"{0:020d}.log"
    with file.open("r+b") as segment:
        segment.seek(8)
        segment.write(b"\xff\xff\xff\xff")  # the length of the first batch
    assert "1 of 1 partitions have replicas that differ" in run("replicas", "verify", "compacted", code=1)


def test_brokers_and_their_folders_are_listed(cluster: Cluster, run: Run) -> None:
    listed = run("brokers", "list", "--json")
    assert [one["broker"] for one in listed["brokers"]] == [1, 2, 3]
    assert sum(one["controller"] for one in listed["brokers"]) == 1
    folders = run("brokers", "folders", "--json")
    assert {one["broker"] for one in folders} == {1, 2, 3}
    assert all(one["disk_bytes"] > one["free_bytes"] > 0 for one in folders)
    assert "free" in run("brokers", "folders")


def test_offsets_of_all_groups_go_to_a_file_and_back(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    make_topic(cluster, "kept", [[1, 2, 3]], records=30)
    for name in ("kept-a", "kept-b"):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("kept", 0, 7)], asynchronous=False)
        consumer.close()
    text = run("offsets", "export", "kept-a", "kept-b")
    assert text == "kept-a,kept,0,7\nkept-b,kept,0,7\n"
    file = tmp_path / "offsets.csv"
    file.write_text(text.replace("b,kept,0,7", "b,kept,0,20"))
    assert "--execute does it" in run("offsets", "import", str(file))
    run("offsets", "import", str(file), "--execute")
    assert {
        one["group"]: one["offset"] for one in run("offsets", "export", "--all", "--json") if "kept" in one["group"]
    }
    assert "kept-b,kept,0,20" in run("offsets", "export", "--all")
    file.write_text("kept,0,20\n")
    assert "expected group,topic,partition,offset" in run("offsets", "import", str(file), code=1)


def test_nodes_of_zookeeper_are_shown(run: Run) -> None:
    assert run("zookeeper", "ls", "/brokers/ids").split() == ["1", "2", "3"]
    assert "/brokers/ids/1" in run("zookeeper", "ls", "--recursive", "--json")
    assert run("zookeeper", "get", "/controller", "--json")["data"]["version"] >= 1
    assert "there is no such node" in run("zookeeper", "get", "/nosuch", code=1)
    assert "no ZooKeeper answers" in run("zookeeper", "ls", "--zookeeper", "127.0.0.1:1", code=1)


def test_top_counts_what_flows_and_who_is_behind(cluster: Cluster, run: Run) -> None:
    make_topic(cluster, "flow", [[1, 2]], records=10)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "flow", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("flow", 0, 4)], asynchronous=False)
    consumer.close()
    found = run("top", "--json", "--interval", "0.2")
    assert [one["broker"] for one in found["brokers"]] == [1, 2, 3]
    (group,) = (one for one in found["groups"] if one["group"] == "flow")
    assert group["lag"] == 6
    shown = run("top", "--interval", "0.2")  # without a terminal it prints once
    assert "3 brokers" in shown
    assert "flow" in shown
