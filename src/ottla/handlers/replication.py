"""Requests of the controller to the brokers of its cluster: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6).

LeaderAndIsr v0-7: the leaders and followers of partitions that have a replica here. v1 whether a partition is new; v2
grouped by topic, broker epoch; v3 replicas that are being added and removed; v4 flexible; v5 topic ids; v6 recovery
state; v7 whether the controller is KRaft's.
StopReplica v0-4: stop hosting partitions, and perhaps delete them. v1 broker epoch; v2 flexible; v3 the epoch of each
partition, and whether it is to be deleted.
UpdateMetadata v0-8: the cluster metadata that clients get. v1 endpoints; v2 racks; v3 listener names; v4 offline
replicas; v5 broker epoch; v6 flexible; v7 topic ids.

A request from an older controller, or for an earlier broker epoch, is refused as a whole.

The content is not trusted: a topic name becomes a folder, and the highest partition number the length of a list.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ottla.cluster import image
from ottla.cluster.topic_names import check_name
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.replica.assigned import Assigned
from ottla.wire.messages.peers import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.replica.membership import Membership
    from ottla.wire.messages.peers import LeaderAndIsrPartitionState, UpdateMetadataBroker, UpdateMetadataPartitionState

# The first versions with a feature; see the list above.
ROLES_BY_ID, ROLES_GROUPED = 5, 2
STOPS_WITH_EPOCHS = 3
METADATA_GROUPED = 5
DELETED = -2  # in place of a leader
NO_EPOCH = -1
FULL = 2  # type of UpdateMetadata: it names all topics that the controller can read
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by number: they were listener names once
UNTOLD_MAX = 100_000  # partitions missing in the request below the highest one: they never had a leader
UNTOLD = image.Partition(0, (), (), image.NO_LEADER, NO_EPOCH)


def member(parts: Parts) -> tuple[Membership, Assigned]:
    assert parts.membership is not None
    assert isinstance(parts.replicas, Assigned), "a cluster member uses Assigned"
    return parts.membership, parts.replicas


# Roles.


@handles(LeaderAndIsrRequest, for_members=True)
async def leader_and_isr(parts: Parts, call: Call, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    membership, replicas = member(parts)
    await membership.verify(request.controller_epoch)
    async with membership.lock:
        code = await membership.check(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=code)
        states = request.topic_states if call.version >= ROLES_GROUPED else group_roles(request)
        named = [topic for topic in states if is_name(topic.topic_name)]
        configs = await configs_of(parts, {topic.topic_name: topic.topic_id for topic in named})
        wanted = {(topic.topic_name, one.partition_index) for topic in named for one in topic.partition_states}
        await parts.store.make_way(wanted - parts.store.logs.keys())
        response = LeaderAndIsrResponse(error_code=0)
        for topic in states:
            known = image.Topic(topic.topic_name, topic.topic_id, (), configs.get(topic.topic_name, {}))
            errors = []
            for one in topic.partition_states:
                await parts.metadata.turns.pause()
                errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=one.partition_index,
                        error_code=assign(replicas, known, one),
                    )
                )
            if call.version >= ROLES_BY_ID:
                response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            else:
                response.partition_errors += errors
        return response


def assign(replicas: Assigned, topic: image.Topic, told: LeaderAndIsrPartitionState) -> ErrorCode:
    state = image.Partition(
        told.partition_index,
        tuple(told.replicas),
        tuple(told.isr),
        told.leader,
        told.leader_epoch,
        told.partition_epoch,
    )
    try:
        check_name(topic.name)
        check_state(state)
        replicas.assign(topic, state, new=told.is_new)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def check_state(state: image.Partition) -> None:
    numbers = state.index, state.leader_epoch, *state.replicas, *state.isr
    distinct = all(len(set(ids)) == len(ids) for ids in (state.replicas, state.isr))
    if min(numbers) < 0 or state.leader < image.NO_LEADER or not distinct:
        raise BrokerError(ErrorCode.INVALID_REQUEST)


def is_name(name: str) -> bool:
    try:
        check_name(name)
    except BrokerError:
        return False
    return True


def group_roles(request: LeaderAndIsrRequest) -> list[LeaderAndIsrTopicState]:
    """Group the partitions of an old version by topic."""
    return [
        LeaderAndIsrTopicState(topic_name=name, partition_states=list(states))
        for name, states in groupby(
            sorted(request.ungrouped_partition_states, key=lambda one: one.topic_name), lambda one: one.topic_name
        )
    ]


async def configs_of(parts: Parts, ids: Mapping[str, bytes]) -> dict[str, Mapping[str, str]]:
    """The options of these topics, from the image or from ZooKeeper.

    The image may still have a former topic of that name, whose options could delete records of the new one.
    """
    topics = parts.metadata.image.topics
    found = {
        name: topic.configs
        for name, topic_id in ids.items()
        if (topic := topics.get(name)) is not None and not is_another(topic, topic_id)
    }
    missing = sorted(ids.keys() - found.keys())
    if missing:
        assert parts.membership is not None
        read = await parts.membership.read_configs(missing)
        found.update({name: read.get(name, {}) for name in missing})
    return found


# Stopping.


@handles(StopReplicaRequest, for_members=True)
async def stop_replica(parts: Parts, call: Call, request: StopReplicaRequest) -> StopReplicaResponse:
    membership, replicas = member(parts)
    await membership.verify(request.controller_epoch)
    async with membership.lock:
        code = await membership.check(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return StopReplicaResponse(error_code=code, partition_errors=[])
        errors = []
        for topic in request.topic_states if call.version >= STOPS_WITH_EPOCHS else group_stops(call.version, request):
            for one in topic.partition_states:
                await parts.metadata.turns.pause()
                code = stop(replicas, topic.topic_name, one)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=one.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=0, partition_errors=errors)


def stop(replicas: Assigned, name: str, told: StopReplicaPartitionState) -> ErrorCode:
    try:
        replicas.stop(name, told.partition_index, delete=told.delete_partition, epoch=told.leader_epoch)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def group_stops(version: int, request: StopReplicaRequest) -> list[StopReplicaTopicState]:
    """The request of an old version in the form of the new one."""
    if version == 0:
        pairs = [(one.topic_name, [one.partition_index]) for one in request.ungrouped_partitions]
    else:
        pairs = [(topic.name, topic.partition_indexes) for topic in request.topics]
    delete = request.delete_partitions
    return [
        StopReplicaTopicState(
            topic_name=name,
            partition_states=[
                StopReplicaPartitionState(partition_index=index, delete_partition=delete) for index in indexes
            ],
        )
        for name, indexes in pairs
    ]


# Metadata.


@handles(UpdateMetadataRequest, for_members=True)
async def update_metadata(parts: Parts, call: Call, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    membership, _ = member(parts)
    await membership.verify(request.controller_epoch)
    async with membership.lock:
        code = await membership.check(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return UpdateMetadataResponse(error_code=code)
        states = request.topic_states if call.version >= METADATA_GROUPED else group_metadata(request)
        if not is_sound(states, request.live_brokers):
            return UpdateMetadataResponse(error_code=ErrorCode.INVALID_REQUEST)
        configs = await configs_of(parts, {topic.topic_name: topic.topic_id for topic in states})
        named = {told.topic_name for told in states}
        unnamed = [name for name in parts.metadata.image.topics if name not in named] if request.type == FULL else []
        deleted = await membership.find_deleted(unnamed)
        present = parts.metadata.image  # read it only now: it may have changed during the wait
        put, gone = [], []
        for told in states:
            await parts.metadata.turns.pause()
            topic = update_topic(present.topics.get(told.topic_name), told, configs[told.topic_name])
            if topic is not None:
                put.append(topic)
            elif told.topic_name in present.topics:
                gone.append(told.topic_name)
        gone += deleted
        new = parts.metadata.image._replace(
            controller_id=request.controller_id,
            brokers={one.id: read_broker(one, call.version) for one in request.live_brokers},
        )
        gone = [name for name in gone if name in new.topics]
        new = new.without_topics(*gone) if gone else new
        parts.metadata.publish(new.with_topics(*put) if put else new)
        membership.note_topics(
            list(membership.awaited) if request.type == FULL else [told.topic_name for told in states]
        )
        return UpdateMetadataResponse(error_code=0)


def is_sound(states: Iterable[UpdateMetadataTopicState], brokers: Iterable[UpdateMetadataBroker]) -> bool:
    """Whether names, numbers and protocols are valid, and the image grows only by what the request contains."""
    untold = 0
    for topic in states:
        indexes = [one.partition_index for one in topic.partition_states]
        if not is_name(topic.topic_name) or min(indexes, default=0) < 0:
            return False
        untold += max(0, max(indexes, default=-1) + 1 - len(indexes))
    protocols = range(len(PROTOCOLS))
    known = all(one.security_protocol in protocols for broker in brokers for one in broker.endpoints)
    return known and untold <= UNTOLD_MAX


def update_topic(
    before: image.Topic | None, told: UpdateMetadataTopicState, configs: Mapping[str, str]
) -> image.Topic | None:
    """The topic with the partitions of the request; None if it has no partitions left."""
    if before is not None and is_another(before, told.topic_id):
        before = None
    partitions = {} if before is None else {one.index: one for one in before.partitions}
    for one in told.partition_states:
        if one.leader == DELETED:
            partitions.pop(one.partition_index, None)
        else:
            partitions[one.partition_index] = read_partition(one)
    if not partitions:
        return None
    identity = told.topic_id if any(told.topic_id) or before is None else before.id
    every = tuple(partitions.get(index) or UNTOLD._replace(index=index) for index in range(max(partitions) + 1))
    return image.Topic(told.topic_name, identity, every, configs if before is None else before.configs)


def is_another(known: image.Topic, topic_id: bytes) -> bool:
    """Whether this is the id of another topic of the same name. Before 2.8 there are no ids."""
    return any(topic_id) and any(known.id) and topic_id != known.id


def read_partition(told: UpdateMetadataPartitionState) -> image.Partition:
    return image.Partition(
        told.partition_index, tuple(told.replicas), tuple(told.isr), told.leader, told.leader_epoch, told.zk_version
    )


def read_broker(told: UpdateMetadataBroker, version: int) -> image.Broker:
    """A broker in the request. The request does not contain its epoch."""
    if version == 0:
        return image.Broker(told.id, {PROTOCOLS[0]: (told.v0_host, told.v0_port)}, None, NO_EPOCH)
    names = {one.listener or PROTOCOLS[one.security_protocol]: one for one in told.endpoints}
    endpoints = {name: (one.host, one.port) for name, one in names.items()}
    protocols = {name: PROTOCOLS[one.security_protocol] for name, one in names.items() if one.security_protocol}
    return image.Broker(told.id, endpoints, told.rack or None, NO_EPOCH, protocols)


def group_metadata(request: UpdateMetadataRequest) -> list[UpdateMetadataTopicState]:
    """Group the partitions of an old version by topic."""
    return [
        UpdateMetadataTopicState(topic_name=name, topic_id=ZERO_UUID, partition_states=list(states))
        for name, states in groupby(
            sorted(request.ungrouped_partition_states, key=lambda one: one.topic_name), lambda one: one.topic_name
        )
    ]
