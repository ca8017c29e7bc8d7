"""Every metric of a broker: one row each. Names follow Prometheus: base units, `_total` for counters.

A row has the name of Kafka's metric, if Kafka has one. There are no rates, since Prometheus computes them (`rate(...)`)
and a counter loses nothing between two scrapes. `SECTIONS` is the order in docs/metrics.md and in the exposition.
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
MESSAGES_IN: Final = counter("messages_in", "Records appended by producers.", (), "MessagesInPerSec")
BYTES_IN: Final = counter("bytes_in", "Bytes of record batches appended by producers.", (), "BytesInPerSec")
BYTES_OUT: Final = counter("bytes_out", "Bytes of record batches sent to consumers.", (), "BytesOutPerSec")
REPLICATED_IN: Final = counter(
    "replication_bytes_in", "Bytes that this broker fetched from leaders as a follower.", (), "ReplicationBytesInPerSec"
)
REPLICATED_OUT: Final = counter(
    "replication_bytes_out", "Bytes that this broker sent to followers.", (), "ReplicationBytesOutPerSec"
)
TOPIC_MESSAGES_IN: Final = counter(
    "topic_messages_in", "Records appended by producers, per topic.", _TOPIC, "MessagesInPerSec,topic=*", TOPICS
)
TOPIC_BYTES_IN: Final = counter(
    "topic_bytes_in", "Bytes appended by producers, per topic.", _TOPIC, "BytesInPerSec,topic=*", TOPICS
)
TOPIC_BYTES_OUT: Final = counter(
    "topic_bytes_out", "Bytes sent to consumers, per topic.", _TOPIC, "BytesOutPerSec,topic=*", TOPICS
)
TOPIC_REPLICATED_IN: Final = counter(
    "topic_replication_bytes_in", "Bytes fetched from leaders, per topic.", _TOPIC, "", TOPICS
)
TOPIC_REPLICATED_OUT: Final = counter(
    "topic_replication_bytes_out", "Bytes sent to followers, per topic.", _TOPIC, "", TOPICS
)

# Requests.
REQUESTS: Final = counter(
    "requests", "Requests that were answered or needed no response.", ("api", "version"), "RequestsPerSec"
)
REQUEST_ERRORS: Final = counter(
    "request_errors",
    "Errors in responses: of the whole request, or of one topic, partition or other item in it. For Metadata, only"
    " errors of topics.",
    ("api", "error"),
    "ErrorsPerSec",
)
PHASE_SECONDS: Final = counter(
    "request_phase_seconds",
    "Time that requests took, by phase. queue: received, waiting to be handled; local: in the handler; remote:"
    " waiting for other brokers, records, the disk, or the next time slice of a long request; send: until the response"
    " is written to the socket.",
    ("api", "phase"),
    "RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseSendTimeMs",
)
REQUEST_SECONDS: Final = Family(
    "ottla_request_seconds",
    HISTOGRAM,
    "Time from the arrival of a request to the last byte of its response, over all phases. After a thousand requests of"
    " an API, only one in eight fast responses is timed and counted eight times.",
    _API,
    "TotalTimeMs",
)

THROTTLED: Final = counter(
    "throttled",
    "Requests throttled and connections closed because of a quota, by quota key.",
    ("quota",),
    "",
)
THROTTLE_SECONDS: Final = counter(
    "throttle_seconds",
    "Total throttle time, by quota key.",
    ("quota",),
    "throttle-time, connection-accept-throttle-time",
)
QUOTA_SENSORS: Final = gauge(
    "quota_sensors", "Users, client ids and addresses whose usage is measured. 0 without quotas.", (), ""
)

# Partitions.
PARTITION_COUNT: Final = gauge("partitions", "Partitions with a replica on this broker.", (), "PartitionCount")
LEADER_COUNT: Final = gauge("leaders", "Partitions that this broker leads.", (), "LeaderCount")
UNDER_REPLICATED: Final = gauge(
    "under_replicated_partitions",
    "Partitions led by this broker with fewer in-sync replicas than replicas.",
    (),
    "UnderReplicatedPartitions",
)
UNDER_MIN_ISR: Final = gauge(
    "under_min_isr_partitions",
    "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas: they refuse acks=all.",
    (),
    "UnderMinIsrPartitionCount",
)
AT_MIN_ISR: Final = gauge(
    "at_min_isr_partitions",
    "Partitions led by this broker with exactly min.insync.replicas in-sync replicas.",
    (),
    "AtMinIsrPartitionCount",
)
OFFLINE_REPLICAS: Final = gauge(
    "offline_replicas", "Replicas of this broker that cannot be read or written.", (), "OfflineReplicaCount"
)
ISR_SHRINKS: Final = counter("isr_shrinks", "ISR shrinks of partitions led by this broker.", (), "IsrShrinksPerSec")
ISR_EXPANDS: Final = counter("isr_expands", "ISR expansions of partitions led by this broker.", (), "IsrExpandsPerSec")
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
    "partition_leader", "1 if this broker leads the partition, else 0.", _PARTITION, "", PARTITIONS
)
REPLICAS: Final = gauge(
    "partition_replicas", "Replicas of a partition led by this broker.", _PARTITION, "ReplicasCount", PARTITIONS
)
IN_SYNC: Final = gauge(
    "partition_in_sync_replicas",
    "In-sync replicas of a partition led by this broker, including the leader.",
    _PARTITION,
    "InSyncReplicasCount",
    PARTITIONS,
)
FOLLOWER_LAG: Final = gauge(
    "follower_lag_records",
    "Records of a partition led by this broker that a follower has not fetched yet.",
    ("topic", "partition", "replica"),
    "ConsumerLag of the replica fetchers",
    PARTITIONS,
)
TOPIC_LOG_BYTES: Final = gauge("topic_log_bytes", "Bytes of all logs of a topic on this broker.", _TOPIC, "", TOPICS)

# The cluster and its controller.
ACTIVE_CONTROLLER: Final = gauge(
    "active_controller", "1 if this broker is the controller, else 0.", (), "ActiveControllerCount"
)
BROKERS: Final = gauge("brokers", "Brokers that are alive, as this broker sees it.", (), "ActiveBrokerCount")
TOPIC_COUNT: Final = gauge("topics", "Topics in the cluster.", (), "GlobalTopicCount")
ALL_PARTITIONS: Final = gauge("cluster_partitions", "Partitions in the cluster.", (), "GlobalPartitionCount")
OFFLINE_PARTITIONS: Final = gauge(
    "offline_partitions",
    "Partitions without a leader; 0 on brokers that are not the controller.",
    (),
    "OfflinePartitionsCount",
)
NOT_PREFERRED: Final = gauge(
    "preferred_replica_imbalance",
    "Partitions not led by their preferred (first) replica; 0 on brokers that are not the controller.",
    (),
    "PreferredReplicaImbalanceCount",
)
MOVING: Final = gauge("reassigning_partitions", "Partitions being reassigned; 0 if not the controller.", (), "")
CONTROLLER_QUEUE: Final = gauge("controller_queue_events", "Events queued for the controller.", (), "EventQueueSize")
CONTROLLER_EPOCH: Final = gauge("controller_epoch", "This controller's epoch; 0 if not the controller.", (), "")
ELECTIONS: Final = counter(
    "leader_elections", "Leaders that this broker elected as controller.", (), "LeaderElectionRateAndTimeMs"
)
UNCLEAN_ELECTIONS: Final = counter(
    "unclean_leader_elections",
    "Elected leaders that were not in sync, so that records may be lost.",
    (),
    "UncleanLeaderElectionsPerSec",
)
KEEPER_CONNECTED: Final = gauge(
    "zookeeper_connected",
    "1 while the ZooKeeper session is connected. Absent on a standalone broker.",
    (),
    "SessionState",
)
KEEPER_CHANGES: Final = counter(
    "zookeeper_session_changes", "State changes of the ZooKeeper session, by new state.", ("state",), "ZooKeeper*PerSec"
)

# Groups and transactions.
GROUP_COUNT: Final = gauge("groups", "Groups that this broker coordinates.", ("state",), "NumGroups*")
GROUP_MEMBERS: Final = gauge("group_members", "Members of a group.", ("group",), "", GROUPS)
GROUP_COMMITTED: Final = gauge(
    "group_committed_offset",
    "Committed offset of a group that this broker coordinates.",
    ("group", "topic", "partition"),
    "",
    GROUPS,
)
GROUP_LAG: Final = gauge(
    "group_lag_records",
    "Records between a group's committed offset and the high watermark. Only if this broker coordinates the group and"
    " leads the partition; see below.",
    ("group", "topic", "partition"),
    "",
    GROUPS,
)

# Connections and waits.
CONNECTIONS: Final = gauge("connections", "Open connections.", ("listener",), "connection-count")
ACCEPTED: Final = counter("connections_accepted", "Connections accepted.", ("listener",), "connection-creation-rate")
REFUSED: Final = counter(
    "connections_refused", "Connections refused because of max.connections... or a quota.", ("listener",), ""
)
WAITING_FETCHES: Final = gauge(
    "waiting_fetches", "Fetches that wait for more bytes.", (), "PurgatorySize,delayedOperation=Fetch"
)
WAITING_PRODUCES: Final = gauge(
    "waiting_produces",
    "Appends that wait for the in-sync replicas.",
    (),
    "PurgatorySize,delayedOperation=Produce",
)
FETCH_SESSIONS: Final = gauge("fetch_sessions", "Incremental fetch sessions.", (), "NumIncrementalFetchSessions")

# Logs and disks.
DISK_TOTAL: Final = gauge("disk_bytes", "Size of the file system of a log folder.", ("path",), "")
DISK_FREE: Final = gauge("disk_free_bytes", "Free bytes in the file system of a log folder.", ("path",), "")
FOLDER_ONLINE: Final = gauge("log_folder_online", "1 while a log folder can be used.", ("path",), "LogDirectoryOffline")
LOG_TOTAL: Final = gauge("log_bytes", "Bytes of all logs in a log folder.", ("path",), "")
RETIRED_SEGMENTS: Final = counter("retention_segments", "Segments that retention has removed.", (), "")
RETIRED_BYTES: Final = counter("retention_bytes", "Bytes that retention has removed.", (), "")
COMPACTIONS: Final = counter("compactions", "Finished compactions of a log.", (), "cleaner-runs")
COMPACTION_FAILURES: Final = counter("compaction_failures", "Failed compactions, which will be retried.", (), "")
COMPACTED_BYTES: Final = counter("compaction_removed_bytes", "Bytes that compaction has removed.", (), "")

# The process.
LOOP_LAG: Final = Family(
    "ottla_loop_lag_seconds", HISTOGRAM, "How late the event loop ran a timer; measured four times a second.", (), ""
)
CPU: Final = Family("process_cpu_seconds_total", COUNTER, "Processor time used, user and system.")
RESIDENT: Final = Family("process_resident_memory_bytes", GAUGE, "Resident memory.")
OPEN_FILES: Final = Family("process_open_fds", GAUGE, "Open file descriptors.")
FILES_MAX: Final = Family("process_max_fds", GAUGE, "Limit of open file descriptors.")
STARTED: Final = Family("process_start_time_seconds", GAUGE, "When the broker was started, in seconds since 1970.")
GC_RUNS: Final = Family("python_gc_collections_total", COUNTER, "Garbage collections.", ("generation",))
GC_FREED: Final = Family(
    "python_gc_objects_collected_total", COUNTER, "Objects freed by garbage collections.", ("generation",)
)
BUILD: Final = gauge("build_info", "Always 1; the labels say which version runs.", ("version", "python"), "")
BROKER: Final = gauge("broker_info", "Always 1; the labels identify the broker.", ("node_id", "cluster_id"), "")
READY: Final = gauge("ready", "1 while /ready returns 200, else 0.", (), "BrokerState")
LEFT_OUT: Final = gauge(
    "metrics_left_out",
    "Topics, partitions, offsets of groups and series of clients that are not shown because they exceed the limits in"
    " the options.",
    ("of",),
    "",
)

# Clients' own metrics.
CLIENT_INSTANCES: Final = gauge(
    "client_telemetry_instances", "Clients that request telemetry subscriptions.", (), "ClientMetricsInstanceCount"
)
CLIENT_PUSHES: Final = counter(
    "client_telemetry_pushes", "Pushes of clients, by error code of the response (NONE: accepted).", ("error",), ""
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
