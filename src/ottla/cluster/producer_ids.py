"""Producer ids, unique in the cluster for ever: brokers take blocks of a thousand from the store.

A block that was taken is never given back: a restart leaves a gap, never a duplicate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.keeper import BadVersion, KeeperError, NodeExists, NoNode
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.keeper import Keeper

BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self, keeper: Keeper, node_id: int) -> None:
        self._keeper = keeper
        self._node_id = node_id
        self._next = self._end = 0
        self._taking = asyncio.Lock()  # one block at a time, however many producers wait for it

    async def take(self) -> int:
        """The next id. BrokerError, with the code after which Kafka has clients try again, when there is none now."""
        if self._next == self._end:
            async with self._taking:
                if self._next == self._end:
                    try:
                        self._next, self._end = await self._take_block()
                    except KeeperError as error:
                        reason = f"no producer ids can be had: {error}"
                        raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason) from error
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> tuple[int, int]:
        while True:
            try:
                data, stat = await self._keeper.get(znodes.PRODUCER_IDS)
                start = znodes.decode_producer_ids(data) + 1 if data else 0
                block = znodes.encode_producer_ids(self._node_id, start, start + BLOCK_SIZE - 1)
                await self._keeper.set(znodes.PRODUCER_IDS, block, stat.version)
                return start, start + BLOCK_SIZE
            except NoNode:
                try:
                    await self._keeper.create(znodes.PRODUCER_IDS, b"")
                except NodeExists:
                    continue
            except BadVersion:  # another broker was quicker: the next block
                continue
