"""Key → API: its name, its two messages, the versions we can read and write, and the first flexible one.

The table below only names the file of `messages` that declares an API. The rest is read from there when a key is first
used, so that a broker loads only the files that its handlers use. Which of these APIs a broker serves depends on its
handlers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from ottla.wire.schema import spec


class Api(NamedTuple):
    key: int
    name: str
    request: type[Any]
    response: type[Any]
    versions: tuple[int, int]
    flexible: int


_NAMES: Final[dict[int, tuple[str, str]]] = {
    0: ("Produce", "produce"),
    1: ("Fetch", "fetch"),
    2: ("ListOffsets", "offsets"),
    3: ("Metadata", "metadata"),
    4: ("LeaderAndIsr", "peers"),
    5: ("StopReplica", "peers"),
    6: ("UpdateMetadata", "peers"),
    7: ("ControlledShutdown", "peers"),
    8: ("OffsetCommit", "commits"),
    9: ("OffsetFetch", "commits"),
    10: ("FindCoordinator", "groups"),
    11: ("JoinGroup", "groups"),
    12: ("Heartbeat", "groups"),
    13: ("LeaveGroup", "groups"),
    14: ("SyncGroup", "groups"),
    15: ("DescribeGroups", "groups"),
    16: ("ListGroups", "groups"),
    17: ("SaslHandshake", "auth"),
    18: ("ApiVersions", "metadata"),
    19: ("CreateTopics", "topics"),
    20: ("DeleteTopics", "topics"),
    21: ("DeleteRecords", "topics"),
    22: ("InitProducerId", "transactions"),
    23: ("OffsetForLeaderEpoch", "offsets"),
    24: ("AddPartitionsToTxn", "transactions"),
    25: ("AddOffsetsToTxn", "transactions"),
    26: ("EndTxn", "transactions"),
    27: ("WriteTxnMarkers", "transactions"),
    28: ("TxnOffsetCommit", "transactions"),
    29: ("DescribeAcls", "acls"),
    30: ("CreateAcls", "acls"),
    31: ("DeleteAcls", "acls"),
    32: ("DescribeConfigs", "configs"),
    33: ("AlterConfigs", "configs"),
    34: ("AlterReplicaLogDirs", "folders"),
    35: ("DescribeLogDirs", "folders"),
    36: ("SaslAuthenticate", "auth"),
    37: ("CreatePartitions", "topics"),
    38: ("CreateDelegationToken", "tokens"),
    39: ("RenewDelegationToken", "tokens"),
    40: ("ExpireDelegationToken", "tokens"),
    41: ("DescribeDelegationToken", "tokens"),
    42: ("DeleteGroups", "groups"),
    43: ("ElectLeaders", "topics"),
    44: ("IncrementalAlterConfigs", "configs"),
    45: ("AlterPartitionReassignments", "topics"),
    46: ("ListPartitionReassignments", "topics"),
    47: ("OffsetDelete", "commits"),
    48: ("DescribeClientQuotas", "quotas"),
    49: ("AlterClientQuotas", "quotas"),
    50: ("DescribeUserScramCredentials", "auth"),
    51: ("AlterUserScramCredentials", "auth"),
    52: ("Vote", "raft"),
    53: ("BeginQuorumEpoch", "raft"),
    54: ("EndQuorumEpoch", "raft"),
    55: ("DescribeQuorum", "raft"),
    56: ("AlterPartition", "peers"),
    57: ("UpdateFeatures", "cluster"),
    58: ("Envelope", "peers"),
    59: ("FetchSnapshot", "raft"),
    60: ("DescribeCluster", "metadata"),
    61: ("DescribeProducers", "transactions"),
    62: ("BrokerRegistration", "cluster"),
    63: ("BrokerHeartbeat", "cluster"),
    64: ("UnregisterBroker", "cluster"),
    65: ("DescribeTransactions", "transactions"),
    66: ("ListTransactions", "transactions"),
    67: ("AllocateProducerIds", "transactions"),
    68: ("ConsumerGroupHeartbeat", "consumers"),
    69: ("ConsumerGroupDescribe", "consumers"),
    70: ("ControllerRegistration", "cluster"),
    71: ("GetTelemetrySubscriptions", "telemetry"),
    72: ("PushTelemetry", "telemetry"),
    73: ("AssignReplicasToDirs", "folders"),
    74: ("ListConfigResources", "configs"),
    75: ("DescribeTopicPartitions", "metadata"),
    76: ("ShareGroupHeartbeat", "share"),
    77: ("ShareGroupDescribe", "share"),
    78: ("ShareFetch", "share"),
    79: ("ShareAcknowledge", "share"),
    80: ("AddRaftVoter", "raft"),
    81: ("RemoveRaftVoter", "raft"),
    82: ("UpdateRaftVoter", "raft"),
    83: ("InitializeShareGroupState", "share_state"),
    84: ("ReadShareGroupState", "share_state"),
    85: ("WriteShareGroupState", "share_state"),
    86: ("DeleteShareGroupState", "share_state"),
    87: ("ReadShareGroupStateSummary", "share_state"),
    88: ("StreamsGroupHeartbeat", "streams"),
    89: ("StreamsGroupDescribe", "streams"),
    90: ("DescribeShareGroupOffsets", "share"),
    91: ("AlterShareGroupOffsets", "share"),
    92: ("DeleteShareGroupOffsets", "share"),
}


class _Apis(Mapping[int, Api]):
    def __init__(self) -> None:
        self.loaded: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        found = self.loaded.get(key)
        if found is None:
            found = self.loaded[key] = _load(key)
        return found

    def __contains__(self, key: object) -> bool:
        return key in _NAMES

    def __iter__(self) -> Iterator[int]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


BY_KEY: Final[Mapping[int, Api]] = _Apis()


def by_name(name: str) -> Api:
    """The API that Kafka calls `name`, such as "Produce"."""
    for key, (known, _) in _NAMES.items():
        if known == name:
            return BY_KEY[key]
    raise KeyError(name)


def _load(key: int) -> Api:
    name, family = _NAMES[key]
    module = import_module(f"ottla.wire.messages.{family}")
    request: type[Any] = getattr(module, f"{name}Request")
    response: type[Any] = getattr(module, f"{name}Response")
    noted = spec(request)
    return Api(key, name, request, response, noted.versions, noted.flexible)
