"""Whole clusters: started, hurt in every way, and whole again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, cuts=True, options={"default.replication.factor": 3, "min.insync.replicas": 2}) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
        except KafkaException as error:
            return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
        return True

    wait_until(created, cluster.report)


def produce(cluster: Cluster, topic: str, *values: bytes, bootstrap: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap or cluster.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0, cluster.report()


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def read() -> bool:
        record = consumer.poll(1)
        if record is not None and not record.error():
            values.append(record.value())
        return len(values) >= count

    wait_until(read, lambda: values)
    consumer.close()
    return values


def whole(cluster: Cluster, topic: str) -> bool:
    state = cluster.state(topic, 0)
    return state is not None and sorted(state["isr"]) == [1, 2, 3] and state["leader"] > 0


def leader_known(cluster: Cluster, number: int, topic: str) -> int:
    """Who leads, as this broker tells its clients."""
    told = AdminClient({"bootstrap.servers": cluster.addresses(number)}).list_topics(topic, timeout=60)
    return int(told.topics[topic].partitions[0].leader)


def test_three_brokers_are_one_cluster(cluster: Cluster) -> None:
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60)
    assert sorted(known.brokers) == [1, 2, 3]
    assert known.controller_id == cluster.controller()
    assert len({broker.cluster_id for broker in cluster.brokers.values()}) == 1
    with cluster.store() as store:
        said = json.loads(store.get("/brokers/ids/1")[0])
        assert set(said["listener_security_protocol_map"]) == {"PLAINTEXT", "BROKERS"}
    create(cluster, "whole")
    wait_until(lambda: whole(cluster, "whole"), lambda: cluster.state("whole", 0))
    produce(cluster, "whole", b"a", b"b")
    assert consume(cluster, "whole", 2) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["kill", "pause", "isolate"])
def test_a_leader_that_goes_is_replaced_and_comes_back(cluster: Cluster, how: str) -> None:
    create(cluster, how)
    wait_until(lambda: whole(cluster, how), lambda: cluster.state(how, 0))
    produce(cluster, how, b"before")
    leader = cluster.leader(how, 0)
    assert leader is not None
    getattr(cluster, how)(leader)
    wait_until(lambda: cluster.leader(how, 0) not in (None, leader), lambda: cluster.state(how, 0))
    # Clients still reach a broker that is cut off: whoever is sent there, by it or by old news, waits in vain.
    others = [number for number in cluster.numbers if number != leader]
    for number in others:
        wait_until(lambda number=number: leader_known(cluster, number, how) not in (-1, leader), cluster.report)
    produce(cluster, how, b"between", bootstrap=cluster.addresses(*others))
    if how == "kill":
        cluster.start(leader)
    elif how == "pause":
        cluster.resume(leader)
    else:
        cluster.heal()
    wait_until(lambda: whole(cluster, how), lambda: cluster.state(how, 0))
    produce(cluster, how, b"after")
    assert consume(cluster, how, 3) == [b"before", b"between", b"after"]


def test_a_killed_broker_may_count_as_dead_at_once(cluster: Cluster) -> None:
    victim = wait_until(cluster.controller)
    assert victim is not None
    cluster.kill(victim, expire=True)
    with cluster.store() as store:
        assert set(store.get_children("/brokers/ids")) == {str(one) for one in cluster.numbers if one != victim}
    assert cluster.controller() != victim
    cluster.start(victim)


def test_zookeeper_may_go_and_come(cluster: Cluster) -> None:
    create(cluster, "store")
    wait_until(lambda: whole(cluster, "store"), cluster.report)
    cluster.zookeeper.restart()
    produce(cluster, "store", b"a")
    wait_until(lambda: whole(cluster, "store"), cluster.report)
    create(cluster, "store-after")
    assert consume(cluster, "store", 1) == [b"a"]
