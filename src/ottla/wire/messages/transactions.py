"""Producer ids and transactions: requests of producers, between coordinator and leaders, and of administrators.

ControlRecordTypeSchema and EndTxnMarker are key and value of the control record that ends a transaction in a partition;
both begin with an int16 version.

InitProducerId (22): versions 0 to 6
     1  over quota, the answer is sent before throttling
     2  flexible
     3  adds producer_id, producer_epoch
     4  PRODUCER_FENCED possible
     5  TRANSACTION_ABORTABLE possible
     6  adds enable_2pc, keep_prepared_txn; answer adds ongoing_txn_producer_id, ongoing_txn_producer_epoch

AddPartitionsToTxn (24): versions 0 to 5
     1  over quota, the answer is sent before throttling
     2  PRODUCER_FENCED possible
     3  flexible
     4  adds transactions, drops v3_and_below_transactional_id, v3_and_below_producer_id,
        v3_and_below_producer_epoch, v3_and_below_topics; answer adds error_code, results_by_transaction, drops
        results_by_topic_v3_and_below; sent by brokers only, many transactions at once
     5  TRANSACTION_ABORTABLE possible

AddOffsetsToTxn (25): versions 0 to 4
     1  over quota, the answer is sent before throttling
     2  PRODUCER_FENCED possible
     3  flexible
     4  TRANSACTION_ABORTABLE possible

EndTxn (26): versions 0 to 5
     1  over quota, the answer is sent before throttling
     2  PRODUCER_FENCED possible
     3  flexible
     4  TRANSACTION_ABORTABLE possible
     5  answer adds producer_id, producer_epoch; the epoch rises with every transaction

WriteTxnMarkers (27): versions 0 to 2
     1  flexible
     2  adds transaction_version

TxnOffsetCommit (28): versions 0 to 5
     1  over quota, the answer is sent before throttling
     2  adds committed_leader_epoch
     3  flexible; adds generation_id, member_id, group_instance_id
     4  TRANSACTION_ABORTABLE possible
     5  within a transaction also does the work of AddOffsetsToTxn

DescribeProducers (61): version 0

DescribeTransactions (65): version 0

ListTransactions (66): versions 0 to 2
     1  adds duration_filter
     2  adds transactional_id_pattern

AllocateProducerIds (67): version 0

ControlRecordTypeSchema: version 0

EndTxnMarker: version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, i64, message, nested, string


@message(22, versions=(0, 6), flexible=2)
class InitProducerIdRequest:
    transactional_id: string | None
    transaction_timeout_ms: i32
    producer_id: i64 = at(3, default=-1)
    producer_epoch: i16 = at(3, default=-1)
    enable_2pc: boolean = at(6, default=False)
    keep_prepared_txn: boolean = at(6, default=False)


@message(22, versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    producer_id: i64 = at(default=-1)
    producer_epoch: i16
    ongoing_txn_producer_id: i64 = at(6, default=-1)
    ongoing_txn_producer_epoch: i16 = at(6, default=-1)


@nested
class AddPartitionsToTxnTopic:
    name: string
    partitions: list[i32]


@nested
class AddPartitionsToTxnTransaction:
    transactional_id: string
    producer_id: i64
    producer_epoch: i16
    verify_only: boolean = at(default=False)
    topics: list[AddPartitionsToTxnTopic]


@message(24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = at(4, factory=list)
    v3_and_below_transactional_id: string = at(0, 3, default="")
    v3_and_below_producer_id: i64 = at(0, 3, default=0)
    v3_and_below_producer_epoch: i16 = at(0, 3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = at(0, 3, factory=list)


@nested
class AddPartitionsToTxnPartitionResult:
    partition_index: i32
    partition_error_code: i16


@nested
class AddPartitionsToTxnTopicResult:
    name: string
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@nested
class AddPartitionsToTxnResult:
    transactional_id: string
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16 = at(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = at(4, factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = at(0, 3, factory=list)


@message(25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    transactional_id: string
    producer_id: i64
    producer_epoch: i16
    group_id: string


@message(25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16


@message(26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    transactional_id: string
    producer_id: i64
    producer_epoch: i16
    committed: boolean


@message(26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    producer_id: i64 = at(5, default=-1)
    producer_epoch: i16 = at(5, default=-1)


@nested
class WritableTxnMarkerTopic:
    name: string
    partition_indexes: list[i32]


@nested
class WritableTxnMarker:
    producer_id: i64
    producer_epoch: i16
    transaction_result: boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: i32
    transaction_version: i8 = at(2, default=0)


@message(27, versions=(0, 2), flexible=1)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@nested
class WritableTxnMarkerPartitionResult:
    partition_index: i32
    error_code: i16


@nested
class WritableTxnMarkerTopicResult:
    name: string
    partitions: list[WritableTxnMarkerPartitionResult]


@nested
class WritableTxnMarkerResult:
    producer_id: i64
    topics: list[WritableTxnMarkerTopicResult]


@message(27, versions=(0, 2), flexible=1)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]


@nested
class TxnOffsetCommitRequestPartition:
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: i32 = at(2, default=-1)
    committed_metadata: string | None


@nested
class TxnOffsetCommitRequestTopic:
    name: string
    partitions: list[TxnOffsetCommitRequestPartition]


@message(28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    transactional_id: string
    group_id: string
    producer_id: i64
    producer_epoch: i16
    generation_id: i32 = at(3, default=-1)
    member_id: string = at(3, default="")
    group_instance_id: string | None = at(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@nested
class TxnOffsetCommitResponsePartition:
    partition_index: i32
    error_code: i16


@nested
class TxnOffsetCommitResponseTopic:
    name: string
    partitions: list[TxnOffsetCommitResponsePartition]


@message(28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: i32 = at(default=0)
    topics: list[TxnOffsetCommitResponseTopic]


@nested
class TopicRequest:
    name: string
    partition_indexes: list[i32]


@message(61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    topics: list[TopicRequest]


@nested
class ProducerState:
    producer_id: i64
    producer_epoch: i32
    last_sequence: i32 = at(default=-1)
    last_timestamp: i64 = at(default=-1)
    coordinator_epoch: i32
    current_txn_start_offset: i64 = at(default=-1)


@nested
class PartitionResponse:
    partition_index: i32
    error_code: i16
    error_message: string | None = at(default=None)
    active_producers: list[ProducerState]


@nested
class TopicResponse:
    name: string
    partitions: list[PartitionResponse]


@message(61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    throttle_time_ms: i32 = at(default=0)
    topics: list[TopicResponse]


@message(65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    transactional_ids: list[string]


@nested
class TopicData:
    topic: string
    partitions: list[i32]


@nested
class DescribeTransactionsResponseTransactionState:
    error_code: i16
    transactional_id: string
    transaction_state: string
    transaction_timeout_ms: i32
    transaction_start_time_ms: i64
    producer_id: i64
    producer_epoch: i16
    topics: list[TopicData]


@message(65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    throttle_time_ms: i32 = at(default=0)
    transaction_states: list[DescribeTransactionsResponseTransactionState]


@message(66, versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    state_filters: list[string]
    producer_id_filters: list[i64]
    duration_filter: i64 = at(1, default=-1)
    transactional_id_pattern: string | None = at(2, default=None)


@nested
class ListTransactionsResponseTransactionState:
    transactional_id: string
    producer_id: i64
    transaction_state: string


@message(66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    unknown_state_filters: list[string]
    transaction_states: list[ListTransactionsResponseTransactionState]


@message(67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    broker_id: i32
    broker_epoch: i64 = at(default=-1)


@message(67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    producer_id_start: i64
    producer_id_len: i32


@message(None, versions=(0, 0))
class ControlRecordTypeSchema:
    type: i16


@message(None, versions=(0, 0))
class EndTxnMarker:
    coordinator_epoch: i32
