"""The broker's options that have an effect: Kafka's names and, unless a row says otherwise, Kafka's defaults.

Kafka's other options are in `others.py`: accepted with a notice, or refused. When one of them starts to matter, move
its row here. Options of Ottla's own are few and start with `ottla.`.

A value that comes from a chain (`log.retention.ms`, else `.minutes`, else `.hours`) is resolved on load, so the
attribute of the first name always holds the answer. `given` keeps what was written, for DescribeConfigs.
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
GENERATED = "-1"  # a broker.id that asks for a number to be made up
MIGRATION_POLICIES = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")
ONE_REPLICA = "A partition has one replica."
SELECTORS = tuple(f"org.apache.kafka.common.replica.{name}Selector" for name in ("RackAwareReplica", "Leader"))
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class BrokerConfig(SecurityConfig):
    notices: tuple[str, ...]  # lines worth one warning each at start
    opened: tuple[Listener, ...]  # what to listen on
    advertised: Mapping[str, tuple[str, int]]  # listener name → address told to clients, when one was given
    inter_broker: Listener  # the listener that brokers use among themselves

    # Who this broker is
    node_id: int = integer(
        None,
        "The broker's number, unique in its cluster.",
        least=0,
        importance=HIGH,
        chain=(("broker.id", 1),),
        differs="Kafka demands one; a folder that has been used keeps its own.",
    )
    broker_id: int = integer(
        1,
        "The older name of node.id; -1 takes the default, or in a cluster a number that is made up.",
        least=-1,
        importance=HIGH,
        differs="Kafka's default of -1 stands for a generated number, and so it does here in a cluster.",
    )
    broker_id_generation_enable: bool = boolean(
        True, "Whether a broker without a number gets one from ZooKeeper when it joins a cluster."
    )
    reserved_broker_max_id: int = integer(1000, "Numbers that are made up begin above this one.", least=0)
    broker_rack: str | None = maybe("Where the broker stands; replicas of a partition are spread over racks.")
    process_roles: tuple[str, ...] = strings(
        ("broker", "controller"),
        "What the process is; Ottla's brokers are always both.",
        choices=("broker", "controller"),
        importance=HIGH,
        differs="Kafka demands a choice.",
    )

    # Where clients find it
    listeners: tuple[str, ...] = strings(
        ("PLAINTEXT://:9092",),
        "Name and address of every socket to listen on; no host means all interfaces, port 0 any free one.",
        importance=HIGH,
    )
    advertised_listeners: tuple[str, ...] = strings(
        None,
        "Addresses told to clients, by listener name. Unset: each client is told the address it dialled itself.",
        importance=HIGH,
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol each listener name speaks, as NAME:PROTOCOL pairs.",
        importance=LOW,
    )
    inter_broker_listener_name: str | None = maybe(
        "The listener that brokers use among themselves, which must be one of the listeners. Unset: the first, or the"
        " first that speaks security.inter.broker.protocol."
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "What brokers speak among themselves; not together with inter.broker.listener.name.",
        choices=PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = strings(
        (),
        "Listeners meant for a KRaft quorum. Ottla has none, so sockets of these names are not opened.",
        importance=HIGH,
        differs="Kafka demands one.",
    )

    # Who may do what
    authorizer_class_name: str = string(
        "",
        "Judges what clients may do, by access control lists. Both of Kafka's names mean the same here. Empty: "
        "everybody may do everything.",
        choices=("", "kafka.security.authorizer.AclAuthorizer", STANDARD_AUTHORIZER),
    )
    super_users: str | None = maybe("Users who may do everything, as User:name;User:name.")
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may do everything with what no access control list names."
    )

    # Delegation tokens
    delegation_token_secret_key: str | None = secret(
        "The key that delegation tokens are signed with, the same on all brokers. Unset: there are no tokens.",
        chain=(("delegation.token.master.key", 1),),
    )
    delegation_token_master_key: str | None = secret("Kafka's old name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms: int = long(7 * DAY_MS, "How long a token can be renewed at most.", least=1)
    delegation_token_expiry_time_ms: int = long(DAY_MS, "How long a token holds until it has to be renewed.", least=1)
    delegation_token_expiry_check_interval_ms: int = long(
        HOUR_MS, "How often tokens whose time is over are removed.", least=1, importance=LOW
    )

    # The cluster it is a member of
    zookeeper_connect: str | None = maybe(
        "Where ZooKeeper is: host:port[,host:port...][/path]. Unset: the broker is a cluster of its own.",
        importance=HIGH,
    )
    zookeeper_session_timeout_ms: int = integer(
        18 * SECOND_MS, "How long a broker that is not heard of still counts as alive.", importance=HIGH
    )
    zookeeper_connection_timeout_ms: int = integer(
        None,
        "How long to wait for ZooKeeper at start. Unset: zookeeper.session.timeout.ms.",
        importance=HIGH,
        chain=(("zookeeper.session.timeout.ms", 1),),
    )
    zookeeper_max_in_flight_requests: int = integer(
        100,
        "Requests that may be on their way to ZooKeeper.",
        least=1,
        most=200,
        importance=HIGH,
        differs="Kafka's 10 takes twice the time for the start of a controller of many partitions.",
    )
    zookeeper_set_acl: bool = boolean(
        False, "Whether only the brokers may write the nodes that they make; needs credentials.", importance=HIGH
    )
    ottla_zookeeper_credentials: str | None = secret("user:password for ZooKeeper's digest authentication.")
    zookeeper_ssl_client_enable: bool = boolean(False, "Whether to speak TLS with ZooKeeper.")
    zookeeper_ssl_truststore_location: str | None = maybe("A PEM file with the authorities that sign its certificate.")
    zookeeper_ssl_truststore_type: str | None = maybe(
        "The kind of that file.", choices=("PEM",), idle="Files are in PEM."
    )
    zookeeper_ssl_keystore_location: str | None = maybe("A PEM file with this broker's certificate and its key.")
    zookeeper_ssl_keystore_password: str | None = secret("Opens the key.")
    zookeeper_ssl_keystore_type: str | None = maybe(
        "The kind of that file.", choices=("PEM",), idle="Files are in PEM."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "HTTPS", "Empty: the name in the certificate may be another.", importance=LOW
    )

    # Connections
    socket_send_buffer_bytes: int = integer(
        300 * KB,
        "SO_SNDBUF of client sockets; -1 leaves the system's.",
        least=-1,
        importance=HIGH,
        differs="Kafka's 100 kB wakes the broker three times as often in a large fetch: bench/README.md has figures.",
    )
    socket_receive_buffer_bytes: int = integer(
        -1,
        "SO_RCVBUF of client sockets; -1 leaves the system's.",
        least=-1,
        importance=HIGH,
        differs="Kafka's 100 kB turns off the system's own tuning, and batches of 128 kB never arrive whole.",
    )
    socket_request_max_bytes: int = integer(
        100 * MB,
        "Largest request; a longer one closes its connection. Without records 16 MiB is the most.",
        least=1,
        importance=HIGH,
    )
    queued_max_request_bytes: int = long(
        -1,
        "Memory for requests that arrive in pieces, of all connections together. When it is used up, those who begin "
        "with another request wait. -1: each connection is bounded by itself.",
    )
    socket_listen_backlog_size: int = integer(50, "Connections the system may hold before they are accepted.", least=1)
    connections_max_idle_ms: int = long(
        10 * MINUTE_MS, "Close a connection that was silent for so long; negative never does."
    )
    max_connections: int = integer(
        INT_MAX,
        "Connections open at once; more are closed as they come. Per listener: listener.name.NAME.max.connections.",
        least=0,
        live=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        INT_MAX, "Connections open at once from one address.", least=0, live=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = string(
        "", "Other limits for some addresses, as host:count pairs.", live=CLUSTER_WIDE
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        "Connections a second that are accepted; more wait. Of single addresses see `ottla quotas`.",
        least=1,
        live=CLUSTER_WIDE,
        differs="Single listeners have no rates of their own.",
    )
    quota_window_num: int = integer(
        11, "Samples that the rates of client quotas are measured over.", least=1, importance=LOW
    )
    quota_window_size_seconds: int = integer(1, "Length of a sample.", least=1, importance=LOW)
    controller_quota_window_num: int = integer(
        11, "The same for changes of topics: so many samples' worth may be used at once.", least=1, importance=LOW
    )
    controller_quota_window_size_seconds: int = integer(1, "Length of a sample.", least=1, importance=LOW)
    connection_failed_authentication_delay_ms: int = integer(
        100, "How long a client whose login failed waits for its connection to be closed.", least=0, importance=LOW
    )
    max_request_partition_size_limit: int = integer(2000, "Partitions in one DescribeTopicPartitions answer.", least=1)
    fetch_max_bytes: int = integer(55 * MB, "Most bytes in one fetch answer, whatever the client asks for.", least=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Fetch sessions remembered at once.", least=0)

    # Metrics
    ottla_metrics_listener: str = string(
        "127.0.0.1:auto",
        "Where metrics, /health and /ready are served over HTTP: host:port, or off. Port auto is 9404, or any free one"
        " when that is taken or the first of the listeners has any free port, too.",
    )
    ottla_metrics_hosts: tuple[str, ...] = strings(
        (),
        "Names under which the metrics may be asked for, besides addresses, localhost and the machine's own name; * for"
        " any. It keeps web pages from reading them through a browser.",
    )
    ottla_metrics_topics_max: int = integer(
        5000, "Topics with series of their own in the metrics; 0 for none.", least=0
    )
    ottla_metrics_partitions_max: int = integer(
        5000, "Partitions with series of their own in the metrics; 0 for none.", least=0
    )
    ottla_metrics_groups_max: int = integer(
        5000, "Committed offsets of groups that are shown in the metrics; 0 for none.", least=0
    )
    ottla_metrics_clients_max: int = integer(
        5000, "Series of clients' own metrics that are kept and shown; 0 for none.", least=0
    )
    ottla_client_metrics: str = string(
        "subscribed",
        "When clients are told that they may push their metrics (KIP-714): while there is a subscription (subscribed),"
        " also before there is one (always), or not at all (off). A client is told when it connects.",
        choices=("subscribed", "always", "off"),
    )
    telemetry_max_bytes: int = integer(MB, "Largest push of a client's metrics.", least=1)

    # Topics
    num_partitions: int = integer(1, "Partitions of a topic created without a number.", least=1)
    default_replication_factor: int = integer(1, "Replicas of a topic created without a number.", least=1)
    auto_create_topics_enable: bool = boolean(True, "Create a topic that is asked for and missing.", importance=HIGH)
    delete_topic_enable: bool = boolean(True, "Whether topics may be deleted.", importance=HIGH)
    min_insync_replicas: int = integer(
        1,
        "Fewest in-sync replicas that may accept acks=all.",
        least=1,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica that may lack acknowledged records lead when no other is left.",
        live=CLUSTER_WIDE,
        importance=HIGH,
    )

    # The controller of a cluster
    auto_leader_rebalance_enable: bool = boolean(
        True,
        "In a cluster: give leadership back to the first replica of a partition when it is in sync.",
        importance=HIGH,
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Share of a broker's preferred partitions that others may lead before it gets them back.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "Seconds between two looks at who leads what.", least=1, importance=HIGH
    )
    controlled_shutdown_enable: bool = boolean(True, "In a cluster: hand over what is led here before stopping.")
    controlled_shutdown_max_retries: int = integer(3, "How often to ask the controller again to take over.")
    controlled_shutdown_retry_backoff_ms: int = long(5000, "Wait before asking it again.", least=0)
    inter_broker_protocol_version: str = string(
        "3.9-IV0",
        "The release of Kafka whose requests brokers send each other: that of the oldest in a mixed cluster.",
        differs="Any number of a release will do, with or without -IV.",
    )

    # Where logs live
    log_dirs: tuple[str, ...] = strings(
        None,
        "Folders that hold the partitions; a new one goes where the fewest are.",
        importance=HIGH,
        chain=(("log.dir", 1),),
    )
    log_dir: tuple[str, ...] = strings(
        ("~/.local/share/ottla",),
        "The older name of log.dirs.",
        importance=HIGH,
        differs="Kafka's is under /tmp, where data does not last.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        2, "Threads that check the logs of a folder after a crash.", least=1, live=CLUSTER_WIDE, importance=HIGH
    )

    # Segments
    log_segment_bytes: int = integer(
        GB,
        "Roll a segment at this size.",
        least=14,
        live=CLUSTER_WIDE,
        importance=HIGH,
        differs="Kafka 4 wants at least 1 MiB; 3.9 took 14 bytes, and so do we.",
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
        10 * MB, "Largest index of a segment; a full one rolls.", least=4, live=CLUSTER_WIDE
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
    log_retention_check_interval_ms: int = long(5 * MINUTE_MS, "How often retention looks.", least=1)
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "What happens to old segments: delete, compact (keep the last value of each key), both, or (empty) nothing.",
        choices=("compact", "delete"),
        live=CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = long(
        MINUTE_MS,
        "How long a deleted segment's files stay, renamed, for readers that still hold them.",
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
        "Flush a partition to disk when it has waited this long.",
        live=CLUSTER_WIDE,
        importance=HIGH,
        chain=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms: int = long(LONG_MAX, "How often to look for partitions to flush.", importance=HIGH)
    log_flush_offset_checkpoint_interval_ms: int = integer(
        MINUTE_MS, "How often recovery points are written down.", least=0, importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        MINUTE_MS, "How often log start offsets are written down.", least=0, importance=HIGH
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5 * SECOND_MS, "How often high watermarks are written down.", importance=HIGH
    )

    # Copies on other brokers
    replica_lag_time_max_ms: int = long(
        30 * SECOND_MS, "A follower that has not had everything for so long is no longer in sync.", importance=HIGH
    )
    num_replica_fetchers: int = integer(
        1,
        "Fetches that run at once to each broker that leads partitions of ours.",
        least=1,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    replica_fetch_max_bytes: int = integer(
        MB, "Most bytes a follower asks for of one partition; a larger batch comes whole.", least=0
    )
    replica_fetch_response_max_bytes: int = integer(10 * MB, "Most bytes a follower asks for at once.", least=0)
    replica_fetch_min_bytes: int = integer(1, "Fewest bytes for which a leader answers a follower.", importance=HIGH)
    replica_fetch_wait_max_ms: int = integer(500, "How long a leader lets a follower wait for them.", importance=HIGH)
    replica_fetch_backoff_ms: int = integer(SECOND_MS, "Pause of a partition that could not be fetched.", least=0)
    replica_socket_timeout_ms: int = integer(
        30 * SECOND_MS, "How long a follower waits for an answer before it dials again.", importance=HIGH
    )
    replica_selector_class: str | None = maybe(
        "Whom a consumer is sent to. org.apache.kafka.common.replica.RackAwareReplicaSelector sends it to an in-sync "
        "replica in its rack; without one, everybody reads from the leader.",
        choices=SELECTORS,
        differs="Other classes cannot be loaded.",
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second that throttled followers get from here.", least=0, live=CLUSTER_WIDE
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second that this broker fetches of throttled partitions.", least=0, live=CLUSTER_WIDE
    )
    replication_quota_window_num: int = integer(11, "Samples that these rates are measured over.", least=1)
    replication_quota_window_size_seconds: int = integer(1, "Length of a sample.", least=1)

    # Compaction
    log_cleaner_enable: bool = boolean(True, "Whether compaction runs at all.")
    log_cleaner_threads: int = integer(1, "Partitions compacted at once.", least=0, live=CLUSTER_WIDE)
    log_cleaner_backoff_ms: int = long(
        15 * SECOND_MS, "Pause when there is nothing to compact.", least=0, live=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(128 * MB, "Memory for the keys of one compaction.", live=CLUSTER_WIDE)
    log_cleaner_io_buffer_size: int = integer(512 * KB, "Bytes read at once by compaction.", least=0, live=CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = double(0.9, "How full the memory for keys may get.", live=CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX, "Bytes a second compaction may read and write.", live=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5,
        "Compact when at least this part of a partition has not been compacted yet.",
        least=0,
        most=1,
        live=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "Leave records younger than this alone.", least=0, live=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX, "Compact a record before it gets older than this, whatever the ratio.", least=1, live=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = long(
        DAY_MS, "How long tombstones and transaction markers stay after compaction.", least=0, live=CLUSTER_WIDE
    )

    # Records
    message_max_bytes: int = integer(
        MB + 12, "Largest record batch, as it arrives (compressed or not).", least=0, live=CLUSTER_WIDE, importance=HIGH
    )
    compression_type: str = string(
        "producer",
        "Codec of stored batches; `producer` keeps what the client chose.",
        choices=CODECS,
        live=CLUSTER_WIDE,
        importance=HIGH,
    )
    compression_gzip_level: int = integer(
        -1, "Level when the broker compresses with gzip.", least=1, most=9, also=-1, live=CLUSTER_WIDE
    )
    compression_lz4_level: int = integer(
        9, "Level when the broker compresses with lz4.", least=1, most=17, live=CLUSTER_WIDE
    )
    compression_zstd_level: int = integer(
        3, "Level when the broker compresses with zstd.", least=-131072, most=22, live=CLUSTER_WIDE
    )
    log_message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        live=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX, "Refuse records stamped further than this before the broker's clock.", least=0, live=CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms: int = long(
        HOUR_MS, "Refuse records stamped further than this after the broker's clock.", least=0, live=CLUSTER_WIDE
    )
    log_message_timestamp_difference_max_ms: int = long(
        LONG_MAX, "The older name of both limits above; they win when set.", least=0, live=CLUSTER_WIDE
    )
    log_message_format_version: str = string(
        "3.0-IV1",
        "Store records in the format of this Kafka version: before 0.10 magic 0, before 0.11 magic 1, else 2.",
    )
    log_message_downconversion_enable: bool = boolean(
        True, "Convert records for clients that ask for an older format.", live=CLUSTER_WIDE, importance=LOW
    )

    # Transactions
    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS,
        "Longest time that a producer may ask for its transactions to stay open.",
        least=1,
        importance=HIGH,
    )
    transactional_id_expiration_ms: int = integer(
        7 * 24 * HOUR_MS, "Forget a transactional id that was not used for so long.", least=1, importance=HIGH
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False,
        "Let producers ask for transactions that never time out, because a coordinator outside of Kafka ends them.",
        importance=LOW,
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Before the first record of a transaction in a partition, ask the coordinator whether it is part of it.",
        live=CLUSTER_WIDE,
        importance=LOW,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often to look for transactions that were left open.", least=1, importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, "How often to look for transactional ids that were not used.", least=1, importance=LOW
    )
    transaction_state_log_min_isr: int = integer(
        2,
        "What min.insync.replicas is for __transaction_state when a cluster makes it; no more than its replicas.",
        least=1,
        importance=HIGH,
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of __transaction_state; fixed when it is made.", least=1, importance=HIGH
    )
    transaction_state_log_replication_factor: int = short(
        3, "Replicas of __transaction_state; fewer while there are fewer brokers.", least=1, importance=HIGH
    )
    transaction_state_log_segment_bytes: int = integer(
        100 * MB, "Roll a segment of __transaction_state at this size.", least=1, importance=HIGH
    )

    # Idempotent producers
    producer_id_expiration_ms: int = integer(
        DAY_MS, "Forget a producer that has been silent for so long.", least=1, live=CLUSTER_WIDE, importance=LOW
    )

    # Groups and what they commit
    group_min_session_timeout_ms: int = integer(
        6 * SECOND_MS, "Shortest session that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = integer(30 * MINUTE_MS, "Longest session that it may ask for.")
    group_initial_rebalance_delay_ms: int = integer(
        3 * SECOND_MS, "How long the first members of a classic group wait for more; each newcomer prolongs it."
    )
    group_max_size: int = integer(INT_MAX, "Most members of a classic group.", least=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = strings(
        ("classic", "consumer", "streams"),
        "Protocols that groups may use. Of streams and share groups there are none yet.",
        choices=("consumer", "classic", "share", "streams"),
    )
    group_consumer_session_timeout_ms: int = integer(
        45 * SECOND_MS, "How long a member of a consumer group may be silent.", least=1
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45 * SECOND_MS, "Least that a group may set as its consumer.session.timeout.ms.", least=1
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60 * SECOND_MS, "Most that a group may set as its consumer.session.timeout.ms.", least=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "How often members of a consumer group are to report.", least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5 * SECOND_MS, "Least that a group may set as its consumer.heartbeat.interval.ms.", least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15 * SECOND_MS, "Most that a group may set as its consumer.heartbeat.interval.ms.", least=1
    )
    group_consumer_assignment_interval_ms: int = integer(
        SECOND_MS,
        "A consumer group is not assigned anew before that; 0 assigns at every change.",
        least=0,
        live=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Least that a group may set as its consumer.assignment.interval.ms.", least=0
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15 * SECOND_MS, "Most that a group may set as its consumer.assignment.interval.ms.", least=0
    )
    group_consumer_max_size: int = integer(INT_MAX, "Most members of a consumer group.", least=1)
    group_consumer_assignors: tuple[str, ...] = strings(
        ("uniform", "range"),
        "Assignors that members of consumer groups may name; the first is for those who name none.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether classic groups may become consumer groups (upgrade), the other way round (downgrade), both"
        " (bidirectional) or neither (disabled) while they have members.",
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        10 * MINUTE_MS, "How often regular expressions are looked up again without a reason.", least=10 * SECOND_MS
    )
    offset_metadata_max_bytes: int = integer(
        4 * KB, "Longest text that may be committed beside an offset.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = integer(
        5 * SECOND_MS,
        "How long a client of a group waits until what was decided is on all replicas that are in sync.",
        least=1,
        importance=HIGH,
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60,
        "How long offsets are kept after their group has lost its last member or, without members, after the commit.",
        least=1,
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = long(
        10 * MINUTE_MS, "How often to look for offsets that have expired.", least=1, importance=HIGH
    )
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of __consumer_offsets when it is made.", least=1, importance=HIGH
    )
    offsets_topic_replication_factor: int = short(
        3,
        "Replicas of __consumer_offsets when it is made; fewer while there are fewer brokers.",
        least=1,
        importance=HIGH,
    )
    offsets_topic_segment_bytes: int = integer(
        100 * MB, "Segment size of __consumer_offsets when it is made.", least=1, importance=HIGH
    )

    @property
    def node_id_given(self) -> bool:
        """Whether a node id was given; otherwise the one in `meta.properties` wins."""
        return "node.id" in self.given or self.given.get("broker.id", GENERATED) != GENERATED

    def settle(self, name: str, text: str) -> None:
        """Record what `auto` was resolved to. DescribeConfigs shows it, so that tools find the broker's address."""
        assert isinstance(self.given, dict)
        self.given[name] = text

    def overlay(self, pairs: Mapping[str, str]) -> BrokerConfig:
        """This configuration with some options changed at runtime."""
        names = {listener.name for listener in self.opened}
        # What was set for a listener that is not there any more must not keep the broker from starting.
        kept = {name: text for name, text in pairs.items() if listener_of(name) in (None, *names)}
        return load({**self.given, **kept}) if kept else self


