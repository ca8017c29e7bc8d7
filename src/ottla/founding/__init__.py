"""How a broker starts: as a single node with a SQLite metadata store, or as a member of a cluster.

    alone.py     single node
    member.py    cluster member, with ZooKeeper
    logs.py      the owner of the log folders, and the configs of their logs

`broker.py` builds what both have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.cluster.commands import Commands
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.peers import Peers
    from ottla.cluster.producer_ids import ProducerIds
    from ottla.replica.membership import Membership
    from ottla.replica.replicas import Replicas
    from ottla.replica.throttle import Throttle
    from ottla.replica.waits import Waits

    Endpoints = Mapping[str, tuple[str, int]]  # by listener name


class Founding(Protocol):
    @property
    def metadata_store(self) -> MetadataStore: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def controller(self) -> Commands: ...

    @property
    def replicas(self) -> Replicas: ...

    @property
    def peers(self) -> Peers | None: ...

    @property
    def membership(self) -> Membership | None: ...

    @property
    def throttle(self) -> Throttle | None: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    async def open(self, endpoints: Endpoints, waits: Waits) -> None:
        """Determine the broker id, load the cluster's metadata, and open the logs. No client is served yet."""

    async def begin(self) -> None:
        """Called when requests can be answered: register this broker."""

    def missing(self) -> list[str]:
        """What this broker waits for before it can serve clients; empty when it can."""

    async def leave(self) -> None:
        """The broker is about to stop: move leadership to others, while clients are still served."""

    async def close(self) -> None:
        """The broker has stopped."""
