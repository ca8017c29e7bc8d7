"""A broker leaves its cluster in good order: it asks the controller to have others take over, and only then stops.

It asks again, as often as `controlled.shutdown.max.retries` says, when the controller cannot be reached or nobody could
take over yet. After that it stops all the same; and at once when no other broker is left to take over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control.nodes import MALFORMED
from ottla.cluster.keeper import KeeperError
from ottla.cluster.peers import PeerError
from ottla.errors import ErrorCode
from ottla.wire.messages.peers import ControlledShutdownRequest

if TYPE_CHECKING:
    from ottla.cluster.keeper import Keeper
    from ottla.cluster.peers import Peers
    from ottla.config import BrokerConfig

log = logging.getLogger("ottla.controller")

CHANNEL = "departure"
LOOK_S = 0.2


async def depart(config: BrokerConfig, store: Keeper, peers: Peers, node_id: int, epoch: int) -> bool:
    """Whether others have taken over everything that is led here."""
    if not config.controlled_shutdown_enable:
        return False
    tries = max(1, config.controlled_shutdown_max_retries)
    for attempt in range(tries):
        try:
            remaining = await _ask(
                config, store, peers, ControlledShutdownRequest(broker_id=node_id, broker_epoch=epoch)
            )
        except (KeeperError, PeerError, *MALFORMED) as error:
            log.info("the controller cannot be asked to take over", extra={"reason": str(error)})
        else:
            if not remaining:
                return True
            log.info("nobody can take over all that is led here", extra={"partitions": remaining})
        if attempt + 1 < tries and not await _wait(store, node_id, config.controlled_shutdown_retry_backoff_ms / 1000):
            break
    return False


async def _wait(store: Keeper, node_id: int, seconds: float) -> bool:
    """Wait before asking again; False as soon as there is nobody to take over."""
    while seconds > 0:
        try:
            if await store.children(znodes.BROKERS) == [str(node_id)]:
                return False
        except KeeperError:
            return False  # the store is away as well
        await asyncio.sleep(min(seconds, LOOK_S))
        seconds -= LOOK_S
    return True


async def _ask(config: BrokerConfig, store: Keeper, peers: Peers, request: ControlledShutdownRequest) -> int:
    """How many partitions are still led by the sender."""
    controller = znodes.decode_controller((await store.get(znodes.CONTROLLER)).data)
    node = await store.get(znodes.broker_path(controller))
    broker = znodes.decode_broker(controller, node.data, node.stat.czxid)
    response = await peers.ask(broker, request, client_id=str(request.broker_id), channel=CHANNEL)
    if response.error_code != ErrorCode.NONE:
        raise PeerError(f"the controller answers {ErrorCode(response.error_code).name}")
    return len(response.remaining_partitions)
