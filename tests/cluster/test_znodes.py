"""Nodes as Apache Kafka 3.9 writes them, byte for byte, and what older tools leave behind."""

import pytest

from ottla.cluster import znodes
from ottla.cluster.image import Broker, Partition, Topic
from ottla.cluster.keeper import Node, Stat

TOPIC_ID = znodes.decode_uuid("vCPWZ75EQ2a6hQFhkRzuCA")
TOPIC = Topic("T", TOPIC_ID, (Partition(0, (1, 0), (1, 0), 1, 0), Partition(1, (0, 2), (0,), 0, 5)), {})


def node(data: bytes, version: int = 0) -> Node:
    return Node(data, Stat(version, 9, ephemeral=False))


def test_what_is_written_is_kafkas() -> None:
    broker = Broker(0, {"PLAINTEXT": ("127.0.0.1", 41002)}, None, 0)
    assert znodes.encode_broker(broker, 1794729184174) == (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:41002"],"jmx_port":-1,"port":41002,"host":"127.0.0.1","version":5,'
        b'"timestamp":"1794729184174"}'
    )
    assert znodes.encode_controller(2, 1794729184404) == (
        b'{"version":2,"brokerid":2,"timestamp":"1794729184404","kraftControllerEpoch":-1}'
    )
    assert znodes.encode_cluster_id("doRbhJOdThu-Rmtq4mdHEQ") == b'{"version":"1","id":"doRbhJOdThu-Rmtq4mdHEQ"}'
    assert znodes.encode_topic(TOPIC) == (
        b'{"partitions":{"0":[1,0],"1":[0,2]},"topic_id":"vCPWZ75EQ2a6hQFhkRzuCA","adding_replicas":{},'
        b'"removing_replicas":{},"version":3}'
    )
    assert znodes.encode_state(TOPIC.partitions[0], 1) == (
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,0]}'
    )
    assert znodes.encode_configs({"retention.ms": "60000"}) == b'{"version":1,"config":{"retention.ms":"60000"}}'
    assert znodes.encode_producer_ids(2, 2000, 2999) == (
        b'{"version":1,"broker":2,"block_start":"2000","block_end":"2999"}'
    )


@pytest.mark.parametrize(
    "broker",
    [
        Broker(3, {"A": ("10.0.0.1", 1), "B": ("::1", 2)}, "east", 44),
        Broker(4, {"PLAINTEXT": ("host", 9092)}, None, 1),
    ],
)
def test_a_broker_is_read_as_written(broker: Broker) -> None:
    assert znodes.decode_broker(broker.id, znodes.encode_broker(broker, 5), broker.epoch) == broker


def test_a_broker_of_kafka_0_8_has_no_endpoints() -> None:
    data = b'{"jmx_port":-1,"timestamp":"1","host":"old","version":1,"port":9092}'
    assert znodes.decode_broker(1, data, 2) == Broker(1, {"PLAINTEXT": ("old", 9092)}, None, 2)


def test_a_tree_is_read_as_written() -> None:
    topic = TOPIC._replace(configs={"retention.ms": "5"})
    nodes = {
        "/brokers/topics": node(b""),
        "/brokers/topics/T": node(znodes.encode_topic(topic)),
        "/brokers/topics/T/partitions": node(b""),
        "/config/topics/T": node(znodes.encode_configs(topic.configs)),
        "/config/brokers/1": node(znodes.encode_configs({"log.segment.bytes": "9"})),
        "/config/brokers/<default>": node(znodes.encode_configs({"log.retention.ms": "8"})),
        "/controller": node(znodes.encode_controller(7, 1)),
        "/cluster/id": node(znodes.encode_cluster_id("id")),
        "/brokers/ids/7": node(znodes.encode_broker(Broker(7, {"P": ("h", 1)}, None, 9), 1)),
    }
    for partition in topic.partitions:
        nodes[f"/brokers/topics/T/partitions/{partition.index}/state"] = node(znodes.encode_state(partition, 3))
    image = znodes.image_of(nodes)
    assert image.topics == {"T": topic}
    assert image.names_by_id == {TOPIC_ID: "T"}
    assert image.broker_configs == {"1": {"log.segment.bytes": "9"}, "": {"log.retention.ms": "8"}}
    assert (image.cluster_id, image.controller_id) == ("id", 7)
    assert image.brokers == {7: Broker(7, {"P": ("h", 1)}, None, 9)}


def test_old_tools_write_topics_without_id_and_without_leaders() -> None:
    image = znodes.image_of({"/brokers/topics/T": node(b'{"version":1,"partitions":{"1":[2],"0":[1]}}')})
    topic = image.topics["T"]
    assert topic.id == bytes(16)
    assert topic.partitions == (Partition(0, (1,), (), -1, -1, -1), Partition(1, (2,), (), -1, -1, -1))


def test_the_version_of_a_state_is_the_partition_epoch() -> None:
    state = node(znodes.encode_state(TOPIC.partitions[1], 1), version=12)
    assert znodes.decode_state(1, (0, 2), state) == Partition(1, (0, 2), (0,), 0, 5, 12)


@pytest.mark.parametrize("value", [bytes(16), bytes(range(16)), b"\xff" * 16])
def test_ids_have_22_characters(value: bytes) -> None:
    text = znodes.encode_uuid(value)
    assert len(text) == 22
    assert znodes.decode_uuid(text) == value


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 24])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        znodes.decode_uuid(text)
