"""The broker options that Ottla implements: Kafka's names and, unless a row says otherwise, Kafka's defaults.

Kafka's other options are in `others.py`: accepted with a notice, or refused. To implement one of them, move its row
here. Ottla's own options are few and start with `ottla.`.

A value with a fallback chain (`log.retention.ms`, else `.minutes`, else `.hours`) is resolved on load, so the attribute
of the first name always holds the effective value. `given` keeps the configured texts, for DescribeConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.listeners import (
    PROTOCOLS,
    Listener,
    find_inter_broker,
    metrics_address,
    names,
    parse_advertised,
    parse_listeners,
)
from ottla.config.option import (
    CLUSTER_WIDE,
    DOUBLE_MAX,
    HIGH,
    INT_MAX,
    LONG_MAX,
    LOW,
    Option,
    Refusals,
    Value,
    boolean,
    double,
    integer,
    invalid,
    long,
    maybe,
    rows,
    secret,
    short,
    string,
    strings,
)
from ottla.config.security import SecurityConfig, is_for_listener, listener_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
GENERATED = "-1"  # a broker.id that asks for a generated ID
MIGRATION_POLICIES = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")
ONE_REPLICA = "A partition has one replica."
SELECTORS = tuple(f"org.apache.kafka.common.replica.{name}Selector" for name in ("RackAwareReplica", "Leader"))
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class BrokerConfig(SecurityConfig):
    notices: tuple[str, ...]  # lines to log as warnings at start
    opened: tuple[Listener, ...]  # what to listen on
    advertised: Mapping[str, tuple[str, int]]  # listener name → advertised address, where one was given
    inter_broker: Listener  # the listener for connections between brokers

    # Identity
    node_id: int = integer(
        None,
        "The broker's ID, unique in its cluster.",
        least=0,
        importance=HIGH,
        chain=(("broker.id", 1),),
        differs="Kafka requires it. Ottla takes the ID stored in the log folder, if there is one.",
    )
    broker_id: int = integer(
        1,
        "The older name of node.id. -1: the default, or in a cluster a generated ID.",
        least=-1,
        importance=HIGH,
        differs="Kafka's default is -1, a generated ID; in a cluster, -1 means the same here.",
    )
    broker_id_generation_enable: bool = boolean(
        True, "Whether a broker without an ID gets one from ZooKeeper when it joins a cluster."
    )
    reserved_broker_max_id: int = integer(1000, "Generated broker IDs are greater than this.", least=0)
    broker_rack: str | None = maybe("The broker's rack; replicas of a partition are spread over racks.")
    process_roles: tuple[str, ...] = strings(
        ("broker", "controller"),
        "Roles of the process; Ottla's brokers always have both.",
        choices=("broker", "controller"),
        importance=HIGH,
        differs="Kafka requires a choice.",
    )

    # Listeners
    listeners: tuple[str, ...] = strings(
        ("PLAINTEXT://:9092",),
        "Name and address of every socket to listen on. No host: all interfaces. Port 0: any free port.",
        importance=HIGH,
    )
    advertised_listeners: tuple[str, ...] = strings(
        None,
        "Addresses advertised to clients, by listener name. Unset: each client gets the address it connected to.",
        importance=HIGH,
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name, as NAME:PROTOCOL pairs.",
        importance=LOW,
    )
    inter_broker_listener_name: str | None = maybe(
        "The listener for connections between brokers; must be one of the listeners. Unset: the first, or the first"
        " with the protocol of security.inter.broker.protocol."
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "Security protocol between brokers. Cannot be combined with inter.broker.listener.name.",
        choices=PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = strings(
        (),
        "Listeners of a KRaft quorum. Ottla has no quorum, so sockets of these names are not opened.",
        importance=HIGH,
        differs="Kafka requires one.",
    )

    # Authorization
    authorizer_class_name: str = string(
        "",
        "Authorizes clients by access control lists (ACLs). Both of Kafka's class names mean the same here. Empty: "
        "no authorization, every client may do everything.",
        choices=("", "kafka.security.authorizer.AclAuthorizer", STANDARD_AUTHORIZER),
    )
    super_users: str | None = maybe("Users who may do everything, as User:name;User:name.")
    allow_everyone_if_no_acl_found: bool = boolean(False, "Whether resources without ACLs are open to everyone.")

    # Delegation tokens
    delegation_token_secret_key: str | None = secret(
        "The key that signs delegation tokens; must be the same on all brokers. Unset: tokens are disabled.",
        chain=(("delegation.token.master.key", 1),),
    )
    delegation_token_master_key: str | None = secret("The older name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms: int = long(
        7 * DAY_MS, "Maximum lifetime of a token; it cannot be renewed beyond this.", least=1
    )
    delegation_token_expiry_time_ms: int = long(DAY_MS, "How long a token is valid before it must be renewed.", least=1)
    delegation_token_expiry_check_interval_ms: int = long(
        HOUR_MS, "How often expired tokens are removed.", least=1, importance=LOW
    )

    # Cluster
    zookeeper_connect: str | None = maybe(
        "ZooKeeper's address: host:port[,host:port...][/path]. Unset: the broker runs standalone.",
        importance=HIGH,
    )
    zookeeper_session_timeout_ms: int = integer(
        18 * SECOND_MS, "How long a broker without contact to ZooKeeper still counts as alive.", importance=HIGH
    )
    zookeeper_connection_timeout_ms: int = integer(
        None,
        "How long to wait for ZooKeeper at start. Unset: zookeeper.session.timeout.ms.",
        importance=HIGH,
        chain=(("zookeeper.session.timeout.ms", 1),),
    )
    zookeeper_max_in_flight_requests: int = integer(
        100,
        "Maximum number of requests in flight to ZooKeeper.",
        least=1,
        most=200,
        importance=HIGH,
        differs="With Kafka's 10, a controller with many partitions takes twice as long to start.",
    )
    zookeeper_set_acl: bool = boolean(
        False, "Whether only the brokers may write the znodes that they create; needs credentials.", importance=HIGH
    )
    ottla_zookeeper_credentials: str | None = secret("user:password for ZooKeeper's digest authentication.")
    zookeeper_ssl_client_enable: bool = boolean(False, "Whether to connect to ZooKeeper with TLS.")
    zookeeper_ssl_truststore_location: str | None = maybe("A PEM file with the CAs that sign ZooKeeper's certificate.")
    zookeeper_ssl_truststore_type: str | None = maybe(
        "The type of the truststore.", choices=("PEM",), idle="The file must be PEM."
    )
    zookeeper_ssl_keystore_location: str | None = maybe("A PEM file with this broker's certificate and its key.")
    zookeeper_ssl_keystore_password: str | None = secret("Password of the key.")
    zookeeper_ssl_keystore_type: str | None = maybe(
        "The type of the keystore.", choices=("PEM",), idle="The file must be PEM."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "HTTPS", "HTTPS checks ZooKeeper's host name against its certificate; empty does not.", importance=LOW
    )

    # Connections
    socket_send_buffer_bytes: int = integer(
        300 * KB,
        "SO_SNDBUF of client sockets; -1 keeps the operating system's default.",
        least=-1,
        importance=HIGH,
        differs="With Kafka's 100 kB, a large fetch wakes the broker three times as often: see bench/README.md. Unless "
        "this is set, it becomes 200 kB for near clients that take much at once, 500 kB for those that take little.",
    )
    socket_receive_buffer_bytes: int = integer(
        -1,
        "SO_RCVBUF of client sockets; -1 keeps the operating system's default.",
        least=-1,
        importance=HIGH,
        differs="Kafka's 100 kB disables the system's autotuning, and batches of 128 kB never arrive in one piece.",
    )
    socket_request_max_bytes: int = integer(
        100 * MB,
        "Largest request; a larger one closes its connection. Requests without records are limited to 16 MiB.",
        least=1,
        importance=HIGH,
    )
    queued_max_request_bytes: int = long(
        -1,
        "Memory for partly received requests, over all connections. When it is used up, connections that start another "
        "request wait. -1: no common limit, each connection has its own.",
    )
    socket_listen_backlog_size: int = integer(
        4096,
        "Length of the queue of connections not yet accepted.",
        least=1,
        differs="With Kafka's 50, a few hundred clients that connect at once, as after a restart, overflow the queue: "
        "each that does not fit tries again after a second. The system may have a lower limit.",
    )
    connections_max_idle_ms: int = long(
        10 * MINUTE_MS, "Close a connection that was idle for this long; negative: never."
    )
    max_connections: int = integer(
        INT_MAX,
        "Maximum open connections; further ones are closed. Per listener: listener.name.NAME.max.connections.",
        least=0,
        live=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        INT_MAX, "Maximum open connections from one IP address.", least=0, live=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = string(
        "", "Different limits for some addresses, as host:count pairs.", live=CLUSTER_WIDE
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        "Connections accepted per second; further ones wait. For limits per IP address see `ottla quotas`.",
        least=1,
        live=CLUSTER_WIDE,
        differs="There is no rate per listener.",
    )
    quota_window_num: int = integer(
        11, "Number of samples over which client quota rates are measured.", least=1, importance=LOW
    )
    quota_window_size_seconds: int = integer(1, "Length of a sample in seconds.", least=1, importance=LOW)
    controller_quota_window_num: int = integer(
        11, "Number of samples for topic changes. A burst may use the quota of all of them.", least=1, importance=LOW
    )
    controller_quota_window_size_seconds: int = integer(1, "Length of a sample in seconds.", least=1, importance=LOW)
    connection_failed_authentication_delay_ms: int = integer(
        100, "Delay before a connection is closed after failed authentication.", least=0, importance=LOW
    )
    max_request_partition_size_limit: int = integer(
        2000, "Partitions in one DescribeTopicPartitions response.", least=1
    )
    fetch_max_bytes: int = integer(
        55 * MB, "Most bytes in one Fetch response, even if the client asks for more.", least=1024
    )
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Maximum number of fetch sessions.", least=0)

    # Metrics
    ottla_metrics_listener: str = string(
        "127.0.0.1:auto",
        "HTTP address of metrics, /health and /ready: host:port, or off. Port auto: 9404, or any free port if 9404 is"
        " taken or the first listener has port 0.",
    )
    ottla_metrics_hosts: tuple[str, ...] = strings(
        (),
        "Host names accepted in metrics requests, besides IP addresses, localhost and the machine's own name; * for"
        " any. This keeps web pages from reading the metrics through a browser.",
    )
    ottla_metrics_topics_max: int = integer(
        5000, "Maximum number of topics with their own series in the metrics; 0 for none.", least=0
    )
    ottla_metrics_partitions_max: int = integer(
        5000, "Maximum number of partitions with their own series in the metrics; 0 for none.", least=0
    )
    ottla_metrics_groups_max: int = integer(
        5000, "Maximum number of committed offsets of groups in the metrics; 0 for none.", least=0
    )
    ottla_metrics_clients_max: int = integer(
        5000, "Maximum number of series pushed by clients that are kept and shown; 0 for none.", least=0
    )
    ottla_client_metrics: str = string(
        "subscribed",
        "When the broker offers clients to push their metrics (KIP-714): while a subscription exists (subscribed),"
        " always, or never (off). A client learns it when it connects.",
        choices=("subscribed", "always", "off"),
    )
    telemetry_max_bytes: int = integer(MB, "Maximum size of a client's metrics push.", least=1)

    # Topics
    num_partitions: int = integer(1, "Partitions of a new topic, if the request does not say.", least=1)
    default_replication_factor: int = integer(1, "Replicas of a new topic, if the request does not say.", least=1)
    auto_create_topics_enable: bool = boolean(True, "Create missing topics when clients use them.", importance=HIGH)
    delete_topic_enable: bool = boolean(True, "Whether topics may be deleted.", importance=HIGH)
    min_insync_replicas: int = integer(
        1,
        "Minimum number of in-sync replicas for a write with acks=all.",
        least=1,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Allow a replica that is not in sync to become leader if no other is left. Acknowledged records may be lost.",
        live=CLUSTER_WIDE,
        importance=HIGH,
    )

    # Controller
    auto_leader_rebalance_enable: bool = boolean(
        True,
        "In a cluster: move leadership back to a partition's preferred (first) replica when it is in sync.",
        importance=HIGH,
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Percentage of a broker's preferred partitions that others may lead before leaders move.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "Seconds between two checks of the leader imbalance.", least=1, importance=HIGH
    )
    controlled_shutdown_enable: bool = boolean(True, "In a cluster: hand over leadership before stopping.")
    controlled_shutdown_max_retries: int = integer(3, "How often to retry the request to the controller.")
    controlled_shutdown_retry_backoff_ms: int = long(5000, "Delay before such a retry.", least=0)
    inter_broker_protocol_version: str = string(
        "3.9-IV0",
        "Kafka version of the requests between brokers: in a mixed cluster, that of the oldest broker.",
        differs="Any release number is accepted, with or without -IV.",
    )

    # Log folders
    log_dirs: tuple[str, ...] = strings(
        None,
        "Folders that hold the partitions. A new partition goes to the folder with the fewest.",
        importance=HIGH,
        chain=(("log.dir", 1),),
    )
    log_dir: tuple[str, ...] = strings(
        ("~/.local/share/ottla",),
        "The older name of log.dirs.",
        importance=HIGH,
        differs="Kafka's default is under /tmp, where data may be deleted.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        2, "Threads per folder that recover logs after a crash.", least=1, live=CLUSTER_WIDE, importance=HIGH
    )

    # Segments
    log_segment_bytes: int = integer(
        GB,
        "Roll a segment at this size.",
        least=14,
        live=CLUSTER_WIDE,
        importance=HIGH,
        differs="Kafka 4 requires at least 1 MiB; Ottla accepts 14 bytes, as Kafka 3.9 did.",
    )
    log_roll_ms: int = long(
        None,
        "Roll a segment whose first record is older than this.",
        live=CLUSTER_WIDE,
        importance=HIGH,
        chain=(("log.roll.hours", HOUR_MS),),
    )
    log_roll_hours: int = integer(168, "The same in hours.", least=1, importance=HIGH)
    log_roll_jitter_ms: int = long(
        None,
        "Roll up to this much earlier, at random, so that segments do not all roll at once.",
        live=CLUSTER_WIDE,
        importance=HIGH,
        chain=(("log.roll.jitter.hours", HOUR_MS),),
    )
    log_roll_jitter_hours: int = integer(0, "The same in hours.", least=0, importance=HIGH)
    log_index_size_max_bytes: int = integer(
        10 * MB, "Maximum size of a segment's index; a full index rolls the segment.", least=4, live=CLUSTER_WIDE
    )
    log_index_interval_bytes: int = integer(
        4 * KB, "Bytes of log between two index entries.", least=0, live=CLUSTER_WIDE
    )
    log_preallocate: bool = boolean(False, "Reserve a segment's full size when it is opened.", live=CLUSTER_WIDE)

    # Retention
    log_retention_ms: int = long(
        None,
        "Delete segments whose newest record is older than this; -1 keeps all.",
        live=CLUSTER_WIDE,
        importance=HIGH,
        chain=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    )
    log_retention_minutes: int = integer(None, "The same in minutes.", importance=HIGH)
    log_retention_hours: int = integer(168, "The same in hours.", importance=HIGH)
    log_retention_bytes: int = long(
        -1,
        "Delete the oldest segments of a partition above this size; -1 keeps all.",
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    log_retention_check_interval_ms: int = long(5 * MINUTE_MS, "How often retention is checked.", least=1)
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "What happens to old segments: delete, compact (keep the last value of each key), both, or nothing (empty).",
        choices=("compact", "delete"),
        live=CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = long(
        MINUTE_MS,
        "How long the files of a deleted segment are kept, renamed, for readers that still use them.",
        least=0,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )

    # Flushing
    log_flush_interval_messages: int = long(
        LONG_MAX, "Flush a partition to disk after this many records.", least=1, live=CLUSTER_WIDE, importance=HIGH
    )
    log_flush_interval_ms: int = long(
        None,
        "Flush a partition to disk when its oldest unflushed record has waited this long.",
        live=CLUSTER_WIDE,
        importance=HIGH,
        chain=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX, "How often to check for partitions to flush.", importance=HIGH
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        MINUTE_MS, "How often recovery points are saved.", least=0, importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        MINUTE_MS, "How often log start offsets are saved.", least=0, importance=HIGH
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5 * SECOND_MS, "How often high watermarks are saved.", importance=HIGH
    )

    # Replication
    replica_lag_time_max_ms: int = long(
        30 * SECOND_MS, "A follower that has not caught up for this long leaves the ISR.", importance=HIGH
    )
    num_replica_fetchers: int = integer(
        1,
        "Concurrent fetchers to each leader broker.",
        least=1,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    replica_fetch_max_bytes: int = integer(
        MB, "Most bytes per partition that a follower requests; a larger batch is sent whole.", least=0
    )
    replica_fetch_response_max_bytes: int = integer(
        10 * MB, "Most bytes that a follower requests in one fetch.", least=0
    )
    replica_fetch_min_bytes: int = integer(1, "Fewest bytes of a response to a follower.", importance=HIGH)
    replica_fetch_wait_max_ms: int = integer(500, "How long a leader waits for that many bytes.", importance=HIGH)
    replica_fetch_backoff_ms: int = integer(
        SECOND_MS, "Delay before a partition is fetched again after an error.", least=0
    )
    replica_socket_timeout_ms: int = integer(
        30 * SECOND_MS, "How long a follower waits for a response before it reconnects.", importance=HIGH
    )
    replica_selector_class: str | None = maybe(
        "Replica that consumers read from. org.apache.kafka.common.replica.RackAwareReplicaSelector prefers an in-sync "
        "replica in the consumer's rack. Unset: the leader.",
        choices=SELECTORS,
        differs="Other classes cannot be loaded.",
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes per second that this leader sends to throttled followers.", least=0, live=CLUSTER_WIDE
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes per second that this broker fetches of throttled partitions.", least=0, live=CLUSTER_WIDE
    )
    replication_quota_window_num: int = integer(11, "Number of samples over which these rates are measured.", least=1)
    replication_quota_window_size_seconds: int = integer(1, "Length of a sample in seconds.", least=1)

    # Compaction
    log_cleaner_enable: bool = boolean(True, "Whether compaction runs at all.")
    log_cleaner_threads: int = integer(1, "Maximum number of concurrent compactions.", least=0, live=CLUSTER_WIDE)
    log_cleaner_backoff_ms: int = long(
        15 * SECOND_MS, "Pause when there is nothing to compact.", least=0, live=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(128 * MB, "Memory for the keys of one compaction.", live=CLUSTER_WIDE)
    log_cleaner_io_buffer_size: int = integer(512 * KB, "Bytes read at once by compaction.", least=0, live=CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = double(0.9, "How full the memory for keys may get.", live=CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX, "Bytes per second that compaction may read and write.", live=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5,
        "Compact a partition when at least this fraction of it has not been compacted yet.",
        least=0,
        most=1,
        live=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "Do not compact records younger than this.", least=0, live=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX, "Compact records before they get older than this, at any dirty ratio.", least=1, live=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = long(
        DAY_MS, "How long tombstones and transaction markers are kept after compaction.", least=0, live=CLUSTER_WIDE
    )

    # Records
    message_max_bytes: int = integer(
        MB + 12, "Largest record batch, as sent (compressed or not).", least=0, live=CLUSTER_WIDE, importance=HIGH
    )
    compression_type: str = string(
        "producer",
        "Codec of stored batches; `producer` keeps the producer's codec.",
        choices=CODECS,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    compression_gzip_level: int = integer(
        -1, "gzip level if the broker compresses.", least=1, most=9, also=-1, live=CLUSTER_WIDE
    )
    compression_lz4_level: int = integer(9, "lz4 level if the broker compresses.", least=1, most=17, live=CLUSTER_WIDE)
    compression_zstd_level: int = integer(
        3, "zstd level if the broker compresses.", least=-131072, most=22, live=CLUSTER_WIDE
    )
    log_message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock sets record timestamps: the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        live=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "Refuse records whose timestamp is more than this before the broker's time.",
        least=0,
        live=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = long(
        HOUR_MS, "Refuse records whose timestamp is more than this after the broker's time.", least=0, live=CLUSTER_WIDE
    )
    log_message_timestamp_difference_max_ms: int = long(
        LONG_MAX, "The older name of both limits above, which win if they are set.", least=0, live=CLUSTER_WIDE
    )
    log_message_format_version: str = string(
        "3.0-IV1",
        "Store records in the format of this Kafka version: before 0.10 magic 0, before 0.11 magic 1, else 2.",
    )
    log_message_downconversion_enable: bool = boolean(
        True, "Convert records for clients that need an older format.", live=CLUSTER_WIDE, importance=LOW
    )

    # Transactions
    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS,
        "Longest transaction timeout that a producer may request.",
        least=1,
        importance=HIGH,
    )
    transactional_id_expiration_ms: int = integer(
        7 * 24 * HOUR_MS, "Remove a transactional id that was not used for this long.", least=1, importance=HIGH
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False,
        "Allow transactions without a timeout, which an external coordinator ends (two-phase commit).",
        importance=LOW,
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Before the first write of a transaction to a partition, verify with the coordinator that it is part of it.",
        live=CLUSTER_WIDE,
        importance=LOW,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often to check for transactions that timed out.", least=1, importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, "How often to check for expired transactional ids.", least=1, importance=LOW
    )
    transaction_state_log_min_isr: int = integer(
        2,
        "min.insync.replicas of __transaction_state when a cluster creates it; at most its replication factor.",
        least=1,
        importance=HIGH,
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of __transaction_state; fixed when it is created.", least=1, importance=HIGH
    )
    transaction_state_log_replication_factor: int = short(
        3, "Replicas of __transaction_state; fewer while there are fewer brokers.", least=1, importance=HIGH
    )
    transaction_state_log_segment_bytes: int = integer(
        100 * MB, "Roll a segment of __transaction_state at this size.", least=1, importance=HIGH
    )

    # Idempotent producers
    producer_id_expiration_ms: int = integer(
        DAY_MS, "Forget a producer that was idle for this long.", least=1, live=CLUSTER_WIDE, importance=LOW
    )

    # Groups and committed offsets
    group_min_session_timeout_ms: int = integer(
        6 * SECOND_MS, "Shortest session timeout that a member of a classic group may request."
    )
    group_max_session_timeout_ms: int = integer(30 * MINUTE_MS, "Longest session timeout that it may request.")
    group_initial_rebalance_delay_ms: int = integer(
        3 * SECOND_MS, "How long the first members of a classic group wait for more; each new member extends it."
    )
    group_max_size: int = integer(INT_MAX, "Maximum number of members of a classic group.", least=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = strings(
        ("classic", "consumer", "streams"),
        "Protocols that groups may use. Streams and share groups are not implemented yet.",
        choices=("consumer", "classic", "share", "streams"),
    )
    group_consumer_session_timeout_ms: int = integer(
        45 * SECOND_MS, "Session timeout of members of consumer groups.", least=1
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45 * SECOND_MS, "Least that a group may set as its consumer.session.timeout.ms.", least=1
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60 * SECOND_MS, "Most that a group may set as its consumer.session.timeout.ms.", least=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "Heartbeat interval of members of consumer groups.", least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "Least that a group may set as its consumer.heartbeat.interval.ms.", least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15 * SECOND_MS, "Most that a group may set as its consumer.heartbeat.interval.ms.", least=1
    )
    group_consumer_assignment_interval_ms: int = integer(
        SECOND_MS,
        "Least time between two assignments of a consumer group; 0: assign at every change.",
        least=0,
        live=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Least that a group may set as its consumer.assignment.interval.ms.", least=0
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15 * SECOND_MS, "Most that a group may set as its consumer.assignment.interval.ms.", least=0
    )
    group_consumer_max_size: int = integer(INT_MAX, "Maximum number of members of a consumer group.", least=1)
    group_consumer_assignors: tuple[str, ...] = strings(
        ("uniform", "range"),
        "Assignors that members of consumer groups may choose; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether groups with members may change from classic to consumer (upgrade), from consumer to classic"
        " (downgrade), both (bidirectional) or neither (disabled).",
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        10 * MINUTE_MS, "How often subscribed regular expressions are resolved again.", least=10 * SECOND_MS
    )
    offset_metadata_max_bytes: int = integer(4 * KB, "Longest metadata text of a committed offset.", importance=HIGH)
    offsets_commit_timeout_ms: int = integer(
        5 * SECOND_MS,
        "How long a group request waits until its records are on all in-sync replicas.",
        least=1,
        importance=HIGH,
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60,
        "How long offsets are kept after the last member left or, in a group without members, after the commit.",
        least=1,
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = long(
        10 * MINUTE_MS, "How often to check for expired offsets.", least=1, importance=HIGH
    )
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of __consumer_offsets when it is created.", least=1, importance=HIGH
    )
    offsets_topic_replication_factor: int = short(
        3,
        "Replicas of __consumer_offsets when it is created; fewer while there are fewer brokers.",
        least=1,
        importance=HIGH,
    )
    offsets_topic_segment_bytes: int = integer(
        100 * MB, "Segment size of __consumer_offsets when it is created.", least=1, importance=HIGH
    )

    @property
    def node_id_given(self) -> bool:
        """Whether a node id was given; otherwise the one in `meta.properties` is used."""
        return "node.id" in self.given or self.given.get("broker.id", GENERATED) != GENERATED

    def settle(self, name: str, text: str) -> None:
        """Record what `auto` was resolved to. DescribeConfigs shows it, so that tools find the broker's address."""
        assert isinstance(self.given, dict)
        self.given[name] = text

    def overlay(self, pairs: Mapping[str, str]) -> BrokerConfig:
        """This configuration with some options changed at runtime."""
        names = {listener.name for listener in self.opened}
        # Options of a removed listener must not keep the broker from starting.
        kept = {name: text for name, text in pairs.items() if listener_of(name) in (None, *names)}
        return load({**self.given, **kept}) if kept else self


