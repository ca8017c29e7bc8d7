"""The changes that requests may make to the cluster, as a port: handlers use it without knowing who decides.

`standalone.py` decides for one node. In a cluster the elected controller does; any other broker answers NOT_CONTROLLER
where Kafka does, and the client turns to the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cluster.alterations import OptionChange
    from ottla.cluster.image import Partition, Topic
    from ottla.cluster.plans import NewTopic
    from ottla.errors import BrokerError
    from ottla.wire.messages.peers import AlterPartitionRequest, AlterPartitionResponse

    Key = tuple[str, int]  # topic and partition

TIMEOUT_MS = 30_000


class Commands(Protocol):
    def check_controller(self) -> None:
        """NOT_CONTROLLER when another broker decides."""
        ...

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> list[Topic | BrokerError]:
        """Each topic, or why there is none."""
        ...

    async def auto_create(self, name: str, wish: NewTopic | None = None) -> Topic:
        """A topic that is needed: as wished, or with the broker's defaults; BrokerError when it cannot be.

        Any broker may make one. On one node there is nobody else to hold the replicas that are wished for.
        """
        ...

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int = TIMEOUT_MS) -> list[Topic | BrokerError]:
        """Each topic that is gone now, or why it is not."""
        ...

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Topic:
        """The topic with `count` partitions in all; BrokerError when it cannot be."""
        ...

    async def alter_topic(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's options; with `replace` those not mentioned go back to their defaults."""
        ...

    async def alter_broker(
        self, broker: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of one broker, or of EVERY_BROKER, while they run."""
        ...

    async def alter_group(
        self, group: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change options of a group, whether there is one of that name or not."""
        ...

    async def alter_client_metrics(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a subscription to clients' metrics. One without options does not exist."""
        ...

    async def alter_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change what is kept of a user: each name gets this value, or none any more."""
        ...

    async def alter_entity(self, node: str, changes: Mapping[str, str | None]) -> None:
        """The same of anybody who may have a quota, given by the path of the node below /config."""
        ...

    async def elect_leaders(
        self, keys: Sequence[Key] | None, kind: int, *, timeout_ms: int = TIMEOUT_MS
    ) -> Mapping[Key, BrokerError | None]:
        """The error of each partition; of all partitions (None), only of those where there was something to do."""
        ...

    async def move_partitions(
        self, wishes: Mapping[Key, Sequence[int] | None], *, resize: bool = True
    ) -> Mapping[Key, BrokerError | None]:
        """Begin to move partitions, None to cancel. Returns errors. `resize`: the replication factor may change."""
        ...

    def moving_partitions(self, keys: Sequence[Key] | None) -> Mapping[Key, Partition]:
        """Those of the partitions, or of all, that are moving."""
        ...

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Change in-sync sets, as their leaders ask."""
        ...

    async def shut_down_broker(self, broker: int, epoch: int) -> Sequence[Key]:
        """Have others take over what a broker leads; returns what nobody could take."""
        ...

    async def take_producer_ids(self, broker: int, epoch: int) -> tuple[int, int]:
        """The first of a block of producer ids, and how many they are."""
        ...
