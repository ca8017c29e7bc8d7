"""Offsets of groups, read and written from outside; a consumer of librdkafka sees the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from client.records import fresh
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Refused
from ottla.client.groups import OFFSET_FETCH, Committed, commit, delete_group, read_offsets
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from client.records import Broker

TIMEOUT_S = 60.0


def test_offsets_are_kept_with_their_text(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster, 3)
        other, third = (TopicPartition(where.topic, index) for index in (1, 2))
        group = f"group-{where.topic}"
        assert read_offsets(cluster, group) == {}
        commit(cluster, group, {where: Committed(7, "seven", 0), other: Committed(0)})
        commit(cluster, group, {})
        assert read_offsets(cluster, group) == {where: Committed(7, "seven", 0), other: Committed(0)}
        assert read_offsets(cluster, group, [where, third]) == {where: Committed(7, "seven", 0)}
        assert read_offsets(cluster, group, []) == {}
        consumer = Consumer({"bootstrap.servers": either.bootstrap, "group.id": group})
        (found,) = consumer.committed([Place(*where)], timeout=TIMEOUT_S)
        assert (found.offset, found.metadata[:5]) == (7, "seven")  # confluent-kafka 2.x reads past its end
        consumer.commit(offsets=[Place(*where, 9)], asynchronous=False)
        consumer.close()
        assert read_offsets(cluster, group, [where])[where].offset == 9
        delete_group(cluster, group)
        delete_group(cluster, group)  # is gone already
        assert read_offsets(cluster, group) == {}


@pytest.mark.parametrize("version", [2, 5, 7])
def test_older_versions_say_the_same(own: Broker, version: int) -> None:
    with Cluster(own.bootstrap) as cluster:
        where = fresh(cluster)
        commit(cluster, where.topic, {where: Committed(3, "x")})
        for connection in cluster._open.values():
            connection._versions[OFFSET_FETCH] = (0, version)
        assert (
            read_offsets(cluster, where.topic)
            == read_offsets(cluster, where.topic, [where])
            == {where: Committed(3, "x")}
        )


def test_a_group_with_members_is_left_alone(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        group = f"busy-{where.topic}"
        joined = []
        consumer = Consumer({"bootstrap.servers": either.bootstrap, "group.id": group})
        consumer.subscribe([where.topic], on_assign=lambda _, parts: joined.append(parts))
        for _ in range(int(TIMEOUT_S / 0.1)):
            consumer.poll(0.1)
            if joined:
                break
        with pytest.raises(Refused) as caught:
            commit(cluster, group, {where: Committed(1)})
        assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(Refused) as caught:
            delete_group(cluster, group)
        assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
        consumer.close()


def test_a_topic_that_is_gone_is_refused(own: Broker) -> None:
    with Cluster(own.bootstrap, timeout_s=1) as cluster, pytest.raises(Refused, match=r"nowhere partition 0: no such"):
        commit(cluster, "g", {TopicPartition("nowhere", 0): Committed(1)})
