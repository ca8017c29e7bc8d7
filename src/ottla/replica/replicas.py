"""The partitions hosted here: finds a partition for a request, and applies changes of the cluster's image.

On one node the image is all that is needed: this broker is leader of every partition in it. The logs of a new topic are
created before it is published (`prepare`), so that a topic whose logs cannot be created is rejected. `apply` gets the
old and the new image: prepared partitions are served, partitions of deleted topics are dropped at once, and topic
configs are applied to open logs. `settle` removes the files of deleted topics later.

In a cluster the controller assigns each partition its role: `assigned.py`.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from ottla import descriptors
from ottla.cluster.turns import Turns
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.partition import NOBODY, Partition
from ottla.replica.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.cluster.image import Image, Topic
    from ottla.cluster.image import Partition as State
    from ottla.cluster.metadata import Metadata
    from ottla.log.log import Log
    from ottla.log.store import LogStore
    from ottla.replica.waits import Waits

    Roles = Callable[[Partition, bool], None]

logger = logging.getLogger("ottla.replicas")

LOST = "its log is in a directory that is offline"
GONE = "its topic was deleted"
# Descriptors that must remain free after the logs of a new topic are created: a broker that cannot accept a connection
# or open a checkpoint is useless.
DESCRIPTORS_SPARE = 32
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
NONE: dict[int, Partition] = {}


class Replicas:
    def __init__(self, metadata: Metadata, store: LogStore, waits: Waits) -> None:
        self.waits = waits
        self._metadata = metadata
        self._store = store
        store.on_opened = self.find
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._lost: set[tuple[str, int]] = set()
        self._prepared: dict[bytes, dict[int, Partition]] = {}  # by topic id: created, but not published yet
        self._leaving: list[Partition] = []  # of deleted topics, with files still to be removed
        self._stale: list[str] = []  # topics whose configs may have changed
        self._offline: tuple[object, frozenset[tuple[str, int]]] = None, frozenset()  # cache: key and result
        self._turns = Turns(store.clock)
        self._roles: list[Roles] = []
        self.past = Traffic()  # of topics that are no longer hosted

    def lose(self, partitions: Iterable[tuple[str, int]]) -> None:
        """The logs of these are in a directory that could not be read at start: do not create new ones."""
        self._lost.update(partitions)

    def find(self, log: Log) -> None:
        """A log could be opened after all: serve it, if its topic still exists."""
        self._lost.discard((log.topic, log.index))
        topic = self._metadata.image.topics.get(log.topic)
        if topic is None or log.index >= len(topic.partitions):
            self._store.set_aside([log])
        else:
            self._host(topic)

    def offline(self) -> frozenset[tuple[str, int]]:
        """The partitions that are assigned to this broker but cannot be served."""
        online = tuple(directory.online for directory in self._store.directories)
        if not self._lost and all(online):
            return frozenset()
        known = online, len(self._lost), self._metadata.image.topics.version
        if self._offline[0] != known:
            failed = ((one.topic, one.index) for one in self if one.log.fault is not None)
            self._offline = known, frozenset((*self._lost, *failed))
        return self._offline[1]

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def topics(self) -> list[tuple[str, Mapping[int, Partition]]]:
        """The partitions hosted here, by topic."""
        return [(name, partitions) for name, partitions in self._by_name.items() if partitions]

    # Finding.

    def find_led(self, topic: str, index: int) -> Partition | None:
        """The partition, if this broker is its leader, else None. `require_led` raises the reason."""
        partition = self._by_name.get(topic, NONE).get(index)
        return partition if partition is not None and partition.led else None

    def find_led_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        partition = self._by_id.get(topic_id, NONE).get(index)
        return partition if partition is not None and partition.led else None

    def find_name(self, topic_id: bytes) -> str | None:
        """The name of a topic with partitions here. They may be here before the metadata names it, and stay longer."""
        return next((one.topic for one in self._by_id.get(topic_id, NONE).values()), None)

    def require_led(self, topic: str, index: int) -> Partition:
        """The partition, if this broker is its leader; else BrokerError."""
        partitions = self._by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None or not partition.led:
            return self._check_led(partition or self._absent(topic, index))
        return partition

    def require_led_by_id(self, topic_id: bytes, index: int) -> Partition:
        return self._check_led(self.require_hosted_by_id(topic_id, index))

    def require_hosted(self, topic: str, index: int) -> Partition:
        """The partition, if this broker has a replica of it; else BrokerError."""
        partitions = self._by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        return partition or self._absent(topic, index)

    def require_hosted_by_id(self, topic_id: bytes, index: int) -> Partition:
        partition = self._by_id.get(topic_id, NONE).get(index)
        if partition is not None:
            return partition
        name = self._metadata.image.names_by_id.get(topic_id)
        if name is None or not any(topic_id):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._absent(name, index)

    def _check_led(self, partition: Partition) -> Partition:
        if not partition.led:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _absent(self, name: str, index: int) -> Partition:
        """A partition that is not hosted. If it should be (the disk was full when it was created), try again."""
        if (name, index) in self._lost:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, LOST)
        topic = self._metadata.image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._metadata.node_id not in topic.partitions[index].replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._another_chance(topic, index)

    def _another_chance(self, topic: Topic, index: int) -> Partition:
        self._host(topic)
        partition = self._by_name[topic.name].get(index)
        if partition is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def subscribe_roles(self, callback: Roles) -> None:
        """Register a callback for when this broker becomes leader of a partition (also in a new epoch) or stops being
        it. It is called at once for current leaders.

        The partition already has the new epoch. A change from one led epoch to the next is one call.
        """
        self._roles.append(callback)
        for partition in list(self):
            if partition.led:
                callback(partition, True)

    def _tell(self, partition: Partition) -> None:
        for callback in self._roles:
            callback(partition, partition.led)

    # One node.

    async def prepare(self, topic: Topic, first: int) -> None:
        """Create the logs of the partitions from `first` on. On BrokerError none of them exists."""
        await self._store.make_way({(topic.name, state.index) for state in topic.partitions[first:]})
        prepared = self._prepared.setdefault(topic.id, {})
        try:
            for state in topic.partitions[first:]:
                await self._turns.pause()
                if self._metadata.node_id in state.replicas:
                    prepared[state.index] = self._partition(topic, state)
            if descriptors.count_free() < DESCRIPTORS_SPARE:
                raise too_many_files(topic)
        except BaseException as error:
            self.abandon(topic)
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in TOO_MANY_FILES:
                raise too_many_files(topic) from error
            raise

    def abandon(self, topic: Topic) -> None:
        """Remove what was prepared for a topic that is not created, or not extended, after all."""
        for partition in self._prepared.pop(topic.id, {}).values():
            self._remove(partition)

    def hosts(self, log: Log) -> bool:
        """Whether this log belongs to a hosted partition."""
        partition = self._by_name.get(log.topic, {}).get(log.index)
        return partition is not None and partition.log is log

    def apply(self, old: Image | None, new: Image) -> None:
        for name in new.topics_changed_since(old):
            before = None if old is None else old.topics.get(name)
            after = new.topics.get(name)
            if before is not None and (after is None or after.id != before.id):
                self._drop(before)
                before = None
            if after is not None and after is not before:
                self._host(after, before)
        if old is not None and old.broker_configs is not new.broker_configs:
            self._stale = list(new.topics)

    async def settle(self) -> None:
        """Remove the files of deleted topics, and apply new defaults to all logs. Yields to other work in between."""
        try:
            while self._leaving:
                await self._turns.pause()
                self._remove(self._leaving.pop())
        finally:  # if the broker stops meanwhile, remaining files would belong to no topic at the next start
            while self._leaving:
                self._remove(self._leaving.pop())
        stale, self._stale = self._stale, []
        for name in stale:
            await self._turns.pause()
            topic = self._metadata.image.topics.get(name)
            if topic is not None:
                self._reconfigure(topic)

    def _reconfigure(self, topic: Topic) -> None:
        config = self._metadata.topic_config(topic)
        for partition in self._by_name.get(topic.name, NONE).values():
            partition.log.reconfigure(config)

    def _host(self, topic: Topic, before: Topic | None = None) -> None:
        """Serve a topic's partitions; `before` is the former state of the same topic, if it was served already."""
        hosted = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = hosted
        fresh = self._prepared.pop(topic.id, {})
        hosted.update(fresh)
        config = self._metadata.topic_config(topic)
        same = before is not None and before.configs == topic.configs
        known = before.partitions if before is not None else ()
        for at, state in enumerate(topic.partitions):
            if (same and at < len(known) and known[at] is state) or self._metadata.node_id not in state.replicas:
                continue
            partition = hosted.get(state.index)
            if partition is not None:
                if partition.epoch != state.leader_epoch:
                    partition.lead(state.leader_epoch)
                    fresh[state.index] = partition
                partition.log.reconfigure(config)
                continue
            try:
                fresh[state.index] = hosted[state.index] = self._partition(topic, state)
            except BrokerError as error:
                logger.error("cannot host %s-%d: %s", topic.name, state.index, error)
        for partition in fresh.values():
            self._tell(partition)

    def _partition(self, topic: Topic, state: State) -> Partition:
        epoch = state.leader_epoch
        log = self._log(topic, state, epoch)
        return Partition(
            topic.name, state.index, topic.id, log, epoch, self._store.flusher, traffic=self._traffic(topic)
        )

    def _traffic(self, topic: Topic) -> Traffic:
        """The counters shared by the topic's partitions. A recreated topic starts at zero."""
        hosted = self._prepared.get(topic.id) or self._by_name.get(topic.name) or NONE
        one = next(iter(hosted.values()), None)
        return Traffic() if one is None or one.topic_id != topic.id else one.traffic

    def _log(self, topic: Topic, state: State, epoch: int) -> Log:
        """The log of this partition: found on disk, or new. One of an older topic of the same name is set aside."""
        found = self._store.logs.get((topic.name, state.index))
        if found is not None:
            if not any(found.topic_id):  # written before topic ids existed
                found.set_topic_id(topic.id)
            if found.topic_id == topic.id or not any(topic.id):
                found.reconfigure(self._metadata.topic_config(topic))  # it was opened before the image was read
                return found
            self._store.set_aside([found])
        if (topic.name, state.index) in self._lost:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, LOST)
        return self._store.create(topic.name, state.index, topic.id, self._metadata.topic_config(topic), epoch)

    def _drop(self, topic: Topic) -> None:
        self._by_id.pop(topic.id, None)
        self._lost -= {(topic.name, state.index) for state in topic.partitions}
        hosted = self._by_name.pop(topic.name, {})
        for one in hosted.values():
            self.past.add(one.traffic)  # they share it
            break
        for partition in hosted.values():
            partition.log.fault = partition.log.fault or GONE  # for code that still holds the log
            self._leaving.append(partition)
            partition.follow(partition.epoch, NOBODY)
            self._tell(partition)

    def _remove(self, partition: Partition) -> None:
        try:
            self._store.delete(partition.log)
        except BrokerError as error:  # the folder stays; it is set aside when the name is reused, or at the next start
            logger.error("cannot delete %s-%d: %s", partition.topic, partition.index, error)


def too_many_files(topic: Topic) -> BrokerError:
    """Says why a topic cannot be hosted, and how to fix it. Clients do not retry after this error."""
    reason = (
        f"The {len(topic.partitions)} partition(s) of topic '{topic.name}' need more open files than the limit of "
        f"{descriptors.limit()} allows: raise it (ulimit -n, or LimitNOFILE of the service) and restart the broker."
    )
    return BrokerError(ErrorCode.POLICY_VIOLATION, reason)
