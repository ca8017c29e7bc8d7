"""DescribeProducers (61): the producers that have written to a partition lately, and their open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.topic_names import check_name
from ottla.errors import BrokerError, ErrorCode, description
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.repeats import Repeats
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from ottla.handlers.call import Steps


@handles(DescribeProducersRequest)
def describe_producers(parts: Parts, call: Call, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    topics, repeats = [], Repeats()
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(describe(parts, topic.name, index, repeats))
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield
    return DescribeProducersResponse(topics=topics)


def describe(parts: Parts, topic: str, index: int, repeats: Repeats) -> PartitionResponse:
    try:
        repeats.check((topic, index))
        check_name(topic)
        active = parts.replicas.require_hosted(topic, index).log.producers.active()
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
