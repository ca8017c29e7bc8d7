"""The changes that requests may make to the cluster, as an interface: handlers need not know which controller it is.

`standalone.py` implements it for one node. In a cluster the elected controller does; any other broker answers
NOT_CONTROLLER where Kafka does, and the client turns to the controller.
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
        """NOT_CONTROLLER when another broker is the controller."""
        ...

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> list[Topic | BrokerError]:
        """For each wish the created topic, or the error."""
        ...

    async def auto_create(self, name: str, wish: NewTopic | None = None) -> Topic:
        """Create a missing topic: as in `wish`, or with the broker's defaults. BrokerError when that fails.

        Any broker may create one. On a single node the replication factor is reduced to one.
        """
        ...

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int = TIMEOUT_MS) -> list[Topic | BrokerError]:
        """For each name the deleted topic, or the error."""
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
        """Grow the topic to `count` partitions in total. BrokerError when that fails."""
        ...

    async def alter_topic(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a topic's configs; with `replace` those not mentioned are reset to their defaults."""
        ...

    async def alter_broker(
        self, broker: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change dynamic configs of one broker, or of EVERY_BROKER."""
        ...

    async def alter_group(
        self, group: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change configs of a group, which need not exist."""
        ...

    async def alter_client_metrics(
        self, name: str, changes: Sequence[OptionChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change a client metrics subscription. One without configs is deleted."""
        ...

    async def alter_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change values of a user (credentials, quotas); None removes a value."""
        ...

    async def alter_entity(self, node: str, changes: Mapping[str, str | None]) -> None:
        """The same for any quota entity, given by the path of its node below /config."""
        ...

    async def elect_leaders(
        self, keys: Sequence[Key] | None, kind: int, *, timeout_ms: int = TIMEOUT_MS
    ) -> Mapping[Key, BrokerError | None]:
        """The error of each partition. For all partitions (None), only of those that needed an election."""
        ...

    async def move_partitions(
        self, wishes: Mapping[Key, Sequence[int] | None], *, resize: bool = True
    ) -> Mapping[Key, BrokerError | None]:
        """Start reassignments; None cancels one. Returns errors. `resize`: the replication factor may change."""
        ...

    def moving_partitions(self, keys: Sequence[Key] | None) -> Mapping[Key, Partition]:
        """Those of the given partitions, or of all (None), that are being reassigned."""
        ...

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """AlterPartition: change in-sync sets as requested by a leader."""
        ...

    async def shut_down_broker(self, broker: int, epoch: int) -> Sequence[Key]:
        """ControlledShutdown: move leadership away from a broker. Returns partitions that it still leads."""
        ...

    async def take_producer_ids(self, broker: int, epoch: int) -> tuple[int, int]:
        """Allocate a block of producer ids: the first id and the number of ids."""
        ...
