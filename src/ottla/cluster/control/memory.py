"""The controller's view of the cluster. Changed only by the steps of its events.

Everything here is also in the store, or follows from it: a successor reads it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.control.states import (
    PartitionState,
    ReplicaState,
    is_legal_for_partition,
    is_legal_for_replica,
)
from ottla.cluster.image import NO_LEADER, Partition, Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.cluster.image import Broker

Key = tuple[str, int]  # topic and partition
Replica = tuple[str, int, int]  # topic, partition and broker


class Assignment(NamedTuple):
    """The replicas of a partition. During a reassignment `replicas` are the old and the new ones together."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    def towards(self, target: Sequence[int]) -> Assignment:
        """The assignment during a reassignment from the original replicas to the target."""
        origin = self.origin
        both = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(broker for broker in both if broker not in origin)
        removing = tuple(broker for broker in origin if broker not in target)
        return Assignment(both, adding, removing)


class Lead(NamedTuple):
    """Leader and in-sync replicas of a partition: the content of its state node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int  # of the node: the partition epoch
    controller_epoch: int

    def next(self, leader: int, isr: Sequence[int]) -> Lead:
        """After an election. The epoch is raised even for the same leader."""
        return self._replace(leader=leader, isr=tuple(isr), leader_epoch=self.leader_epoch + 1)


class KnownTopic:
    __slots__ = ("assignments", "id", "name", "version")

    def __init__(self, name: str, topic_id: bytes, version: int, assignments: dict[int, Assignment]) -> None:
        self.name = name
        self.id = topic_id
        self.version = version  # of its node
        self.assignments = assignments

    def partitions(self) -> Iterator[Key]:
        return ((self.name, index) for index in self.assignments)

    def as_image(self, leads: dict[Key, Lead] | None = None) -> Topic:
        """The topic in the form of the image; to encode its node, leaders are not needed."""
        return Topic(
            self.name,
            self.id,
            tuple(
                describe_partition(index, assignment, (leads or {}).get((self.name, index)))
                for index, assignment in sorted(self.assignments.items())
            ),
            {},
        )


def describe_partition(index: int, assignment: Assignment, lead: Lead | None) -> Partition:
    lead = lead or Lead(NO_LEADER, NO_LEADER, (), NO_LEADER, NO_LEADER)
    return Partition(
        index,
        assignment.replicas,
        lead.isr,
        lead.leader,
        lead.leader_epoch,
        lead.version,
        assignment.adding,
        assignment.removing,
    )


class Memory:
    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}  # those that are registered
        self.stopping: dict[int, None] = {}  # of these: brokers in controlled shutdown
        self.topics: dict[str, KnownTopic] = {}
        self.names_by_id: dict[bytes, str] = {}
        self.leads: dict[Key, Lead] = {}
        self.partition_states: dict[Key, PartitionState] = {}
        self.replica_states: dict[Replica, ReplicaState] = {}
        self.leaderless: dict[Key, None] = {}  # partitions that are new or offline
        self.broken: dict[int, dict[Key, None]] = {}  # replicas in failed log directories, by broker
        self.deleting: dict[str, None] = {}  # topics that are being deleted
        self.doomed: dict[str, None] = {}  # topics to delete when none of their partitions is being reassigned
        self.moving: dict[Key, None] = {}  # partitions under reassignment
        self.asked_by_znode: dict[Key, None] = {}  # of these: requested in /admin/reassign_partitions
        # Replicas removed by a reassignment, with the topic's id, until their brokers confirm the deletion.
        self.strays: dict[int, dict[Key, bytes]] = {}
        # Replicas that brokers reject because they have a log of another topic of that name: by broker, with the
        # version of the state that was last sent again.
        self.refused: dict[int, dict[Key, int]] = {}
        self._hosted: dict[int, dict[Key, None]] = {}

    def put_topic(self, topic: KnownTopic) -> None:
        self.topics[topic.name] = topic
        self.names_by_id[topic.id] = topic.name
        for index, assignment in topic.assignments.items():
            for broker in assignment.replicas:
                self._hosted.setdefault(broker, {})[topic.name, index] = None

    def drop_topic(self, name: str) -> None:
        """Drop everything kept under the name: a recreated topic starts empty."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self.names_by_id.pop(topic.id, None)
        self.deleting.pop(name, None)
        self.doomed.pop(name, None)
        for index, assignment in topic.assignments.items():
            key = (name, index)
            for table in (self.leads, self.partition_states, self.leaderless, self.moving, self.asked_by_znode):
                table.pop(key, None)
            for broker in assignment.replicas:
                self.replica_states.pop((name, index, broker), None)
                self._hosted.get(broker, {}).pop(key, None)
                self.broken.get(broker, {}).pop(key, None)
                self.refused.get(broker, {}).pop(key, None)

    def assign(self, key: Key, assignment: Assignment) -> None:
        topic = self.topics[key[0]]
        before = topic.assignments.get(key[1])
        topic.assignments[key[1]] = assignment
        for broker in before.replicas if before is not None else ():
            if broker not in assignment.replicas:
                self._hosted.get(broker, {}).pop(key, None)
                self.broken.get(broker, {}).pop(key, None)
                self.refused.get(broker, {}).pop(key, None)
        for broker in assignment.replicas:
            self._hosted.setdefault(broker, {})[key] = None

    def assignment(self, key: Key) -> Assignment | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.assignments.get(key[1])

    def is_to_go(self, topic: str) -> bool:
        """Whether the topic is to be deleted, now or later."""
        return topic in self.deleting or topic in self.doomed

    def describe(self, key: Key) -> Partition | None:
        assignment = self.assignment(key)
        return None if assignment is None else describe_partition(key[1], assignment, self.leads.get(key))

    def replicas(self, key: Key) -> tuple[int, ...]:
        assignment = self.assignment(key)
        return () if assignment is None else assignment.replicas

    def list_hosted(self, broker: int) -> list[Key]:
        return list(self._hosted.get(broker, ()))

    def is_online(self, broker: int, key: Key, *, stopping: bool = False) -> bool:
        """Whether a replica can serve; with `stopping`, also during its broker's controlled shutdown."""
        if broker not in self.brokers or (broker in self.stopping and not stopping):
            return False
        return key not in self.broken.get(broker, ())

    def online(self, key: Key, *, stopping: bool = False) -> list[int]:
        return [broker for broker in self.replicas(key) if self.is_online(broker, key, stopping=stopping)]

    def partitions(self) -> Iterator[Key]:
        for topic in self.topics.values():
            yield from topic.partitions()

    def replicas_of(self, topic: str) -> Iterator[Replica]:
        known = self.topics.get(topic)
        for index, assignment in known.assignments.items() if known is not None else ():
            for broker in assignment.replicas:
                yield topic, index, broker

    def partition_state(self, key: Key) -> PartitionState:
        return self.partition_states.get(key, PartitionState.ABSENT)

    def set_partition_state(self, key: Key, state: PartitionState) -> bool:
        """Whether the change is legal and was made."""
        if not is_legal_for_partition(self.partition_state(key), state):
            return False
        if state is PartitionState.ABSENT:
            self.partition_states.pop(key, None)
        else:
            self.partition_states[key] = state
        if state in (PartitionState.NEW, PartitionState.OFFLINE):
            self.leaderless[key] = None
        else:
            self.leaderless.pop(key, None)
        return True

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.ABSENT)

    def set_replica_state(self, replica: Replica, state: ReplicaState) -> bool:
        if not is_legal_for_replica(self.replica_state(replica), state):
            return False
        if state is ReplicaState.ABSENT:
            self.replica_states.pop(replica, None)
        else:
            self.replica_states[replica] = state
        return True

    def legal(self, replicas: Iterable[Replica], state: ReplicaState) -> list[Replica]:
        """Those of the replicas that may change to the state."""
        return [one for one in replicas if is_legal_for_replica(self.replica_state(one), state)]
