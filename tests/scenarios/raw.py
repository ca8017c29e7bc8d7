"""Requests to one broker, whatever it leads: what clients do not do, and the answer as it came."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.client.connection import Uncopied
from ottla.records import batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.folders import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from ottla.client.connection import Connection
    from ottla.wire.messages.fetch import PartitionData
    from ottla.wire.messages.metadata import MetadataResponseTopic
    from ottla.wire.messages.offsets import EpochEndOffset, ListOffsetsPartitionResponse
    from ottla.wire.messages.produce import PartitionProduceResponse

BY_NAME = 12  # versions of Produce and Fetch that say topics by name
TIMEOUT_MS = 5000
LATEST = -1


def produce_request(topic: str, value: str, acks: int, timeout_ms: int = TIMEOUT_MS) -> ProduceRequest:
    records = batch.build([batch.Record(0, int(time.time() * 1000), None, value.encode())])
    data = PartitionProduceData(index=0, records=Uncopied(records))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produce(broker: Connection, topic: str, value: str, acks: int = -1) -> PartitionProduceResponse:
    broker.send(produce_request(topic, value, acks), newest=BY_NAME, wait_s=TIMEOUT_MS / 1000)
    return taken(broker)


def taken(broker: Connection) -> PartitionProduceResponse:
    """The answer to a Produce that was sent before."""
    return broker.receive(ProduceResponse).responses[0].partition_responses[0]


def fetch(broker: Connection, topic: str, *, replica: int = -1, version: int = 11, offset: int = 0) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return broker.ask(request, FetchResponse, newest=version).responses[0].partitions[0]


def values(data: PartitionData) -> list[str]:
    """The records of a Fetch."""
    taken = bytes(data.records or b"")
    every = (record for entry in batch.entries(taken) for record in batch.iterate(taken, entry.position))
    return [bytes(record.value or b"").decode() for record in every]


def metadata(broker: Connection, topic: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return broker.ask(request, MetadataResponse)


def metadata_of(broker: Connection, topic: str) -> MetadataResponseTopic:
    """What a broker tells its clients of a topic."""
    return metadata(broker, topic).topics[0]


def list_offset(broker: Connection, topic: str, *, replica: int = -1) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    return broker.ask(request, ListOffsetsResponse).topics[0].partitions[0]


def epoch_end(broker: Connection, topic: str, epoch: int) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    return broker.ask(request, OffsetForLeaderEpochResponse).topics[0].partitions[0]


def log_dir(broker: Connection, topic: str) -> tuple[int, int] | None:
    """The size of a replica and how far it is behind, as its broker says; None if it has none."""
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    for folder in broker.ask(request, DescribeLogDirsResponse).results:
        for one in folder.topics:
            return one.partitions[0].partition_size, one.partitions[0].offset_lag
    return None


def coordinator(broker: Connection, name: str, kind: int) -> int:
    """The number of the broker that keeps a group or a transactional id; -1 if there is none now."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
    return broker.ask(request, FindCoordinatorResponse).coordinators[0].node_id
