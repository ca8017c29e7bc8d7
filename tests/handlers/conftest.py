"""Brokers for the tests of a file, with the options in its SETTINGS, and a separate connection for each test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judge
import pytest
from handlers.wired import Wired

from ottla.embed import BrokerThread


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    with BrokerThread(options=settings_of(request)) as started:
        yield started


@pytest.fixture(scope="module")
def ottla(broker: BrokerThread) -> int:
    """The port of the file's broker, for scenarios that also run on Apache Kafka."""
    return port_of(broker)


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[int]:
    with judge.Kafka(settings=settings_of(request)) as started:
        yield started.port


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    """A connection to a broker of this test only."""
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        yield wired


def settings_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(getattr(request.module, "SETTINGS", {}))


def port_of(broker: BrokerThread) -> int:
    return int(broker.bootstrap.rpartition(":")[2])
