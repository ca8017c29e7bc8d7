"""The error codes of the Kafka protocol: one table, and the exception that carries one of them.

An expected failure of one item (a partition, a topic, a group) is a code in that item's result. Code below a handler
may raise `BrokerError`, and the nearest loop over items turns it into that code. Clients retry on a `retriable` code;
every other code reaches their users.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


class Hangup(Exception):
    """The peer broke the protocol, or a request without an answer failed: its connection is closed with a log line."""


class OutsideError(Exception):
    """Another program, or the network to it, has failed: not a bug here."""


MESSAGE_SIZE_MAX: Final = 8000  # characters, of up to four bytes each


class BrokerError(Exception):
    """A failure with a protocol error code. `message` is for people and may be empty.

    It often quotes a client's own text and is cut, since clients cannot decode a string of more than 32767 bytes.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        message = message[:MESSAGE_SIZE_MAX]
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or description(self.code)}"


def retriable(code: int) -> bool:
    """Whether the same request may succeed later."""
    return code in _RETRIABLE


def description(code: int) -> str:
    """One line for people."""
    return _DESCRIPTIONS.get(code, f"unknown error code {int(code)}")


_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_DESCRIPTIONS: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "something failed that has no code of its own",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is before the start or after the end of the log",
    ErrorCode.CORRUPT_MESSAGE: "a record batch has a wrong checksum or size, or lacks the key its topic asks for",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition here",
    ErrorCode.INVALID_FETCH_SIZE: "the fetch size is invalid",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition, or has no replica of it",
    ErrorCode.REQUEST_TIMED_OUT: "the time given to the request ran out",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker cannot be reached",
    ErrorCode.REPLICA_NOT_AVAILABLE: "a replica of the partition is not available",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic accepts",
    ErrorCode.STALE_CONTROLLER_EPOCH: "another broker has become the controller",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text committed beside an offset is too long",
    ErrorCode.NETWORK_EXCEPTION: "the connection ended before the answer arrived",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its log",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates this group or transaction",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic name is not allowed, or the topic does not permit this",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync, nothing was written",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but too few replicas were in sync by then",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1",
    ErrorCode.ILLEGAL_GENERATION: "the generation of the member is not that of the group",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no protocol with the group",
    ErrorCode.INVALID_GROUP_ID: "the group id is not allowed",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the allowed range",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing, join again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the commit is too large to be stored",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed on this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed on this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed on the cluster",
    ErrorCode.INVALID_TIMESTAMP: "the timestamp of a record is outside of the range that the topic accepts",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the listener does not offer that SASL mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: "not possible at this point of authentication",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the API, or something asked for in it, is not served",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of that name already",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not possible",
    ErrorCode.INVALID_REPLICATION_FACTOR: "fewer than one replica, or more than there are brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the listed replicas make no valid assignment",
    ErrorCode.INVALID_CONFIG: "an option is unknown or its value is not possible",
    ErrorCode.NOT_CONTROLLER: "another broker is the controller",
    ErrorCode.INVALID_REQUEST: "the request is malformed or contradicts itself",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format of the topic cannot express this",
    ErrorCode.POLICY_VIOLATION: "a policy of this cluster forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the producer left out a sequence number",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "a batch that was written already, too long ago to tell its offset",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is an old one",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that permits this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout is longer than the broker accepts",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction is still busy with an earlier step",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the coordinator that sent the marker has been replaced",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to use this transactional id",
    ErrorCode.SECURITY_DISABLED: "no authoriser is set up",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not tried, because something before it in the request failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk under the log failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the credentials were refused",
    ErrorCode.UNKNOWN_PRODUCER_ID: "nothing is known of this producer, its records may have expired",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being moved",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are not enabled",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "neither owner nor renewer of the token",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are not given out over this kind of connection",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not allowed on this token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "that type of principal is not known",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "no such fetch session, start a new one",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session is at another epoch",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no listener like the one this came in by",
    ErrorCode.TOPIC_DELETION_DISABLED: "topics cannot be deleted on this cluster",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch in the request is behind the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch in the request is ahead of the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the client's version cannot read this compression",
    ErrorCode.STALE_BROKER_EPOCH: "the broker has registered again since",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader does not know its high watermark yet",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id in this answer",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is down or not in sync",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over this group instance id",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica may become leader",
    ErrorCode.ELECTION_NOT_NEEDED: "the wanted leader is the leader already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is reading this topic",
    ErrorCode.INVALID_RECORD: "a record was refused",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction holds a newer offset",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "over the quota, try later",
    ErrorCode.PRODUCER_FENCED: "a newer producer uses the same transactional id",
    ErrorCode.RESOURCE_NOT_FOUND: "no such resource",
    ErrorCode.DUPLICATE_RESOURCE: "the same resource is named twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential is too weak or not usable",
    ErrorCode.INCONSISTENT_VOTER_SET: "sender or receiver is not among the voters",
    ErrorCode.INVALID_UPDATE_VERSION: "the feature level to go to is not valid",
    ErrorCode.FEATURE_UPDATE_FAILED: "the features could not be changed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "the forwarded principal cannot be read",
    ErrorCode.SNAPSHOT_NOT_FOUND: "no such snapshot",
    ErrorCode.POSITION_OUT_OF_RANGE: "the position is outside of the snapshot",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic with this id here",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another broker holds this broker id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker is registered under this id",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the log belongs to another topic id",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request is meant for another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "no such transactional id",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "topic ids and names were mixed in one fetch session",
    ErrorCode.INELIGIBLE_REPLICA: "a replica in the new ISR may not be in it",
    ErrorCode.NEW_LEADER_ELECTED: "done, but another replica is the leader now",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset is in remote storage only",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member was fenced, it must give up its partitions and join again",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member still uses this instance id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the group does not offer this assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member epoch is behind, heartbeat first",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "a request for a controller was sent to a broker, or the other way round",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "that kind of endpoint is not served",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "no such controller",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the telemetry subscription is not valid any more",
    ErrorCode.TELEMETRY_TOO_LARGE: "the telemetry is larger than the broker accepts",
    ErrorCode.INVALID_REGISTRATION: "the controller refuses the registration",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction cannot continue and must be aborted",
    ErrorCode.INVALID_RECORD_STATE: "the records cannot be acknowledged in their present state",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "no such share session",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "the share session is at another epoch",
    ErrorCode.FENCED_STATE_EPOCH: "the state of the share group is at another epoch",
    ErrorCode.INVALID_VOTER_KEY: "the voter key belongs to another replica",
    ErrorCode.DUPLICATE_VOTER: "a voter already",
    ErrorCode.VOTER_NOT_FOUND: "not a voter",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression cannot be read",
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client's metadata is too old, start from the bootstrap servers",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "the topology is not valid",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "the topology epoch is not valid",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "the topology epoch is behind",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "there are as many share sessions as the broker allows",
}
