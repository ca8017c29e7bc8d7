"""Gates of producers' identities and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.gates.gate import Reply, extend, guards, sift
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.handlers.gates.gate import Finish, Guard
    from ottla.wire.messages.transactions import AddPartitionsToTxnTopic, TxnOffsetCommitRequestTopic

TRANSACTION, TOPIC, GROUP = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FOR_BROKERS = 4  # the first version of AddPartitionsToTxn that brokers send to each other


@guards(InitProducerIdRequest)
def init_producer_id(guard: Guard, request: InitProducerIdRequest) -> Steps[None]:
    if False:
        yield
    if request.transactional_id is not None:
        guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
        if request.enable_2pc:
            guard.demand(Operation.TWO_PHASE_COMMIT, TRANSACTION, request.transactional_id)
    elif not guard.allows_cluster(Operation.IDEMPOTENT_WRITE) and not guard.allows_some_topic(Operation.WRITE):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@guards(AddPartitionsToTxnRequest)
def add_partitions(guard: Guard, request: AddPartitionsToTxnRequest) -> Steps[Reply | None]:
    """All or nothing: one topic that is refused leaves the others untried."""
    if guard.call.version >= FOR_BROKERS:
        guard.demand_cluster(Operation.CLUSTER_ACTION)
        return None
    topics = request.v3_and_below_topics
    if not guard.allows(Operation.WRITE, TRANSACTION, request.v3_and_below_transactional_id):
        return refuse_partitions([(topic, TRANSACTION_REFUSED) for topic in topics])
    _, refused = yield from sift(guard, Operation.WRITE, topics, TOPIC, lambda topic: topic.name)
    if not refused:
        return None
    names = {topic.name for topic in refused}
    untried = ErrorCode.OPERATION_NOT_ATTEMPTED
    return refuse_partitions([(topic, TOPIC_REFUSED if topic.name in names else untried) for topic in topics])


def refuse_partitions(refused: list[tuple[AddPartitionsToTxnTopic, ErrorCode]]) -> Reply:
    results = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic, code in refused
    ]
    return Reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


@guards(AddOffsetsToTxnRequest)
def add_offsets(guard: Guard, request: AddOffsetsToTxnRequest) -> Steps[None]:
    guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
    guard.demand(Operation.READ, GROUP, request.group_id)
    if False:
        yield


@guards(EndTxnRequest)
def end_txn(guard: Guard, request: EndTxnRequest) -> Steps[None]:
    guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
    if False:
        yield


@guards(WriteTxnMarkersRequest)
def write_markers(guard: Guard, request: WriteTxnMarkersRequest) -> Steps[Reply | None]:
    if guard.allows_cluster(Operation.CLUSTER_ACTION) or guard.allows_cluster(Operation.ALTER):
        return None
    markers = []
    for marker in request.markers:
        markers.append(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id, topics=[refuse_marker(one) for one in marker.topics]
            )
        )
        yield
    return Reply(WriteTxnMarkersResponse(markers=markers))


def refuse_marker(topic: Any) -> WritableTxnMarkerTopicResult:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    partitions = [
        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index in topic.partition_indexes
    ]
    return WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)


@guards(TxnOffsetCommitRequest)
def txn_offset_commit(guard: Guard, request: TxnOffsetCommitRequest) -> Steps[Finish | Reply | None]:
    for operation, kind, name, code in (
        (Operation.WRITE, TRANSACTION, request.transactional_id, TRANSACTION_REFUSED),
        (Operation.READ, GROUP, request.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        if not guard.allows(operation, kind, name):
            return Reply(TxnOffsetCommitResponse(topics=[refuse_offsets(topic, code) for topic in request.topics]))
    request.topics, refused = yield from sift(guard, Operation.READ, request.topics, TOPIC, lambda topic: topic.name)
    refusals = [refuse_offsets(topic, TOPIC_REFUSED) for topic in refused]
    if not request.topics:
        return Reply(TxnOffsetCommitResponse(topics=refusals))
    return extend("topics", refusals)


def refuse_offsets(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
        for one in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)


@guards(DescribeTransactionsRequest)
def describe_transactions(guard: Guard, request: DescribeTransactionsRequest) -> Steps[Finish | None]:
    request.transactional_ids, refused = yield from sift(
        guard, Operation.DESCRIBE, request.transactional_ids, TRANSACTION, lambda name: name
    )
    refusals = [
        DescribeTransactionsResponseTransactionState(
            error_code=TRANSACTION_REFUSED,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
        for name in refused
    ]

    def finish(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [one for one in state.topics if guard.allows_topic(Operation.DESCRIBE, one.topic)]
        response.transaction_states += refusals
        return response

    return finish


@guards(ListTransactionsRequest)
def list_transactions(guard: Guard, request: ListTransactionsRequest) -> Steps[Finish | None]:
    if False:
        yield

    def finish(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            one
            for one in response.transaction_states
            if guard.allows(Operation.DESCRIBE, TRANSACTION, one.transactional_id)
        ]
        return response

    return finish
