"""Requests from brokers to the controller: ControlledShutdown (7), AlterPartition (56), AllocateProducerIds (67).

ControlledShutdown v1 client id in the header; v2 broker epoch. AlterPartition v2 topic ids; v3 broker epochs of the
in-sync replicas. Other brokers answer NOT_CONTROLLER.
"""

from __future__ import annotations

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.wire.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@handles(ControlledShutdownRequest, for_members=True)
async def controlled_shutdown(
    parts: Parts, call: Call, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    try:
        remaining = await parts.controller.shut_down_broker(request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControlledShutdownResponse(error_code=error.code, remaining_partitions=[])
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining
        ],
    )


@handles(AlterPartitionRequest, for_members=True)
async def alter_partition(parts: Parts, call: Call, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        return await parts.controller.alter_partition(request, call.version)
    except BrokerError as error:
        return AlterPartitionResponse(error_code=error.code, topics=[])


@handles(AllocateProducerIdsRequest, for_members=True)
async def allocate_producer_ids(
    parts: Parts, call: Call, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        first, count = await parts.controller.take_producer_ids(request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return AllocateProducerIdsResponse(error_code=error.code, producer_id_start=-1, producer_id_len=0)
    return AllocateProducerIdsResponse(error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=count)
