"""Every figure of a broker: one row each. Names follow Prometheus: base units, `_total` for what only grows.

A row says what Kafka calls it where Kafka has it. Rates are left to who asks (`rate(...)`): a counter loses nothing
between two scrapes. `SECTIONS` is the order of the page and of the text.
"""

from __future__ import annotations

from typing import Final

from ottla.metrics.family import COUNTER, GAUGE, HISTOGRAM, Family

TOPICS, PARTITIONS, GROUPS, CLIENTS = "topics", "partitions", "groups", "clients"

_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_API = ("api",)


def counter(name: str, meaning: str, labels: tuple[str, ...] = (), kafka: str = "", detail: str = "") -> Family:
    return Family(f"ottla_{name}_total", COUNTER, meaning, labels, kafka, detail)


def gauge(name: str, meaning: str, labels: tuple[str, ...] = (), kafka: str = "", detail: str = "") -> Family:
    return Family(f"ottla_{name}", GAUGE, meaning, labels, kafka, detail)


# Traffic.
MESSAGES_IN: Final = counter("messages_in", "Records that producers have appended.", (), "MessagesInPerSec")
BYTES_IN: Final = counter("bytes_in", "Bytes of record batches that producers have appended.", (), "BytesInPerSec")
BYTES_OUT: Final = counter("bytes_out", "Bytes of record batches that consumers were sent.", (), "BytesOutPerSec")
REPLICATED_IN: Final = counter(
    "replication_bytes_in", "Bytes copied from leaders by this broker as a follower.", (), "ReplicationBytesInPerSec"
)
REPLICATED_OUT: Final = counter(
    "replication_bytes_out", "Bytes that followers were sent by this broker.", (), "ReplicationBytesOutPerSec"
)
TOPIC_MESSAGES_IN: Final = counter(
    "topic_messages_in", "The same for one topic.", _TOPIC, "MessagesInPerSec,topic=*", TOPICS
)
TOPIC_BYTES_IN: Final = counter("topic_bytes_in", "The same for one topic.", _TOPIC, "BytesInPerSec,topic=*", TOPICS)
TOPIC_BYTES_OUT: Final = counter("topic_bytes_out", "The same for one topic.", _TOPIC, "BytesOutPerSec,topic=*", TOPICS)
TOPIC_REPLICATED_IN: Final = counter("topic_replication_bytes_in", "The same for one topic.", _TOPIC, "", TOPICS)
TOPIC_REPLICATED_OUT: Final = counter("topic_replication_bytes_out", "The same for one topic.", _TOPIC, "", TOPICS)

# Requests.
REQUESTS: Final = counter(
    "requests", "Requests that were answered, or wanted no answer.", ("api", "version"), "RequestsPerSec"
)
REQUEST_ERRORS: Final = counter(
    "request_errors",
    "Errors in answers: of the whole request, or of one topic, partition or other item in it. Of Metadata, errors of"
    " topics only.",
    ("api", "error"),
    "ErrorsPerSec",
)
PHASE_SECONDS: Final = counter(
    "request_phase_seconds",
    "Time that requests took, by phase. queue: arrived, and waiting for its turn; local: in its handler; remote:"
    " waiting for other brokers, for records, for the disk, or for the next slice of a long request; send: until the"
    " socket has taken the answer.",
    ("api", "phase"),
    "RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseSendTimeMs",
)
REQUEST_SECONDS: Final = Family(
    "ottla_request_seconds",
    HISTOGRAM,
    "From the arrival of a request to the last byte of its answer, all phases together. Of an API that was asked for"
    " more than a thousand times, one in eight quick answers is timed and stands for eight.",
    _API,
    "TotalTimeMs",
)

THROTTLED: Final = counter(
    "throttled",
    "Requests whose client was told to wait, and connections that were hung up on, because of a quota: its key.",
    ("quota",),
    "",
)
THROTTLE_SECONDS: Final = counter(
    "throttle_seconds", "For how long they were, in all.", ("quota",), "throttle-time, connection-accept-throttle-time"
)
QUOTA_SENSORS: Final = gauge(
    "quota_sensors", "Users, client ids and addresses whose use is measured. None is, without quotas.", (), ""
)

