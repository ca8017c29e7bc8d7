"""Prometheus' own parsers take what a broker exposes, with names and labels as nasty as Kafka allows them to be."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from ottla.metrics.catalogue import FAMILIES

if TYPE_CHECKING:
    from ottla.embed import BrokerThread


def exposed(broker: BrokerThread, accept: str) -> tuple[str, str]:
    request = urllib.request.Request(f"{broker.metrics}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_both_formats_are_accepted_and_say_the_same(broker: BrokerThread) -> None:
    group = 'back\\slash "quoted"\nnext line é'
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders.with_dots-and", b"x")
    producer.flush()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("orders.with_dots-and", 0, 1)], asynchronous=False)
    consumer.close()
    kind, plain = exposed(broker, "text/plain")
    assert kind.startswith("text/plain; version=0.0.4")
    kind, openly = exposed(broker, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    found = {sample.name: family.type for family in parse_plain(plain) for sample in family.samples}
    assert found.keys() == {sample.name for family in parse_open(openly) for sample in family.samples}
    kinds = {family.name: family.kind for family in FAMILIES}
    assert all(kinds[name] == found[name] for name in found if name in kinds)
    groups = {
        sample.labels["group"]
        for family in parse_plain(plain)
        for sample in family.samples
        if family.name == "ottla_group_committed_offset"
    }
    assert groups == {group}
