"""Finding brokers, leaders and coordinators, and bearing with those that are not ready."""

import socket
import threading
from collections.abc import Callable

import pytest
from process import Ottla

from ottla.client import cluster as module
from ottla.client.cluster import GROUP, TRANSACTION, Cluster, TopicPartition, places
from ottla.client.failure import Failed, Refused, Unreachable, check
from ottla.embed import BrokerProcess, BrokerThread
from ottla.errors import ErrorCode
from ottla.pytest_plugin import Namespace

Broker = BrokerProcess | BrokerThread


def test_the_cluster_says_who_is_who(ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    with Cluster(f"127.0.0.1:1,{ottla_broker.bootstrap}") as cluster:
        assert cluster.id == ottla_broker.cluster_id
        assert list(cluster.brokers()) == [ottla_broker.node_id]
        for kind in (GROUP, TRANSACTION):
            assert cluster.coordinator(ottla_namespace.group(), kind).name == ottla_broker.bootstrap
        with pytest.raises(Refused) as refused:
            cluster.leaders(ottla_namespace.topic("missing"))
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_once_and_described(ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    name, missing = ottla_namespace.topic("made"), ottla_namespace.topic("missing")
    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.create(name, 3, configs={"max.message.bytes": "4321"})
        first = cluster.topics([name, missing])
        cluster.create(name, 5)  # is there already
        assert first == cluster.topics([name]) == {name: cluster.topics()[name]}
        made = first[name]
        assert (made.name, made.partitions, made.internal) == (name, 3, False)
        assert made.id is not None
        assert cluster.configs(name)["max.message.bytes"] == "4321"
        assert cluster.leader(TopicPartition(name, 2)).name == ottla_broker.bootstrap
        assert sorted(cluster.leaders(name)) == [0, 1, 2]
        assert missing not in cluster.topics()  # asking for it has not made it


def test_what_the_cluster_refuses_is_said(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MISSING_S", 0)
    with Cluster(ottla_broker.bootstrap) as cluster:
        with pytest.raises(Refused, match=r"creating topic no/way.*INVALID_TOPIC_EXCEPTION"):
            cluster.create("no/way", 1)
        with pytest.raises(Refused, match=r"creating topic.*INVALID_CONFIG"):
            cluster.create("wrong", 1, configs={"no.such.option": "1"})
        with pytest.raises(Refused, match=r"missing.*UNKNOWN_TOPIC_OR_PARTITION"):
            cluster.configs("missing")
        with pytest.raises(Refused, match=r"missing.*UNKNOWN_TOPIC_OR_PARTITION"):
            cluster.leader(TopicPartition("missing", 0))


def test_a_partition_that_is_none(ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    name = ottla_namespace.topic("narrow")
    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.create(name, 1)
        with pytest.raises(Refused, match=f"{name} partition 1: no such topic or partition here"):
            cluster.leader(TopicPartition(name, 1))


def test_coordinators_are_found_in_the_old_way_too(ottla_broker: Broker) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        first = cluster.anyone()
        first._versions = {**first._versions, 10: (0, 3)}
        assert cluster.coordinator("g", GROUP).name == ottla_broker.bootstrap


def test_connections_are_shared_and_leased_ones_given_back(ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    where = TopicPartition(ottla_namespace.topic("leased"), 0)
    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.create(where.topic, 1)
        shared = cluster.leader(where)
        assert cluster.leader(where) is shared
        first, second = cluster.lease(where), cluster.lease(where)
        assert len({id(one) for one in (shared, first, second)}) == 3
        cluster.release(first)
        assert cluster.lease(where) is first
        first.close()
        cluster.release(first)
        assert cluster.lease(where) is not first
        shared.close()
        assert cluster.leader(where) is not shared


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,localhost:1", "127.0.0.1:port", "127.0.0.1:0"])
def test_no_cluster_is_one_sentence(bootstrap: str) -> None:
    with pytest.raises(Failed, match=f"nothing answers at {bootstrap}"):
        Cluster(bootstrap)


@pytest.mark.parametrize("host", ["my..host", "x" * 64 + ".example"])
def test_a_host_that_cannot_be_is_one_sentence(host: str) -> None:
    with pytest.raises(Failed, match=f"{host} is not a valid host name"):
        Cluster(f"{host}:9092", patience_s=30)


def test_topics_are_created_by_the_controller(ottla_broker: Broker, ottla_namespace: Namespace) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        (node,) = cluster.brokers()
        assert cluster.controller() is cluster.brokers()[node]
        elsewhere = socket.create_server(("127.0.0.1", 0))
        cluster._brokers = {node: cluster._brokers[node], 7: elsewhere.getsockname()}
        cluster._controller = 7  # until it is asked, and does not answer
        cluster.timeout_s = 0.3
        with elsewhere:
            cluster.create(ottla_namespace.topic("made"), 1)


def test_addresses_in_every_form() -> None:
    text = "a:1, [::1]:2,PLAINTEXT://b:3,c"
    assert places(text) == [("a", 1), ("::1", 2), ("b", 3), ("c", 9092)]


def answering(*codes: int) -> Callable[[], str]:
    left = list(codes)

    def attempt() -> str:
        check("it", left.pop(0))
        return "done"

    return attempt


def test_what_passes_is_waited_for(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with Cluster(ottla_broker.bootstrap) as cluster:
        assert cluster.retrying(answering(loading, ErrorCode.NOT_COORDINATOR, 0), what="it") == "done"
        for lasting in (ErrorCode.PRODUCER_FENCED, ErrorCode.CORRUPT_MESSAGE):
            with pytest.raises(Refused) as refused:
                cluster.retrying(answering(loading, lasting, 0), what="it")
            assert refused.value.code == lasting


def test_waiting_has_an_end(ottla_broker: Broker) -> None:
    for_ever = answering(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100)
    with Cluster(ottla_broker.bootstrap) as cluster:
        cluster.patience_s = 0.2
        with pytest.raises(Refused, match="LOAD_IN_PROGRESS"):
            cluster.retrying(for_ever, what="it")


def test_a_cluster_that_is_away_is_waited_for_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    broker = Ottla()
    starting = threading.Timer(0.5, broker.start)
    starting.start()
    try:
        with pytest.raises(Unreachable):
            Cluster(broker.bootstrap)
        with Cluster(broker.bootstrap, patience_s=30) as cluster:
            assert cluster.id
        assert caplog.text.count("Waiting for it.") == 1
        with pytest.raises(Failed, match="is not a port"):
            Cluster("127.0.0.1:port", patience_s=30)
    finally:
        starting.join()
        broker.close()


def test_silence_is_borne_and_ends() -> None:
    with BrokerProcess() as broker:
        cluster = Cluster(broker.bootstrap)
    cluster.patience_s = 0.5
    with cluster, pytest.raises(Failed, match=f"nothing answers at {broker.bootstrap}"):
        cluster.topics()