# Partitions.
PARTITION_COUNT: Final = gauge("partitions", "Partitions with a replica on this broker.", (), "PartitionCount")
LEADER_COUNT: Final = gauge("leaders", "Partitions that this broker leads.", (), "LeaderCount")
UNDER_REPLICATED: Final = gauge(
    "under_replicated_partitions",
    "Partitions led here with fewer replicas in sync than they have.",
    (),
    "UnderReplicatedPartitions",
)
UNDER_MIN_ISR: Final = gauge(
    "under_min_isr_partitions",
    "Partitions led here with fewer in sync than min.insync.replicas: they refuse acks=all.",
    (),
    "UnderMinIsrPartitionCount",
)
AT_MIN_ISR: Final = gauge(
    "at_min_isr_partitions", "Partitions led here with just as many in sync.", (), "AtMinIsrPartitionCount"
)
OFFLINE_REPLICAS: Final = gauge(
    "offline_replicas", "Replicas that should be here and cannot be read or written.", (), "OfflineReplicaCount"
)
ISR_SHRINKS: Final = counter(
    "isr_shrinks", "In-sync sets of partitions led here that lost members.", (), "IsrShrinksPerSec"
)
ISR_EXPANDS: Final = counter("isr_expands", "In-sync sets that gained members.", (), "IsrExpandsPerSec")
LOG_START: Final = gauge(
    "partition_log_start_offset", "First offset that can be read.", _PARTITION, "LogStartOffset", PARTITIONS
)
LOG_END: Final = gauge(
    "partition_log_end_offset", "Offset that the next record gets.", _PARTITION, "LogEndOffset", PARTITIONS
)
HIGH_WATERMARK: Final = gauge(
    "partition_high_watermark", "Offset up to which records are committed.", _PARTITION, "HighWatermark", PARTITIONS
)
LAST_STABLE: Final = gauge(
    "partition_last_stable_offset",
    "Offset up to which no transaction is open.",
    _PARTITION,
    "LastStableOffset",
    PARTITIONS,
)
LOG_BYTES: Final = gauge("partition_log_bytes", "Bytes of the log on this broker.", _PARTITION, "Size", PARTITIONS)
LOG_SEGMENTS: Final = gauge("partition_log_segments", "Segments of the log.", _PARTITION, "NumLogSegments", PARTITIONS)
IS_LEADER: Final = gauge(
    "partition_leader", "1 where this broker leads the partition, else 0.", _PARTITION, "", PARTITIONS
)
REPLICAS: Final = gauge(
    "partition_replicas", "Replicas of a partition that is led here.", _PARTITION, "ReplicasCount", PARTITIONS
)
IN_SYNC: Final = gauge(
    "partition_in_sync_replicas",
    "Those of them that are in sync, the leader included.",
    _PARTITION,
    "InSyncReplicasCount",
    PARTITIONS,
)
FOLLOWER_LAG: Final = gauge(
    "follower_lag_records",
    "Records of a partition led here that one follower has not fetched yet.",
    ("topic", "partition", "replica"),
    "ConsumerLag of the replica fetchers",
    PARTITIONS,
)
TOPIC_LOG_BYTES: Final = gauge("topic_log_bytes", "Bytes of all logs of a topic on this broker.", _TOPIC, "", TOPICS)

# The cluster and its controller.
ACTIVE_CONTROLLER: Final = gauge(
    "active_controller", "1 on the broker that is controller, else 0.", (), "ActiveControllerCount"
)
BROKERS: Final = gauge("brokers", "Brokers that this broker knows to be alive.", (), "ActiveBrokerCount")
TOPIC_COUNT: Final = gauge("topics", "Topics in the cluster.", (), "GlobalTopicCount")
ALL_PARTITIONS: Final = gauge("cluster_partitions", "Partitions in the cluster.", (), "GlobalPartitionCount")
OFFLINE_PARTITIONS: Final = gauge(
    "offline_partitions",
    "Partitions without a leader; on the controller, 0 elsewhere.",
    (),
    "OfflinePartitionsCount",
)
NOT_PREFERRED: Final = gauge(
    "preferred_replica_imbalance",
    "Partitions that another broker leads than their first replica; on the controller, 0 elsewhere.",
    (),
    "PreferredReplicaImbalanceCount",
)
MOVING: Final = gauge("reassigning_partitions", "Partitions on the move; on the controller, 0 elsewhere.", (), "")
CONTROLLER_QUEUE: Final = gauge("controller_queue_events", "Events that wait for the controller.", (), "EventQueueSize")
CONTROLLER_EPOCH: Final = gauge("controller_epoch", "The number of this controller's term; 0 elsewhere.", (), "")
ELECTIONS: Final = counter(
    "leader_elections", "Leaders that this broker chose as controller.", (), "LeaderElectionRateAndTimeMs"
)
UNCLEAN_ELECTIONS: Final = counter(
    "unclean_leader_elections",
    "Those among them that were not in sync, so that records may be lost.",
    (),
    "UncleanLeaderElectionsPerSec",
)
KEEPER_CONNECTED: Final = gauge(
    "zookeeper_connected",
    "1 while the session with ZooKeeper is connected. Not of a broker that stands alone.",
    (),
    "SessionState",
)
KEEPER_CHANGES: Final = counter(
    "zookeeper_session_changes", "Changes of that session, by what it became.", ("state",), "ZooKeeper*PerSec"
)

