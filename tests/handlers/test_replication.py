"""Controller requests to a member of its cluster, in every version, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from replica.making import Host, state
from replica.test_partition import play

from ottla.cluster.image import Topic
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call
from ottla.handlers.replication import leader_and_isr, stop_replica, update_metadata
from ottla.wire import codec
from ottla.wire.messages.peers import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

if TYPE_CHECKING:
    from pathlib import Path

ID = b"i" * 16


def call(version: int) -> Call:
    return Call(4, version, "0", "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092))


def sent(request: Any, version: int) -> Any:
    """The request as it arrives."""
    return codec.decoder(type(request), version)(memoryview(codec.encode(request, version)), 0)[0]


async def roles(
    host: Host,
    *,
    version: int = 7,
    epoch: int = 1,
    leader: int = 0,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
    index: int = 0,
    topic_id: bytes = ID,
) -> LeaderAndIsrResponse:
    one = LeaderAndIsrPartitionState(
        topic_name="t" if version < 2 else "",
        partition_index=index,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=epoch,
        isr=[0, 1],
        partition_epoch=epoch,
        replicas=[0, 1],
        is_new=version >= 1,
    )
    request = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch, live_leaders=[]
    )
    if version < 2:
        request.ungrouped_partition_states = [one]
    else:
        given = topic_id if version >= 5 else bytes(16)
        request.topic_states = [LeaderAndIsrTopicState(topic_name="t", topic_id=given, partition_states=[one])]
    answer = await leader_and_isr(host.parts, call(version), sent(request, version))
    assert codec.encode(answer, version)
    return answer


def code_of(answer: LeaderAndIsrResponse) -> int:
    (error,) = answer.partition_errors or answer.topics[0].partition_errors
    return error.error_code


@pytest.mark.parametrize("version", range(8))
def test_a_role_is_taken_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(host: Host) -> None:
        host.configs["t"] = {"min.insync.replicas": "2"}
        answer = await roles(host, version=version)
        assert (answer.error_code, code_of(answer)) == (0, 0)
        partition = host.replicas.require_led("t", 0)
        assert partition.epoch == 1
        assert partition.topic_id == (ID if version >= 5 else bytes(16))
        assert partition.log.config.min_insync_replicas == 2, "read, for the image knows nothing of the topic yet"
        assert (await roles(host, version=version, epoch=2, leader=1)).error_code == 0
        assert host.told.followed == [("t", 0, 1)]

    play(tmp_path, story)


def test_an_older_controller_and_an_earlier_life_are_refused(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await roles(host, controller_epoch=5, broker_epoch=10)
        assert (await roles(host, controller_epoch=4, epoch=2)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await roles(host, controller_epoch=5, broker_epoch=9)).error_code == ErrorCode.STALE_BROKER_EPOCH
        later = await roles(host, controller_epoch=5, broker_epoch=11, epoch=2)
        assert later.error_code == 0, "the controller may know of our registration before we do"
        stopped = await stops(host, version=4, controller_epoch=4)
        assert stopped.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await metadata(host, version=8, controller_epoch=4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await metadata(host, version=8, broker_epoch=3)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert host.replicas.require_led("t", 0).epoch == 2

    play(tmp_path, story)


def test_before_it_is_registered_a_broker_cannot_tell_for_which_life_a_role_is(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.broker_epoch = -1
        early = asyncio.ensure_future(roles(host, broker_epoch=9))
        await asyncio.sleep(0.05)
        assert not early.done()
        host.broker_epoch = 10
        assert (await early).error_code == ErrorCode.STALE_BROKER_EPOCH

    play(tmp_path, story)


def test_each_partition_has_its_own_error(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await roles(host, epoch=5)
        assert code_of(await roles(host, epoch=4)) == ErrorCode.FENCED_LEADER_EPOCH
        assert code_of(await roles(host, epoch=6, topic_id=b"?" * 16)) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert code_of(await roles(host, epoch=1, index=1)) == 0
        (directory,) = host.store.directories
        directory.fail(OSError(5, "broken"))
        assert code_of(await roles(host, epoch=7)) == ErrorCode.KAFKA_STORAGE_ERROR

    play(tmp_path, story)


def test_without_a_leader_nobody_is_followed(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert code_of(await roles(host, leader=-1)) == 0
        assert not host.told.followed
        with pytest.raises(BrokerError) as refused:
            host.replicas.require_led("t", 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, story)


async def stops(host: Host, *, version: int, delete: bool = False, epoch: int = -1, controller_epoch: int = 1) -> Any:
    request = StopReplicaRequest(
        controller_id=1, controller_epoch=controller_epoch, delete_partitions=delete and version < 3
    )
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name="t", partition_index=0)]
    elif version < 3:
        request.topics = [StopReplicaTopicV1(name="t", partition_indexes=[0])]
    else:
        one = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete)
        request.topic_states = [StopReplicaTopicState(topic_name="t", partition_states=[one])]
    answer = await stop_replica(host.parts, call(version), sent(request, version))
    assert isinstance(answer, StopReplicaResponse)
    assert codec.encode(answer, version)
    return answer


@pytest.mark.parametrize("version", range(5))
def test_partitions_are_stopped_and_deleted_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(host: Host) -> None:
        await roles(host)
        answer = await stops(host, version=version)
        assert [one.error_code for one in answer.partition_errors] == [0]
        assert not host.replicas.require_hosted("t", 0).led
        assert ("t", 0) in host.store.logs
        await stops(host, version=version, delete=True, epoch=-2)
        assert ("t", 0) not in host.store.logs

    play(tmp_path, story)


def test_a_stop_of_an_older_epoch_is_refused(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await roles(host, epoch=5)
        answer = await stops(host, version=4, delete=True, epoch=4)
        assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert host.replicas.require_led("t", 0)

    play(tmp_path, story)


async def metadata(
    host: Host,
    *,
    version: int,
    leader: int = 1,
    name: str = "t",
    topic_id: bytes = ID,
    indexes: tuple[int, ...] = (0, 1),
    controller_epoch: int = 5,
    broker_epoch: int = -1,
    kind: int = 0,
) -> UpdateMetadataResponse:
    states = [
        UpdateMetadataPartitionState(
            topic_name=name if version < 5 else "",
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=3,
            isr=[1],
            zk_version=4,
            replicas=[0, 1],
        )
        for index in indexes
    ]
    broker = UpdateMetadataBroker(id=1, rack="r" if version >= 2 else "")
    if version == 0:
        broker.v0_host, broker.v0_port = "h", 9
    else:
        listener = "INTERNAL" if version >= 3 else ""
        broker.endpoints = [UpdateMetadataEndpoint(port=9, host="h", listener=listener, security_protocol=1)]
    request = UpdateMetadataRequest(
        controller_id=2,
        type=kind,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        live_brokers=[broker],
    )
    if version < 5:
        request.ungrouped_partition_states = states
    else:
        given = topic_id if version >= 7 else bytes(16)
        request.topic_states = [UpdateMetadataTopicState(topic_name=name, topic_id=given, partition_states=states)]
    answer = await update_metadata(host.parts, call(version), sent(request, version))
    assert codec.encode(answer, version)
    return answer


@pytest.mark.parametrize("version", range(9))
def test_metadata_is_published_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(host: Host) -> None:
        host.configs["t"] = {"retention.ms": "7"}
        assert (await metadata(host, version=version)).error_code == 0
        image = host.metadata.image
        topic = image.topic("t")
        assert topic.configs == {"retention.ms": "7"}
        assert topic.id == (ID if version >= 7 else bytes(16))
        assert [(one.index, one.leader, one.leader_epoch, one.version) for one in topic.partitions] == [
            (0, 1, 3, 4),
            (1, 1, 3, 4),
        ]
        listener = {0: "PLAINTEXT", 1: "SSL", 2: "SSL"}.get(version, "INTERNAL")
        assert dict(image.brokers[1].endpoints) == {listener: ("h", 9)}
        assert image.brokers[1].rack == ("r" if version >= 2 else None)
        assert list(image.brokers) == [1], "all that are alive are named each time"
        assert image.controller_id == 2

    play(tmp_path, story)


def test_metadata_comes_in_pieces_and_topics_go(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await metadata(host, version=8, indexes=(1,))
        first = host.metadata.image.topic("t").partitions
        assert [(one.index, one.leader) for one in first] == [(0, -1), (1, 1)], "of 0 nothing is known yet"
        await metadata(host, version=8, indexes=(0,))
        await metadata(host, version=8, name="u", topic_id=b"u" * 16)
        await metadata(host, version=8, leader=2, indexes=(1,))
        assert [one.leader for one in host.metadata.image.topic("t").partitions] == [1, 2]
        await metadata(host, version=8, leader=-2)
        assert list(host.metadata.image.topics) == ["u"]
        await metadata(host, version=8, leader=-2)  # again: it is deleted already
        await metadata(host, version=8, kind=2)
        assert list(host.metadata.image.topics) == ["t"], "a full one replaces everything"

    play(tmp_path, story)


def test_another_topic_of_the_same_name_starts_from_nothing(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await metadata(host, version=8, indexes=(0, 1, 2))
        await metadata(host, version=8, indexes=(0,), topic_id=b"n" * 16)
        assert len(host.metadata.image.topic("t").partitions) == 1
        await metadata(host, version=5, indexes=(0,))
        assert host.metadata.image.topic("t").id == b"n" * 16, "an older version does not tell the id"

    play(tmp_path, story)


def test_options_set_meanwhile_are_kept(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        await metadata(host, version=8)
        known = host.metadata.image.topic("t")
        host.metadata.publish(host.metadata.image.with_topics(Topic("t", ID, known.partitions, {"retention.ms": "9"})))
        await metadata(host, version=8, leader=2)
        assert host.metadata.image.topic("t").configs == {"retention.ms": "9"}
        host.assign(state(), name="other")

    play(tmp_path, story)
