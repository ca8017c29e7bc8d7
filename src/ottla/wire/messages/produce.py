"""Writing records: batches per partition in, the offset each was given out. Record bytes are never decoded here.

Produce (0): versions 0 to 13
     1  answer adds throttle_time_ms
     2  answer adds log_append_time_ms
     3  adds transactional_id; record batches v2 only
     4  KAFKA_STORAGE_ERROR possible
     5  answer adds log_start_offset
     6  over quota, the answer is sent before throttling
     7  zstd allowed
     8  answer adds record_errors, error_message
     9  flexible
    10  answer adds current_leader, node_endpoints
    11  TRANSACTION_ABORTABLE possible
    12  within a transaction also does the work of AddPartitionsToTxn
    13  topic_id in place of name, both ways
"""

from __future__ import annotations

from ottla.wire.schema import ZERO_UUID, at, i16, i32, i64, message, nested, records_in, string, uuid


@nested
class PartitionProduceData:
    index: i32
    records: records_in | None


@nested
class TopicProduceData:
    name: string = at(0, 12, default="")
    topic_id: uuid = at(13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


@message(0, versions=(0, 13), flexible=9)
class ProduceRequest:
    transactional_id: string | None = at(3, default=None)
    acks: i16
    timeout_ms: i32
    topic_data: list[TopicProduceData]


@nested
class BatchIndexAndErrorMessage:
    batch_index: i32
    batch_index_error_message: string | None = at(default=None)


@nested
class LeaderIdAndEpoch:
    leader_id: i32 = at(default=-1)
    leader_epoch: i32 = at(default=-1)


@nested
class PartitionProduceResponse:
    index: i32
    error_code: i16
    base_offset: i64
    log_append_time_ms: i64 = at(2, default=-1)
    log_start_offset: i64 = at(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = at(8, factory=list)
    error_message: string | None = at(8, default=None)
    current_leader: LeaderIdAndEpoch = at(10, tag=0, factory=LeaderIdAndEpoch)


@nested
class TopicProduceResponse:
    name: string = at(0, 12, default="")
    topic_id: uuid = at(13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


@nested
class NodeEndpoint:
    node_id: i32
    host: string
    port: i32
    rack: string | None = at(default=None)


@message(0, versions=(0, 13), flexible=9)
class ProduceResponse:
    responses: list[TopicProduceResponse]
    throttle_time_ms: i32 = at(1, default=0)
    node_endpoints: list[NodeEndpoint] = at(10, tag=0, factory=list)
