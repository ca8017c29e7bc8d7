"""A request with a long list is handled in slices, or refused: no other client waits for it."""

from __future__ import annotations

from types import GeneratorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from laws.loop.gaps import HELD_MAX, held

from ottla.embed import BrokerThread
from ottla.handlers.commits import COMMITS_PER_TURN, offset_commit
from ottla.wire.decoding import REQUEST_ELEMENTS_MAX
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource, ListConfigResourcesRequest
from ottla.wire.messages.consumers import ConsumerGroupDescribeRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from ottla.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.transactions import TopicRequest as ProducersTopicRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANY = 40_000
NAMES = [f"n{number}" for number in range(MANY)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with BrokerThread(data=folder) as broker, Wired(port_of(broker)) as wired:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000, validate_only=False), 5)
        for kind in (0, 1):
            wired.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)
        yield broker


def partitions_of_a_fetch(count: int) -> FetchRequest:
    wanted = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in range(count)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_epoch=0,
        topics=[FetchTopic(topic="t", partitions=wanted)],
        forgotten_topics_data=[],
    )


def commits(index: int) -> list[OffsetCommitRequestPartition]:
    return [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=at, committed_metadata=None)
        for at in range(MANY)
    ]


REQUESTS: dict[str, tuple[object, int]] = {
    "one topic's metadata": (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * MANY), 9),
    "unknown topics": (
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
        9,
    ),
    "pages of topics": (
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in NAMES], response_partition_limit=2000, cursor=None
        ),
        0,
    ),
    "one broker's options": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * MANY,
            include_synonyms=True,
            include_documentation=True,
        ),
        4,
    ),
    "kinds of options": (ListConfigResourcesRequest(resource_types=[2] * MANY), 1),
    "partitions to fetch": (partitions_of_a_fetch(MANY), 12),
    "commits": (
        OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=commits(0))]),
        8,
    ),
    "commits for partitions that are not": (
        OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=commits(7))]),
        8,
    ),
    "committed offsets": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0] * MANY)]
                )
            ]
        ),
        8,
    ),
    "groups whose offsets are asked for": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * MANY),
        8,
    ),
    "offsets to delete": (
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)] * MANY)
            ],
        ),
        0,
    ),
    "one group": (DescribeGroupsRequest(groups=["g"] * MANY), 5),
    "consumer groups": (ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False), 0),
    "groups to delete": (DeleteGroupsRequest(groups_names=NAMES), 2),
    "members that leave": (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * MANY), 4),
    "coordinators": (FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
    "transactions": (DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "producers": (
        DescribeProducersRequest(topics=[ProducersTopicRequest(name="t", partition_indexes=[0] * MANY)]),
        0,
    ),
    "partitions of a transaction": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=1,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(MANY)))],
        ),
        3,
    ),
    "replicas": (
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1] * MANY)])
            ],
        ),
        0,
    ),
    "markers": (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    coordinator_epoch=0,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[1] * MANY)],
                )
            ]
        ),
        1,
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_long_list_does_not_hold_the_loop(broker: BrokerThread, what: str) -> None:
    def ask() -> None:
        with Wired(port_of(broker)) as wired:
            wired.ask(*REQUESTS[what])

    assert held(broker, ask) < HELD_MAX


@pytest.mark.parametrize(("topics", "of_each"), [(2, COMMITS_PER_TURN), (2 * COMMITS_PER_TURN, 0)])
def test_a_commit_is_handled_in_slices_whatever_it_is_made_of(topics: int, of_each: int) -> None:
    topic = OffsetCommitRequestTopic(name="t", partitions=commits(0)[:of_each])
    parts: Any = SimpleNamespace(metadata=SimpleNamespace(image=None))
    call: Any = SimpleNamespace(version=8)
    answer = offset_commit(parts, call, OffsetCommitRequest(group_id="g", topics=[topic] * topics))
    assert isinstance(answer, GeneratorType)


def test_a_list_that_is_longer_still_is_refused(broker: BrokerThread) -> None:
    request = partitions_of_a_fetch(REQUEST_ELEMENTS_MAX + 1)

    def ask() -> None:
        with Wired(port_of(broker)) as wired, pytest.raises(ConnectionError):
            wired.ask(request, 12)

    assert held(broker, ask) < HELD_MAX


def test_the_answers_are_those_of_short_lists(broker: BrokerThread) -> None:
    """A response made in slices equals one made at once, in the order of the request."""
    with Wired(port_of(broker)) as wired:
        names = ["t", *NAMES[:2000], "t"]
        topics = [MetadataRequestTopic(name=name) for name in names]
        found = wired.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9).topics
        assert [one.name for one in found] == names[:-1], "each once"
        assert [one.error_code for one in found] == [0, *[3] * 2000]
        fetched: Any = wired.ask(partitions_of_a_fetch(2000), 12)
        (topic,) = fetched.responses
        assert [one.partition_index for one in topic.partitions] == list(range(2000))
        assert [one.error_code for one in topic.partitions] == [0, *[3] * 1999]
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=commits(0))])
        (committed,) = wired.ask(request, 8).topics
        assert [one.error_code for one in committed.partitions] == [0] * MANY
        asked = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])])
        assert wired.ask(fetch, 8).groups[0].topics[0].partitions[0].committed_offset == MANY - 1
