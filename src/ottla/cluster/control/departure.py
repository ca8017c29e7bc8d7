"""Controlled shutdown: a stopping broker asks the controller to move its leaderships to other brokers.

It retries, up to `controlled.shutdown.max.retries` times, when the controller cannot be reached or some partitions
could not be moved yet. After that it stops anyway; and at once when no other broker is left. Without the store there
can be no election: when it has not answered for some seconds, the broker stops waiting. Nor does it wait for a
controller that does not respond at all: even a busy one answers ApiVersions. A stop should take seconds.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control.nodes import MALFORMED
from ottla.cluster.metadata_store import StoreError, Unavailable
from ottla.cluster.peers import PeerError
from ottla.errors import ErrorCode
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.messages.peers import ControlledShutdownRequest

if TYPE_CHECKING:
    from ottla.cluster.image import Broker
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.peers import Peers
    from ottla.config import BrokerConfig

log = logging.getLogger("ottla.controller")

CHANNEL = "departure"
LOOK_CHANNEL = "departure-look"
AWAY_S = 3.0  # how long the store may not respond
DEAF_S = 5.0  # how long the controller may not respond
LEAVE_S_MAX = 30.0  # for all of it
LOOK_S = 0.2


async def depart(config: BrokerConfig, store: MetadataStore, peers: Peers, node_id: int, epoch: int) -> bool:
    """Whether all leaderships of this broker were moved to others."""
    if not config.controlled_shutdown_enable:
        return False
    loop = asyncio.get_running_loop()
    asking = loop.create_task(_ask_often(config, store, peers, node_id, epoch))
    away, deaf = (
        loop.create_task(_wait_for_silent_store(store)),
        loop.create_task(_wait_for_silent_controller(store, peers)),
    )
    try:
        await asyncio.wait((asking, away, deaf), timeout=LEAVE_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        if away.done():
            log.info("the store does not answer: no other leaders can be elected")
        else:
            log.info("the controller does not answer: it will elect other leaders when this broker is gone")
        return False
    finally:
        for task in (asking, away, deaf):
            task.cancel()
        await asyncio.gather(asking, away, deaf, return_exceptions=True)


async def _wait_for_silent_store(store: MetadataStore) -> None:
    """Done when the store has not answered for a while."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(AWAY_S):
                await _wait_for_answer(store)
            await asyncio.sleep(LOOK_S)


async def _wait_for_silent_controller(store: MetadataStore, peers: Peers) -> None:
    """Done when the controller has not answered for a while, although it accepts connections."""
    with suppress(TimeoutError):
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(StoreError, PeerError, *MALFORMED):  # only a timeout counts
                broker = await _controller(store)
                async with asyncio.timeout(DEAF_S):
                    await peers.ask(broker, ApiVersionsRequest(), version=0, channel=LOOK_CHANNEL)


async def _wait_for_answer(store: MetadataStore) -> None:
    while True:
        try:
            await store.get(znodes.CONTROLLER)
        except Unavailable:
            await asyncio.sleep(LOOK_S)
        except StoreError:  # that is an answer
            return
        else:
            return


async def _ask_often(config: BrokerConfig, store: MetadataStore, peers: Peers, node_id: int, epoch: int) -> bool:
    tries = max(1, config.controlled_shutdown_max_retries)
    for attempt in range(tries):
        try:
            remaining = await _ask(
                config, store, peers, ControlledShutdownRequest(broker_id=node_id, broker_epoch=epoch)
            )
        except (StoreError, PeerError, *MALFORMED) as error:
            log.info("controlled shutdown request failed", extra={"reason": str(error)})
        else:
            if not remaining:
                return True
            log.info("some partitions have no other replica to become leader", extra={"partitions": remaining})
        if attempt + 1 < tries and not await _wait(store, node_id, config.controlled_shutdown_retry_backoff_ms / 1000):
            break
    return False


async def _wait(store: MetadataStore, node_id: int, seconds: float) -> bool:
    """Wait before the next request; False as soon as no other broker is left."""
    while seconds > 0:
        with suppress(StoreError):  # may be temporary
            if await store.children(znodes.BROKERS) == [str(node_id)]:
                return False
        await asyncio.sleep(min(seconds, LOOK_S))
        seconds -= LOOK_S
    return True


async def _ask(config: BrokerConfig, store: MetadataStore, peers: Peers, request: ControlledShutdownRequest) -> int:
    """How many partitions the sender still leads."""
    response = await peers.ask(await _controller(store), request, client_id=str(request.broker_id), channel=CHANNEL)
    if response.error_code != ErrorCode.NONE:
        raise PeerError(f"the controller answers {ErrorCode(response.error_code).name}")
    return len(response.remaining_partitions)


async def _controller(store: MetadataStore) -> Broker:
    controller = znodes.decode_controller((await store.get(znodes.CONTROLLER)).data)
    node = await store.get(znodes.broker_path(controller))
    return znodes.decode_broker(controller, node.data, node.stat.czxid)