# Groups and transactions.
GROUP_COUNT: Final = gauge("groups", "Groups that this broker coordinates.", ("state",), "NumGroups*")
GROUP_MEMBERS: Final = gauge("group_members", "Members of a group.", ("group",), "", GROUPS)
GROUP_COMMITTED: Final = gauge(
    "group_committed_offset",
    "The offset that a group coordinated here has committed.",
    ("group", "topic", "partition"),
    "",
    GROUPS,
)
GROUP_LAG: Final = gauge(
    "group_lag_records",
    "Records between a group's committed offset and the high watermark. Only where this broker coordinates the group"
    " and leads the partition; see below.",
    ("group", "topic", "partition"),
    "",
    GROUPS,
)

# Connections and waits.
CONNECTIONS: Final = gauge("connections", "Open connections.", ("listener",), "connection-count")
ACCEPTED: Final = counter("connections_accepted", "Connections accepted.", ("listener",), "connection-creation-rate")
REFUSED: Final = counter(
    "connections_refused", "Connections closed for want of room (max.connections...), or by a quota.", ("listener",), ""
)
WAITING_FETCHES: Final = gauge(
    "waiting_fetches", "Fetches that wait for more bytes.", (), "PurgatorySize,delayedOperation=Fetch"
)
WAITING_PRODUCES: Final = gauge(
    "waiting_produces",
    "Appends that wait until the in-sync replicas have them.",
    (),
    "PurgatorySize,delayedOperation=Produce",
)
FETCH_SESSIONS: Final = gauge("fetch_sessions", "Incremental fetch sessions.", (), "NumIncrementalFetchSessions")

# Logs and disks.
DISK_TOTAL: Final = gauge("disk_bytes", "Size of the file system of a log folder.", ("path",), "")
DISK_FREE: Final = gauge("disk_free_bytes", "Bytes free there.", ("path",), "")
FOLDER_ONLINE: Final = gauge("log_folder_online", "1 while a log folder can be used.", ("path",), "LogDirectoryOffline")
LOG_TOTAL: Final = gauge("log_bytes", "Bytes of all logs in a log folder.", ("path",), "")
RETIRED_SEGMENTS: Final = counter("retention_segments", "Segments that retention has removed.", (), "")
RETIRED_BYTES: Final = counter("retention_bytes", "Bytes that retention has removed.", (), "")
COMPACTIONS: Final = counter("compactions", "Compactions of a log that were finished.", (), "cleaner-runs")
COMPACTION_FAILURES: Final = counter("compaction_failures", "Compactions that failed, and will be tried again.", (), "")
COMPACTED_BYTES: Final = counter("compaction_removed_bytes", "Bytes that compaction has removed.", (), "")

