"""How __transaction_state is created."""

from __future__ import annotations

import pytest

from ottla.config import load
from ottla.coord.transactions.coordinator import min_isr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1),
        ({"zookeeper.connect": "zk:2181"}, 2),
        ({"zookeeper.connect": "zk:2181", "transaction.state.log.min.isr": "3"}, 3),
        ({"zookeeper.connect": "zk:2181", "transaction.state.log.replication.factor": "1"}, 1),
    ],
)
def test_what_is_acknowledged_is_on_two_brokers_of_a_cluster(options: dict[str, str], expected: int) -> None:
    assert min_isr(load({"node.id": "1", "log.dirs": "/nowhere", **options})) == expected
