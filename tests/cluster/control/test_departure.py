"""Controlled shutdown: a broker asks the controller to move its leaderships, as long as there are other brokers."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.cluster import znodes
from ottla.cluster.control.departure import depart
from ottla.cluster.image import Broker
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.config import load
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.peers import ControlledShutdownResponse, RemainingPartition


class Controller:
    """Answers with a number of partitions that could not be moved, each time one fewer."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self.asked = 0

    async def ask(self, broker: Broker, request: object, **options: object) -> ControlledShutdownResponse:
        if isinstance(request, ApiVersionsRequest):
            return ControlledShutdownResponse(error_code=0, remaining_partitions=[])
        self.asked += 1
        left = [RemainingPartition(topic_name="t", partition_index=index) for index in range(self.remaining)]
        self.remaining -= 1
        return ControlledShutdownResponse(error_code=0, remaining_partitions=left)


async def departed(controller: Controller, *brokers: int, **options: str) -> bool:
    store, peers = SqliteStore(MEMORY), controller
    await store.open()
    for path in znodes.PARENTS:
        await store.create(path)
    await store.create(znodes.CONTROLLER, znodes.encode_controller(brokers[0], 0))
    for broker in brokers:
        found = Broker(broker, {"PLAINTEXT": ("localhost", 9092)}, None, 0)
        await store.create(znodes.broker_path(broker), znodes.encode_broker(found, 0))
    config = load({"controlled.shutdown.retry.backoff.ms": "10", **options})
    try:
        chosen: Any = peers
        return await depart(config, store, chosen, 1, 7)
    finally:
        await store.close()


def test_it_asks_until_all_is_taken_over() -> None:
    controller = Controller(2)
    assert asyncio.run(departed(controller, 1, 2))
    assert controller.asked == 3


def test_it_gives_up_after_some_tries() -> None:
    controller = Controller(9)
    assert not asyncio.run(departed(controller, 1, 2))
    assert controller.asked == 3


def test_the_last_broker_does_not_wait_for_anybody() -> None:
    controller = Controller(9)
    patient = {"controlled.shutdown.retry.backoff.ms": "3600000"}
    assert not asyncio.run(departed(controller, 1, **patient))
    assert controller.asked == 1
