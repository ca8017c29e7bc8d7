"""Nodes in ZooKeeper that somebody edits or deletes by hand."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from sim.stage import TOPIC, Stage

from ottla.cluster import znodes
from ottla.cluster.metadata_store import Delete, Set
from ottla.errors import ErrorCode
from ottla.sim.link import LinkError
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.messages.groups import FindCoordinatorRequest

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

GROUP = "g"


async def ask_coordinator(stage: Stage, request: object, version: int) -> Any:
    while True:
        with suppress(LinkError):
            found = await stage.client.ask(stage.client.anybody(), FindCoordinatorRequest(key=GROUP), 2)
            if not found.error_code:
                return await stage.client.ask((found.host, found.port), request, version)
        await stage.client.rest()


async def commit(stage: Stage, offset: int) -> None:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[one])
    while True:
        answer = await ask_coordinator(stage, OffsetCommitRequest(group_id=GROUP, topics=[topic]), 2)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return
        await stage.client.rest()


async def committed(stage: Stage) -> int:
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    while True:
        answer = await ask_coordinator(stage, OffsetFetchRequest(group_id=GROUP, topics=[topic]), 5)
        one = answer.topics[0].partitions[0]
        if not (answer.error_code or one.error_code):
            return int(one.committed_offset)
        await stage.client.rest()


@pytest.mark.parametrize("path", [znodes.topic_path(TOPIC), znodes.state_path(TOPIC, 0)])
@pytest.mark.parametrize("data", [b"{", b"{}"])
def test_a_topic_whose_nodes_are_spoiled_keeps_its_committed_offsets(tmp_path: Path, path: str, data: bytes) -> None:
    """The next controller does not know the topic; that does not mean that it was deleted."""
    stage = Stage(tmp_path)
    store = stage.world.store

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.produced("1", "2", "3")
        await commit(stage, 2)
        before, epoch = store.get(path).data, int(store.get(znodes.CONTROLLER_EPOCH).data)
        store.changes.clear()  # the checks cannot read it either
        store.multi([Set(path, data), Delete(znodes.CONTROLLER)])
        await stage.until(lambda: told(stage) > epoch)
        store.multi([Set(path, before), Delete(znodes.CONTROLLER)])
        await stage.until(lambda: told(stage) > epoch + 1)
        assert await committed(stage) == 2
        await stage.produced("4")
        await stage.reads("1", "2", "3", "4")

    stage.play(story)


def told(stage: Stage) -> int:
    """The epoch of a controller that every broker has heard from."""
    brokers = [node.broker for node in stage.nodes]
    return min(one._founding.membership.controller_epoch for one in brokers if one is not None)


def test_a_topic_with_a_spoiled_state_can_be_deleted(tmp_path: Path) -> None:
    """Brokers are told of its deletion, although there is no leader to tell of."""
    stage = Stage(tmp_path)
    store = stage.world.store

    async def story() -> None:
        await stage.up(0, 1, 2)
        await stage.create()
        await stage.until(lambda: all(TOPIC in topics(stage, number) for number in range(3)))
        epoch = int(store.get(znodes.CONTROLLER_EPOCH).data)
        store.changes.clear()
        store.multi([Set(znodes.state_path(TOPIC, 0), b"{"), Delete(znodes.CONTROLLER)])
        await stage.until(lambda: told(stage) > epoch)
        await stage.delete()
        await stage.until(lambda: not store.tree(znodes.topic_path(TOPIC)))
        await stage.until(lambda: not any(TOPIC in topics(stage, number) for number in range(3)))

    stage.play(story)


def topics(stage: Stage, number: int) -> Container[str]:
    broker = stage.nodes[number].broker
    assert broker is not None
    return broker._founding.metadata.image.topics