OPTIONS: dict[str, Option] = rows(BrokerConfig)
_DEFAULTS: dict[str, Value] = {row.attribute: row.default for row in OPTIONS.values()}
_CHAINED = tuple(row for row in OPTIONS.values() if row.chain)


def load(pairs: Mapping[str, str]) -> BrokerConfig:
    """A configuration from options by name. ConfigError names all that is unknown, malformed or impossible."""
    values: dict[str, Value] = _DEFAULTS.copy()
    foreign: dict[str, str] = {}
    refusals = Refusals()
    for name, text in pairs.items():
        row = OPTIONS.get(name)
        if row is None:
            foreign[name] = text
            continue
        with refusals:  # its default stands in for what cannot be read, so that the others can be checked, too
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
        from ottla.config.others import screen  # a long table; most starts need none of it

        extra["notices"] = screen(strange, refusals)
    with refusals:
        extra["opened"] = parse_listeners(values, pairs)
        extra["inter_broker"] = find_inter_broker(extra["opened"], values, pairs)
    with refusals:
        extra["advertised"] = parse_advertised(values)
    refusals.raise_all()
    return BrokerConfig({**values, **extra})


def _resolve(values: dict[str, Value]) -> None:
    """Fill options that were not set from their chain, in the unit of the first name."""
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
    """Rules of Kafka's KafkaConfig that concern more than the bounds of one option."""
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
        refusals.add(f"inter.broker.protocol.version: {release} is not a release of Kafka")
    with refusals:
        metrics_address(str(values["ottla_metrics_listener"]))
    _check_groups(values, refusals)
    roles = values["process_roles"]
    if isinstance(roles, tuple) and "broker" not in roles:
        refusals.add("process.roles must include broker: Ottla has no process that is a controller only.")
    if pairs.get("broker.id", GENERATED) not in (GENERATED, pairs.get("node.id", pairs.get("broker.id"))):
        refusals.add("node.id and broker.id are the same thing under two names and must agree")


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
