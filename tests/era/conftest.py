"""Three brokers on a real ZooKeeper, for every tool of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    options = {"auto.leader.rebalance.enable": False, "offsets.topic.num.partitions": 2}
    with Cluster(brokers=3, options=options) as running:
        yield running
