"""The first requests of a client: the API versions of the broker, the brokers, and the leaders of partitions.

Metadata (3): versions 0 to 13
     0  no topics named: all of them
     1  topics may be null; answer adds rack, controller_id, is_internal; null: all topics, empty: none
     2  answer adds cluster_id
     3  answer adds throttle_time_ms
     4  adds allow_auto_topic_creation
     5  answer adds offline_replicas
     6  over quota, the answer is sent before throttling
     7  answer adds leader_epoch
     8  adds include_cluster_authorized_operations, include_topic_authorized_operations; answer adds
        topic_authorized_operations, cluster_authorized_operations
     9  flexible
    10  adds topic_id, name may be null; answer adds topic_id
    11  drops include_cluster_authorized_operations; answer drops cluster_authorized_operations
    12  answer: name may be null; requests by topic_id work
    13  answer adds error_code

ApiVersions (18): versions 0 to 4
     0  also the answer to an unsupported version, with UNSUPPORTED_VERSION and the list
     1  answer adds throttle_time_ms
     2  over quota, the answer is sent before throttling
     3  flexible; adds client_software_name, client_software_version; answer adds supported_features,
        finalized_features_epoch, finalized_features, zk_migration_ready
     4  min_version of a supported feature may be 0

DescribeCluster (60): versions 0 to 2
     1  adds endpoint_type, both ways
     2  adds include_fenced_brokers; answer adds is_fenced

DescribeTopicPartitions (75): version 0
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, boolean, i8, i16, i32, i64, message, nested, string, uuid


@nested
class MetadataRequestTopic:
    topic_id: uuid = at(10, default=ZERO_UUID)
    name: string | None = at(nullable=10)


@message(3, versions=(0, 13), flexible=9)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = at(nullable=1)
    allow_auto_topic_creation: boolean = at(4, default=True)
    include_cluster_authorized_operations: boolean = at(8, 10, default=False)
    include_topic_authorized_operations: boolean = at(8, default=False)


@nested
class MetadataResponseBroker:
    node_id: i32
    host: string
    port: i32
    rack: string | None = at(1, default=None)


@nested
class MetadataResponsePartition:
    error_code: i16
    partition_index: i32
    leader_id: i32
    leader_epoch: i32 = at(7, default=-1)
    replica_nodes: list[i32]
    isr_nodes: list[i32]
    offline_replicas: list[i32] = at(5, factory=list)


@nested
class MetadataResponseTopic:
    error_code: i16
    name: string | None = at(nullable=12)
    topic_id: uuid = at(10, default=ZERO_UUID)
    is_internal: boolean = at(1, default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: i32 = at(8, default=-2147483648)


@message(3, versions=(0, 13), flexible=9)
class MetadataResponse:
    throttle_time_ms: i32 = at(3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = at(2, default=None)
    controller_id: i32 = at(1, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: i32 = at(8, 10, default=-2147483648)
    error_code: i16 = at(13, default=0)


@message(18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    client_software_name: string = at(3, default="")
    client_software_version: string = at(3, default="")


@nested
class ApiVersion:
    api_key: i16
    min_version: i16
    max_version: i16


@nested
class SupportedFeatureKey:
    name: string
    min_version: i16
    max_version: i16


@nested
class FinalizedFeatureKey:
    name: string
    max_version_level: i16
    min_version_level: i16


@message(18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    error_code: i16
    api_keys: list[ApiVersion]
    throttle_time_ms: i32 = at(1, default=0)
    supported_features: list[SupportedFeatureKey] = at(3, tag=0, factory=list)
    finalized_features_epoch: i64 = at(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = at(3, tag=2, factory=list)
    zk_migration_ready: boolean = at(3, tag=3, default=False)


@message(60, versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    include_cluster_authorized_operations: boolean
    endpoint_type: i8 = at(1, default=1)
    include_fenced_brokers: boolean = at(2, default=False)


@nested
class DescribeClusterBroker:
    broker_id: i32
    host: string
    port: i32
    rack: string | None = at(default=None)
    is_fenced: boolean = at(2, default=False)


@message(60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None = at(default=None)
    endpoint_type: i8 = at(1, default=1)
    cluster_id: string
    controller_id: i32 = at(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: i32 = at(default=-2147483648)


@nested
class TopicRequest:
    name: string


@nested
class Cursor:
    topic_name: string
    partition_index: i32


@message(75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest]
    response_partition_limit: i32 = at(default=2000)
    cursor: Cursor | None = at(default=None)


@nested
class DescribeTopicPartitionsResponsePartition:
    error_code: i16
    partition_index: i32
    leader_id: i32
    leader_epoch: i32 = at(default=-1)
    replica_nodes: list[i32]
    isr_nodes: list[i32]
    eligible_leader_replicas: list[i32] | None = at(default=None)
    last_known_elr: list[i32] | None = at(default=None)
    offline_replicas: list[i32]


@nested
class DescribeTopicPartitionsResponseTopic:
    error_code: i16
    name: string | None
    topic_id: uuid
    is_internal: boolean = at(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: i32 = at(default=-2147483648)


@message(75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: i32 = at(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = at(default=None)
