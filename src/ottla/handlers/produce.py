"""Produce (0), v0-13: append each batch to its partition and answer where it went.

v0-1 magic 0 and 1 message sets; v2 append time in the answer; v3 record batches and transactions; v5 log start in the
answer; v7 zstd; v8 errors of single records; v9 flexible; v10 the current leader in the answer; v12 transactions
without a separate AddPartitionsToTxn; v13 topics by id.

acks 0: no answer, and any error ends the connection; 1: after our append; -1: after the in-sync replicas' appends, which
on one node is the same moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.handlers.call import Call, Parts, handles
from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.wire.messages.produce import PartitionProduceData

BY_ID = 13
ACKS = frozenset((-1, 0, 1))


@handles(ProduceRequest)
def produce(parts: Parts, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    version, acks = call.version, request.acks
    if acks not in ACKS:
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    replicas, now_ms = parts.replicas, parts.clock.now_ms()
    responses = []
    failed = ""
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            try:
                if version >= BY_ID:
                    partition = replicas.get_by_id(topic.topic_id, data.index)
                else:
                    partition = replicas.get(topic.name, data.index)
                result = append(partition, data, now_ms, version)
            except BrokerError as error:
                result = refusal(data.index, error)
                failed = f"{error.code.name} for {topic.name}-{data.index}"
            results.append(result)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    if acks == 0:
        if failed:
            raise Hangup(f"a produce with acks=0 failed: {failed}")
        return None
    return ProduceResponse(responses=responses)


def append(partition: Partition, data: PartitionProduceData, now_ms: int, version: int) -> PartitionProduceResponse:
    records = data.records
    if not records:
        raise BrokerError(ErrorCode.INVALID_RECORD, "the request carries no records for this partition")
    appended = partition.append(records, now_ms, version)
    return PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=appended.base,
        log_append_time_ms=appended.append_time,
        log_start_offset=appended.start,
    )


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
