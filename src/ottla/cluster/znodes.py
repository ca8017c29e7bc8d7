"""Every path in the metadata store and its content: Apache Kafka 3.9's layout and JSON, key order included.

    /brokers/ids/1                          ephemeral; the addresses of a broker
    /brokers/seqid                          its version counts the generated broker ids
    /brokers/topics/T                       topic id and the replicas of each partition
    /brokers/topics/T/partitions/0/state    leader, epoch and in-sync replicas; its version is the partition epoch
    /config/topics/T, /config/brokers/1     dynamic configs; /config/brokers/<default> for all brokers
    /config/{clients,users,ips}/N           quotas and credentials; /config/users/U/clients/C for both
    /config/groups/G                        configs of a group; the name is URL-encoded, since it may have slashes
    /config/changes/config_change_N         notice of a changed config; removed after some time
    /admin/delete_topics/T                  a topic to be deleted; removed when that is done
    /admin/reassign_partitions              reassignments requested by old tools; removed when they are done
    /admin/preferred_replica_election       preferred leader elections requested by old tools, likewise
    /isr_change_notification/isr_change_N   partitions whose leader has written its state itself (Kafka before 2.7)
    /log_dir_event_notification/...         a broker that has lost a log directory
    /controller                             ephemeral; the controller
    /controller_epoch                       number of controller changes; every write of a controller checks its version
    /cluster/id, /feature, /latest_producer_id_block
    /consumers/G/ids, owners, offsets       groups of Kafka 0.8: members, partition owners, and decimal offsets

Old tools read these nodes with small parsers: numbers stay below 2^31 and timestamps are strings.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cluster.image import EMPTY, EVERY_BROKER, NO_LEADER, Broker, Image, Partition, Topic
from ottla.cluster.metadata_store import Create, Set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.cluster.metadata_store import Op, Znode

    Configs = Mapping[str, str]

BROKERS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIGS = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
CLIENT_CONFIGS = "/config/clients"
USER_CONFIGS = "/config/users"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
DELETED_TOPICS = "/admin/delete_topics"
REASSIGNMENT = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"
CONSUMERS = "/consumers"
ENTITY_CONFIGS = (f"{USER_CONFIGS}/", f"{CLIENT_CONFIGS}/", f"{IP_CONFIGS}/")
# Entity types without change notices: the node that is written instead.
SILENT = {"groups": GROUP_CONFIGS, "client-metrics": CLIENT_METRICS_CONFIGS}
PARENTS = (
    "/brokers",
    BROKERS,
    TOPICS,
    BROKER_SEQUENCE,
    "/cluster",
    CONFIGS,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    CONFIG_CHANGES,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    "/admin",
    DELETED_TOPICS,
    CONSUMERS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
)
# The store appends ten digits to these.
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
SENSITIVE = (USER_CONFIGS, BROKER_CONFIGS, "/delegation_token")  # may hold passwords
LOG_DIR_FAILURE = 1
FEATURES_ENABLED = 1
DEFAULT_ENTITY = "<default>"
NUMBER_MAX = 0x7FFFFFFF
MALFORMED = (ValueError, KeyError, TypeError, AttributeError)  # what decoding raises for malformed nodes
PLAINTEXT = "PLAINTEXT"


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
    """Whether the node is about a single partition, so that it can be rebuilt from the logs."""
    return path.startswith(f"{TOPICS}/") and path.count("/") > TOPICS.count("/") + 1


def group_config_path(group: str) -> str:
    from urllib.parse import quote  # imported late: few groups have configs

    return f"{GROUP_CONFIGS}/{quote(group, safe='')}"


def user_node(name: str) -> str:
    """The path of a user's node below /config."""
    from urllib.parse import quote

    return f"users/{quote(name, safe='')}"


def entity_path(node: str) -> str:
    """The path of the node of a user, a client id, both, or an IP address: see `ottla.quota.entity`."""
    return f"{CONFIGS}/{node}"


def user_at(node: str) -> str | None:
    """The user of a node, given by its path below /config; None if it is no user's, or the default user's."""
    kind, _, name = node.partition("/")
    return group_name(name) if kind == "users" and "/" not in name and name != DEFAULT_ENTITY else None


