"""Brokers and topics that come and go: a new broker, moves, deletions, elections by request, a store that is away."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import judge
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from scenarios import raw
from scenarios.stage import SESSION_MS
from waiting import wait_until

from ottla.client.connection import Connection
from ottla.client.failure import Failed
from ottla.cluster import znodes
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from scenarios.stage import Stage

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def folders(stage: Stage, number: int) -> list[str]:
    """The partitions that a broker has on its disk."""
    folder = stage.cluster.folder / f"broker-{number}"
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name.rpartition("-")[2].isdigit())


def reassign(stage: Stage, topic: str, replicas: list[list[int]], plan: Path) -> None:
    """With the tool of Apache Kafka, until it says that it is done."""
    wanted = [{"topic": topic, "partition": index, "replicas": one} for index, one in enumerate(replicas)]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    words = ["--bootstrap-server", stage.cluster.bootstrap, "--reassignment-json-file", str(plan)]
    wait_until(lambda: judge.tool(REASSIGN, *words, "--execute", check=False).status == 0, "the plan is taken")

    def is_done() -> bool:
        said = judge.tool(REASSIGN, *words, "--verify", check=False).out
        return said.count("is completed") == len(replicas) and "still in progress" not in said

    wait_until(is_done, "the reassignment is done")


def test_a_new_broker_takes_nothing_until_something_is_moved_to_it(stage: Stage, tmp_path: Path) -> None:
    topic = stage.topic([1, 2], [2, 3])
    kept = [stage.write(topic, range(200), partition=index) for index in range(2)]
    new = stage.cluster.add()
    try:
        wait_until(lambda: new in stage.registered())
        other = stage.topic([1, 2, 3])
        kept[0] += stage.write(topic, range(200, 210))
        assert folders(stage, new) == []
        reassign(stage, topic, [[new, 2], [2, 3]], tmp_path / "plan.json")
        assert folders(stage, new) == [f"{topic}-0"]
        stage.led_by(topic, 0, lambda leader: leader == new)
        wait_until(lambda: f"{topic}-0" not in folders(stage, 1), "the replica that is moved away is deleted")
        assert [stage.read(topic, partition=index) for index in range(2)] == kept
        stage.identical(topic)
        assert stage.read(other) == []
        reassign(stage, topic, [[1, 2], [2, 3]], tmp_path / "plan.json")
        wait_until(lambda: folders(stage, new) == [], lambda: folders(stage, new))
        assert [stage.read(topic, partition=index) for index in range(2)] == kept
        stage.identical(topic)
    finally:
        stage.cluster.remove(new)


def test_a_topic_deleted_while_a_broker_is_down_is_gone_when_it_returns(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3], [3, 1, 2])
    for index in range(2):
        stage.write(topic, range(10), partition=index)
    stage.kill(3)
    stage.in_sync(topic, 0, (1, 2))
    stage.delete(topic)
    wait_until(lambda: not any(stage.is_known(topic, number) for number in (1, 2)), f"{topic} is forgotten")
    wait_until(lambda: not [name for number in (1, 2) for name in folders(stage, number) if name.startswith(topic)])
    assert f"{topic}-0" in folders(stage, 3)
    stage.cluster.start(3)
    wait_until(lambda: not [name for name in folders(stage, 3) if name.startswith(topic)])
    with stage.cluster.store() as store:
        wait_until(lambda: store.exists(f"{znodes.TOPICS}/{topic}") is None)
        wait_until(lambda: topic not in store.get_children(znodes.DELETED_TOPICS))
    wait_until(lambda: not any(stage.is_known(topic, number) for number in (1, 2, 3)), f"{topic} is forgotten")


def test_a_topic_deleted_and_made_again_while_a_broker_is_down_starts_from_nothing(stage: Stage) -> None:
    """The broker returns with the files of the former topic; none of their records may be in the new one."""
    topic = stage.topic([1, 2, 3])
    stage.write(topic, [f"old {count}" for count in range(10)])
    stage.cluster.stop(3)
    stage.delete(topic)
    stage.cluster.start(3)
    make(stage, topic, [1, 2], unless=ErrorCode.TOPIC_ALREADY_EXISTS)
    new = stage.write(topic, ("new",))
    assert stage.read(topic) == new
    stage.identical(topic)
    wait_until(lambda: f"{topic}-0" not in folders(stage, 3))


def test_a_topic_deleted_and_made_again_at_once_starts_from_nothing(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3], [2, 3, 1])
    for turn in range(5):
        stage.write(topic, [f"{turn} {count}" for count in range(5)], partition=turn % 2)
        stage.delete(topic)
        make(stage, topic, [1, 2, 3], [2, 3, 1], unless=ErrorCode.TOPIC_ALREADY_EXISTS)
    new = stage.write(topic, ("new",), partition=1)
    assert stage.read(topic, partition=0) == []
    assert stage.read(topic, partition=1) == new
    stage.in_sync(topic, 1, (1, 2, 3))
    stage.identical(topic, 1)


def make(stage: Stage, topic: str, *replicas: list[int], unless: ErrorCode) -> None:
    """Create a topic as soon as that is possible: until its replicas are deleted, the name is not free."""

    refused: list[int] = []

    def attempt() -> bool:
        try:
            stage.create(topic, *replicas)
        except KafkaException as error:
            refused.append(error.args[0].code())
            if refused[-1] == unless:
                return False
            if refused[-1] == ErrorCode.TOPIC_ALREADY_EXISTS and ErrorCode.REQUEST_TIMED_OUT in refused:
                return True  # nobody was told of the one that was made
            raise
        return True

    wait_until(attempt, lambda: f"{topic} cannot be created: {refused}")


def test_a_broker_that_starts_does_not_say_that_a_topic_is_gone(stage: Stage) -> None:
    """The controller stands still and cannot tell it of the topic; clients that believed it would give up."""
    topic = stage.topic([1, 2, 3])
    stage.cluster.stop(3)
    for number in (1, 2):
        stage.cluster.pause(number)
    starting = threading.Thread(target=stage.cluster.start, args=(3,))
    starting.start()
    codes: list[int] = []
    brokers: list[set[int]] = []

    def told() -> bool:
        try:
            with closing(Connection(("127.0.0.1", stage.cluster.port(3)))) as broker:
                said = raw.metadata(broker, topic)
                codes.append(said.topics[0].error_code)
                brokers.append({one.node_id for one in said.brokers})
        except Failed:  # it does not listen yet
            return False
        return codes[-1] == ErrorCode.NONE or len(codes) > 20

    try:
        wait_until(told, lambda: codes)
    finally:
        for number in (1, 2):
            stage.cluster.resume(number)
        starting.join()
    assert set(codes) <= {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE}
    assert all(3 in one for one in brokers), brokers
    wait_until(lambda: stage.is_known(topic, 3), "it is told")


def test_the_preferred_leader_leads_again_when_asked(stage: Stage) -> None:
    topic = stage.topic([1, 2, 3])
    stage.cluster.stop(1)
    moved = stage.led_by(topic, 0, lambda leader: leader in (2, 3))
    stage.cluster.start(1)
    stage.in_sync(topic, 0, (1, 2, 3))
    assert stage.cluster.leader(topic, 0) == moved, "nobody has asked yet"
    where = TopicPartition(topic, 0)

    def elect() -> Any:
        return stage.admin.elect_leaders(ElectionType.PREFERRED, [where]).result(30)[where]

    assert stage.decided(elect) is None
    stage.led_by(topic, 0, lambda leader: leader == 1)
    assert stage.decided(elect).code() == ErrorCode.ELECTION_NOT_NEEDED
    stage.write(topic, range(3))
    stage.identical(topic)


def test_zookeeper_away_for_longer_than_the_session(stage: Stage) -> None:
    """Records come and go all the time; what needs the store is done when it is back."""
    topic = stage.topic([1, 2, 3])
    kept = stage.write(topic, range(10))
    stage.cluster.zookeeper.kill()
    try:
        ends_at = time.monotonic() + SESSION_MS / 1000 + 1
        while time.monotonic() < ends_at:
            kept += stage.write(topic, range(len(kept), len(kept) + 10))
            assert stage.read(topic) == kept
            time.sleep(0.2)
        with pytest.raises(KafkaException, match="ZooKeeper"):
            stage.create("cannot-be-created", [1])
    finally:
        stage.cluster.zookeeper.start()
    wait_until(lambda: stage.registered() >= {1, 2, 3}, "the brokers are registered again")
    wait_until(lambda: stage.cluster.controller() is not None)
    kept += stage.write(topic, ("back",))
    stage.in_sync(topic, 0, (1, 2, 3))
    assert stage.read(topic) == kept
    stage.identical(topic)
    other = f"{topic}-after"
    make(stage, other, [3, 1, 2], unless=ErrorCode.REQUEST_TIMED_OUT)  # each broker finds ZooKeeper within a second
    stage.write(other, range(3))
    stage.kill(3)
    stage.led_by(other, 0, lambda leader: leader in (1, 2))


def test_followers_answer_as_followers(stage: Stage) -> None:
    topic = stage.topic([1, 2])
    stage.write(topic, range(5))
    stage.identical(topic)
    follower, stranger = stage.broker(2), stage.broker(3)
    for broker in (follower, stranger):
        assert raw.produce(broker, topic, "x", acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert raw.list_offset(broker, topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert raw.epoch_end(broker, topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert raw.fetch(broker, topic, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert raw.fetch(stranger, topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.list_offset(stranger, "no-such-topic").error_code == unknown
    assert raw.epoch_end(follower, "no-such-topic", 0).error_code == unknown
    assert raw.fetch(follower, "no-such-topic").error_code == unknown
    leader = stage.broker(1)
    assert raw.list_offset(leader, topic).offset == 5
    assert raw.epoch_end(leader, topic, 0).end_offset == 5
    assert raw.log_dir(leader, topic) == raw.log_dir(follower, topic)
    assert raw.log_dir(stranger, topic) is None


@pytest.mark.parametrize("version", [0, 3, 10, 12])
def test_the_debugging_consumer_reads_from_a_follower(stage: Stage, version: int) -> None:
    topic = stage.topic([1, 2])
    kept = stage.write(topic, range(5))
    stage.identical(topic)
    assert raw.values(raw.fetch(stage.broker(2), topic, replica=-2, version=version)) == kept
    assert raw.list_offset(stage.broker(2), topic, replica=-2).offset == 5


def test_a_consumer_reads_from_the_follower_of_its_rack(stage: Stage) -> None:
    topic = stage.topic([1, 2])
    kept = stage.write(topic, range(50))
    read_from: set[int] = set()

    def look(text: str) -> None:
        partitions = json.loads(text)["topics"].get(topic, {}).get("partitions", {})
        if "0" in partitions:
            read_from.add(partitions["0"]["broker"])

    consumer = stage.consumer(client_rack="rack-2", statistics_interval_ms=100, stats_cb=look)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def read() -> bool:
        found.extend(one.value().decode() for one in consumer.consume(100, 0.1) if one.error() is None)
        return len(found) >= len(kept) and 2 in read_from

    wait_until(read, lambda: f"{len(found)} read, from {read_from}")
    assert found == kept
    more = stage.write(topic, range(50, 60))
    wait_until(lambda: read() and len(found) >= 60)
    assert found == kept + more
    stage.kill(2)
    more += stage.write(topic, range(60, 70))
    wait_until(lambda: read() and len(found) >= 70, "the leader serves when the follower is gone")
    assert found == kept + more
    consumer.close()
