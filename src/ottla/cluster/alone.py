"""The commands about leaders and brokers on a single node, which has no other broker to elect or move to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.plans import check_replicas
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cluster.commands import Key
    from ottla.cluster.image import Image, Partition
    from ottla.cluster.metadata import Metadata
    from ottla.wire.messages.peers import AlterPartitionRequest, AlterPartitionResponse

PREFERRED, UNCLEAN = 0, 1  # kinds of elections
NO_CLUSTER = BrokerError(ErrorCode.NOT_CONTROLLER, "this broker is not a member of a cluster")


class AloneCommands:
    metadata: Metadata

    def check_controller(self) -> None:
        """The only broker is always the controller."""

    async def elect_leaders(
        self, keys: Sequence[Key] | None, kind: int, *, timeout_ms: int = 0
    ) -> Mapping[Key, BrokerError | None]:
        """The only replica is always the leader, so no election is needed."""
        if kind not in (PREFERRED, UNCLEAN):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        results: dict[Key, BrokerError | None] = {}
        for key in keys or ():
            await self.metadata.turns.pause()
            results[key] = election_error(self.metadata.image, key)
        return results

    async def move_partitions(
        self, wishes: Mapping[Key, Sequence[int] | None], *, resize: bool = True
    ) -> Mapping[Key, BrokerError | None]:
        """A move to the broker that has the partition succeeds at once. There is no other broker to move it to."""
        results: dict[Key, BrokerError | None] = {}
        for key, target in wishes.items():
            await self.metadata.turns.pause()
            try:
                check_move(self.metadata.image, key, target)
                results[key] = None
            except BrokerError as error:
                results[key] = error
        return results

    def moving_partitions(self, keys: Sequence[Key] | None) -> Mapping[Key, Partition]:
        return {}

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        raise NO_CLUSTER

    async def shut_down_broker(self, broker: int, epoch: int) -> Sequence[Key]:
        raise NO_CLUSTER

    async def take_producer_ids(self, broker: int, epoch: int) -> tuple[int, int]:
        raise NO_CLUSTER


def election_error(image: Image, key: Key) -> BrokerError:
    name, index = key
    topic = image.topics.get(name)
    if topic is None:
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return BrokerError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def check_move(image: Image, key: Key, target: Sequence[int] | None) -> None:
    name, index = key
    topic = image.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if target is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(image, target, expected=None)
