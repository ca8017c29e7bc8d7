"""Subscriptions to clients' metrics: what may be said in one is what Apache Kafka lets say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from judge import Kafka

from ottla.embed import BrokerThread
from ottla.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT_METRICS, SET, DELETE, APPEND = 16, 0, 1, 2
STORY = [
    ("one", "metrics", SET, "org.apache.kafka.producer.,b."),
    ("one", "metrics", APPEND, "c."),
    ("one", "interval.ms", SET, "100"),
    ("one", "interval.ms", SET, "99"),
    ("one", "interval.ms", SET, "3600001"),
    ("one", "interval.ms", SET, "soon"),
    ("one", "match", SET, "client_id=a.*,client_software_name=b"),
    ("one", "match", SET, "client_id"),
    ("one", "match", SET, "somebody=x"),
    ("one", "match", SET, "client_id=((("),
    ("one", "unknown", SET, "x"),
    ("", "metrics", SET, "x"),
    ("two", "interval.ms", SET, "5000"),
    ("two", "interval.ms", DELETE, None),
]


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    with Kafka() as kafka, BrokerThread() as broker:
        yield [int(one.bootstrap.rpartition(":")[2]) for one in (kafka, broker)]


def told(port: int) -> list[Any]:
    transcript: list[Any] = []
    with Wired(port) as wired:
        for name, option, operation, value in STORY:
            change = IncrementalAlterableConfig(name=option, config_operation=operation, value=value)
            resource = IncrementalAlterConfigsResource(
                resource_type=CLIENT_METRICS, resource_name=name, configs=[change]
            )
            answer = wired.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
            transcript.append((name, option, value, answer.responses[0].error_code))
        listed = wired.ask(ListConfigResourcesRequest(), 0).config_resources
        transcript.append(sorted(one.resource_name for one in listed))
        for name in ("one", "two", ""):
            asked = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
            result = wired.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results[0]
            entries = sorted((one.name, one.value, one.config_source, one.config_type) for one in result.configs)
            layers = sorted((same.name, same.value, same.source) for one in result.configs for same in one.synonyms)
            transcript.append((name, result.error_code, entries, layers))
    return transcript


def test_apache_kafka_and_ottla_take_the_same_options(ports: list[int]) -> None:
    kafkas, ours = map(told, ports)
    assert ours == kafkas
