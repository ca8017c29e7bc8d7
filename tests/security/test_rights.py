"""Every API without each right that it might need: the same codes and the same names from Apache Kafka and from Ottla.

All clients are User:ANONYMOUS and may do everything; one that comes from another address lacks one right at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import judge
import pytest
from handlers.wired import Wired
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.security.acl import OPERATIONS
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    UserName,
)
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.folders import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from ottla.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    EntityData,
)
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    TopicPartitions,
)
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.transactions import TopicRequest as ProducersTopic
from ottla.wire.schema import ZERO_UUID, fields

EVERYONE = "User:ANONYMOUS"
VICTIM = "127.0.0.2"
TOPIC, GROUP, TRANSACTION = "orders", "shoppers", "till"
NAMES = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.CLUSTER: "kafka-cluster",
}
RIGHTS = [(kind, operation) for kind in NAMES for operation in sorted(OPERATIONS[kind])]
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def rule(kind: ResourceType, operation: Operation, permission: Permission, host: str) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=NAMES[kind],
        resource_pattern_type=Pattern.LITERAL,
        principal=EVERYONE,
        host=host,
        operation=operation,
        permission_type=permission,
    )


class Judged:
    """A broker, an administrator of its rules, and the client that they are about."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.admin = Wired(port)
        self.victim = Wired(port, source=VICTIM)
        self.topic_id = ZERO_UUID

    def prepare(self) -> None:
        self.allow_everything()
        created = CreateTopicsRequest(
            topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])]
        )
        self.admin.ask(created, 7)
        wait_until(lambda: not self.described().error_code)
        self.topic_id = self.described().topic_id
        for kind, key in ((0, GROUP), (1, TRANSACTION)):
            found = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            wait_until(lambda found=found: not self.admin.ask(found, 4).coordinators[0].error_code)
        wait_until(lambda: self.settled("commit"))
        wait_until(lambda: self.settled("init producer"))

    def settled(self, name: str) -> bool:
        """Whether the coordinators have loaded."""
        version, make = REQUESTS[name]
        codes = essence(self.admin.ask(make(self), version))
        loading = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
        return not any(f"'{code.name}'" in repr(codes) for code in loading)

    def described(self) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC, topic_id=ZERO_UUID)], allow_auto_topic_creation=False
        )
        return self.admin.ask(request, 12).topics[0]

    def allow_everything(self) -> None:
        """The cluster first: from the first rule on, nothing is allowed that none allows."""
        kinds = sorted(NAMES, key=lambda kind: kind is not ResourceType.CLUSTER)
        for kind in kinds:
            creations = [rule(kind, Operation.ALL, Permission.ALLOW, "*")]
            answer = self.admin.ask(CreateAclsRequest(creations=creations), 2)
            assert not answer.results[0].error_code, answer
        wait_until(lambda: len(self.rules()) == len(NAMES))

    def rules(self) -> list[Any]:
        everything = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        return [acl for one in self.admin.ask(everything, 2).resources for acl in one.acls]

    def deny(self, kind: ResourceType, operation: Operation) -> None:
        creations = [rule(kind, operation, Permission.DENY, VICTIM)]
        assert not self.admin.ask(CreateAclsRequest(creations=creations), 2).results[0].error_code
        wait_until(lambda: len(self.rules()) == len(NAMES) + 1)

    def pardon(self) -> None:
        denied = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=VICTIM,
            operation=1,
            permission_type=1,
        )
        self.admin.ask(DeleteAclsRequest(filters=[denied]), 2)
        wait_until(lambda: len(self.rules()) == len(NAMES))

    def ask(self, name: str) -> Any:
        version, make = REQUESTS[name]
        try:
            return essence(self.victim.ask(make(self), version))
        except ConnectionError:
            self.victim = Wired(self.port, source=VICTIM)
            return "closed"


TOLD = ("name", "topic", "group_id", "transactional_id", "key", "user", "resource_name", "topic_name")


def essence(response: Any) -> Any:
    """Codes, names, and what is said to be allowed; sorted, for order means nothing here."""
    if isinstance(response, list):
        return sorted((essence(one) for one in response), key=repr)
    if not hasattr(response, "__wire__"):
        return None
    found: dict[str, Any] = {}
    for field in fields(type(response)):
        value = getattr(response, field.name)
        if field.name.endswith("error_code"):
            found[field.name] = ErrorCode(value).name
        elif (field.name in TOLD and isinstance(value, str | None)) or field.name.endswith("authorized_operations"):
            found[field.name] = value
        elif isinstance(value, list) and value and hasattr(value[0], "__wire__") and field.name not in LEFT_OUT:
            found[field.name] = essence(value)
    return found