def client_metrics_path(name: str) -> str:
    from urllib.parse import quote

    return f"{CLIENT_METRICS_CONFIGS}/{quote(name, safe='')}"


def deleted_topic_path(topic: str) -> str:
    return f"{DELETED_TOPICS}/{topic}"


def consumer_path(group: str) -> str:
    return f"{CONSUMERS}/{group}"


def consumer_ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def consumer_owner_path(group: str, topic: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}/{index}"


def consumer_offset_path(group: str, topic: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{index}"


def sequence_number(path: str) -> int:
    """The number that the store assigned to a sequential node."""
    return int(path[-10:])


def is_sensitive(path: str) -> bool:
    """Whether the node may hold secrets."""
    return path.startswith(SENSITIVE)


def encode_broker(broker: Broker, now_ms: int) -> bytes:
    protocols = {name: broker.protocols.get(name, PLAINTEXT) for name in broker.endpoints}
    # Clients of 0.8 read these fields; they support only PLAINTEXT.
    plain = (address for name, address in broker.endpoints.items() if protocols[name] == PLAINTEXT)
    host, port = next(plain, (None, -1))
    fields: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": protocols,
        "endpoints": [f"{name}://{_bracket(host)}:{port}" for name, (host, port) in broker.endpoints.items()],
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
    for endpoint in fields.get("endpoints") or ():
        name, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = host.removeprefix("[").removesuffix("]"), _number(int(port))
    if not endpoints:  # what brokers before 0.9 wrote
        endpoints[PLAINTEXT] = str(fields["host"]), _number(fields["port"])
    # Before listeners had names of their own, the name was the protocol.
    said = fields.get("listener_security_protocol_map") or {name: name for name in endpoints}
    protocols = {name: str(protocol) for name, protocol in said.items() if protocol != PLAINTEXT}
    rack = fields.get("rack")
    return Broker(_number(broker), endpoints, None if rack is None else str(rack), epoch, protocols)


class TopicAssignment(NamedTuple):
    """A topic's node: the replicas of each partition. `id` is None if a tool older than topic ids wrote it."""

    id: bytes | None
    replicas: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]]
    removing: dict[int, tuple[int, ...]]


def encode_topic(topic: Topic) -> bytes:
    fields: dict[str, Any] = {"partitions": {str(one.index): one.replicas for one in topic.partitions}}
    if any(topic.id):
        fields["topic_id"] = encode_uuid(topic.id)
    fields["adding_replicas"] = {str(one.index): one.adding for one in topic.partitions if one.adding}
    fields["removing_replicas"] = {str(one.index): one.removing for one in topic.partitions if one.removing}
    fields["version"] = 3
    return _encode(fields)


def decode_topic(data: bytes) -> TopicAssignment:
    fields = _decode(data)
    text = fields.get("topic_id")
    lists = (fields.get(name) or {} for name in ("partitions", "adding_replicas", "removing_replicas"))
    replicas, adding, removing = ({_number(int(index)): _brokers(ids) for index, ids in one.items()} for one in lists)
    if sorted(replicas) != list(range(len(replicas))) or not all(replicas.values()):
        raise ValueError("not the partitions of a topic: one is missing, or has no replicas")
    return TopicAssignment(decode_uuid(text) if text else None, replicas, adding, removing)


