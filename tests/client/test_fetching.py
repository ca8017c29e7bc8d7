"""Ranges of a partition, from ours and from Apache Kafka: nothing lost, nothing twice, whatever happens meanwhile."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from client.records import fresh, numbers, read, restart, values
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import fetching, offsets
from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.connection import Connection
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.fetching import OutOfRange, Recreated, fetch, walk
from ottla.client.producing import Sender
from ottla.errors import ErrorCode
from ottla.records import batch, legacy
from ottla.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from client.records import Broker

    from ottla.client.cluster import Topic

COUNT = 10  # records of a batch


def filled(cluster: Cluster, batches: int, *, size: int = 0) -> TopicPartition:
    where = fresh(cluster)
    with Sender(cluster) as sender:
        sender.send(where, [numbers(index * COUNT, COUNT, size=size) for index in range(batches)])
        sender.flush()
    return where


@pytest.mark.parametrize(("start", "stop"), [(0, 500), (0, 1), (7, 8), (10, 20), (15, 333), (499, 500), (42, 42)])
def test_a_range_is_read_and_no_more(either: Broker, start: int, stop: int) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 50, size=100)
        pieces = list(fetch(cluster, where, start=start, stop=stop, bytes_max=4000))
        assert list(values(pieces, start, stop)) == list(range(start, stop))
        for piece in pieces:
            entries = list(batch.entries(piece.data))
            assert sum(entry.size for entry in entries) == len(piece.data)  # nothing is torn
            assert all(batch.header(piece.data, entry.position).base_offset < stop for entry in entries)
            assert (piece.high, piece.stable, piece.log_start, piece.aborted) == (500, 500, 0, None)
        assert [piece.start for piece in pieces] == [start, *(piece.end for piece in pieces)][: len(pieces)]
        if stop - start > 300:
            assert len(pieces) > 5


def test_a_batch_larger_than_what_is_asked_for_comes_whole(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 3, size=20_000)
        pieces = list(fetch(cluster, where, start=5, stop=25, bytes_max=1000))
        assert list(values(pieces, 5, 25)) == list(range(5, 25))


def test_pieces_of_several_ranges_do_not_mix(either: Broker) -> None:
    """Each has a connection of its own, and gives it back."""
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 30, size=100)
        first = fetch(cluster, where, start=0, stop=300, bytes_max=2000)
        second = fetch(cluster, where, start=100, stop=300, bytes_max=2000)
        got: tuple[list[int], list[int]] = ([], [])
        for one, other in zip(first, second, strict=False):
            got[0].extend(values([one], one.start, 300))
            got[1].extend(values([other], other.start, 300))
        assert got[0] == list(range(len(got[0])))
        assert got[1] == list(range(100, 300))
        first.close()  # type: ignore[attr-defined]
        assert read(cluster, where) == list(range(300))


def test_a_broker_that_restarts_costs_nothing_but_time(either: Broker) -> None:
    with Cluster(either.bootstrap, timeout_s=60) as cluster:
        where = filled(cluster, 60, size=100)
        pieces = fetch(cluster, where, start=0, stop=600, bytes_max=5000)
        kept = [next(pieces), next(pieces)]
        restart(either)
        kept += pieces
        assert list(values(kept, 0, 600)) == list(range(600))


def test_an_offset_that_is_not_there_is_refused_with_what_is(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 2)
        with pytest.raises(OutOfRange, match=r"offset 21 was asked for, and the log holds 0 to 19") as caught:
            list(fetch(cluster, where, start=21, stop=30))
        assert (caught.value.code, caught.value.log_start, caught.value.high) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 20)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.high) == (str(caught.value), 20)


def test_what_never_comes_is_not_waited_for_for_ever(either: Broker) -> None:
    with Cluster(either.bootstrap, timeout_s=1) as cluster:
        where = filled(cluster, 2)
        got = []
        with pytest.raises(Refused, match=r"offset 24 was asked for, the high watermark is 20"):
            got.extend(fetch(cluster, where, start=0, stop=25, wait_ms=100))
        assert list(values(got, 0, 25)) == list(range(20))


def test_a_slow_store_is_waited_for(own: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with tiered storage answers with nothing while what is asked for is still on its way to it."""
    left, receive = [5], Connection.receive

    def received(self: Connection, answer: type[Any]) -> Any:
        found = receive(self, answer)
        if answer is FetchResponse and left[0]:
            left[0] -= 1
            for topic in found.responses:
                for one in topic.partitions:
                    one.records = None
        return found

    with Cluster(own.bootstrap) as cluster:
        where = filled(cluster, 5)
        monkeypatch.setattr(Connection, "receive", received)
        monkeypatch.setattr(offsets, "earliest_local", lambda cluster, where: 30)
        assert read(cluster, where) == list(range(50))
        assert not left[0]
        left[0] = 5
        pieces = list(fetch(cluster, where, start=30, stop=50))
        assert list(values(pieces, 30, 50)) == [], "on its own disk nothing is nothing"
        left[0] = 1 << 30
    with Cluster(own.bootstrap) as cluster:
        cluster.patience_s = 0.3
        with pytest.raises(Unreachable, match="tiered storage"):
            read(cluster, where)


