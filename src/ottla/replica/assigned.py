"""The replicas of a cluster member: the controller assigns their roles with LeaderAndIsr and StopReplica.

The image provides only topic configs and the epochs of other brokers: a topic that is gone from it is still hosted
until the controller sends StopReplica. Requests with an older leader epoch, or with an older state in the same epoch,
are rejected.

There may be a log of a former topic of the same name: the topic was deleted while this broker was not part of the
cluster, and the controller may no longer know of this log. A replica outside the in-sync set sets such a log aside and
starts empty; its leader has all committed records. A leader or a member of the in-sync set rejects the new topic
instead: the id may be wrong, and then the log is needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla import descriptors
from ottla.clock import steady_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.leader import Leader
from ottla.replica.partition import NOBODY, Partition, Site
from ottla.replica.replicas import DESCRIPTORS_SPARE, GONE, LOST, NONE, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from ottla.cluster.image import Image, Topic
    from ottla.cluster.image import Partition as State
    from ottla.cluster.metadata import Metadata
    from ottla.log.log import Log
    from ottla.log.store import LogStore
    from ottla.replica.waits import Waits

    class Fetchers(Protocol):
        """Copies partitions from their leaders: `fetcher.Fetchers`."""

        def follow(self, partition: Partition) -> None: ...

        def forget(self, partition: Partition) -> None: ...

    class Proposals(Protocol):
        """Asks the controller to change in-sync sets: `isr.Proposals`."""

        def propose(self, partition: Partition) -> None: ...

        def look(self, partitions: Iterable[Partition]) -> None: ...


logger = logging.getLogger("ottla.replicas")

UNLOOKED_MAX = 10  # logs created between two checks of the open file limit
TOO_MANY = "no more files can be opened: raise the limit (ulimit -n, or LimitNOFILE of the service)"


class Assigned(Replicas):
    def __init__(
        self, metadata: Metadata, store: LogStore, waits: Waits, fetchers: Fetchers, proposals: Proposals
    ) -> None:
        super().__init__(metadata, store, waits)
        self._fetchers = fetchers
        self._proposals = proposals
        self.refusals = 0  # how often there was no room for a new log
        self._cramped = False  # whether reaching the open file limit was logged
        self._files_left = 0  # logs that can be created before the next check of the open file limit

    def apply(self, old: Image | None, new: Image) -> None:
        for name in new.topics_changed_since(old):
            before = None if old is None else old.topics.get(name)
            after = new.topics.get(name)
            if after is not None and (before is None or before.configs != after.configs):
                self._reconfigure(after)
            if after is not None:
                self._resign(after)
        if old is not None and old.broker_configs is not new.broker_configs:
            self._stale = list(new.topics)
        if old is not None and old.brokers.keys() != new.brokers.keys():
            self._proposals.look(list(self))  # followers that are gone need not be waited for, new ones may join

    def _resign(self, topic: Topic) -> None:
        """Stop being leader of partitions with another leader in the image.

        LeaderAndIsr did not say so: it was sent to a former registration of this broker.
        """
        for index, partition in self._by_name.get(topic.name, NONE).items():
            state = topic.partitions[index] if index < len(topic.partitions) else None
            if state is None or not partition.led or partition.topic_id != topic.id:
                continue
            if state.leader_epoch > partition.epoch and state.leader != self._metadata.node_id:
                partition.follow(partition.epoch, NOBODY)
                self._tell(partition)

    def find(self, log: Log) -> None:
        """A log could be opened after all. The controller assigns its role again when notified."""
        self._lost.discard((log.topic, log.index))

    def _another_chance(self, topic: Topic, index: int) -> Partition:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the controller has not assigned it to us

    def assign(self, topic: Topic, state: State, *, new: bool = False) -> None:
        """LeaderAndIsr: take the role that the controller assigns. BrokerError: it was rejected.

        `new`: the partition has just been created, so it cannot have been in a directory that is offline now.
        """
        if self._metadata.node_id not in state.replicas:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._make_way(topic, state, new=new)
        partition = self._by_name.get(topic.name, NONE).get(state.index)
        if partition is None:
            partition = self._receive(topic, state, new=new)
        else:
            check_log(partition)
            if self._adopt(partition, topic) and partition.leader_id >= 0:
                self._fetchers.follow(partition)
            if state.leader_epoch < partition.epoch or (
                state.leader_epoch == partition.epoch and state.version <= partition.version
            ):
                raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        check_log(partition)
        if state.leader == self._metadata.node_id:
            self._lead(partition, state)
        else:
            self._follow(partition, state)

    def _lead(self, partition: Partition, state: State) -> None:
        """Become leader in a new epoch, or change the in-sync set in the same one."""
        me, now_ms, anew = self._metadata.node_id, steady_ms(self._store.clock), partition.epoch != state.leader_epoch
        self._fetchers.forget(partition)
        partition.version = state.version
        followers = partition.followers
        if state.replicas == (me,):
            followers = None
        elif followers is None:
            log = partition.log
            followers = Leader(
                me,
                replicas=state.replicas,
                isr=state.isr,
                epoch=state.leader_epoch,
                version=state.version,
                end=log.end,
                high=log.high,
                now_ms=now_ms,
                lag_ms=self._metadata.config.replica_lag_time_max_ms,
                epoch_of=self._epoch_of,
                own_end=log.durability.settled_end,
            )
        else:
            followers.lead(
                replicas=state.replicas,
                isr=state.isr,
                epoch=state.leader_epoch,
                version=state.version,
                now_ms=now_ms,
            )
        partition.lead(state.leader_epoch, followers, Site(self._store.clock, self._proposals.propose))
        if anew:
            self._tell(partition)

    def _follow(self, partition: Partition, state: State) -> None:
        """Become follower of the leader, or of nobody while there is none."""
        led = partition.led
        partition.version = state.version
        partition.follow(state.leader_epoch, state.leader)
        if state.leader >= 0:
            self._fetchers.follow(partition)
        else:
            self._fetchers.forget(partition)
        if led:
            self._tell(partition)

    def stop(self, name: str, index: int, *, delete: bool, epoch: int = NOBODY) -> None:
        """StopReplica: stop the replica, and delete it if `delete`. A negative epoch is not checked."""
        partition = self._by_name.get(name, NONE).get(index)
        if partition is not None:
            if 0 <= epoch < partition.epoch:
                raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
            self._rest(partition)
        if not delete:
            return
        if partition is not None:
            self._release(partition)
        self._lost.discard((name, index))
        log = self._store.logs.get((name, index))
        if log is not None:
            self._store.delete(log)

    def _rest(self, partition: Partition) -> None:
        """Be neither leader nor follower."""
        self._fetchers.forget(partition)
        led = partition.led
        partition.follow(partition.epoch, NOBODY)
        partition.version = NOBODY  # so that the same state may be assigned again
        if led:
            self._tell(partition)

    def _release(self, partition: Partition) -> None:
        """Stop hosting the partition."""
        partition.log.fault = partition.log.fault or GONE
        hosted = self._by_name[partition.topic]
        del hosted[partition.index]
        if not hosted:
            self.past.add(partition.traffic)
            del self._by_name[partition.topic]
            self._by_id.pop(partition.topic_id, None)

    def set_aside(self, log: Log) -> None:
        """Stop hosting it, and keep its files under another name."""
        partition = self._by_name.get(log.topic, NONE).get(log.index)
        if partition is not None:
            self._rest(partition)
            self._release(partition)
        self._store.set_aside([log])

    def _make_way(self, topic: Topic, state: State, *, new: bool) -> None:
        """Set the log of a former topic of this name aside, if this replica is not in sync yet."""
        log = self._store.logs.get((topic.name, state.index))
        if log is None or log.topic_id == topic.id or not any(topic.id):
            return
        me = self._metadata.node_id
        copies = state.leader not in (me, NOBODY) and me not in state.isr
        if (any(log.topic_id) and copies) or (log.id_lost and (copies or new)):
            self.set_aside(log)

    def _receive(self, topic: Topic, state: State, *, new: bool) -> Partition:
        """A partition that the controller names for the first time since this broker started."""
        found = self._store.logs.get((topic.name, state.index))
        if found is None and not new and not all(directory.online for directory in self._store.directories):
            self._lost.add((topic.name, state.index))
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, LOST)
        if found is not None and any(topic.id) and any(found.topic_id) and found.topic_id != topic.id:
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        try:
            if found is None:
                self._check_files(topic, state)
            log = self._log(topic, state, NOBODY)  # its epochs will come from the copied records
        except BrokerError:
            self.refusals += 1
            raise
        if found is None:
            log.high = 0
        partition = Partition(
            topic.name,
            state.index,
            log.topic_id,
            log,
            NOBODY,
            self._store.flusher,
            led=False,
            traffic=self._traffic(topic._replace(id=log.topic_id)),
        )
        hosted = self._by_name.setdefault(topic.name, {})
        hosted[state.index] = partition
        if any(log.topic_id):
            self._by_id[log.topic_id] = hosted
        return partition

    def has_room(self) -> bool:
        """Whether a log that was refused might be created now."""
        full = any(directory.full for directory in self._store.directories if directory.online)
        return not full and descriptors.count_free() >= DESCRIPTORS_SPARE

    def _check_files(self, topic: Topic, state: State) -> None:
        """Refuse a new log that might use the last file descriptors. The limit is not checked for every log."""
        self._files_left -= 1
        if self._files_left >= 0:
            return
        left = descriptors.count_free()
        if left < DESCRIPTORS_SPARE:
            if not self._cramped:
                logger.error("cannot host %s-%d and others: %s", topic.name, state.index, TOO_MANY)
            self._cramped = True
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, TOO_MANY)
        self._files_left = min(left - DESCRIPTORS_SPARE, UNLOOKED_MAX)

    def _adopt(self, partition: Partition, topic: Topic) -> bool:
        """A topic that had no id may have been given one."""
        if not any(topic.id) or topic.id == partition.topic_id:
            return False
        if any(partition.topic_id):
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        partition.log.set_topic_id(topic.id)
        partition.topic_id = topic.id
        self._by_id[topic.id] = self._by_name[topic.name]
        return True

    def _epoch_of(self, broker: int) -> int | None:
        found = self._metadata.image.brokers.get(broker)
        return None if found is None else found.epoch


def check_log(partition: Partition) -> None:
    """KAFKA_STORAGE_ERROR if the log is offline: the controller then elects another leader."""
    if partition.log.fault is not None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.fault)
