"""DescribeProducers (61): who has written to a partition lately, and who has a transaction open in it."""

from __future__ import annotations

from ottla.cluster.topic_names import check_name
from ottla.errors import BrokerError, ErrorCode, description
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handles(DescribeProducersRequest)
async def describe_producers(parts: Parts, call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """A partition that is asked for many times is told about once: the answer may be large."""
    topics: dict[str, dict[int, PartitionResponse]] = {}
    for topic in request.topics:
        found = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            await parts.controller.turns.pause()
            if index not in found:
                found[index] = described(parts, topic.name, index)
    return DescribeProducersResponse(
        topics=[TopicResponse(name=name, partitions=list(found.values())) for name, found in topics.items()]
    )


def described(parts: Parts, topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        active = parts.replicas.get(topic, index).log.producers.active()
    except BrokerError as error:
        message = error.message or description(error.code)
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=message, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.current_txn_start,
            )
            for one in active
        ],
    )
