"""The figures of three brokers: before, while and after one of them is away."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from handlers.wired import Wired
from metrics.exposed import Exposed, scrape
from waiting import wait_until

from ottla.testing.cluster import Cluster
from ottla.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.embed import BrokerProcess

RECORDS = 300
CLIENT_METRICS = 16


def ready(broker: BrokerProcess) -> bool:
    try:
        with urllib.request.urlopen(f"{broker.metrics}/ready", timeout=60) as answer:
            return json.load(answer) == {"ready": True, "missing": []}
    except urllib.error.HTTPError as error:
        return not (error.code == 503 and json.load(error)["missing"])  # anything else is no answer of ours


def test_a_broker_goes_and_comes_back() -> None:
    with Cluster(3, options={"min.insync.replicas": 2, "replica.lag.time.max.ms": 3000}) as cluster:
        for broker in cluster.brokers.values():
            wait_until(lambda broker=broker: ready(broker))
        fill(cluster)
        check_whole(cluster)
        check_subscriptions(cluster)
        away = cluster.leader("orders", 0)
        cluster.kill(away)
        others = [cluster.brokers[number] for number in cluster.numbers if number != away]

        def partly(found: list[Exposed]) -> bool:
            return total(found, "ottla_under_replicated_partitions") >= 3 and total(found, "ottla_leaders") >= 3

        found = until(others, partly)
        assert total(found, "ottla_active_controller") == 1
        assert total(found, "ottla_under_min_isr_partitions") == 0, "two of three are enough"
        assert total(found, "ottla_at_min_isr_partitions") >= 3
        assert total(found, "ottla_leader_elections_total") >= 1
        assert total(found, "ottla_unclean_leader_elections_total") == 0
        cluster.start(away)
        wait_until(lambda: ready(cluster.brokers[away]))
        found = until(list(cluster.brokers.values()), lambda found: not total(found, UNDER))
        assert total(found, "ottla_isr_expands_total") >= 1
        assert total(found, "ottla_follower_lag_records", topic="orders") == 0


UNDER = "ottla_under_replicated_partitions"


def fill(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 3, 3)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for at in range(RECORDS):
        producer.produce("orders", b"x" * 1000, partition=at % 3)
    assert producer.flush(60) == 0


def check_whole(cluster: Cluster) -> None:
    def copied(found: list[Exposed]) -> bool:
        came = total(found, "ottla_topic_bytes_in_total", topic="orders")
        return total(found, "ottla_topic_replication_bytes_in_total", topic="orders") == 2 * came

    found = until(list(cluster.brokers.values()), copied)
    assert total(found, "ottla_topic_messages_in_total", topic="orders") == RECORDS
    assert total(found, "ottla_active_controller") == 1
    assert total(found, "ottla_partition_leader", topic="orders") == 3
    assert total(found, "ottla_partition_replicas", topic="orders") == 9
    assert total(found, "ottla_partition_in_sync_replicas", topic="orders") == 9
    assert total(found, UNDER) == total(found, "ottla_offline_partitions") == 0
    assert [one.value("ottla_brokers") for one in found] == [3, 3, 3]
    assert [one.value("ottla_zookeeper_connected") for one in found] == [1, 1, 1]
    assert sorted(one.value("ottla_controller_epoch") > 0 for one in found) == [False, False, True]


def check_subscriptions(cluster: Cluster) -> None:
    """One that is set at one broker is known to all."""
    change = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name="all/of them",
                configs=[IncrementalAlterableConfig(name="metrics", config_operation=0, value="*")],
            )
        ],
        validate_only=False,
    )
    ports = [int(broker.bootstrap.rpartition(":")[2]) for broker in cluster.brokers.values()]
    with Wired(ports[0]) as wired:
        assert wired.ask(change, 1).responses[0].error_code == 0

    def known(port: int) -> bool:
        with Wired(port) as wired:
            listed = wired.ask(ListConfigResourcesRequest(), 0).config_resources
            return [one.resource_name for one in listed] == ["all/of them"]

    for port in ports:
        wait_until(lambda port=port: known(port))


def until(brokers: list[BrokerProcess], wanted: Callable[[list[Exposed]], bool]) -> list[Exposed]:
    def look() -> list[Exposed] | None:
        found = [scrape(broker.metrics) for broker in brokers]
        return found if wanted(found) else None

    return wait_until(look)


def total(found: list[Exposed], name: str, **labels: str) -> float:
    return sum(one.total(name, **labels) for one in found)
