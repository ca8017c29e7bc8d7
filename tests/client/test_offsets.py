"""Where partitions begin and end, and where a moment lies in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from client.records import fresh, numbers
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from ottla.client import offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.connection import Connection
from ottla.client.failure import Failed, Refused
from ottla.client.groups import Committed, commit, read_offsets
from ottla.client.producing import Sender
from ottla.client.transaction import end, enlist, identify
from ottla.records import batch
from ottla.wire.messages.commits import OffsetFetchRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.topics import CreateTopicsRequest

if TYPE_CHECKING:
    from client.records import Broker


def test_beginning_and_end(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster, 2)
        other = TopicPartition(where.topic, 1)
        with Sender(cluster) as sender:
            sender.send(where, [numbers(0, 10)])
            sender.flush()
        assert offsets.earliest(cluster, [where, other]) == {where: 0, other: 0}
        assert offsets.latest(cluster, [where, other]) == {where: 10, other: 0}
        admin = AdminClient({"bootstrap.servers": either.bootstrap})
        for future in admin.delete_records([Place(where.topic, 0, 4)]).values():
            future.result(30)
        assert offsets.earliest(cluster, [other, where]) == {other: 0, where: 4}
        assert offsets.earliest_local(cluster, where) == 4
        assert offsets.latest(cluster, []) == {}


def test_requests_name_no_more_partitions_than_brokers_take(own: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours hangs up on a request of more than 65,536 topics and partitions; Spark may read as many."""
    sizes: list[int] = []
    ask = Connection.ask

    def counted(self: Connection, request: object, *more: Any, **named: Any) -> Any:
        topics = getattr(request, "v3_and_below_topics", None) or getattr(request, "topics", None) or []
        if isinstance(request, OffsetFetchRequest):
            topics = [topic for group in request.groups for topic in group.topics or []]
        if not isinstance(request, MetadataRequest | CreateTopicsRequest):
            indexes = [getattr(one, "partitions", None) or getattr(one, "partition_indexes", []) for one in topics]
            sizes.append(sum(map(len, indexes)))
        return ask(self, request, *more, **named)

    with Cluster(own.bootstrap) as cluster:
        first = fresh(cluster, 5)
        wheres = [TopicPartition(first.topic, index) for index in range(5)]
        identity = identify(cluster, first.topic, timeout_ms=60_000)
        monkeypatch.setattr("ottla.client.cluster.PARTITIONS_MAX", 2)
        monkeypatch.setattr(Connection, "ask", counted)
        assert offsets.latest(cluster, wheres) == dict.fromkeys(wheres, 0)
        commit(cluster, first.topic, {where: Committed(where.partition) for where in wheres})
        assert read_offsets(cluster, first.topic, wheres) == {where: Committed(where.partition) for where in wheres}
        enlist(cluster, identity, wheres)
        assert [size for size in sizes if size] == [2, 2, 1] * 4
        end(cluster, identity, commit=False)


def test_what_is_committed_ends_before_an_open_transaction(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, f"open-{where.topic}", timeout_ms=60_000)
        with Sender(cluster) as sender:
            sender.send(where, [numbers(0, 10)])
            sender.flush()
        enlist(cluster, identity, [where])
        with Sender(cluster, identity=identity) as sender:
            sender.send(where, [numbers(0, 5, identity=identity)])
            sender.flush()
        assert offsets.latest(cluster, [where]) == {where: 15}
        assert offsets.latest(cluster, [where], committed=True) == {where: 10}
        end(cluster, identity, commit=False)


def test_moments(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        records = [batch.Record(index, 1000 + 10 * index, None, b"x") for index in range(10)]
        with Sender(cluster) as sender:
            sender.send(where, [batch.build(records)])
            sender.flush()
        assert offsets.at_time(cluster, {where: 0}) == {where: (0, 1000)}
        assert offsets.at_time(cluster, {where: 1031}) == {where: (4, 1040)}
        assert offsets.at_time(cluster, {where: 1091}) == {where: None}
        with pytest.raises(Failed, match="-5 is before 1970"):
            offsets.at_time(cluster, {where: -5})


def test_a_moment_in_an_open_transaction(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, f"moment-{where.topic}", timeout_ms=60_000)
        enlist(cluster, identity, [where])
        records = [batch.Record(index, 1000 + 10 * index, None, b"x") for index in range(10)]
        who = {"producer_id": identity.producer_id, "producer_epoch": identity.epoch, "base_sequence": 0}
        with Sender(cluster, identity=identity) as sender:
            sender.send(where, [batch.build(records, transactional=True, **who)])
            sender.flush()
        assert offsets.at_time(cluster, {where: 1031}) == {where: (4, 1040)}
        assert offsets.at_time(cluster, {where: 1031}, committed=True) == {where: None}
        end(cluster, identity, commit=True)
        identify(cluster, f"moment-{where.topic}", timeout_ms=60_000)  # which waits until the commit is marked
        assert offsets.at_time(cluster, {where: 1031}, committed=True) == {where: (4, 1040)}


def test_what_is_not_there_is_refused(own: Broker) -> None:
    with Cluster(own.bootstrap) as cluster:
        where = fresh(cluster)
        with pytest.raises(Refused, match=f"{where.topic} partition 1: no such topic or partition"):
            offsets.latest(cluster, [where, TopicPartition(where.topic, 1)])
