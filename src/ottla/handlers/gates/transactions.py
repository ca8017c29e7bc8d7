"""Gates for producer ids and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.gates.gate import EarlyReply, extend, guards, list_refusals, sift
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.handlers.finishing import Finish
    from ottla.handlers.gates.gate import Guard, Outcome

TRANSACTION, TOPIC, GROUP = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FOR_BROKERS = 4  # the first version of AddPartitionsToTxn that brokers send to each other


@guards(InitProducerIdRequest)
def init_producer_id(guard: Guard, request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
        if request.enable_2pc:
            guard.demand(Operation.TWO_PHASE_COMMIT, TRANSACTION, request.transactional_id)
    elif not guard.allows_cluster(Operation.IDEMPOTENT_WRITE) and not guard.allows_some_topic(Operation.WRITE):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@guards(AddPartitionsToTxnRequest)
def add_partitions(guard: Guard, request: AddPartitionsToTxnRequest) -> Steps[EarlyReply | None]:
    """All or nothing: if one topic is refused, the others are not attempted."""
    if guard.call.version >= FOR_BROKERS:
        guard.demand_cluster(Operation.CLUSTER_ACTION)
        return None
    guard.demand(Operation.WRITE, TRANSACTION, request.v3_and_below_transactional_id)
    untried, refused = yield from sift(
        guard, Operation.WRITE, request.v3_and_below_topics, TOPIC, lambda topic: topic.name
    )
    if not refused:
        return None
    results = []
    for topics, code in ((refused, TOPIC_REFUSED), (untried, ErrorCode.OPERATION_NOT_ATTEMPTED)):
        results += yield from list_refusals(
            guard, request, topics, code, of="v3_and_below_topics", into="results_by_topic_v3_and_below"
        )
    return EarlyReply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


@guards(AddOffsetsToTxnRequest)
def add_offsets(guard: Guard, request: AddOffsetsToTxnRequest) -> None:
    guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
    guard.demand(Operation.READ, GROUP, request.group_id)


@guards(EndTxnRequest)
def end_txn(guard: Guard, request: EndTxnRequest) -> None:
    guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)


@guards(WriteTxnMarkersRequest)
def write_markers(guard: Guard, request: WriteTxnMarkersRequest) -> None:
    if not guard.allows_cluster(Operation.ALTER):
        guard.demand_cluster(Operation.CLUSTER_ACTION)


@guards(TxnOffsetCommitRequest)
def txn_offset_commit(guard: Guard, request: TxnOffsetCommitRequest) -> Steps[Outcome]:
    guard.demand(Operation.WRITE, TRANSACTION, request.transactional_id)
    guard.demand(Operation.READ, GROUP, request.group_id)
    request.topics, refused = yield from sift(guard, Operation.READ, request.topics, TOPIC, lambda topic: topic.name)
    refusals = yield from list_refusals(guard, request, refused, TOPIC_REFUSED)
    return extend("topics", refusals) if request.topics else EarlyReply(TxnOffsetCommitResponse(topics=refusals))


@guards(DescribeTransactionsRequest)
def describe_transactions(guard: Guard, request: DescribeTransactionsRequest) -> Steps[Finish | None]:
    request.transactional_ids, refused = yield from sift(
        guard, Operation.DESCRIBE, request.transactional_ids, TRANSACTION, lambda name: name
    )
    refusals = yield from list_refusals(
        guard, request, refused, TRANSACTION_REFUSED, of="transactional_ids", into="transaction_states"
    )

    def finish(response: DescribeTransactionsResponse) -> Steps[DescribeTransactionsResponse]:
        for state in response.transaction_states:
            state.topics, _ = yield from sift(guard, Operation.DESCRIBE, state.topics, TOPIC, lambda one: one.topic)
        response.transaction_states += refusals
        return response

    return finish


@guards(ListTransactionsRequest)
def list_transactions(guard: Guard, request: ListTransactionsRequest) -> Finish:
    def finish(response: ListTransactionsResponse) -> Steps[ListTransactionsResponse]:
        response.transaction_states, _ = yield from sift(
            guard, Operation.DESCRIBE, response.transaction_states, TRANSACTION, lambda one: one.transactional_id
        )
        return response

    return finish
