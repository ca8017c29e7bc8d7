"""Log directories: where partitions are, and moving them."""

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from handlers.conftest import port_of
from handlers.test_topics import create
from handlers.wired import Wired
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.folders import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)

MOVED_S_MAX = 30.0


def placed(wired: Wired) -> dict[str, dict[str, list[int]]]:
    response = wired.ask(DescribeLogDirsRequest(topics=None), 4)
    assert response.error_code == 0
    return {
        Path(result.log_dir).name: {
            topic.name: sorted(one.partition_index for one in topic.partitions) for topic in result.topics
        }
        for result in response.results
    }


def move(wired: Wired, path: Path, topic: str, *indexes: int) -> list[int]:
    moved = AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))
    response = wired.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[moved])]), 2)
    return [one.error_code for result in response.results for one in result.partitions]


def test_a_partition_moves_to_another_directory_with_its_records(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    options: dict[str, Any] = {"log.dirs": f"{left},{right}"}
    with BrokerThread(data=left, options=options) as broker, Wired(port_of(broker)) as wired:
        create(wired, "t")
        assert sorted(map(len, placed(wired).values())) == [0, 1]
        there, other = (left, right) if placed(wired)["left"] else (right, left)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"kept")
        producer.flush(20)
        assert move(wired, other, "t", 0, 5) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        wanted = {there.name: {}, other.name: {"t": [0]}}
        wait_until(lambda: placed(wired) == wanted, "the move goes on by itself")
        assert (other / "t-0").is_dir()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"kept"
        consumer.close()


def test_sizes_are_told_and_nothing_is_remembered_for_bad_names(tmp_path: Path, wired: Wired) -> None:
    create(wired, "t")
    response = wired.ask(DescribeLogDirsRequest(topics=None), 5)
    (result,) = response.results
    assert (result.error_code, result.is_cordoned) == (0, False)
    assert result.total_bytes >= result.usable_bytes > 0
    assert move(wired, tmp_path, "a b", 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