LEFT_OUT = ("brokers", "configs", "acls", "config_resources")


def records() -> memoryview:
    return memoryview(batch.build([batch.Record(0, 1_700_000_000_000, b"k", b"v", ())]))


Make = Callable[[Judged], Any]
REQUESTS: dict[str, tuple[int, Make]] = {
    "produce": (
        9,
        lambda on: ProduceRequest(
            acks=1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records())])
                for name in (TOPIC, "nothing")
            ],
        ),
    ),
    "produce by id": (
        13,
        lambda on: ProduceRequest(
            acks=1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(topic_id=one, partition_data=[PartitionProduceData(index=0, records=records())])
                for one in (on.topic_id, b"x" * 16)
            ],
        ),
    ),
    "fetch": (
        11,
        lambda on: FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
                )
                for name in (TOPIC, "nothing")
            ],
        ),
    ),
    "fetch by id": (
        13,
        lambda on: FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic_id=one, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
                )
                for one in (on.topic_id, b"x" * 16)
            ],
        ),
    ),
    "list offsets": (
        7,
        lambda on: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in (TOPIC, "nothing")
            ],
        ),
    ),
    "offset for leader epoch": (
        4,
        lambda on: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
                for name in (TOPIC, "nothing")
            ]
        ),
    ),
    "delete records": (
        2,
        lambda on: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
                for name in (TOPIC, "nothing")
            ],
            timeout_ms=10_000,
        ),
    ),
    "describe producers": (
        0,
        lambda on: DescribeProducersRequest(
            topics=[ProducersTopic(name=name, partition_indexes=[0]) for name in (TOPIC, "nothing")]
        ),
    ),
    "metadata": (
        9,
        lambda on: MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in (TOPIC, "nothing")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
    ),
    "metadata by id": (
        12,
        lambda on: MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=one) for one in (on.topic_id, b"x" * 16)],
            allow_auto_topic_creation=False,
        ),
    ),
    "metadata of all": (12, lambda on: MetadataRequest(topics=None, allow_auto_topic_creation=False)),
    "describe cluster": (0, lambda on: DescribeClusterRequest(include_cluster_authorized_operations=True)),
    "describe topic partitions": (
        0,
        lambda on: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in (TOPIC, "nothing")]),
    ),
    "describe all topic partitions": (0, lambda on: DescribeTopicPartitionsRequest(topics=[])),
    "create topics": (
        6,
        lambda on: CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in (TOPIC, "new")
            ],
            validate_only=True,
        ),
    ),
    "delete topics": (
        5,
        lambda on: DeleteTopicsRequest(topic_names=["nothing"], timeout_ms=10_000),
    ),
    "delete topics by id": (
        6,
        lambda on: DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=None, topic_id=b"x" * 16),
                DeleteTopicState(name="nothing", topic_id=ZERO_UUID),
            ],
            timeout_ms=10_000,
        ),
    ),
    "create partitions": (
        3,
        lambda on: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (TOPIC, "nothing")],
            timeout_ms=10_000,
            validate_only=True,
        ),
    ),
    "describe configs": (
        4,
        lambda on: DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[])
                for kind, name in ((2, TOPIC), (2, "nothing"), (4, "1"), (8, "1"), (32, GROUP))
            ]
        ),
    ),
    "alter configs": (
        2,
        lambda on: AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[])], validate_only=True
        ),
    ),
    "incremental alter configs": (
        1,
        lambda on: IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
                for kind, name in ((2, TOPIC), (2, "nothing"), (4, "1"), (32, GROUP))
            ],
            validate_only=True,
        ),
    ),
    "list config resources": (1, lambda on: ListConfigResourcesRequest()),
    "find group": (4, lambda on: FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])),
    "find transaction": (4, lambda on: FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION])),
    "find group, old": (3, lambda on: FindCoordinatorRequest(key_type=0, key=GROUP)),
    "join": (
        7,
        lambda on: JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            member_id="ghost",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
    ),
    "heartbeat": (4, lambda on: HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="ghost")),
    "leave": (4, lambda on: LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="ghost")])),
    "sync": (4, lambda on: SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="ghost", assignments=[])),
    "sync, incomplete": (
        5,
        lambda on: SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="ghost", assignments=[]),
    ),
    "consumer heartbeat": (
        0,
        lambda on: ConsumerGroupHeartbeatRequest(
            group_id="reading", member_id="ghost", member_epoch=7, subscribed_topic_names=[TOPIC]
        ),
    ),
    "describe groups": (
        5,
        lambda on: DescribeGroupsRequest(groups=[GROUP, "nobody"], include_authorized_operations=True),
    ),
    "describe consumer groups": (
        0,
        lambda on: ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True),
    ),
    "list groups": (4, lambda on: ListGroupsRequest()),
    "delete groups": (2, lambda on: DeleteGroupsRequest(groups_names=["nobody"])),
    "commit": (
        8,
        lambda on: OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
                    ],
                )
                for name in (TOPIC, "nothing")
            ],
        ),
    ),
    "fetch offsets": (
        7,
        lambda on: OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in (TOPIC, "nothing")],
        ),
    ),
    "fetch all offsets": (7, lambda on: OffsetFetchRequest(group_id=GROUP, topics=None)),
    "fetch offsets of groups": (
        8,
        lambda on: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=GROUP, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
                ),
                OffsetFetchRequestGroup(group_id="nobody", topics=None),
            ]
        ),
    ),
    "delete offsets": (
        0,
        lambda on: OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(name="nothing", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            ],
        ),
    ),
    "init producer": (4, lambda on: InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=10_000)),
    "init idempotent producer": (
        4,
        lambda on: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000),
    ),
    "add partitions": (
        3,
        lambda on: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=123_456,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (TOPIC, "nothing")],
        ),
    ),
    "add offsets": (
        3,
        lambda on: AddOffsetsToTxnRequest(
            transactional_id=TRANSACTION, producer_id=123_456, producer_epoch=0, group_id=GROUP
        ),
    ),
    "end transaction": (
        3,
        lambda on: EndTxnRequest(transactional_id=TRANSACTION, producer_id=123_456, producer_epoch=0, committed=True),
    ),
    "commit in transaction": (
        3,
        lambda on: TxnOffsetCommitRequest(
            transactional_id=TRANSACTION,
            group_id=GROUP,
            producer_id=123_456,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="nothing",
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
                    ],
                )
            ],
        ),
    ),
    "describe transactions": (0, lambda on: DescribeTransactionsRequest(transactional_ids=[TRANSACTION, "nobody"])),
    "list transactions": (0, lambda on: ListTransactionsRequest(state_filters=[], producer_id_filters=[])),
    "describe rules": (
        2,
        lambda on: DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter="nothing",
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
    ),
    "create rules": (2, lambda on: CreateAclsRequest(creations=[])),
    "delete rules": (
        2,
        lambda on: DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="nothing",
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
    ),
    "describe credentials": (0, lambda on: DescribeUserScramCredentialsRequest(users=[UserName(name="nobody")])),
    "alter credentials": (
        0,
        lambda on: AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]
        ),
    ),
    "describe quotas": (1, lambda on: DescribeClientQuotasRequest(components=[], strict=False)),
    "alter quotas": (
        1,
        lambda on: AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(entity=[EntityData(entity_type="user", entity_name="u")], ops=[])
            ],
            validate_only=False,
        ),
    ),
    "describe log dirs": (4, lambda on: DescribeLogDirsRequest(topics=[])),
    "alter log dirs": (
        2,
        lambda on: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]
        ),
    ),
    "elect leaders": (
        2,
        lambda on: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])], timeout_ms=10_000
        ),
    ),
    "alter reassignments": (1, lambda on: AlterPartitionReassignmentsRequest(topics=[])),
    "list reassignments": (0, lambda on: ListPartitionReassignmentsRequest(topics=None)),
}


