"""Metadata: by name, by id, all, none; auto-created topics; which address a client gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_ID = bytes(16)


SETTINGS = {"max.request.partition.size.limit": 5}


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(port_of(broker)) as connected:
        yield connected


def ask(wired: Wired, version: int, *names: str | None, create: bool = False, ids: tuple[bytes, ...] = ()) -> Any:
    topics = [MetadataRequestTopic(topic_id=NO_ID, name=name) for name in names]
    topics += [MetadataRequestTopic(topic_id=one, name=None) for one in ids]
    return wired.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)


def create(wired: Wired, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    assert wired.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4).topics[0].error_code == 0


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_of_brokers_and_topics(wired: Wired, broker: BrokerThread, version: int) -> None:
    name = f"told-{version}"
    create(wired, name, 3)
    answer = ask(wired, version, name)
    host, _, port = broker.bootstrap.rpartition(":")
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, host, int(port))]
    assert (answer.topics[0].name, answer.topics[0].error_code) == (name, 0)
    assert sorted(one.partition_index for one in answer.topics[0].partitions) == [0, 1, 2]
    assert {one.leader_id for one in answer.topics[0].partitions} == {1}


def test_no_topics_means_all_in_version_0_and_none_later_and_null_means_all(wired: Wired) -> None:
    create(wired, "one-of-all")
    assert "one-of-all" in [one.name for one in ask(wired, 0).topics]
    assert ask(wired, 1).topics == []
    everything = wired.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 4)
    assert "one-of-all" in [one.name for one in everything.topics]


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_a_missing_topic_is_made_where_that_is_allowed(wired: Wired, version: int) -> None:
    name = f"wished-for-{version}"
    if version >= 4:
        assert ask(wired, version, name).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = ask(wired, version, name, create=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)


def test_names_that_cannot_be_are_refused_and_do_not_keep_others_from_being_made(wired: Wired) -> None:
    answer = ask(wired, 9, "a b", "fine-beside-it", "", create=True)
    assert {one.name: one.error_code for one in answer.topics} == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "fine-beside-it": 0,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_topics_are_found_by_id_from_version_12_on(wired: Wired) -> None:
    create(wired, "known-by-id")
    topic_id = ask(wired, 10, "known-by-id").topics[0].topic_id
    found, unknown = ask(wired, 12, ids=(topic_id, b"x" * 16)).topics
    assert (found.name, found.error_code) == ("known-by-id", 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    for version in (10, 11):
        refused = ask(wired, version, ids=(topic_id,)).topics[0]
        assert (refused.name, refused.error_code) == ("", ErrorCode.INVALID_REQUEST)


def test_operations_are_told_to_who_asks(wired: Wired) -> None:
    create(wired, "open-to-all")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=NO_ID, name="open-to-all")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = wired.ask(request, 10)
    assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (8096, 3576)
    silent = ask(wired, 10, "open-to-all")
    assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (-(2**31), -(2**31))


def test_an_advertised_address_is_told_instead_of_the_one_dialled() -> None:
    options = {"advertised.listeners": "PLAINTEXT://broker.example:1234"}
    with BrokerThread(options=options) as broker, Wired(port_of(broker)) as wired:
        answer = ask(wired, 5)
    assert [(one.host, one.port) for one in answer.brokers] == [("broker.example", 1234)]


def test_partitions_are_described_a_page_at_a_time(wired: Wired) -> None:
    for name, count in (("page-a", 3), ("page-b", 4), ("page-c", 1)):
        create(wired, name, count)
    wanted = [TopicRequest(name=name) for name in ("page-c", "page-a", "page-missing", "page-b")]
    found, cursor = [], None
    while True:
        page = wired.ask(DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor, response_partition_limit=2), 0)
        assert sum(len(topic.partitions) for topic in page.topics) <= 2
        found += [(topic.name, one.partition_index) for topic in page.topics for one in topic.partitions]
        if page.next_cursor is None:
            break
        cursor = Cursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)
    assert found == [("page-a", i) for i in range(3)] + [("page-b", i) for i in range(4)] + [("page-c", 0)]
    everything = wired.ask(DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=2000), 0)
    assert sum(len(topic.partitions) for topic in everything.topics) == 5, "the broker's own limit"
