"""Everything that a member of a cluster needs to replicate, put together.

replicas      what is hosted here, in the roles that the controller gives
fetchers      copy what others lead
proposals     ask the controller for other in-sync sets of what is led here
membership    refuses what an older controller says
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replica.assigned import Assigned
from ottla.replica.fetcher import Fetchers
from ottla.replica.isr import Proposals
from ottla.replica.membership import Membership
from ottla.replica.throttle import follower_throttle, leader_throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.log.store import Store
    from ottla.replica.membership import ConfigReader
    from ottla.replica.waits import Waits


class Replication:
    def __init__(
        self,
        peers: Peers,
        metadata: Metadata,
        store: Store,
        waits: Waits,
        *,
        broker_epoch: Callable[[], int],
        read_configs: ConfigReader,
    ) -> None:
        """The store must have been opened as `replicated`."""
        clock = store.clock
        self.membership = Membership(broker_epoch, read_configs)
        self.throttle = leader_throttle(metadata, clock)
        self.fetchers = Fetchers(
            peers, metadata, store, broker_epoch=broker_epoch, throttle=follower_throttle(metadata, clock)
        )
        self.proposals = Proposals(peers, metadata, clock, broker_epoch=broker_epoch)
        self.replicas = Assigned(metadata, store, waits, self.fetchers, self.proposals)
        metadata.subscribe(self.replicas.apply)

    def loops(self) -> list[Coroutine[None, None, None]]:
        """To be run until the broker stops."""
        return [self.proposals.run(), self.proposals.watch(lambda: self.replicas)]

    async def stop(self) -> None:
        """Copy nothing any more."""
        await self.fetchers.stop()
