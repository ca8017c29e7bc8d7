"""Quotas as tests set and use them: entities, records and requests of one connection."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from handlers.wired import Wired

from ottla.clock import SystemClock
from ottla.records import batch
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

if TYPE_CHECKING:
    from ottla.embed import BrokerThread

SPECIFIED = 2
Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]  # of each entity


def port_of(broker: BrokerThread, listener: str = "PLAINTEXT") -> int:
    return int(broker.listeners[listener].rpartition(":")[2])


def entity(**names: str | None) -> list[EntityData]:
    return [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in names.items()]


def alteration(named: list[EntityData], **values: float | None) -> AlterClientQuotasRequest:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    entry = AlterClientQuotasRequestEntryData(entity=named, ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def set_quota(port: int, named: list[EntityData], **values: float | None) -> None:
    with Wired(port, client_id="admin") as admin:
        (entry,) = admin.ask(alteration(named, **values), 1).entries
        assert entry.error_code == 0, entry.error_message


def list_quotas(port: int, kind: str = "user") -> Quotas:
    component = ComponentData(entity_type=kind, match_type=SPECIFIED, match=None)
    with Wired(port, client_id="admin") as admin:
        answer = admin.ask(DescribeClientQuotasRequest(components=[component], strict=False), 1)
    return {
        tuple(sorted((one.entity_type, one.entity_name) for one in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def make_topic(port: int, name: str) -> bytes:
    with Wired(port, client_id="admin") as admin:
        wanted = MetadataRequestTopic(topic_id=bytes(16), name=name)
        answer = admin.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 12)
    identity: bytes = answer.topics[0].topic_id
    return identity


def records(size: int) -> bytes:
    return batch.build([batch.Record(0, SystemClock().now_ms(), None, bytes(size), ())])


def produce(name: str, size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(records(size)))
    topic = TopicProduceData(name=name, topic_id=bytes(16), partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def fetch(name: str, offset: int = 0, *, session: int = 0, epoch: int = -1, replica: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, topic_id=bytes(16), partitions=[wanted])] if epoch <= 0 else [],
    )


def is_muted(port: int, connection: Wired) -> bool:
    """Whether a request that was sent long ago gets no answer, while others do."""
    with Wired(port, client_id="admin") as other:
        for _ in range(20):
            other.ask(ApiVersionsRequest(), 0)
    ready = select.poll()
    ready.register(connection._socket, select.POLLIN)
    return not ready.poll(50)
