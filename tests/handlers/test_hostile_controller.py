"""Controller requests sent by any client, without authentication. They must not crash, freeze or escape."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from handlers.test_replication import ID, call, metadata, roles, sent, stops
from replica.making import Host, state
from replica.test_partition import play

from ottla import descriptors
from ottla.cluster.metadata_store import Unavailable
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.replication import leader_and_isr, update_metadata
from ottla.replica import membership
from ottla.replica.assigned import UNLOOKED_MAX
from ottla.replica.membership import Membership
from ottla.replica.replicas import DESCRIPTORS_SPARE
from ottla.wire.messages.peers import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

if TYPE_CHECKING:
    from pathlib import Path


async def role(host: Host, name: str = "t", **changes: Any) -> int:
    fields: dict[str, Any] = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 0,
        "leader_epoch": 1,
        "isr": [0, 1],
        "partition_epoch": 1,
        "replicas": [0, 1],
        "is_new": True,
    }
    told = LeaderAndIsrPartitionState(**(fields | changes))
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        live_leaders=[],
        topic_states=[LeaderAndIsrTopicState(topic_name=name, topic_id=ID, partition_states=[told])],
    )
    answer = await leader_and_isr(host.parts, call(7), sent(request, 7))
    code: int = answer.topics[0].partition_errors[0].error_code
    return code


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", "", "x" * 300, "a\x00b", "/tmp/t"])
def test_a_name_that_is_no_topics_makes_no_folder(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "logs"
    inside.mkdir()

    async def story(host: Host) -> None:
        before = sorted(os.listdir(inside))
        assert await role(host, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert os.listdir(tmp_path) == ["logs"]
        assert sorted(os.listdir(inside)) == before

    play(inside, story)


@pytest.mark.parametrize(
    "changes",
    [{"partition_index": -1}, {"leader_epoch": -5}, {"leader": -9}, {"replicas": [0, 0, 0]}, {"isr": [7, 7, -1]}],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    async def story(host: Host) -> None:
        assert await role(host, **changes) == ErrorCode.INVALID_REQUEST
        assert not host.store.logs

    play(tmp_path, story)


def test_a_huge_partition_number_in_metadata_takes_no_memory(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        for index in (0x7FFFFFFF, 5_000_000, -3):
            one = UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=0,
                leader_epoch=1,
                isr=[0],
                zk_version=1,
                replicas=[0],
                offline_replicas=[],
            )
            request = UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=[UpdateMetadataTopicState(topic_name="t", topic_id=ID, partition_states=[one])],
                live_brokers=[],
            )
            answer = await update_metadata(host.parts, call(8), sent(request, 8))
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "t" not in host.metadata.image.topics

    play(tmp_path, story)


def test_an_unknown_security_protocol_in_metadata_is_refused(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        for number in (99, -9):
            endpoint = UpdateMetadataEndpoint(port=1, host="h", listener="L", security_protocol=number)
            request = UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                topic_states=[],
                live_brokers=[UpdateMetadataBroker(id=1, endpoints=[endpoint], rack=None)],
            )
            answer = await update_metadata(host.parts, call(8), sent(request, 8))
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    play(tmp_path, story)


def test_some_descriptors_are_left_whatever_is_assigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(host: Host) -> None:
        assert await role(host) == 0
        monkeypatch.setattr(descriptors, "count_free", lambda: DESCRIPTORS_SPARE - 1)
        last = 1 + UNLOOKED_MAX
        codes = [await role(host, partition_index=index) for index in range(1, last + 1)]
        assert codes[-1] == ErrorCode.KAFKA_STORAGE_ERROR, "a few may have been made since it was looked at"
        assert ("t", last) not in host.store.logs
        assert not [one for one in os.listdir(tmp_path) if one.startswith(f"t-{last}")]
        assert await role(host, leader_epoch=2) == 0, "what is open already goes on"
        monkeypatch.undo()
        assert host.assign(state(index=last), topic_id=ID)

    play(tmp_path, story)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "RETRY_S", 0.001)


@pytest.mark.usefixtures("impatient")
def test_an_epoch_that_nobody_was_elected_for_locks_nobody_out(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        elected, reads = 5, 0

        async def read() -> int:
            nonlocal reads
            reads += 1
            return elected

        host.membership = Membership(lambda: 10, host._read_configs, read)
        assert (await roles(host, controller_epoch=5)).error_code == 0
        assert reads == 1
        for tell in (roles(host, controller_epoch=0x7FFFFFFF), stops(host, version=4, controller_epoch=6)):
            with pytest.raises(BrokerError) as refused:
                await tell
            assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        with pytest.raises(BrokerError):
            await metadata(host, version=8, controller_epoch=99)
        assert host.membership.controller_epoch == 5
        reads = 0
        assert (await roles(host, controller_epoch=5, epoch=2)).error_code == 0, "the true controller"
        assert reads == 0, "nothing is read for an epoch that is known"

    play(tmp_path, story)


@pytest.mark.usefixtures("impatient")
def test_a_controller_that_our_store_does_not_know_yet_is_waited_for(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        answers: list[int | None] = [None, 5, 5, 6]

        async def read() -> int:
            answer = answers.pop(0)
            if answer is None:
                raise Unavailable("not connected")
            return answer

        host.membership = Membership(lambda: 10, host._read_configs, read)
        assert (await roles(host, controller_epoch=6)).error_code == 0
        assert host.membership.controller_epoch == 6

    play(tmp_path, story)


@pytest.mark.usefixtures("impatient")
def test_the_controller_does_not_wait_behind_who_claims_to_be_newer(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        async def read() -> int:
            raise Unavailable("not connected")

        host.membership = Membership(lambda: 10, host._read_configs, read)
        host.membership.controller_epoch = 5
        claims = [asyncio.ensure_future(roles(host, controller_epoch=9)) for _ in range(10)]
        await asyncio.sleep(0.01)
        assert (await asyncio.wait_for(roles(host, controller_epoch=5), 30)).error_code == 0
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)

    play(tmp_path, story)
