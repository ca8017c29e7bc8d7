"""Two brokers that act as members of one cluster: they share one metadata image, and send each other real requests.

near, __transaction_state      led by broker 1
far, __consumer_offsets        led by broker 2
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla import BrokerThread
from ottla.cluster.image import Broker, Partition, Topic
from ottla.cluster.peers import Connections
from ottla.cluster.plans import INTERNAL_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTENER = "PLAINTEXT"
LEADERS = {"near": 1, "__transaction_state": 1, "far": 2, "__consumer_offsets": 2}


def port_of(broker: BrokerThread) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def parts_of(broker: BrokerThread) -> Any:
    root = broker._broker._root
    assert root is not None
    assert root._dispatch is not None
    return root._dispatch._parts


def on_loop(broker: BrokerThread, work: Any) -> Any:
    """Run something on a broker's loop, and wait for it."""

    async def scene() -> Any:
        found = work()
        return await found if asyncio.iscoroutine(found) else found

    assert broker._loop is not None
    return asyncio.run_coroutine_threadsafe(scene(), broker._loop).result(10)


@contextmanager
def pair(**options: str) -> Iterator[tuple[BrokerThread, BrokerThread]]:
    with (
        BrokerThread(options={"node.id": 1, **options}) as first,
        BrokerThread(options={"node.id": 2, **options}) as second,
    ):
        both = {1: first, 2: second}
        brokers = {
            number: Broker(number, {LISTENER: ("127.0.0.1", port_of(broker))}, None, number)
            for number, broker in both.items()
        }
        topics = [
            Topic(name, name.encode()[:16].ljust(16, b"\1"), (made(leader),), INTERNAL_CONFIGS.get(name, {}))  # type: ignore[arg-type]
            for name, leader in LEADERS.items()
        ]
        peers = {number: join(broker, brokers, topics) for number, broker in both.items()}
        yield first, second
        for number, broker in both.items():
            on_loop(broker, peers[number].close)


def made(leader: int) -> Partition:
    return Partition(0, (leader,), (leader,), leader, 0)


def join(broker: BrokerThread, brokers: dict[int, Broker], topics: list[Topic]) -> Connections:
    parts = parts_of(broker)
    peers = Connections(LISTENER)

    def publish() -> None:
        image = parts.metadata.image._replace(brokers=brokers, cluster_id="pair", controller_id=1)
        parts.metadata.publish(image.with_topics(*topics))
        parts.transactions._endings._peers = peers
        parts.transactions.verification._peers = peers

    on_loop(broker, publish)
    return peers
