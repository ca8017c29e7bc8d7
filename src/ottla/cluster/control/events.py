"""The events of a controller. Some have an answer: the return value of the step.

Events without fields only say that something may have changed: the step reads the current state, so two of them in a
row count as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cluster.control.memory import Key
    from ottla.wire.messages.peers import AlterPartitionRequest

PREFERRED, UNCLEAN = 0, 1  # kinds of elections, as ElectLeaders numbers them


class Elected(NamedTuple):
    """This broker is controller now."""


class BrokersChanged(NamedTuple):
    """Below /brokers/ids."""


class TopicsChanged(NamedTuple):
    """Below /brokers/topics."""


class TopicsWritten(NamedTuple):
    """The nodes of these topics were written: by us, or by an old tool."""

    topics: Sequence[str]


class DeletionsAsked(NamedTuple):
    """Below /admin/delete_topics."""


class MovesAsked(NamedTuple):
    """In /admin/reassign_partitions."""


class PreferredAsked(NamedTuple):
    """In /admin/preferred_replica_election."""


class InSyncNotified(NamedTuple):
    """Below /isr_change_notification: leaders of older versions write their states themselves."""


class FoldersNotified(NamedTuple):
    """Below /log_dir_event_notification: a broker has lost a log directory."""


class CheckBalance(NamedTuple):
    """Check whether the preferred replicas are leaders."""


class UncleanAllowed(NamedTuple):
    """A topic (None: every topic) now allows unclean elections."""

    topic: str | None


class Answered(NamedTuple):
    """A broker has answered a request."""

    broker: int
    epoch: int
    request: Any
    response: Any


class AlterPartition(NamedTuple):
    request: AlterPartitionRequest
    version: int


class Shutdown(NamedTuple):
    """A broker requests a controlled shutdown. Answer: the partitions it still leads."""

    broker: int
    epoch: int


class Elect(NamedTuple):
    """Answer: the error of each partition. For all partitions (None), only of those that needed an election."""

    keys: Sequence[Key] | None
    kind: int


class MovePartitions(NamedTuple):
    """Target replicas of each partition, None to cancel. Answer: the error of each.

    Without `resize` a partition keeps its number of replicas.
    """

    wishes: Mapping[Key, Sequence[int] | None]
    resize: bool = True


class Grow(NamedTuple):
    """Replicas of additional partitions of a topic that has `first` of them."""

    topic: str
    first: int
    replicas: Sequence[tuple[int, ...]]


class TakeProducerIds(NamedTuple):
    """Answer: the first id and the number of ids."""

    broker: int
    epoch: int


Event: TypeAlias = (
    Elected
    | BrokersChanged
    | TopicsChanged
    | TopicsWritten
    | DeletionsAsked
    | MovesAsked
    | PreferredAsked
    | InSyncNotified
    | FoldersNotified
    | CheckBalance
    | UncleanAllowed
    | Answered
    | AlterPartition
    | Shutdown
    | Elect
    | MovePartitions
    | Grow
    | TakeProducerIds
)
