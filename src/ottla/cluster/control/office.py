"""The controller election: one broker at a time holds the ephemeral node /controller.

An election is one transaction: create /controller and raise /controller_epoch from the value that was read. If the
response is lost, the broker reads who owns the node.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control.context import Term
from ottla.cluster.metadata_store import FAREWELL_S, BadVersion, Create, NodeExists, NoNode, Set, Unavailable

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore, Znode


class Office:
    def __init__(self, store: MetadataStore, node_id: int, clock: Clock) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock

    async def seek(self) -> Term | None:
        """This broker's term, if it is controller or is elected now. Unavailable when the store does not answer."""
        holder = await self._get(znodes.CONTROLLER)
        if holder is None:
            await self._run_for_it()
            holder = await self._get(znodes.CONTROLLER)
        if holder is None or holder.stat.owner != self._store.session or not self._store.session:
            return None
        # Only the winner writes the epoch, so it is that of our own election.
        epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        return Term(self._node_id, int(epoch.data), epoch.stat.version)

    async def _run_for_it(self) -> None:
        epoch = await self._get(znodes.CONTROLLER_EPOCH)
        if epoch is None:
            with suppress(NodeExists):  # another broker created it
                await self._store.create(znodes.CONTROLLER_EPOCH, b"0")
            epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        claim = znodes.encode_controller(self._node_id, self._clock.now_ms())
        try:
            await self._store.multi(
                [
                    Create(znodes.CONTROLLER, claim, ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, str(int(epoch.data) + 1).encode(), epoch.stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return  # another broker was faster

    async def leave(self) -> None:
        """Delete /controller, so that another broker can be elected at once."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                holder = await self._get(znodes.CONTROLLER)
                if holder is not None and holder.stat.owner == self._store.session:
                    await self._store.delete(znodes.CONTROLLER, holder.stat.version)
        except (NoNode, BadVersion, Unavailable, TimeoutError):
            return  # the node ends with the session

    async def _get(self, path: str) -> Znode | None:
        try:
            return await self._store.get(path)
        except NoNode:
            return None
