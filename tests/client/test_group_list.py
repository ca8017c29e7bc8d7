"""All groups of a cluster with their offsets: right, and in few requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.connection import Connection
from ottla.client.group_list import GROUPS_AT_ONCE, list_committed
from ottla.client.groups import GROUPS_SINCE, Committed, commit

if TYPE_CHECKING:
    import pytest

    from ottla.embed import BrokerProcess
    from ottla.pytest_plugin import Namespace


def test_many_groups_are_asked_in_few_requests(
    ottla_broker: BrokerProcess, ottla_namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, count = ottla_namespace.topic(), 2 * GROUPS_AT_ONCE + 1
    asked: Counter[str] = Counter()
    ask = Connection.ask

    def counting(connection: Connection, request: object, *given: Any, **named: Any) -> Any:
        asked[type(request).__name__] += 1
        return ask(connection, request, *given, **named)

    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.create(topic, 2)
        for number in range(count):
            commit(cluster, ottla_namespace.group(f"g{number}"), {TopicPartition(topic, 1): Committed(number)})
        empty = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": ottla_namespace.group("other")})
        empty.commit(offsets=[Place(topic, 0, 7)], asynchronous=False)
        empty.close()
        monkeypatch.setattr(Connection, "ask", counting)
        found = list_committed(cluster)
        groups = len(found)
        assert asked["OffsetFetchRequest"] == -(-groups // GROUPS_AT_ONCE)
        assert asked["FindCoordinatorRequest"] == 0
        for number in range(count):
            group = found[ottla_namespace.group(f"g{number}")]
            assert group.committed == {TopicPartition(topic, 1): Committed(number)}
            assert group.listed.coordinator in cluster.brokers()
        assert found[ottla_namespace.group("other")].committed[TopicPartition(topic, 0)].offset == 7
        version = Connection.version
        monkeypatch.setattr(
            Connection, "version", lambda connection, key, newest=None: min(version(connection, key, newest), 7)
        )
        asked.clear()
        assert list_committed(cluster) == found, f"before version {GROUPS_SINCE} each group is asked"
        assert asked["OffsetFetchRequest"] == groups