def test_a_topic_created_anew_is_another_one(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 60, size=100)
        pieces = fetch(cluster, where, start=0, stop=600, bytes_max=5000)
        next(pieces)
        admin = AdminClient({"bootstrap.servers": either.bootstrap})
        admin.delete_topics([where.topic])[where.topic].result(30)
        with Cluster(either.bootstrap) as other:
            other.create(where.topic, 1)
            with Sender(other) as sender:
                sender.send(where, [numbers(0, COUNT) for _ in range(60)])
                sender.flush()
            (now,) = other.topics([where.topic]).values()
            assert now.id is not None
            assert list(fetch(other, where, start=0, stop=10, topic_id=now.id))
            with pytest.raises(Recreated, match="deleted and created again"):
                list(fetch(other, where, start=0, stop=10, topic_id=uuid.uuid4()))
        with pytest.raises(Recreated, match="deleted and created again"):
            list(pieces)


@pytest.mark.parametrize("until", [4, 11, 12])
def test_older_versions_read_the_same(own: Broker, until: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(Cluster):
        def topic(self, name: str) -> Topic:
            return replace(super().topic(name), id=None)

    monkeypatch.setattr(fetching, "IDS_SINCE", until + 1)
    with Old(own.bootstrap) as cluster:
        where = filled(cluster, 20, size=100)
        assert read(cluster, where) == list(range(200))


def test_a_missing_topic_is_said_soon(own: Broker) -> None:
    with Cluster(own.bootstrap) as cluster, pytest.raises(Refused, match="topic nowhere: no such topic"):
        list(fetch(cluster, TopicPartition("nowhere", 0), start=0, stop=1))


def entry(base: int, count: int = 1) -> bytes:
    return batch.build([batch.Record(base + index, 0, None, b"x") for index in range(count)])


def test_the_walk_passes_gaps_and_stops_in_time() -> None:
    one, two, three = entry(10, 5), entry(20, 5), entry(40, 5)
    data = memoryview(one + two + three)
    assert walk(data, 12, 100, "it") == (len(data), len(data), 45)
    assert walk(data, 12, 45, "it") == (len(data), len(data), 45)
    # what begins at `stop` or later is not kept, and tells that nothing lies between
    assert walk(data, 12, 40, "it") == (len(one + two), len(data), 40)
    assert walk(data, 12, 30, "it") == (len(one + two), len(data), 30)
    assert walk(data, 15, 20, "it") == (len(one), len(one + two), 20)
    assert walk(memoryview(three), 20, 30, "it") == (0, len(three), 30)
    # compaction keeps the span of a batch that lost its last records
    sparse = batch.build([batch.Record(50, 0, None, b"x")], last_offset=59)
    assert walk(memoryview(sparse), 50, 100, "it") == (len(sparse), len(sparse), 60)


def test_the_walk_leaves_out_what_is_torn() -> None:
    whole, torn = entry(0, 5), entry(5, 5)
    for size in range(len(torn)):
        data = memoryview(whole + torn[:size])
        assert walk(data, 0, 100, "it") == (len(whole), len(whole), 5)
    assert walk(memoryview(b""), 3, 9, "it") == (0, 0, 3)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_walk_knows_formats_of_old(magic: int) -> None:
    records = [batch.Record(7 + index, 0, None, b"x" * 40) for index in range(3)]
    plain = legacy.build(records, magic=magic)
    assert walk(memoryview(plain), 7, 100, "it") == (len(plain), len(plain), 10)
    packed = legacy.build(records, magic=magic, codec=1)
    assert walk(memoryview(packed + entry(10)), 8, 100, "it") == (len(packed + entry(10)),) * 2 + (11,)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (entry(0)[:8] + b"\0\0\0\3" + entry(0)[12:], "claims a length of 3"),
        (entry(0)[:8] + b"\xff\xff\xff\xff" + entry(0)[12:], "claims a length of -1"),
        (entry(5, 5) + entry(9, 5), "offset 9 overlaps"),
        (entry(5) + entry(5), "offset 5 overlaps"),
        (entry(5)[:23] + b"\xff\xff\xff\xff" + entry(5)[27:], "offset 5 overlaps"),
    ],
)
def test_damage_is_one_sentence(data: bytes, said: str) -> None:
    with pytest.raises(Failed, match=said):
        walk(memoryview(data), 0, 100, "it")


@given(st.binary(max_size=300), st.integers(0, 50), st.integers(0, 50))
def test_the_walk_takes_any_bytes(data: bytes, start: int, stop: int) -> None:
    try:
        kept, size, end = walk(memoryview(data), start, stop, "it")
    except Failed:
        return
    assert 0 <= kept <= size <= len(data)
    assert end >= min(start, stop)


def test_offsets_say_where_a_range_may_end(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster:
        where = filled(cluster, 3)
        assert offsets.earliest(cluster, [where]) == {where: 0}
        assert offsets.latest(cluster, [where]) == offsets.latest(cluster, [where], committed=True) == {where: 30}
