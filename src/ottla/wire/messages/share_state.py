"""Between brokers: the state of share groups, stored by a coordinator of its own.

ReadShareGroupStateSummary 0 is declared as 4.x has it; the early access of 3.9 had no leader_epoch in the answer.

InitializeShareGroupState (83): version 0

ReadShareGroupState (84): version 0

WriteShareGroupState (85): versions 0 to 1
     1  adds delivery_complete_count

DeleteShareGroupState (86): version 0

ReadShareGroupStateSummary (87): versions 0 to 1
     1  answer adds delivery_complete_count
"""

from __future__ import annotations

from ottla.wire.schema import at, i8, i16, i32, i64, message, nested, string, uuid


@nested
class InitializeShareGroupStateRequestPartitionData:
    partition: i32
    state_epoch: i32
    start_offset: i64


@nested
class InitializeStateData:
    topic_id: uuid
    partitions: list[InitializeShareGroupStateRequestPartitionData]


@message(83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest:
    group_id: string
    topics: list[InitializeStateData]


@nested
class InitializeShareGroupStateResponsePartitionResult:
    partition: i32
    error_code: i16
    error_message: string | None = at(default=None)


@nested
class InitializeStateResult:
    topic_id: uuid
    partitions: list[InitializeShareGroupStateResponsePartitionResult]


@message(83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult]


@nested
class ReadShareGroupStateRequestPartitionData:
    partition: i32
    leader_epoch: i32


@nested
class ReadStateData:
    topic_id: uuid
    partitions: list[ReadShareGroupStateRequestPartitionData]


@message(84, versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest:
    group_id: string
    topics: list[ReadStateData]


@nested
class StateBatch:
    first_offset: i64
    last_offset: i64
    delivery_state: i8
    delivery_count: i16


@nested
class ReadShareGroupStateResponsePartitionResult:
    partition: i32
    error_code: i16
    error_message: string | None = at(default=None)
    state_epoch: i32
    start_offset: i64
    state_batches: list[StateBatch]


@nested
class ReadStateResult:
    topic_id: uuid
    partitions: list[ReadShareGroupStateResponsePartitionResult]


@message(84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse:
    results: list[ReadStateResult]


@nested
class WriteShareGroupStateRequestPartitionData:
    partition: i32
    state_epoch: i32
    leader_epoch: i32
    start_offset: i64
    delivery_complete_count: i32 = at(1, default=-1)
    state_batches: list[StateBatch]


@nested
class WriteStateData:
    topic_id: uuid
    partitions: list[WriteShareGroupStateRequestPartitionData]


@message(85, versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest:
    group_id: string
    topics: list[WriteStateData]


@nested
class WriteShareGroupStateResponsePartitionResult:
    partition: i32
    error_code: i16
    error_message: string | None = at(default=None)


@nested
class WriteStateResult:
    topic_id: uuid
    partitions: list[WriteShareGroupStateResponsePartitionResult]


@message(85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse:
    results: list[WriteStateResult]


@nested
class DeleteShareGroupStateRequestPartitionData:
    partition: i32


@nested
class DeleteStateData:
    topic_id: uuid
    partitions: list[DeleteShareGroupStateRequestPartitionData]


@message(86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest:
    group_id: string
    topics: list[DeleteStateData]


@nested
class DeleteShareGroupStateResponsePartitionResult:
    partition: i32
    error_code: i16
    error_message: string | None = at(default=None)


@nested
class DeleteStateResult:
    topic_id: uuid
    partitions: list[DeleteShareGroupStateResponsePartitionResult]


@message(86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult]


@nested
class ReadShareGroupStateSummaryRequestPartitionData:
    partition: i32
    leader_epoch: i32


@nested
class ReadStateSummaryData:
    topic_id: uuid
    partitions: list[ReadShareGroupStateSummaryRequestPartitionData]


@message(87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest:
    group_id: string
    topics: list[ReadStateSummaryData]


@nested
class ReadShareGroupStateSummaryResponsePartitionResult:
    partition: i32
    error_code: i16
    error_message: string | None = at(default=None)
    state_epoch: i32
    leader_epoch: i32
    start_offset: i64
    delivery_complete_count: i32 = at(1, default=-1)


@nested
class ReadStateSummaryResult:
    topic_id: uuid
    partitions: list[ReadShareGroupStateSummaryResponsePartitionResult]


@message(87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult]