OPTIONS: dict[str, Option] = rows(BrokerConfig)
_DEFAULTS: dict[str, Value] = {row.attribute: row.default for row in OPTIONS.values()}
_CHAINED = tuple(row for row in OPTIONS.values() if row.chain)


def load(pairs: Mapping[str, str]) -> BrokerConfig:
    """A configuration from options by name. ConfigError lists all unknown, malformed and invalid options."""
    values: dict[str, Value] = _DEFAULTS.copy()
    foreign: dict[str, str] = {}
    refusals = Refusals()
    for name, text in pairs.items():
        row = OPTIONS.get(name)
        if row is None:
            foreign[name] = text
            continue
        with refusals:  # on error the default is used, so that the other options can be checked, too
            values[row.attribute] = row.parse(text)
    _resolve(values)
    _check(values, pairs, refusals)
    extra: dict[str, Any] = {"given": dict(pairs), "notices": (), "jaas": {}}
    strange: dict[str, str] = {}
    with refusals:
        listeners = names(values)
        for name, text in foreign.items():
            with refusals:
                if not is_for_listener(name, text, listeners):
                    strange[name] = text
    if strange:
        from ottla.config.others import screen  # a long table that most starts do not need

        extra["notices"] = screen(strange, refusals)
    with refusals:
        extra["opened"] = parse_listeners(values, pairs)
        extra["inter_broker"] = find_inter_broker(extra["opened"], values, pairs)
    with refusals:
        extra["advertised"] = parse_advertised(values)
    refusals.raise_all()
    return BrokerConfig({**values, **extra})


