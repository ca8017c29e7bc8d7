"""One cluster for all scenarios of a worker: three brokers in three racks, and a ZooKeeper with short sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenarios import raw
from scenarios.stage import SESSION_MS, Stage
from waiting import wait_until

from ottla.client.cluster import GROUP, TRANSACTION
from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "auto.leader.rebalance.enable": False,  # scenarios say who leads
    "controlled.shutdown.retry.backoff.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 3000,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.retention.check.interval.ms": 86400000,
    "log.segment.delete.delay.ms": 500,
}
RACKS = {number: {"broker.rack": f"rack-{number}"} for number in (1, 2, 3, 4)}


@pytest.fixture(scope="session")
def scenario_cluster() -> Iterator[Cluster]:
    with Cluster(3, options=OPTIONS, own_options=RACKS) as cluster:
        stage = Stage(cluster)
        for kind in (GROUP, TRANSACTION):  # so that their topics are there, on these three brokers
            wait_until(lambda kind=kind: raw.coordinator(stage.broker(1), "somebody", kind) > 0)
        stage.dismiss()
        yield cluster


@pytest.fixture
def stage(scenario_cluster: Cluster) -> Iterator[Stage]:
    stage = Stage(scenario_cluster)
    stage.ready()
    yield stage
    stage.dismiss()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They share a cluster, so they run one after another."""
    for item in items:
        if "scenarios" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("scenarios"))
