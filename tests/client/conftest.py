"""Brokers for the client: ours and Apache Kafka, one of each for the tests of a worker. Tests may restart them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import judge
import pytest
from process import Ottla

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client.records import Broker

# A broker that was killed may come back when its session has ended: with Apache Kafka's default that takes 9 s.
SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
ONE_WORKER = pytest.mark.xdist_group("client")  # so that Apache Kafka is started once
KINDS = ["ottla", pytest.param("kafka", marks=ONE_WORKER)]
OLD = pytest.param("old kafka", marks=ONE_WORKER)  # from before the newer protocol of transactions


@pytest.fixture(scope="session")
def brokers() -> Iterator[Callable[[str], Broker]]:
    """A broker by its kind, started when a test first asks for it."""
    running: dict[str, Broker] = {}
    with ExitStack() as stack:

        def found(kind: str) -> Broker:
            if kind not in running:
                running[kind] = stack.enter_context(made(kind))
            return running[kind]

        yield found


def made(kind: str) -> Broker:
    if kind == "ottla":
        return Ottla(settings=SETTINGS)
    if kind == "kafka":
        return judge.Kafka(settings=SETTINGS | SESSION)
    return judge.Kafka(version=judge.ZOOKEEPER, settings=SETTINGS)


@pytest.fixture(params=KINDS)
def either(request: pytest.FixtureRequest, brokers: Callable[[str], Broker]) -> Broker:
    return brokers(request.param)


@pytest.fixture(params=[*KINDS, OLD])
def any_age(request: pytest.FixtureRequest, brokers: Callable[[str], Broker]) -> Broker:
    return brokers(request.param)


@pytest.fixture
def own(brokers: Callable[[str], Broker]) -> Broker:
    return brokers("ottla")
