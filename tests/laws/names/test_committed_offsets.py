"""Offsets committed for a topic are deleted with it: consumers of a recreated topic start at their reset position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handlers.wired import Wired
from waiting import wait_until

from ottla import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 10.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0.02, raising=False)
    with BrokerThread(options={"offsets.topic.num.partitions": 1}) as started:
        yield started


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(int(broker.bootstrap.rpartition(":")[2])) as connected:
        create(connected)
        connected.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
        yield connected


def create(wired: Wired) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == ErrorCode.NONE


def delete(wired: Wired) -> None:
    topic = DeleteTopicState(name="t", topic_id=bytes(16))
    answer = wired.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6)
    assert answer.responses[0].error_code == ErrorCode.NONE


def commit(wired: Wired, group: str, offset: int) -> int:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
    asked = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    return int(wired.ask(asked, 8).topics[0].partitions[0].error_code)


def committed(wired: Wired, group: str) -> int:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    return int(wired.ask(asked, 8).groups[0].topics[0].partitions[0].committed_offset)


def test_offsets_of_a_deleted_topic_go_when_their_log_can_be_written_again(broker: BrokerThread, wired: Wired) -> None:
    assert commit(wired, "g", 500) == ErrorCode.NONE
    root = broker._broker._root
    assert root is not None
    log = root._store.logs["__consumer_offsets", 0]
    log.fault = "no space left on device"
    delete(wired)
    create(wired)
    assert commit(wired, "h", 5) != ErrorCode.NONE
    log.fault = None
    assert commit(wired, "h", 5) == ErrorCode.NONE  # of the new topic: these stay
    wait_until(lambda: committed(wired, "g") == -1, "the offset of the deleted topic is still there")
    assert committed(wired, "h") == 5
