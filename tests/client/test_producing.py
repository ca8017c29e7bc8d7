"""Batches to their leaders: all of them, in order, once if numbered; through refusals, lost answers and restarts."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from client.proxy import CUT, LOSE, Proxy
from client.records import fresh, numbers, read, restart
from process import Ottla

from ottla.client import producing
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.producing import Sender
from ottla.client.transaction import ProducerIdentity, identify
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client.proxy import Fate
    from client.records import Broker

COUNT = 10  # records of a batch
BATCHES = 40
TIMEOUT_S = 60.0
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def batches(identity: ProducerIdentity | None = None, count: int = BATCHES, size: int = 0) -> list[bytes]:
    return [numbers(index * COUNT, COUNT, identity=identity, size=size) for index in range(count)]


def written(sender: Sender, where: TopicPartition, data: list[bytes]) -> None:
    sender.send(where, data)
    sender.flush()


@pytest.fixture(scope="module")
def door() -> Iterator[tuple[Proxy, Cluster]]:
    """A broker of ours that everybody reaches through the proxy."""
    with Proxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with Ottla(settings=settings) as broker:
            proxy.target = ("127.0.0.1", broker.port)
            with Cluster(f"127.0.0.1:{proxy.port}") as cluster:
                yield proxy, cluster


@pytest.fixture
def fates(door: tuple[Proxy, Cluster]) -> Iterator[Callable[[Callable[[int], Fate]], Cluster]]:
    """Set what becomes of the requests from now on, counted from 0."""
    proxy, cluster = door

    def chosen(fate: Callable[[int], Fate]) -> Cluster:
        first = proxy.seen
        proxy.fate = lambda index: fate(index - first)
        return cluster

    yield chosen
    proxy.fate = lambda index: None


@pytest.mark.parametrize("named", [False, True])
def test_batches_arrive_in_order(either: Broker, named: bool) -> None:
    with Cluster(either.bootstrap) as cluster:
        first = fresh(cluster, 3)
        wheres = [TopicPartition(first.topic, index) for index in range(3)]
        identity = identify(cluster, None, timeout_ms=0) if named else None
        with Sender(cluster, identity=identity, request_bytes_max=1000) as sender:
            for index in range(BATCHES):
                for where in wheres:
                    sender.send(where, [numbers(index * COUNT, COUNT, identity=identity)])
            sender.flush()
            sender.flush()  # has nothing to do
        assert all(read(cluster, where) == list(range(BATCHES * COUNT)) for where in wheres)


def test_the_last_word_of_acks(own: Broker) -> None:
    with Cluster(own.bootstrap) as cluster:
        where = fresh(cluster)
        with Sender(cluster, acks=1) as sender:
            written(sender, where, batches(count=2))
        with Sender(cluster, acks=0) as sender:
            written(sender, where, [numbers(20, COUNT)])
        with Sender(cluster) as sender:  # on the connection that the other has given back
            written(sender, where, [numbers(30, COUNT)])
        assert read(cluster, where) == list(range(40))
        with pytest.raises(Failed, match="needs acks=all"):
            Sender(cluster, acks=1, identity=ProducerIdentity(None, 1, 0))


@pytest.mark.parametrize("named", [False, True])
def test_a_broker_that_restarts_loses_nothing(either: Broker, named: bool) -> None:
    with Cluster(either.bootstrap, timeout_s=60) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, None, timeout_ms=0) if named else None
        again = threading.Thread(target=restart, args=[either])
        with Sender(cluster, identity=identity, request_bytes_max=1) as sender:
            for index, data in enumerate(batches(identity, count=300)):
                sender.send(where, [data])
                if index == 100:
                    again.start()
            again.join(TIMEOUT_S)
            sender.flush()
        found = read(cluster, where)
        if named:
            assert found == list(range(3000))
        else:
            assert in_order(found) == list(range(3000))


def in_order(found: list[int]) -> list[int]:
    """Without what came again: each number where it stands last, which is where its retry put it."""
    last = {number: place for place, number in enumerate(found)}
    return sorted(last, key=lambda number: last[number])


@pytest.mark.parametrize("fate", [NOT_LEADER, LOSE, CUT])
@pytest.mark.parametrize("named", [False, True])
def test_what_fails_is_sent_again_with_all_that_follows(fates: Callable[..., Cluster], fate: Fate, named: bool) -> None:
    """Every seventh request fails while those behind it are on their way already."""
    cluster = fates(lambda index: fate if index % 7 == 2 else None)
    where = fresh(cluster)
    identity = identify(cluster, None, timeout_ms=0) if named else None
    with Sender(cluster, identity=identity, request_bytes_max=1) as sender:
        written(sender, where, batches(identity))
    found = read(cluster, where)
    if named:
        assert found == list(range(BATCHES * COUNT))
    else:
        assert in_order(found) == list(range(BATCHES * COUNT))
        if fate != CUT:
            assert len(found) > BATCHES * COUNT  # the scenario has happened


def test_partitions_fail_each_for_itself(fates: Callable[..., Cluster]) -> None:
    cluster = fates(lambda index: NOT_LEADER if index in (1, 3, 6) else None)
    first = fresh(cluster, 4)
    wheres = [TopicPartition(first.topic, index) for index in range(4)]
    identity = identify(cluster, None, timeout_ms=0)
    with Sender(cluster, identity=identity, request_bytes_max=500) as sender:
        for data in batches(identity):
            for where in wheres:
                sender.send(where, [data])
        sender.flush()
    assert all(read(cluster, where) == list(range(BATCHES * COUNT)) for where in wheres)


def test_partitions_that_fail_together_wait_together(
    fates: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One refused request may hold a thousand partitions: a pause for each of them would outlast any time-out."""
    cluster = fates(lambda index: NOT_LEADER if index in (0, 1) else None)
    first = fresh(cluster, 64)
    wheres = [TopicPartition(first.topic, index) for index in range(64)]
    pauses: list[float] = []
    monkeypatch.setattr("ottla.client.cluster.time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    with Sender(cluster) as sender:
        for where in wheres:
            sender.send(where, [numbers(0, 1)])
        sender.flush()
    assert len(pauses) == 2
    assert all(read(cluster, where) == [0] for where in wheres)


def test_who_is_silent_is_asked_once_for_all_partitions(
    door: tuple[Proxy, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection to a host that is gone may take the whole time-out to fail."""
    with Cluster(door[1].bootstrap) as cluster:
        first = fresh(cluster, 64)
        cluster.patience_s = 0.3
        asked: list[TopicPartition] = []

        def lease(where: TopicPartition) -> None:
            asked.append(where)
            raise Unreachable("silence")

        monkeypatch.setattr(cluster, "lease", lease)
        with Sender(cluster) as sender:
            for index in range(64):
                sender.send(TopicPartition(first.topic, index), [numbers(0, 1)])
            with pytest.raises(Unreachable, match="silence"):
                sender.flush()
    assert len(asked) < 8


def test_a_request_names_no_more_partitions_than_brokers_take(
    door: tuple[Proxy, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, cluster = door
    monkeypatch.setattr(producing, "PARTITIONS_MAX", 3)
    first, before = fresh(cluster, 10), proxy.seen
    wheres = [TopicPartition(first.topic, index) for index in range(10)]
    with Sender(cluster) as sender:
        for where in wheres:
            sender.send(where, [numbers(0, 1)])
        sender.flush()
    assert proxy.seen - before == 4
    assert all(read(cluster, where) == [0] for where in wheres)


def test_what_never_passes_ends(door: tuple[Proxy, Cluster], fates: Callable[..., Cluster]) -> None:
    fates(lambda index: NOT_LEADER)
    with Cluster(door[1].bootstrap) as cluster:
        where = fresh(cluster)
        cluster.patience_s = 0.5
        with Sender(cluster) as sender:
            with pytest.raises(Refused, match=f"writing to {where.topic} partition 0: .*NOT_LEADER"):
                written(sender, where, batches())
            with pytest.raises(Refused, match="NOT_LEADER"):  # and stays so
                sender.send(where, batches())
            with pytest.raises(Refused, match="NOT_LEADER"):
                sender.flush()


def test_no_more_is_on_its_way_than_allowed(door: tuple[Proxy, Cluster], fates: Callable[..., Cluster]) -> None:
    proxy, _ = door
    fates(lambda index: None)
    proxy.forget()
    proxy.gate.clear()
    with Cluster(f"127.0.0.1:{proxy.port}") as cluster:
        where = fresh(cluster)
        sent = []

        def work() -> None:
            with Sender(cluster, in_flight=3, request_bytes_max=1) as sender:
                for data in batches():
                    sender.send(where, [data])
                    sent.append(data)
                sender.flush()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.5)  # it waits: the gate is closed
        assert thread.is_alive()
        assert len(sent) <= 3
        proxy.gate.set()
        thread.join(TIMEOUT_S)
        assert (proxy.most, len(sent)) == (3, BATCHES)
        assert read(cluster, where) == list(range(BATCHES * COUNT))


def test_a_batch_that_is_too_large_names_the_option(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster, max_message_bytes="1000")
        with Sender(cluster) as sender, pytest.raises(Refused, match=r"message\.max\.bytes") as caught:
            written(sender, where, [numbers(0, 10, size=200)])
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_gap_after_an_acknowledged_batch_is_an_error(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, None, timeout_ms=0)
        with Sender(cluster, identity=identity) as sender:
            written(sender, where, batches(identity, count=2))
            with pytest.raises(Refused) as caught:
                written(sender, where, [numbers(50, COUNT, identity=identity)])
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert read(cluster, where) == list(range(20))


def test_numbers_used_twice_are_an_error(either: Broker) -> None:
    """A batch from long ago that this sender has not sent: it is not in the log, whatever its number says."""
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, None, timeout_ms=0)
        with Sender(cluster, identity=identity) as sender:
            written(sender, where, batches(identity, count=10))
            with pytest.raises(Refused) as caught:
                written(sender, where, [numbers(900, COUNT, identity=identity, sequence=0)])
        assert caught.value.code in (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert read(cluster, where) == list(range(100))


def test_what_a_broker_says_of_a_record_is_passed_on(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = fresh(cluster, cleanup_policy="compact")
        with Sender(cluster) as sender, pytest.raises(Refused, match=r"writing to .* partition 0: ") as caught:
            written(sender, where, batches(count=1))  # a compacted topic needs keys
        assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_a_missing_topic_is_said_soon(own: Broker) -> None:
    with Cluster(own.bootstrap) as cluster, Sender(cluster) as sender:
        sender.send(TopicPartition("nowhere", 0), batches(count=1))
        with pytest.raises(Refused, match="topic nowhere: no such topic"):
            sender.flush()
