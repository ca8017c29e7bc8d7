"""A broker of ours for a test, and a connection to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from handlers.wired import Wired

from ottla.embed import BrokerThread


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        yield wired


def port_of(broker: BrokerThread) -> int:
    return int(broker.bootstrap.rpartition(":")[2])
