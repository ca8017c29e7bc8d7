"""The controller's requests to brokers: LeaderAndIsr, UpdateMetadata, StopReplica. Pure.

As in Kafka, their versions follow from the cluster's `inter.broker.protocol.version`; brokers are not asked which ones
they support. Each function returns the requests for one broker, each with its version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cluster import znodes
from ottla.cluster.control.memory import Lead
from ottla.cluster.image import NO_LEADER
from ottla.wire.messages.peers import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.cluster.control.memory import Key, Memory
    from ottla.cluster.image import Broker

DELETED = -2  # in place of a leader and of an epoch: the topic is being deleted
# Kafka sends UNKNOWN without KRaft, and ignores the field. A broker of ours that gets a FULL update looks for topics
# that were deleted while it could not be informed: the update does not name them, and the store does not have them.
UNKNOWN, FULL = 0, 2
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class ControlVersions(NamedTuple):
    leader_and_isr: int = 7
    update_metadata: int = 8
    stop_replica: int = 4


# By the first Kafka release that supports them, newest first.
RELEASES: tuple[tuple[tuple[int, ...], ControlVersions], ...] = (
    ((3, 4), ControlVersions()),
    ((3, 2), ControlVersions(6, 7, 3)),
    ((2, 8), ControlVersions(5, 7, 3)),
    ((2, 6), ControlVersions(4, 6, 3)),
    ((2, 4), ControlVersions(4, 6, 2)),
    ((2, 2), ControlVersions(2, 5, 1)),
    ((1, 0), ControlVersions(1, 4, 0)),
    ((0, 10, 2), ControlVersions(0, 3, 0)),
    ((0, 10, 0), ControlVersions(0, 2, 0)),
    ((0, 9), ControlVersions(0, 1, 0)),
    ((0,), ControlVersions(0, 0, 0)),
)


def versions_of(release: str) -> ControlVersions:
    """For an `inter.broker.protocol.version` such as 2.3 or 3.9-IV0. ValueError if it is not a version."""
    number = tuple(int(part) for part in release.partition("-")[0].split("."))
    return next((versions for first, versions in RELEASES if number >= first), RELEASES[-1][1])


class ControlHeader(NamedTuple):
    controller: int
    epoch: int
    versions: ControlVersions
    listener: str  # the inter-broker listener


Outgoing = tuple[Any, int]  # a request and its version


def leader_and_isr(
    header: ControlHeader, memory: Memory, broker: Broker, keys: Mapping[Key, bool]
) -> Iterator[Outgoing]:
    version = header.versions.leader_and_isr
    grouped: dict[str, list[LeaderAndIsrPartitionState]] = {}
    leaders: dict[int, None] = {}
    for key, new in keys.items():
        lead, assignment = memory.leads.get(key), memory.assignment(key)
        if lead is None or assignment is None:
            continue
        leaders[lead.leader] = None
        grouped.setdefault(key[0], []).append(
            LeaderAndIsrPartitionState(
                topic_name=key[0] if version < 2 else "",
                partition_index=key[1],
                controller_epoch=lead.controller_epoch,
                leader=lead.leader,
                leader_epoch=lead.leader_epoch,
                isr=list(lead.isr),
                partition_epoch=lead.version,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
                is_new=new,
            )
        )
    if not grouped:
        return
    live = [memory.brokers[leader] for leader in leaders if leader in memory.brokers]
    yield (
        LeaderAndIsrRequest(
            controller_id=header.controller,
            controller_epoch=header.epoch,
            broker_epoch=broker.epoch,
            ungrouped_partition_states=[one for states in grouped.values() for one in states] if version < 2 else [],
            topic_states=[
                LeaderAndIsrTopicState(topic_name=name, topic_id=id_of(memory, name), partition_states=states)
                for name, states in grouped.items()
            ]
            if version >= 2
            else [],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=one.id, **address(one, header.listener)) for one in live],
        ),
        version,
    )


class News:
    """UpdateMetadata for many brokers: the states, which are the same for all, are built once."""

    def __init__(self, header: ControlHeader, memory: Memory, *, full: bool = False) -> None:
        self._header = header
        self._full = full
        self._version = header.versions.update_metadata
        self._brokers = [describe_broker(one, header, self._version) for one in memory.brokers.values()]
        self._memory = memory
        self._grouped: dict[str, list[UpdateMetadataPartitionState]] = {}
        self._topics: list[UpdateMetadataTopicState] = []

    def add(self, keys: Iterable[Key]) -> None:
        for key in keys:
            state = partition_state(self._memory, key, self._version)
            if state is not None:
                if key[0] not in self._grouped:
                    states: list[UpdateMetadataPartitionState] = []
                    self._grouped[key[0]] = states
                    topic_id = id_of(self._memory, key[0])
                    self._topics.append(
                        UpdateMetadataTopicState(topic_name=key[0], topic_id=topic_id, partition_states=states)
                    )
                self._grouped[key[0]].append(state)

    def for_broker(self, broker: Broker) -> Outgoing:
        grouped = self._version >= 5
        request = UpdateMetadataRequest(
            controller_id=self._header.controller,
            type=FULL if self._full else UNKNOWN,
            controller_epoch=self._header.epoch,
            broker_epoch=broker.epoch,
            ungrouped_partition_states=[] if grouped else [one for states in self._grouped.values() for one in states],
            topic_states=self._topics if grouped else [],
            live_brokers=self._brokers,
        )
        return request, self._version


def partition_state(memory: Memory, key: Key, version: int) -> UpdateMetadataPartitionState | None:
    lead, gone = memory.leads.get(key), key[0] in memory.deleting
    if lead is None and gone:
        lead = Lead(DELETED, 0, (), 0, 0)  # its state was never written, or spoiled
    if lead is None:
        return None  # no leader was elected yet
    replicas = memory.replicas(key)
    return UpdateMetadataPartitionState(
        topic_name=key[0] if version < 5 else "",
        partition_index=key[1],
        controller_epoch=lead.controller_epoch,
        leader=DELETED if gone else lead.leader,
        leader_epoch=0 if gone else lead.leader_epoch,
        isr=list(lead.isr),
        zk_version=0 if gone else lead.version,
        replicas=list(replicas),
        offline_replicas=[broker for broker in replicas if not memory.is_online(broker, key, stopping=True)],
    )


def describe_broker(broker: Broker, header: ControlHeader, version: int) -> UpdateMetadataBroker:
    if version == 0:
        where = address(broker, header.listener)
        return UpdateMetadataBroker(id=broker.id, v0_host=where["host_name"], v0_port=where["port"])
    endpoints = [
        UpdateMetadataEndpoint(
            port=port,
            host=host,
            listener=name,
            security_protocol=PROTOCOLS.get(broker.protocols.get(name, znodes.PLAINTEXT), 0),
        )
        for name, (host, port) in broker.endpoints.items()
    ]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)


def stop_replica(header: ControlHeader, memory: Memory, broker: Broker, keys: Mapping[Key, bool]) -> Iterator[Outgoing]:
    """Before version 3 a request either deletes all its partitions or none, so there may be two."""
    version = header.versions.stop_replica
    if version >= 3:
        yield stop_states(header, memory, broker, keys), version
        return
    for delete in (False, True):
        grouped: dict[str, list[int]] = {}
        for (topic, index), deleting in keys.items():
            if deleting == delete:
                grouped.setdefault(topic, []).append(index)
        if grouped:
            ungrouped = [(topic, index) for topic, indexes in grouped.items() for index in indexes]
            yield (
                StopReplicaRequest(
                    controller_id=header.controller,
                    controller_epoch=header.epoch,
                    broker_epoch=broker.epoch,
                    delete_partitions=delete,
                    ungrouped_partitions=[
                        StopReplicaPartitionV0(topic_name=topic, partition_index=index) for topic, index in ungrouped
                    ]
                    if version == 0
                    else [],
                    topics=[
                        StopReplicaTopicV1(name=topic, partition_indexes=indexes) for topic, indexes in grouped.items()
                    ]
                    if version > 0
                    else [],
                ),
                version,
            )


def stop_states(header: ControlHeader, memory: Memory, broker: Broker, keys: Mapping[Key, bool]) -> StopReplicaRequest:
    grouped: dict[str, list[StopReplicaPartitionState]] = {}
    for (topic, index), delete in keys.items():
        lead = memory.leads.get((topic, index))
        epoch = NO_LEADER if lead is None else lead.leader_epoch
        if topic in memory.deleting or (delete and (topic, index) in memory.strays.get(broker.id, {})):
            epoch = DELETED
        grouped.setdefault(topic, []).append(
            StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=delete)
        )
    return StopReplicaRequest(
        controller_id=header.controller,
        controller_epoch=header.epoch,
        broker_epoch=broker.epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=topic, partition_states=states) for topic, states in grouped.items()
        ],
    )


def deletions_in(request: StopReplicaRequest) -> list[Key]:
    """The partitions that a request of any version deletes."""
    found = [
        (topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.delete_partition
    ]
    if request.delete_partitions:
        found += [(one.topic_name, one.partition_index) for one in request.ungrouped_partitions]
        found += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    return found


def errors_in(memory: Memory, response: Any) -> dict[Key, int]:
    """The error of each partition in a response of any version to LeaderAndIsr or StopReplica, by topic name."""
    errors = {(one.topic_name, one.partition_index): one.error_code for one in response.partition_errors}
    for topic in getattr(response, "topics", ()):
        name = memory.names_by_id.get(topic.topic_id)
        if name is not None:
            errors |= {(name, one.partition_index): one.error_code for one in topic.partition_errors}
    return errors


def id_of(memory: Memory, name: str) -> bytes:
    topic = memory.topics.get(name)
    return ZERO_UUID if topic is None else topic.id


def address(broker: Broker, listener: str) -> dict[str, Any]:
    host, port = broker.endpoints.get(listener) or next(iter(broker.endpoints.values()), ("", 0))
    return {"host_name": host, "port": port}