@pytest.fixture(scope="module")
def ottla() -> Iterator[Judged]:
    with BrokerThread(options=SETTINGS) as running:
        judged = Judged(int(running.bootstrap.rpartition(":")[2]))
        judged.prepare()
        yield judged


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    with judge.Kafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as running:
        judged = Judged(running.port)
        judged.prepare()
        yield judged


def test_with_every_right_nothing_is_refused(ottla: Judged, kafka: Judged) -> None:
    for name in REQUESTS:
        answer = ottla.ask(name)
        assert "AUTHORIZATION" not in repr(answer), name
        assert answer == kafka.ask(name), name


@pytest.mark.parametrize(("kind", "operation"), RIGHTS, ids=[f"{kind.name}-{one.name}" for kind, one in RIGHTS])
def test_without_one_right(ottla: Judged, kafka: Judged, kind: ResourceType, operation: Operation) -> None:
    for one in (ottla, kafka):
        one.deny(kind, operation)
    try:
        answers = {name: (ottla.ask(name), kafka.ask(name)) for name in REQUESTS}
    finally:
        for one in (ottla, kafka):
            one.pardon()
    wrong = {name: pair for name, pair in answers.items() if pair[0] != pair[1]}
    assert not wrong, "\n".join(f"{name}\n  ottla {ours}\n  kafka {theirs}" for name, (ours, theirs) in wrong.items())
