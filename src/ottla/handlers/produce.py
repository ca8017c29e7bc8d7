"""Produce (0), v0-13: append each batch to its partition and answer where it went.

v0-1 magic 0 and 1 message sets; v2 append time in the answer; v3 record batches and transactions; v5 log start in the
answer; v7 zstd; v8 errors of single records; v9 flexible; v10 the current leader in the answer; v12 transactions
without a separate AddPartitionsToTxn; v13 topics by id.

acks 0: no answer, and any error ends the connection; 1: after our append; -1: after the in-sync replicas' appends,
which on one node is the same moment. Where `flush.messages` asks for it, the answer also waits for the disk.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.coord.transactions.machine import EPOCH_PER_TRANSACTION
from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.transactions import add, verified
from ottla.records import batch
from ottla.records.validate import MalformedError
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.log.log import Log
    from ottla.log.store import Store
    from ottla.replica.partition import Partition

    Unforced = tuple[Log, int, PartitionProduceResponse]  # up to which offset, and the result that waits for it

# The first versions with a property; see the list above.
BATCHES, ABORTABLE, NEWER_TRANSACTIONS, BY_ID = 3, 11, 12, 13
ATTRIBUTES = 22  # position of the low byte of a batch's attributes
TRANSACTIONAL = batch.TRANSACTIONAL
LATER = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
# After any other error the answer says where the log starts, as after a success.
OF_PARTITIONS = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
    )
)
ACKS = frozenset((-1, 0, 1))
NOTHING = memoryview(b"")
ADMIN_CLIENT = "__admin_client"  # the client id that Kafka's own repair tools use


@handles(ProduceRequest)
def produce(
    parts: Parts, call: Call, request: ProduceRequest
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    version, acks = call.version, request.acks
    if acks not in ACKS:
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    replicas, now_ms = parts.replicas, parts.clock.now_ms()
    responses = []
    failed = ""
    unforced: list[Unforced] = []
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            try:
                if version >= BY_ID:
                    partition = replicas.get_by_id(topic.topic_id, data.index)
                else:
                    partition = replicas.get(topic.name, data.index)
                if partition.internal and call.client_id != ADMIN_CLIENT:
                    raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is not for clients")
                records = data.records or NOTHING
                if not records and version >= BATCHES:
                    raise MalformedError("the request carries no records for this partition")
                if version >= BATCHES and len(records) > ATTRIBUTES and records[ATTRIBUTES] & TRANSACTIONAL:
                    admit(parts, request.transactional_id, partition, records, version)
                result = append(partition, data.index, records, now_ms, version)
                if partition.log.owed > partition.log.recovery_point:
                    unforced.append((partition.log, partition.log.owed, result))
            except BrokerError as error:
                result = refusal(data.index, error)
                if error.code not in OF_PARTITIONS and not isinstance(error, MalformedError):
                    result.log_start_offset = partition.log.start
                failed = f"{error.code.name} for {topic.name}-{data.index}"
            results.append(result)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    if acks == 0 and failed:
        raise Hangup(f"a produce with acks=0 failed: {failed}")
    answer = None if acks == 0 else ProduceResponse(responses=responses)
    return force(parts.store, unforced, answer) if unforced else answer


async def force(store: Store, unforced: list[Unforced], answer: ProduceResponse | None) -> ProduceResponse | None:
    """The answer once everything is on disk; a partition whose disk refuses says so."""
    flushes = [store.flusher.flushed(log, offset) for log, offset, _ in unforced]
    for (*_, result), outcome in zip(unforced, await asyncio.gather(*flushes, return_exceptions=True), strict=True):
        if isinstance(outcome, BrokerError):
            result.error_code, result.error_message, result.base_offset = outcome.code, outcome.message or None, -1
        elif outcome is not None:
            raise outcome
    return answer


def append(
    partition: Partition, index: int, records: memoryview, now_ms: int, version: int
) -> PartitionProduceResponse:
    appended = partition.append(records, now_ms, version)
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.base,
        log_append_time_ms=appended.append_time,
        log_start_offset=appended.start,
    )


def admit(parts: Parts, name: str | None, partition: Partition, records: memoryview, version: int) -> None:
    """Before the first batch of a transaction in a partition: it must be part of the transaction, or becomes so.

    Without this a batch that was delayed on its way could open a transaction that nobody will end.
    """
    if len(records) < batch.HEADER.size:
        return  # validation will say what is wrong with it
    head = batch.header(records)
    producer = (head.producer_id, head.producer_epoch)
    if partition.log.producers.in_transaction(*producer):
        return
    wanted = (partition.topic, partition.index)
    if version >= NEWER_TRANSACTIONS and head.base_sequence > 0 and not partition.log.producers.knows(head.producer_id):
        # The batch before it was refused, and this one overtook its retry.
        raise BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    if name is None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif version >= NEWER_TRANSACTIONS:
        answer = add(parts, name, producer, frozenset((wanted,)), EPOCH_PER_TRANSACTION)
        code = answer if isinstance(answer, ErrorCode) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif parts.controller.config.transaction_partition_verification_enable:
        code = verified(parts, name, producer, frozenset((wanted,)))[wanted]
    else:
        return
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH  # ends the transaction; the other would end the producer
    if code in LATER:
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # what a producer takes as a reason to try the same batch again
    if code is not ErrorCode.NONE:
        raise BrokerError(code)


def refusal(index: int, error: BrokerError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=message)
            for position, message in getattr(error, "record_errors", ())
        ],
        error_message=error.message or None,
    )


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """The same error for every partition."""
    error = BrokerError(code)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refusal(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
