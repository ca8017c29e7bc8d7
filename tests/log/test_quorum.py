"""The metadata log of a KRaft quorum, read from folders that Apache Kafka wrote, with and without a snapshot."""

from pathlib import Path

import judge
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.disk import RealDisk
from ottla.embed import BrokerThread
from ottla.errors import BrokerError
from ottla.log.quorum import NOTHING, read_quorum
from ottla.records.batch import Record, build

EACH = {"retention.ms": "-1", "cleanup.policy": "compact"}


def changes(kind: ResourceType, name: str, **options: str | None) -> ConfigResource:
    entries = [
        ConfigEntry(
            option.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for option, value in options.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def administer(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, config=EACH) for name in names]).values():
        created.result(60)
    altered = admin.incremental_alter_configs(
        [
            changes(ResourceType.TOPIC, names[0], cleanup_policy=None, segment_ms="77000"),
            changes(ResourceType.BROKER, "1", log_cleaner_threads="2"),
        ]
    )
    for change in altered.values():
        change.result(60)
    admin.delete_topics([names[1]])[names[1]].result(60)


@pytest.mark.parametrize("snapshot", [False, True])
def test_options_are_read_from_what_kafka_wrote(tmp_path: Path, snapshot: bool) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "500"} if snapshot else {}
    names = [f"topic-{number}" for number in range(12)]
    with judge.Kafka(tmp_path / "kafka", settings=settings) as kafka:
        administer(kafka.bootstrap, names)
        data = kafka.log_dir
    folder = data / "__cluster_metadata-0"
    assert bool(list(folder.glob("*-*.checkpoint"))) == snapshot
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    quorum = read_quorum(RealDisk(), str(data))
    assert quorum.topics == {
        **dict.fromkeys(names[2:], EACH),
        names[0]: {"retention.ms": "-1", "segment.ms": "77000"},
    }
    assert quorum.brokers["1"] == {"log.cleaner.threads": "2"}
    with BrokerThread(data=data) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert admin.list_topics(timeout=60).topics.keys() == set(names) - {names[1]}
        resource = ConfigResource(ResourceType.TOPIC, names[2])
        described = admin.describe_configs([resource])[resource].result(60)
        assert {option: described[option].value for option in EACH} == EACH
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "Kafka may take its folder back"


def test_no_quorum_no_options(tmp_path: Path) -> None:
    assert read_quorum(RealDisk(), str(tmp_path)) is NOTHING


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x07\x02\x00", "a frame that is not known"),
        (b"\x01\x02\x00\x05ab", "ends too early"),
        (b"\x01", "ends too early"),
        (b"", "ends too early"),
    ],
)
def test_a_record_that_cannot_be_understood_stops_the_start(tmp_path: Path, value: bytes, words: str) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    batch = build([Record(0, 0, None, value, ())], base_offset=0)
    (folder / "00000000000000000000.log").write_bytes(batch)
    with pytest.raises(BrokerError, match=words):
        read_quorum(RealDisk(), str(tmp_path))


def test_a_torn_tail_is_where_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    topic = b"\x01\x02\x00\x02a" + bytes(16) + b"\x00"
    batches = [build([Record(offset, 0, None, topic, ())], base_offset=offset) for offset in range(2)]
    whole = b"".join(batches)
    (folder / "00000000000000000000.log").write_bytes(whole[:-3])
    assert read_quorum(RealDisk(), str(tmp_path)).topics == {"a": {}}