def encode_state(partition: Partition, controller_epoch: int) -> bytes:
    # Written for every partition after a crash, so it is formatted directly, for speed.
    isr = ",".join(map(str, partition.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_state(
    index: int,
    replicas: tuple[int, ...],
    node: Znode | None,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> Partition:
    if node is None:  # the topic was created but has no leader yet
        return Partition(index, replicas, (), NO_LEADER, NO_LEADER, NO_LEADER, adding, removing)
    isr, leader, epoch, _ = _decode_leader(node.data)
    return Partition(index, replicas, isr, leader, epoch, node.stat.version, adding, removing)


def decode_state_epoch(data: bytes) -> int:
    """The epoch of the controller that elected the leader."""
    return _decode_leader(data)[3]


@lru_cache(1000)
def _decode_leader(data: bytes) -> tuple[tuple[int, ...], int, int, int]:
    """Cached, because after a start most partitions have the same state."""
    fields = _decode(data)
    leader, epoch, controller_epoch = fields["leader"], fields["leader_epoch"], fields.get("controller_epoch", 0)
    if leader != NO_LEADER:
        _number(leader)
    return _brokers(fields["isr"]), leader, _number(epoch), _number(controller_epoch)


def encode_configs(pairs: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(pairs)})


def decode_configs(data: bytes) -> dict[str, str]:
    configs = _decode(data).get("config", {}) if data else {}
    return {str(name): str(value) for name, value in configs.items()}


class ConfigChange(NamedTuple):
    """The entity whose configs have changed. `kind` is `topics`, `brokers`, `clients`, `users` or `ips`.

    Names of clients and users are URL-encoded; a user with a client id is in `users`, with the name `U/clients/C`.
    """

    kind: str
    name: str


def encode_config_change(change: ConfigChange) -> bytes:
    return _encode({"version": 2, "entity_path": f"{change.kind}/{change.name}"})


def decode_config_change(data: bytes) -> ConfigChange:
    """Decodes all versions of Kafka: with a path, with separate kind and name, or (0.8) just the name of a topic."""
    fields = _load(data)
    if isinstance(fields, str):
        return ConfigChange("topics", fields)
    if isinstance(fields, dict) and fields.get("version") == 1:
        return ConfigChange(str(fields["entity_type"]), str(fields["entity_name"]))
    if isinstance(fields, dict):
        kind, slash, name = str(fields["entity_path"]).partition("/")
        if slash and kind and name:
            return ConfigChange(kind, name)
    raise ValueError(f"not a change of options: {data[:80]!r}")


def notify_of_config(kind: str, name: str) -> Op:
    """The write that notifies other brokers of changed configs; it belongs in the transaction that changes them.

    Kafka with ZooKeeper does not know configs of groups and client metrics, and a notice that it does not know stops it
    from seeing later ones. So for these the common parent node is written instead.
    """
    if kind in SILENT:
        return Set(SILENT[kind], b"")
    return Create(CONFIG_CHANGE_PREFIX, encode_config_change(ConfigChange(kind, name)), sequential=True)


def encode_isr_change(partitions: Iterable[tuple[str, int]]) -> bytes:
    return _encode_partitions(partitions)


def decode_isr_change(data: bytes) -> list[tuple[str, int]]:
    return _decode_partitions(data)


def encode_preferred_election(partitions: Iterable[tuple[str, int]]) -> bytes:
    return _encode_partitions(partitions)


def decode_preferred_election(data: bytes) -> list[tuple[str, int]]:
    return _decode_partitions(data)


def encode_reassignment(replicas: Mapping[tuple[str, int], Iterable[int]]) -> bytes:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(brokers)} for (topic, index), brokers in replicas.items()
    ]
    return _encode({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """The target replicas of each partition. Log directories, which tools may also name, are ignored here."""
    partitions = _decode(data).get("partitions") or ()
    return {(str(one["topic"]), _number(one["partition"])): _brokers(one["replicas"]) for one in partitions}


def encode_log_dir_event(broker: int) -> bytes:
    return _encode({"version": 1, "broker": broker, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """The broker that has lost a log directory."""
    return int(_decode(data)["broker"])


def encode_features() -> bytes:
    """No feature is finalised: what Kafka writes from 2.7 on."""
    return _encode({"features": {}, "version": 2, "status": FEATURES_ENABLED})


def encode_controller(broker: int, now_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": broker, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    fields = _load(data)  # Kafka 0.8.0 wrote the number alone
    return int(fields["brokerid"] if isinstance(fields, dict) else fields)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_decode(data)["id"])


def encode_producer_ids(broker: int, first: int, last: int) -> bytes:
    return _encode({"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)})


def decode_producer_ids(data: bytes) -> int:
    """The last id of the newest block."""
    return int(_decode(data)["block_end"])


def new_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random UUID of version 4."""
    while True:
        value = bytearray(random_bytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        # A leading dash in the text form would look like an option on a command line.
        if not encode_uuid(bytes(value)).startswith("-"):
            return bytes(value)


def encode_uuid(value: bytes) -> str:
    """Sixteen bytes as the 22 characters that Kafka's files and tools show."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"not a uuid: {text}")
    return value


def image_of(nodes: Mapping[str, Znode], *, malformed: set[str] | None = None) -> Image:
    """The image for a whole tree. Topics without an id get a zero id until the controller assigns one.

    With `malformed`, malformed brokers and topics are skipped and their paths added to it; without it they raise.
    """
    below = _children(nodes, (BROKERS, TOPICS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS))
    entities = split_entities(
        {path: decode_configs(node.data) for path, node in nodes.items() if path.startswith(ENTITY_CONFIGS)}
    )
    brokers: dict[int, Broker] = {}
    topics: list[Topic] = []
    for parent in (BROKERS, TOPICS):
        for name, node in below[parent]:
            try:
                if parent == BROKERS:
                    brokers[int(name)] = decode_broker(int(name), node.data, node.stat.czxid)
                else:
                    topics.append(_topic_in(nodes, name, node))
            except MALFORMED:
                if malformed is None:
                    raise
                malformed.add(f"{parent}/{name}")
    broker_configs = {
        EVERY_BROKER if name == DEFAULT_ENTITY else name: decode_configs(node.data)
        for name, node in below[BROKER_CONFIGS]
    }
    group_configs = {group_name(name): decode_configs(node.data) for name, node in below[GROUP_CONFIGS]}
    return (
        EMPTY._replace(
            cluster_id=decode_cluster_id(nodes[CLUSTER_ID].data) if CLUSTER_ID in nodes else "",
            controller_id=decode_controller(nodes[CONTROLLER].data) if CONTROLLER in nodes else NO_LEADER,
            brokers=brokers,
            broker_configs=broker_configs,
            group_configs=group_configs,
            client_metrics={
                group_name(name): decode_configs(node.data) for name, node in below[CLIENT_METRICS_CONFIGS]
            },
        )
        .with_entities(*entities)
        .with_topics(*topics)
    )


def split_entities(kept: Mapping[str, Configs]) -> tuple[dict[str, Configs], dict[str, Configs]]:
    """The values of users by name, and of all other entities by path below /config."""
    users: dict[str, Configs] = {}
    others: dict[str, Configs] = {}
    for path, pairs in kept.items():
        node = path.removeprefix(f"{CONFIGS}/")
        user = user_at(node)
        if user is None:
            others[node] = pairs
        else:
            users[user] = pairs
    return users, others


def _topic_in(nodes: Mapping[str, Znode], name: str, node: Znode) -> Topic:
    config = nodes.get(topic_config_path(name))
    configs = decode_configs(config.data) if config is not None else {}
    assignment = decode_topic(node.data)
    states = {index: nodes.get(state_path(name, index)) for index in assignment.replicas}
    return topic_of(name, assignment, states, configs)


def topic_of(
    name: str, assignment: TopicAssignment, states: Mapping[int, Znode | None], configs: Mapping[str, str]
) -> Topic:
    """The topic built from its nodes; without an id it gets a zero one."""
    _, replicas, adding, removing = assignment
    partitions = tuple(
        decode_state(index, replicas[index], states.get(index), adding.get(index, ()), removing.get(index, ()))
        for index in sorted(replicas)
    )
    return Topic(name, assignment.id or bytes(16), partitions, configs)


def group_name(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)


def _children(nodes: Mapping[str, Znode], parents: tuple[str, ...]) -> dict[str, list[tuple[str, Znode]]]:
    """Names and nodes directly below each of these paths, in one walk over the tree."""
    found: dict[str, list[tuple[str, Znode]]] = {parent: [] for parent in parents}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent in found:
            found[parent].append((name, node))
    return found


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _encode_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    named = [{"topic": topic, "partition": index} for topic, index in partitions]
    return _encode({"version": 1, "partitions": named})


def _decode_partitions(data: bytes) -> list[tuple[str, int]]:
    return [(str(one["topic"]), int(one["partition"])) for one in _decode(data)["partitions"]]


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _brokers(value: Any) -> tuple[int, ...]:
    """A list of distinct brokers. Anybody may write a node, and only valid ids can be sent to brokers."""
    if not isinstance(value, list) or len(set(map(_number, value))) < len(value):
        raise ValueError(f"not a list of brokers: {value!r:.80}")
    return tuple(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"not a number from 0 to {NUMBER_MAX}: {value!r:.80}")
    return value


def _load(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None


def _decode(data: bytes) -> dict[str, Any]:
    fields = _load(data)
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object: {data[:80]!r}")
    return fields
