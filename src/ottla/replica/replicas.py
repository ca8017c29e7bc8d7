"""The partitions hosted here: follows the cluster's image, finds a partition for a request.

`apply` is told the old and the new image; partitions assigned to this broker get a log, partitions of deleted topics
lose theirs, and topic configs reach the logs while they are in use.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.cluster.controller import Controller
    from ottla.cluster.image import Image, Topic
    from ottla.cluster.image import Partition as State
    from ottla.log.log import Log
    from ottla.log.store import Store
    from ottla.replica.waits import Waits

logger = logging.getLogger("ottla.replicas")

LOST = "its log is in a directory that is offline"
LOGS_PER_TURN = 10  # each takes a fraction of a millisecond


class Replicas:
    def __init__(self, controller: Controller, store: Store, waits: Waits) -> None:
        self.waits = waits
        self._controller = controller
        self._store = store
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._lost: set[tuple[str, int]] = set()

    def lose(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These have logs in a directory that could not be read at start: they wait for it, and are not begun anew."""
        self._lost.update(partitions)

    def offline(self) -> frozenset[tuple[str, int]]:
        """The partitions that should be served here and cannot be."""
        if not self._lost and all(directory.online for directory in self._store.directories):
            return frozenset()
        failed = ((one.topic, one.index) for one in self if one.log.fault is not None)
        return frozenset((*self._lost, *failed))

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        return partition or self._absent(topic, index)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        partitions = self._by_id.get(topic_id)
        if partitions is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return partitions.get(index) or self._absent(self._controller.image.names_by_id[topic_id], index)

    def _absent(self, name: str, index: int) -> Partition:
        """A partition that is not there. If it should be (the disk was full when it came), it gets another chance."""
        topic = self._controller.image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._controller.node_id not in topic.partitions[index].replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if (name, index) in self._lost:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, LOST)
        self._host(topic)
        partition = self._by_name[name].get(index)
        if partition is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    async def prepare(self, topic: Topic) -> None:
        """Make the logs of a topic that is about to come, a few at a time, so that others are served in between."""
        await self._store.make_way({(topic.name, state.index) for state in topic.partitions})
        for at, state in enumerate(topic.partitions):
            if self._controller.node_id in state.replicas and (topic.name, state.index) not in self._store.logs:
                with suppress(BrokerError):  # `_host` will meet the same error, and say so
                    self._log(topic, state)
                if at % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                    await asyncio.sleep(0)

    def hosts(self, log: Log) -> bool:
        """Whether this log is one that the cluster wants here."""
        partition = self._by_name.get(log.topic, {}).get(log.index)
        return partition is not None and partition.log is log

    def apply(self, old: Image | None, new: Image) -> None:
        before = {} if old is None else old.topics
        defaults_changed = old is not None and old.broker_configs is not new.broker_configs
        for name, topic in before.items():
            present = new.topics.get(name)
            if present is None or present.id != topic.id:
                self._drop(topic)
        for name, topic in new.topics.items():
            if defaults_changed or before.get(name) is not topic:
                self._host(topic)

    def _host(self, topic: Topic) -> None:
        config = self._controller.topic_config(topic)
        hosted = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = hosted
        for state in topic.partitions:
            if self._controller.node_id not in state.replicas:
                continue
            partition = hosted.get(state.index)
            if partition is not None:
                partition.epoch = state.leader_epoch
                partition.log.reconfigure(config)
                continue
            try:
                hosted[state.index] = Partition(
                    topic.name,
                    state.index,
                    topic.id,
                    self._log(topic, state),
                    state.leader_epoch,
                    self._store.flusher,
                )
            except BrokerError as error:
                logger.error("cannot host %s-%d: %s", topic.name, state.index, error)

    def _log(self, topic: Topic, state: State) -> Log:
        """The log of this partition: found on disk, or new. One of an older topic of the same name is put away."""
        found = self._store.logs.get((topic.name, state.index))
        if found is not None:
            if not any(found.topic_id):  # from before there were topic ids
                found.set_topic_id(topic.id)
            if found.topic_id == topic.id:
                found.reconfigure(self._controller.topic_config(topic))  # it was opened before the image was read
                return found
            self._store.set_aside([found])
        if (topic.name, state.index) in self._lost:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, LOST)
        return self._store.create(
            topic.name, state.index, topic.id, self._controller.topic_config(topic), state.leader_epoch
        )

    def _drop(self, topic: Topic) -> None:
        self._by_id.pop(topic.id, None)
        self._lost -= {(topic.name, state.index) for state in topic.partitions}
        for partition in self._by_name.pop(topic.name, {}).values():
            try:
                self._store.delete(partition.log)
            except BrokerError as error:  # the folder stays, and is set aside at the next start
                logger.error("cannot delete %s-%d: %s", topic.name, partition.index, error)
            partition.wake()
