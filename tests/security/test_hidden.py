"""What a client may not see or do stays hidden or undone, whichever way it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handlers.wired import Wired
from security.test_rights import EVERYONE, SETTINGS, TOPIC, VICTIM, Judged, records

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

LATEST = -1
VISIBLE, HIDDEN = ("a", "c", TOPIC), ("b", "d", "zz")


@pytest.fixture(scope="module")
def judged() -> Iterator[Judged]:
    with BrokerThread(options=SETTINGS) as running:
        made = Judged(int(running.bootstrap.rpartition(":")[2]))
        made.prepare()
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in ("a", "c", *HIDDEN)
        ]
        assert not any(one.error_code for one in made.admin.ask(CreateTopicsRequest(topics=topics), 7).topics)
        creations = [
            AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=name,
                resource_pattern_type=Pattern.LITERAL,
                principal=EVERYONE,
                host=VICTIM,
                operation=Operation.ALL,
                permission_type=Permission.DENY,
            )
            for name in HIDDEN
        ]
        answer = made.admin.ask(CreateAclsRequest(creations=creations), 2)
        assert not any(one.error_code for one in answer.results)
        yield made


def test_pages_of_topics_never_name_a_hidden_one(judged: Judged) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(100):
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=cursor)
        answer = judged.victim.ask(request, 0)
        assert not any(topic.error_code for topic in answer.topics)
        seen += [topic.name for topic in answer.topics if not topic.is_internal]
        cursor = answer.next_cursor
        if cursor is None:
            break
        assert cursor.topic_name not in HIDDEN
    assert cursor is None
    assert sorted(set(seen)) == sorted(VISIBLE)


def test_a_cursor_at_a_hidden_topic_goes_on_with_the_next(judged: Judged) -> None:
    request = DescribeTopicPartitionsRequest(topics=[], cursor=Cursor(topic_name="b", partition_index=1))
    answer = judged.victim.ask(request, 0)
    named = [(topic.name, len(topic.partitions)) for topic in answer.topics if not topic.is_internal]
    assert named == [("c", 2), (TOPIC, 1)]
    assert not any(topic.error_code for topic in answer.topics)


@pytest.mark.parametrize("version", [10, 11])
def test_an_id_where_none_may_be_is_refused_alike_for_every_topic(judged: Judged, version: int) -> None:
    """These versions have a field for ids, and no way to answer without a name."""
    everything = judged.admin.ask(MetadataRequest(topics=None), 12).topics
    hidden = next(topic.topic_id for topic in everything if topic.name == HIDDEN[0])
    for topic_id in (hidden, judged.topic_id, b"?" * 16):
        for name in (None, VISIBLE[0], HIDDEN[0]):
            asked = MetadataRequestTopic(name=name, topic_id=topic_id)
            (told,) = judged.victim.ask(MetadataRequest(topics=[asked]), version).topics
            assert (told.error_code, told.name, told.topic_id) == (ErrorCode.INVALID_REQUEST, name or "", topic_id)


def end_of(client: Wired, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    offset: int = client.ask(request, 7).topics[0].partitions[0].offset
    return offset


def test_what_is_allowed_of_an_unacknowledged_produce_is_appended(judged: Judged) -> None:
    """The end of the connection is all that says that the rest is not."""
    before = {name: end_of(judged.admin, name) for name in ("a", "b")}
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records())])
        for name in ("a", "b")
    ]
    with Wired(judged.port, source=VICTIM) as client, pytest.raises(ConnectionError):
        client.ask(ProduceRequest(acks=0, timeout_ms=10_000, topic_data=data), 9)
    assert {name: end_of(judged.admin, name) - before[name] for name in before} == {"a": 1, "b": 0}
