"""Producer ids, unique in the cluster forever: brokers allocate blocks of a thousand from the store.

In a cluster the controller allocates them for the others (AllocateProducerIds). When it does not answer, or is too old
for the request, the broker allocates a block itself: every allocation is a conditional write of the same node, so no
block is allocated twice.

A block is never returned: a restart leaves a gap, never a duplicate.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.metadata_store import BadVersion, NodeExists, NoNode, StoreError
from ottla.cluster.peers import PeerError
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.peers import Peers

logger = logging.getLogger("ottla.producer_ids")

BLOCK_SIZE = 1000
CHANNEL = "producer ids"
TIMEOUT_S = 5.0  # after that the store is used


class ProducerIds:
    def __init__(self, store: MetadataStore, node_id: int, controller: ControllerBlocks | None = None) -> None:
        self._store = store
        self._node_id = node_id
        self._controller = controller  # of a cluster
        self._next = self._end = 0
        self._taking = asyncio.Lock()  # one allocation at a time, however many producers wait

    async def take(self) -> int:
        """The next id. BrokerError, with the retriable code that Kafka uses, when none is available now."""
        if self._next == self._end:
            async with self._taking:
                if self._next == self._end:
                    try:
                        self._next, self._end = await self._take_block()
                    except StoreError as error:
                        reason = f"no producer ids can be had: {error}"
                        raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason) from error
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> tuple[int, int]:
        block = None if self._controller is None else await self._controller.ask()
        return block or await take_block(self._store, self._node_id)


class ControllerBlocks:
    """Requests blocks of ids from the controller of a cluster."""

    def __init__(self, metadata: Metadata, peers: Peers, broker_epoch: Callable[[], int]) -> None:
        self._metadata = metadata
        self._peers = peers
        self._broker_epoch = broker_epoch

    async def ask(self) -> tuple[int, int] | None:
        """The first id of a block and the one after its last; None when this broker must use the store itself."""
        node_id, image = self._metadata.node_id, self._metadata.image
        broker = image.brokers.get(image.controller_id)
        if broker is None or broker.id == node_id:
            return None
        request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=self._broker_epoch())
        try:
            answer: AllocateProducerIdsResponse = await self._peers.ask(
                broker, request, timeout_s=TIMEOUT_S, client_id=str(node_id), channel=CHANNEL
            )
        except PeerError as error:
            logger.debug("no producer ids from the controller: %s", error)
            return None
        if answer.error_code or answer.producer_id_len <= 0:
            return None
        return answer.producer_id_start, answer.producer_id_start + answer.producer_id_len


async def take_block(store: MetadataStore, node_id: int) -> tuple[int, int]:
    """Allocate the next block for a broker: its first id, and the one after its last."""
    while True:
        try:
            data, stat = await store.get(znodes.PRODUCER_IDS)
            start = znodes.decode_producer_ids(data) + 1 if data else 0
            block = znodes.encode_producer_ids(node_id, start, start + BLOCK_SIZE - 1)
            await store.set(znodes.PRODUCER_IDS, block, stat.version)
            return start, start + BLOCK_SIZE
        except NoNode:
            try:
                await store.create(znodes.PRODUCER_IDS, b"")
            except NodeExists:
                continue
        except BadVersion:  # another broker was faster: take the next block
            continue