# The process.
LOOP_LAG: Final = Family(
    "ottla_loop_lag_seconds", HISTOGRAM, "How late the event loop came to a timer, four times a second.", (), ""
)
CPU: Final = Family("process_cpu_seconds_total", COUNTER, "Processor time used, user and system.")
RESIDENT: Final = Family("process_resident_memory_bytes", GAUGE, "Resident memory.")
OPEN_FILES: Final = Family("process_open_fds", GAUGE, "Open file descriptors.")
FILES_MAX: Final = Family("process_max_fds", GAUGE, "Most that may be open.")
STARTED: Final = Family("process_start_time_seconds", GAUGE, "When the broker was started, in seconds since 1970.")
GC_RUNS: Final = Family("python_gc_collections_total", COUNTER, "Garbage collections.", ("generation",))
GC_FREED: Final = Family("python_gc_objects_collected_total", COUNTER, "Objects that they have freed.", ("generation",))
BUILD: Final = gauge("build_info", "Always 1; what runs here.", ("version", "python"), "")
BROKER: Final = gauge("broker_info", "Always 1; who runs here.", ("node_id", "cluster_id"), "")
READY: Final = gauge("ready", "1 while /ready says so.", (), "BrokerState")
LEFT_OUT: Final = gauge(
    "metrics_left_out",
    "Topics, partitions, offsets of groups and series of clients that are not shown, for there are more than the"
    " options allow.",
    ("of",),
    "",
)

# Clients' own metrics.
CLIENT_INSTANCES: Final = gauge(
    "client_telemetry_instances", "Clients that ask for telemetry subscriptions.", (), "ClientMetricsInstanceCount"
)
CLIENT_PUSHES: Final = counter(
    "client_telemetry_pushes", "Pushes of clients, by the error they were answered with (NONE: taken).", ("error",), ""
)

SECTIONS: Final[dict[str, tuple[Family, ...]]] = {
    "Traffic": (
        MESSAGES_IN,
        BYTES_IN,
        BYTES_OUT,
        REPLICATED_IN,
        REPLICATED_OUT,
        TOPIC_MESSAGES_IN,
        TOPIC_BYTES_IN,
        TOPIC_BYTES_OUT,
        TOPIC_REPLICATED_IN,
        TOPIC_REPLICATED_OUT,
    ),
    "Requests": (
        REQUESTS,
        REQUEST_ERRORS,
        PHASE_SECONDS,
        REQUEST_SECONDS,
        THROTTLED,
        THROTTLE_SECONDS,
        QUOTA_SENSORS,
    ),
    "Partitions": (
        PARTITION_COUNT,
        LEADER_COUNT,
        UNDER_REPLICATED,
        UNDER_MIN_ISR,
        AT_MIN_ISR,
        OFFLINE_REPLICAS,
        ISR_SHRINKS,
        ISR_EXPANDS,
        TOPIC_LOG_BYTES,
        LOG_START,
        LOG_END,
        HIGH_WATERMARK,
        LAST_STABLE,
        LOG_BYTES,
        LOG_SEGMENTS,
        IS_LEADER,
        REPLICAS,
        IN_SYNC,
        FOLLOWER_LAG,
    ),
    "The cluster and its controller": (
        ACTIVE_CONTROLLER,
        BROKERS,
        TOPIC_COUNT,
        ALL_PARTITIONS,
        OFFLINE_PARTITIONS,
        NOT_PREFERRED,
        MOVING,
        CONTROLLER_QUEUE,
        CONTROLLER_EPOCH,
        ELECTIONS,
        UNCLEAN_ELECTIONS,
        KEEPER_CONNECTED,
        KEEPER_CHANGES,
    ),
    "Groups": (GROUP_COUNT, GROUP_MEMBERS, GROUP_COMMITTED, GROUP_LAG),
    "Connections and waits": (
        CONNECTIONS,
        ACCEPTED,
        REFUSED,
        WAITING_FETCHES,
        WAITING_PRODUCES,
        FETCH_SESSIONS,
    ),
    "Logs and disks": (
        DISK_TOTAL,
        DISK_FREE,
        FOLDER_ONLINE,
        LOG_TOTAL,
        RETIRED_SEGMENTS,
        RETIRED_BYTES,
        COMPACTIONS,
        COMPACTION_FAILURES,
        COMPACTED_BYTES,
    ),
    "The process": (
        READY,
        BROKER,
        BUILD,
        LOOP_LAG,
        CPU,
        RESIDENT,
        OPEN_FILES,
        FILES_MAX,
        STARTED,
        GC_RUNS,
        GC_FREED,
        LEFT_OUT,
    ),
    "Clients' own metrics": (CLIENT_INSTANCES, CLIENT_PUSHES),
}
FAMILIES: Final[tuple[Family, ...]] = tuple(family for section in SECTIONS.values() for family in section)
