"""Every path in the keeper and what lies there: Apache Kafka 3.9's layout and JSON, key order included.

    /brokers/ids/1                          ephemeral; where the broker is
    /brokers/topics/T                       topic id and the replicas of each partition
    /brokers/topics/T/partitions/0/state    leader, epoch and in-sync replicas; its version is the partition epoch
    /config/topics/T, /config/brokers/1     options set while running; /config/brokers/<default> for all brokers
    /config/groups/G                        the same for a group, its name as in an address: it may have slashes
    /controller                             ephemeral; who decides
    /controller_epoch                       how often that has changed; every write of a controller checks its version
    /cluster/id, /latest_producer_id_block
    /consumers/G/offsets/T/0                offsets that consumers of the 0.8 era have committed, as decimal numbers

Old tools read these files with small parsers: numbers stay below 2^31 and timestamps are strings.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ottla.cluster.image import EMPTY, EVERY_BROKER, NO_LEADER, Broker, Image, Partition, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.cluster.keeper import Node

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/latest_producer_id_block"
PARENTS = (
    "/brokers",
    BROKERS,
    TOPICS,
    "/brokers/seqid",
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    "/config/changes",
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/admin",
    "/admin/delete_topics",
    "/consumers",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
DEFAULT_ENTITY = "<default>"


def broker_path(broker: int) -> str:
    return f"{BROKERS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: str) -> str:
    return f"{BROKER_CONFIGS}/{broker or DEFAULT_ENTITY}"


def is_derived(path: str) -> bool:
    """Whether the node is about a single partition: the logs tell as much."""
    return path.startswith(f"{TOPICS}/") and path.count("/") > TOPICS.count("/") + 1


def group_config_path(group: str) -> str:
    from urllib.parse import quote  # few groups have options of their own

    return f"{GROUP_CONFIGS}/{quote(group, safe='')}"


def consumer_offset_path(group: str, topic: str, index: int) -> str:
    return f"/consumers/{group}/offsets/{topic}/{index}"


def encode_broker(broker: Broker, now_ms: int) -> bytes:
    host, port = next(iter(broker.endpoints.values()))
    fields: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": dict.fromkeys(broker.endpoints, "PLAINTEXT"),
        "endpoints": [f"{name}://{_bracketed(host)}:{port}" for name, (host, port) in broker.endpoints.items()],
        "jmx_port": -1,
        "port": port,
        "host": host,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    return _encode(fields)


def decode_broker(broker: int, data: bytes, epoch: int) -> Broker:
    fields = _decode(data)
    endpoints: dict[str, tuple[str, int]] = {}
    for endpoint in fields.get("endpoints", ()):
        name, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = host.removeprefix("[").removesuffix("]"), int(port)
    if not endpoints:  # what brokers before 0.9 wrote
        endpoints["PLAINTEXT"] = fields["host"], fields["port"]
    return Broker(broker, endpoints, fields.get("rack"), epoch)


def encode_topic(topic: Topic) -> bytes:
    return _encode(
        {
            "partitions": {str(partition.index): partition.replicas for partition in topic.partitions},
            "topic_id": encode_uuid(topic.id),
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
    )


def decode_topic(data: bytes) -> tuple[bytes | None, dict[int, tuple[int, ...]]]:
    """The topic's id, unless an old tool wrote the node, and the replicas of each partition."""
    fields = _decode(data)
    text = fields.get("topic_id")
    replicas = {int(index): tuple(brokers) for index, brokers in fields["partitions"].items()}
    return decode_uuid(text) if text else None, replicas


def encode_state(partition: Partition, controller_epoch: int) -> bytes:
    # Written for every partition at a start after a crash, hence without the general encoder.
    isr = ",".join(map(str, partition.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_state(index: int, replicas: tuple[int, ...], node: Node | None) -> Partition:
    if node is None:  # the topic was written but no leader chosen yet
        return Partition(index, replicas, (), NO_LEADER, NO_LEADER, NO_LEADER)
    isr, leader, epoch = _decode_leader(node.data)
    return Partition(index, replicas, isr, leader, epoch, node.stat.version)


@lru_cache(1000)
def _decode_leader(data: bytes) -> tuple[tuple[int, ...], int, int]:
    """Remembered, because after a start most partitions say the same."""
    fields = _decode(data)
    return tuple(fields["isr"]), fields["leader"], fields["leader_epoch"]


def encode_configs(pairs: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(pairs)})


def decode_configs(data: bytes) -> dict[str, str]:
    configs = _decode(data).get("config", {}) if data else {}
    return {str(name): str(value) for name, value in configs.items()}


def encode_controller(broker: int, now_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": broker, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return int(_decode(data)["brokerid"])


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(data)["id"])


def encode_producer_ids(broker: int, first: int, last: int) -> bytes:
    return _encode({"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)})


def decode_producer_ids(data: bytes) -> int:
    """The last id of the newest block."""
    return int(_decode(data)["block_end"])


def encode_uuid(value: bytes) -> str:
    """Sixteen bytes as the 22 characters that Kafka's files and tools show."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"not a uuid: {text}")
    return value


def image_of(nodes: Mapping[str, Node]) -> Image:
    """The image that a whole tree stands for. Topics without an id keep a zero one until the controller gives it."""
    below = _children(nodes, (BROKERS, TOPICS, BROKER_CONFIGS, GROUP_CONFIGS))
    brokers = {int(name): decode_broker(int(name), node.data, node.stat.czxid) for name, node in below[BROKERS]}
    topics: list[Topic] = []
    for name, node in below[TOPICS]:
        topic_id, replicas = decode_topic(node.data)
        partitions = tuple(
            decode_state(index, replicas[index], nodes.get(state_path(name, index))) for index in sorted(replicas)
        )
        config = nodes.get(topic_config_path(name))
        configs = decode_configs(config.data) if config is not None else {}
        topics.append(Topic(name, topic_id or bytes(16), partitions, configs))
    broker_configs = {
        EVERY_BROKER if name == DEFAULT_ENTITY else name: decode_configs(node.data)
        for name, node in below[BROKER_CONFIGS]
    }
    group_configs = {_group_name(name): decode_configs(node.data) for name, node in below[GROUP_CONFIGS]}
    return EMPTY._replace(
        cluster_id=decode_cluster_id(nodes[CLUSTER_ID].data) if CLUSTER_ID in nodes else "",
        controller_id=decode_controller(nodes[CONTROLLER].data) if CONTROLLER in nodes else NO_LEADER,
        brokers=brokers,
        broker_configs=broker_configs,
        group_configs=group_configs,
    ).with_topics(*topics)


def _group_name(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)


def _children(nodes: Mapping[str, Node], parents: tuple[str, ...]) -> dict[str, list[tuple[str, Node]]]:
    """Names and nodes directly below each of these paths, in one walk over the tree."""
    found: dict[str, list[tuple[str, Node]]] = {parent: [] for parent in parents}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent in found:
            found[parent].append((name, node))
    return found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object: {data[:80]!r}")
    return fields
