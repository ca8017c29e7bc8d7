"""How a broker starts: alone on a SQLite metadata store, or as a member of a cluster. Each builds its own parts.

    alone.py     one node
    member.py    one of several, with ZooKeeper
    logs.py      whose log folders these are, and the options of their logs

`broker.py` builds what is the same in both.
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
        """Find out who this broker is, what the cluster is like, and which logs there are. Nobody is served yet."""

    async def begin(self) -> None:
        """Called when clients can be answered: register this broker."""

    def missing(self) -> list[str]:
        """What this broker waits for before it can serve clients; empty when it can."""

    async def leave(self) -> None:
        """The broker is about to stop: have others take over, while clients are still answered."""

    async def close(self) -> None:
        """The broker has stopped."""
