"""One broker for the tests of a file."""

from collections.abc import Iterator

import pytest

from ottla.embed import BrokerThread


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(options={"group.initial.rebalance.delay.ms": "1500"}) as broker:  # a join waits visibly
        yield broker
