"""The broker as a whole: how it handles data folders that were changed while it was down."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import BrokerThread

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PARTITIONS = 4


def two_folders(tmp_path: Path) -> dict[str, str]:
    return {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}


def start(tmp_path: Path) -> BrokerThread:
    return BrokerThread(data=tmp_path / "a", options=two_folders(tmp_path))


def create(broker: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values():
        future.result(10)


def produce(broker: BrokerThread, value: bytes) -> dict[int, Any]:
    """Partition → the broker's response: None, or an error."""
    told: dict[int, Any] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1500, "retries": 0})
    for partition in range(PARTITIONS):
        producer.produce(
            "t", value, partition=partition, callback=lambda error, _, at=partition: told.update({at: error})
        )
    producer.flush(10)
    return told


def read(broker: BrokerThread, partition: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0)])
    found = [message.value() for message in consumer.consume(count, 10)]
    consumer.close()
    return found


def test_partitions_of_a_folder_that_cannot_be_read_wait_for_it_and_are_not_begun_anew(tmp_path: Path) -> None:
    with start(tmp_path) as broker:
        create(broker)
        assert set(produce(broker, b"one").values()) == {None}
    away = {int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("t-*")}
    assert 0 < len(away) < PARTITIONS, "both folders have some"
    shutil.move(tmp_path / "b", tmp_path / "unplugged")
    (tmp_path / "b").write_text("not a folder")
    with start(tmp_path) as broker:
        told = produce(broker, b"two")
        assert {partition for partition, error in told.items() if error is not None} == away
        described = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("t", 10).topics["t"].partitions
        assert {index for index, one in described.items() if one.leader == -1} == away
        errors = {one.error.code() for index, one in described.items() if index in away}
        assert errors == {KafkaError.LEADER_NOT_AVAILABLE}
    (tmp_path / "b").unlink()
    shutil.move(tmp_path / "unplugged", tmp_path / "b")
    with start(tmp_path) as broker:
        assert set(produce(broker, b"three").values()) == {None}
        for partition in range(PARTITIONS):
            wanted = [b"one", b"three"] if partition in away else [b"one", b"two", b"three"]
            assert read(broker, partition, len(wanted)) == wanted


def test_a_log_that_was_deleted_by_hand_is_said_to_be_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(tmp_path) as broker:
        create(broker)
        produce(broker, b"one")
    shutil.rmtree(next((tmp_path / "a").glob("t-*")))
    with start(tmp_path) as broker:
        assert set(produce(broker, b"two").values()) == {None}
    assert [record.levelname for record in caplog.records if "starting it empty" in record.message] == ["ERROR"]
