"""What a request may have changed in the cluster, as a port: handlers ask for it without knowing who decides.

`standalone.py` decides for one node. In a cluster the elected controller does; any other broker answers NOT_CONTROLLER
where Kafka does, and the client turns to the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cluster.alterations import Change
    from ottla.cluster.image import Topic
    from ottla.cluster.plans import NewTopic
    from ottla.errors import BrokerError


class Commands(Protocol):
    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | BrokerError]:
        """Each topic, or why there is none."""
        ...

    async def auto_create(self, name: str, wish: NewTopic | None = None) -> Topic:
        """A topic that is needed: as wished, or with the broker's defaults; BrokerError when it cannot be.

        Any broker may make one. On one node there is nobody else to hold the replicas that are wished for.
        """
        ...

    async def delete_topics(self, names: Sequence[str]) -> list[Topic | BrokerError]:
        """Each topic that is gone now, or why it is not."""
        ...

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> Topic:
        """The topic with `count` partitions in all; BrokerError when it cannot be."""
        ...

    async def alter_topic(
        self, name: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's options; with `replace` those not mentioned go back to their defaults."""
        ...

    async def alter_broker(
        self, broker: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of one broker, or of EVERY_BROKER, while they run."""
        ...

    async def alter_group(
        self, group: str, changes: Sequence[Change], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of a group, whether there is one of that name or not."""
        ...
