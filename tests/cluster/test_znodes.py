"""Nodes as Apache Kafka 3.9 writes them, byte for byte, and what older tools leave behind."""

import pytest

from ottla.cluster import znodes
from ottla.cluster.image import Broker, Partition, Topic
from ottla.cluster.metadata_store import Create, Set, Stat, Znode

TOPIC_ID = znodes.decode_uuid("vCPWZ75EQ2a6hQFhkRzuCA")
TOPIC = Topic("T", TOPIC_ID, (Partition(0, (1, 0), (1, 0), 1, 0), Partition(1, (0, 2), (0,), 0, 5)), {})

STATE = b'{"controller_epoch":9,"leader":0,"version":1,"leader_epoch":4,"isr":[0,1]}'


def node(data: bytes, version: int = 0) -> Znode:
    return Znode(data, Stat(version, 9, ephemeral=False))


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

    assert znodes.encode_features() == b'{"features":{},"version":2,"status":1}'
    assert znodes.encode_isr_change([("T", 3)]) == b'{"version":1,"partitions":[{"topic":"T","partition":3}]}'
    assert (
        znodes.encode_config_change(znodes.ConfigChange("brokers", "0")) == b'{"version":2,"entity_path":"brokers/0"}'
    )
    assert znodes.encode_reassignment({("T", 0): (2, 0)}) == (
        b'{"version":1,"partitions":[{"topic":"T","partition":0,"replicas":[2,0]}]}'
    )
    assert znodes.encode_preferred_election([("T", 0)]) == b'{"version":1,"partitions":[{"topic":"T","partition":0}]}'
    assert znodes.encode_log_dir_event(2) == b'{"version":1,"broker":2,"event":1}'


def test_parents_are_kafkas_and_two_of_ours() -> None:
    kafkas = (
        "/brokers/ids /brokers/topics /brokers/seqid /admin/delete_topics /config/changes /config/clients "
        "/config/topics /config/users /config/brokers /config/ips /consumers /isr_change_notification "
        "/log_dir_event_notification"
    )
    above = {"/brokers", "/admin", "/config", "/cluster"}
    assert set(znodes.PARENTS) == {*kafkas.split(), *above, "/config/groups", "/config/client-metrics"}
    assert all(path.rpartition("/")[0] in ("", *znodes.PARENTS[:at]) for at, path in enumerate(znodes.PARENTS))


def test_a_reassignment_is_kept_in_the_topic() -> None:
    moving = Partition(0, (2, 0, 1), (0, 1), 0, 4, adding=(2,), removing=(1,))
    data = (
        b'{"partitions":{"0":[2,0,1]},"topic_id":"vCPWZ75EQ2a6hQFhkRzuCA","adding_replicas":{"0":[2]},'
        b'"removing_replicas":{"0":[1]},"version":3}'
    )
    assert znodes.encode_topic(Topic("T", TOPIC_ID, (moving,), {})) == data
    image = znodes.image_of({"/brokers/topics/T": node(data), znodes.state_path("T", 0): node(STATE, 7)})
    assert image.topics["T"].partitions == (moving._replace(version=7),)


def test_a_topic_without_id_is_written_without() -> None:
    topic = Topic("T", bytes(16), (Partition(0, (1,), (), -1, -1),), {})
    assert znodes.decode_topic(znodes.encode_topic(topic)).id is None


def test_the_epoch_of_who_chose_the_leader() -> None:
    assert znodes.decode_state_epoch(STATE) == 9


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b'{"version":2,"entity_path":"topics/T"}', ("topics", "T")),
        (b'{"version":2,"entity_path":"users/u/clients/c"}', ("users", "u/clients/c")),
        (b'{"version":2,"entity_path":"brokers/<default>"}', ("brokers", "<default>")),
        (b'{"version":1,"entity_type":"clients","entity_name":"c"}', ("clients", "c")),
        (b'"T"', ("topics", "T")),
    ],
)
def test_changes_of_options_by_every_version(data: bytes, change: tuple[str, str]) -> None:
    assert znodes.decode_config_change(data) == change


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"version":2,"entity_path":"topics"}', b'{"version":2}', b"null"])
def test_what_is_no_change_of_options(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        znodes.decode_config_change(data)


def test_what_kafka_would_stumble_over_is_told_otherwise() -> None:
    assert znodes.notify_of_config("groups", "g") == Set("/config/groups", b"")
    assert znodes.notify_of_config("topics", "T") == Create(
        "/config/changes/config_change_", b'{"version":2,"entity_path":"topics/T"}', sequential=True
    )


def test_what_tools_write_is_read() -> None:
    both = b'{"version":1,"partitions":[{"topic":"T","partition":0},{"topic":"U","partition":1}]}'
    assert znodes.decode_preferred_election(both) == znodes.decode_isr_change(both) == [("T", 0), ("U", 1)]
    moves = b'{"version":1,"partitions":[{"topic":"T","partition":1,"replicas":[3,4],"log_dirs":["any","any"]}]}'
    assert znodes.decode_reassignment(moves) == {("T", 1): (3, 4)}
    assert znodes.decode_log_dir_event(b'{"version":1,"broker":5,"event":1}') == 5
    assert znodes.decode_controller(b"3") == 3


def test_paths_of_old_consumers() -> None:
    assert znodes.consumer_ids_path("G") == "/consumers/G/ids"
    assert znodes.consumer_owner_path("G", "T", 2) == "/consumers/G/owners/T/2"
    assert znodes.consumer_offset_path("G", "T", 2) == "/consumers/G/offsets/T/2"


def test_a_sequential_node_has_a_number() -> None:
    assert znodes.sequence_number("/config/changes/config_change_0000000120") == 120


def test_what_may_hold_passwords() -> None:
    paths = ["/config/users/u", "/config/brokers/1", "/config/topics/T", "/brokers/ids/1"]
    assert [znodes.is_sensitive(path) for path in paths] == [True, True, False, False]


def test_a_broker_without_plaintext_has_no_old_address() -> None:
    broker = Broker(1, {"IN": ("h", 1)}, None, 3, {"IN": "SASL_SSL"})
    data = znodes.encode_broker(broker, 5)
    assert b'"port":-1,"host":null' in data
    assert znodes.decode_broker(1, data, 3) == broker


def test_before_listeners_had_names_the_name_was_the_protocol() -> None:
    data = b'{"endpoints":["SSL://h:2","PLAINTEXT://h:1"],"host":"h","port":1,"version":3,"timestamp":"1","jmx_port":1}'
    endpoints = {"SSL": ("h", 2), "PLAINTEXT": ("h", 1)}
    assert znodes.decode_broker(1, data, 4) == Broker(1, endpoints, None, 4, {"SSL": "SSL"})


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