def _resolve(values: dict[str, Value]) -> None:
    """Fill options that were not set from their chain, converted to the unit of the first name."""
    for row in _CHAINED:
        for name, factor in row.chain:
            if values[row.attribute] is None:
                other = values[OPTIONS[name].attribute]
                if isinstance(other, int) and factor > 1:
                    other = -1 if other < 0 else other * factor
                values[row.attribute] = other
    if values["node_id"] == int(GENERATED):
        values["node_id"] = _DEFAULTS["broker_id"]


def _check(values: Mapping[str, Value], pairs: Mapping[str, str], refusals: Refusals) -> None:
    """Checks of Kafka's KafkaConfig beyond the bounds of single options."""
    retention, roll, jitter = (_number(values[f"log_{name}_ms"]) for name in ("retention", "roll", "roll_jitter"))
    if retention < -1 or retention == 0:
        refusals.add("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
    if roll < 1:
        refusals.add("log.roll.ms must be equal or greater than 1")
    if jitter < 0:
        refusals.add("log.roll.jitter.ms must be equal or greater than 0")
    if not values["log_dirs"]:
        refusals.add("At least one log directory must be defined via log.dirs or log.dir.")
    for pair in str(values["max_connections_per_ip_overrides"]).split(","):
        if pair.strip() and not pair.strip().rpartition(":")[2].isdecimal():
            refusals.add(f"max.connections.per.ip.overrides: {pair.strip()} is not host:count")
    release = str(values["inter_broker_protocol_version"])
    if not all(part.isdecimal() and len(part) < 5 for part in release.partition("-IV")[0].split(".")):
        refusals.add(f"inter.broker.protocol.version: {release} is not a Kafka release")
    with refusals:
        metrics_address(str(values["ottla_metrics_listener"]))
    if values["authorizer_class_name"]:  # without one, Kafka does not read them either
        users = filter(None, (user.strip() for user in str(values["super_users"] or "").split(";")))
        for user in users:
            if ":" not in user:  # it would be nobody's name, and the administrator locked out
                refusals.add(f"super.users: {user} is not TYPE:NAME, such as User:{user}")
    _check_groups(values, refusals)
    roles = values["process_roles"]
    if isinstance(roles, tuple) and "broker" not in roles:
        refusals.add("process.roles must include broker: Ottla has no controller-only process.")
    if pairs.get("broker.id", GENERATED) not in (GENERATED, pairs.get("node.id", pairs.get("broker.id"))):
        refusals.add("node.id and broker.id are two names of the same option and must have the same value")


def _check_groups(values: Mapping[str, Value], refusals: Refusals) -> None:
    for kind in ("session_timeout", "heartbeat_interval", "assignment_interval"):
        name, lowest, highest = (f"group_consumer_{bound}{kind}_ms" for bound in ("", "min_", "max_"))
        present, least, most = (_number(values[each]) for each in (name, lowest, highest))
        for low, high, lower, higher in ((least, most, lowest, highest), (least, present, lowest, name)):
            if high < low:
                refusals.add(f"{option_name(higher)} must be greater than or equal to {option_name(lower)}")
        if present > most:
            refusals.add(f"{option_name(name)} must be less than or equal to {option_name(highest)}")
    heartbeat, session = "group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms"
    if _number(values[heartbeat]) >= _number(values[session]):
        refusals.add(f"{option_name(heartbeat)} must be less than {option_name(session)}")
    policy = str(values["group_consumer_migration_policy"])
    if policy.upper() not in MIGRATION_POLICIES:
        known = f"String must be one of (case insensitive): {', '.join(MIGRATION_POLICIES)}"
        refusals.add(str(invalid(policy, "group.consumer.migration.policy", known)))


def option_name(attribute: str) -> str:
    return attribute.replace("_", ".")


def _number(value: Value) -> int:
    assert isinstance(value, int), "a chain ends in a row that has a default"
    return value
