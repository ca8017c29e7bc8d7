"""States of partitions and replicas, and the legal transitions. Pure.

A partition is NEW until its first leader is elected, ONLINE while it has a leader, OFFLINE when its leader is gone and
no other could be elected. The state of a replica is what the controller has sent to its broker: a NEW or ONLINE replica
was told to be leader or follower, an OFFLINE one is stopped or its broker is gone; the other states are steps of a
deletion.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class PartitionState(Enum):
    ABSENT = "absent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


class ReplicaState(Enum):
    ABSENT = "absent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETING = "deleting"  # its broker was told to delete it
    DELETED = "deleted"  # and has done so
    UNDELETABLE = "undeletable"  # its broker is gone or failed to delete it: tried again when it is back


PARTITIONS: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.ABSENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.ABSENT: frozenset({PartitionState.OFFLINE}),
}
REPLICAS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.ABSENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.UNDELETABLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.UNDELETABLE}
    ),
    ReplicaState.DELETING: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETED: frozenset({ReplicaState.DELETING}),
    ReplicaState.UNDELETABLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETING}),
    ReplicaState.ABSENT: frozenset({ReplicaState.DELETED}),
}


def is_legal_for_partition(before: PartitionState, after: PartitionState) -> bool:
    return before in PARTITIONS[after]


def is_legal_for_replica(before: ReplicaState, after: ReplicaState) -> bool:
    return before in REPLICAS[after]
