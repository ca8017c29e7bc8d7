"""The records of `__consumer_offsets` and `__transaction_state`, in Kafka's formats.

    key     int16 type, then the fields of that type's key
    value   int16 version, then the fields of the value at that version; no value at all is a tombstone

Types 0 and 1 are a committed offset (0 as brokers before 0.9 wrote it), 2 a classic group, 3 to 8 and 16 a consumer
group (KIP-848), and in `__transaction_state` 0 is a transactional id. Share and streams groups have their own types,
which are ignored. Every version can be read. We write the newest version that Kafka 3.9 can read.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from ottla.coord.machine import Record
from ottla.wire.codec import DecodeError, decoder, encode
from ottla.wire.schema import at, blob, i8, i16, i32, i64, message, nested, spec, string, uuid

_PREFIX = Struct(">h")


@message(None, versions=(0, 0))
class OffsetCommitKey:
    group: string
    topic: string
    partition: i32


@message(None, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    offset: i64
    leader_epoch: i32 = at(3, default=-1)
    metadata: string
    commit_timestamp: i64
    expire_timestamp: i64 = at(1, 1, default=-1)
    topic_id: uuid = at(4, tag=0, default=bytes(16))


@message(None, versions=(0, 0))
class GroupMetadataKey:
    group: string


@nested
class MemberMetadata:
    member_id: string
    group_instance_id: string | None = at(3, default=None)
    client_id: string
    client_host: string
    rebalance_timeout: i32 = at(1, default=-1)
    session_timeout: i32
    subscription: blob
    assignment: blob


@message(None, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    protocol_type: string
    generation: i32
    protocol: string | None
    leader: string | None
    current_state_timestamp: i64 = at(2, default=-1)
    members: list[MemberMetadata]


@message(None, versions=(0, 0))
class ConsumerGroupMetadataKey:
    group_id: string


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    epoch: i32
    metadata_hash: i64 = at(0, tag=0, default=0)


@message(None, versions=(0, 0))
class ConsumerGroupPartitionMetadataKey:
    group_id: string


@nested
class PartitionMetadata:
    partition: i32
    racks: list[string]


@nested
class TopicMetadata:
    topic_id: uuid
    topic_name: string
    num_partitions: i32
    partition_metadata: list[PartitionMetadata]


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata]


@message(None, versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    group_id: string
    member_id: string


@nested
class ClassicProtocol:
    name: string
    metadata: blob


@nested
class ClassicMemberMetadata:
    session_timeout_ms: i32
    supported_protocols: list[ClassicProtocol]


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: i32 = at(default=-1)
    server_assignor: string | None
    classic_member_metadata: ClassicMemberMetadata | None = at(0, tag=0, default=None)


@message(None, versions=(0, 0))
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: string


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: i32
    assignment_timestamp: i64 = at(0, tag=0, default=0)


@message(None, versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: string
    member_id: string


@nested
class TopicPartition:
    topic_id: uuid
    partitions: list[i32]


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition]


@message(None, versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: string
    member_id: string


@nested
class TopicPartitions:
    topic_id: uuid
    partitions: list[i32]
    assignment_epochs: list[i32] | None = at(0, tag=0, default=None)


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: i32
    previous_member_epoch: i32
    state: i8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(None, versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    group_id: string
    regular_expression: string


@message(None, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    topics: list[string]
    version: i64
    timestamp: i64


@message(None, versions=(0, 0))
class TransactionLogKey:
    transactional_id: string


@nested
class PartitionsSchema:
    topic: string
    partition_ids: list[i32]


@message(None, versions=(0, 1), flexible=1)
class TransactionLogValue:
    producer_id: i64
    previous_producer_id: i64 = at(1, tag=0, default=-1)
    next_producer_id: i64 = at(1, tag=1, default=-1)
    producer_epoch: i16
    next_producer_epoch: i16 = at(1, tag=3, default=-1)
    transaction_timeout_ms: i32
    transaction_status: i8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: i64
    transaction_start_timestamp_ms: i64
    client_transaction_version: i16 = at(1, tag=2, default=0)


# type → key, value, the version of the value that is written
Formats = dict[int, tuple[type, type, int]]
GROUPS: Final[Formats] = {
    0: (OffsetCommitKey, OffsetCommitValue, 0),
    1: (OffsetCommitKey, OffsetCommitValue, 3),
    2: (GroupMetadataKey, GroupMetadataValue, 3),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
}
TRANSACTIONS: Final[Formats] = {0: (TransactionLogKey, TransactionLogValue, 1)}

# OffsetCommitKey is the key of types 0 and 1. The later row wins here, so type 1 is written.
_TYPES: Final = {key: (number, version) for number, (key, _, version) in (*GROUPS.items(), *TRANSACTIONS.items())}


def encode_record(key: object, value: object | None) -> Record:
    """Encode the record that sets `key` to `value`; None makes a tombstone."""
    number, version = _TYPES[type(key)]
    return Record(
        _PREFIX.pack(number) + encode(key, 0),
        None if value is None else _PREFIX.pack(version) + encode(value, version),
    )


def decode_record(formats: Formats, key: bytes, value: bytes | None) -> tuple[Any, Any | None] | None:
    """Decode a record into its key and value; None for an unknown type. DecodeError when it is malformed."""
    if len(key) < 2:
        raise DecodeError("a key without a type")
    found = formats.get(_PREFIX.unpack_from(key)[0])
    if found is None:
        return None
    key_type, value_type, _ = found
    decoded: Any = decoder(key_type, 0)(key, 2)[0]
    if value is None:
        return decoded, None
    if len(value) < 2:
        raise DecodeError("a value without a version")
    (version,) = _PREFIX.unpack_from(value)
    # A newer Kafka may write a version that we do not know. If it is flexible, it decodes as the newest one we know.
    known = spec(value_type)
    if version > known.versions[1] and version >= known.flexible:
        version = known.versions[1]
    if not known.versions[0] <= version <= known.versions[1]:
        raise DecodeError(f"{value_type.__name__} of version {version}")
    return decoded, decoder(value_type, version)(value, 2)[0]
