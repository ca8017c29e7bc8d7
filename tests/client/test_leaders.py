"""Two brokers of Apache Kafka that pass the leadership of partitions to and fro while we read and write."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import judge
import pytest
from client.records import fresh, numbers, read, values
from waiting import wait_until

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.producing import Sender
from ottla.client.transaction import identify
from ottla.wire.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("client")

COUNT = 10
TIMEOUT_S = 90.0
SHARED = {"offsets.topic.num.partitions": "1", "default.replication.factor": "2", "controlled.shutdown.enable": "true"}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[judge.Kafka, judge.Kafka]]:
    """One that is the controller too, and one that may be stopped."""
    with ExitStack() as stack:
        first = stack.enter_context(judge.Kafka(settings=SHARED))
        second = judge.Kafka(node_id=2)
        second._settings |= {
            **SHARED,
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{second.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{first._side_port}",
        }
        yield first, stack.enter_context(second)


def elect(cluster: Cluster, wheres: list[TopicPartition]) -> None:
    """Leadership to the replica that is the first of each partition, once it is in sync."""
    topic = TopicPartitions(topic=wheres[0].topic, partitions=[where.partition for where in wheres])
    request = ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=30_000)

    def spread() -> bool:
        cluster.retrying(lambda: cluster.anyone().ask(request, ElectLeadersResponse), what="electing")
        cluster.forget()
        return len({cluster.place(where) for where in wheres}) == 2

    wait_until(spread, "the second broker leads nothing")


def test_leaders_come_and_go(pair: tuple[judge.Kafka, judge.Kafka]) -> None:
    first, second = pair
    with Cluster(first.bootstrap, timeout_s=60) as cluster, Cluster(first.bootstrap, timeout_s=60) as other:
        topic = fresh(cluster, 4).topic
        wheres = [TopicPartition(topic, index) for index in range(4)]
        elect(other, wheres)
        identity = identify(cluster, None, timeout_ms=0)
        moved = threading.Event()

        def move() -> None:
            second.stop()  # hands its partitions over
            second.start()
            elect(other, wheres)  # and takes them back
            moved.set()

        thread = threading.Thread(target=move)
        count = 0
        with Sender(cluster, identity=identity, request_bytes_max=1000) as sender:
            while not moved.is_set() or count < 100:
                for where in wheres:
                    sender.send(where, [numbers(count * COUNT, COUNT, identity=identity)])
                count += 1
                if count == 50:
                    thread.start()
                time.sleep(0.002)
            sender.flush()
        thread.join(TIMEOUT_S)
        expected = list(range(count * COUNT))
        assert all(read(other, where) == expected for where in wheres)

        led = next(where for where in wheres if other.place(where)[1] == second.port)
        pieces = fetch(cluster, led, start=0, stop=len(expected), bytes_max=max(1000, 20 * count))
        kept = [next(pieces)]
        second.stop()
        kept += pieces
        assert list(values(kept, 0, len(expected))) == expected
