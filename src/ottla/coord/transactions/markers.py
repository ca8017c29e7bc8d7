"""The markers that end a transaction in the partitions it wrote to.

A marker is a control batch of one record, under the producer's id and the epoch that ends the transaction:

    key     int16 version 0, int16 type: 0 abort, 1 commit
    value   int16 version 0, int32 epoch of the coordinator

A partition that is gone needs none. One whose log cannot be written just now is tried again until it can: what the
coordinator has decided must reach every partition, or readers of committed records would wait there for ever.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode
from ottla.records import batch
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.clock import Clock
    from ottla.coord.coordinator import Coordinator
    from ottla.coord.groups.coordinator import Groups
    from ottla.coord.transactions.machine import TransactionMachine
    from ottla.coord.transactions.transaction import Markers
    from ottla.replica.partition import Partition
    from ottla.replica.replicas import Replicas

logger = logging.getLogger("ottla.coord")

KEY = Struct(">hh")
VALUE = Struct(">hi")
PRODUCE_VERSION = 11
RETRY_S = 1.0
GONE = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))


class Marker:
    """One transaction's end, as one coordinator tells it."""

    __slots__ = ("commits", "coordinator_epoch", "epoch", "producer_id", "version")

    def __init__(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int, *, commits: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.version = version
        self.commits = commits


class MarkerWriter:
    def __init__(self, replicas: Replicas, groups: Groups, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._loop = loop
        self._steps = Steps("ottla.coord")
        self._tasks: set[asyncio.Task[None]] = set()
        self.transactions: Coordinator[TransactionMachine] | None = None  # set once, by whoever builds both

    def perform(self, index: int, effect: Markers) -> None:
        """Write what a coordinator's machine has decided, and tell it when everything is written."""
        transactions = self.transactions
        assert transactions is not None
        if not transactions.runtime.leads(index):
            return  # the broker is stopping, or another one leads by now: who comes next finds the decision in the log
        try:
            coordinator = self._replicas.get(transactions.topic, index)
        except BrokerError:
            return
        marker = Marker(effect.producer_id, effect.epoch, coordinator.epoch, effect.version, commits=effect.commits)
        left = set(effect.partitions)
        for one in effect.partitions:
            with self._steps.attempt(f"marker in {one[0]}-{one[1]}"):
                if self._written(*one, marker):
                    left.discard(one)
        if left:
            self._loop.call_later(RETRY_S, self.perform, index, effect._replace(partitions=frozenset(left)))
            return
        unforced = [forced for one in effect.partitions if (forced := self.forced(*one)) is not None]
        if unforced:
            task = self._loop.create_task(self._force(index, effect, unforced))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._marked(index, effect)

    def forced(self, topic: str, index: int) -> Coroutine[Any, Any, None] | None:
        """To be awaited before a marker counts, if at all."""
        try:
            return self._replicas.get(topic, index).forced()
        except BrokerError:  # gone since
            return None

    async def _force(self, index: int, effect: Markers, unforced: list[Coroutine[Any, Any, None]]) -> None:
        """Where `flush.messages` asks for it, a transaction is over when its markers are on disk."""
        for outcome in await asyncio.gather(*unforced, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._steps.failed("flush of markers", outcome)
        self._marked(index, effect)

    def _marked(self, index: int, effect: Markers) -> None:
        assert self.transactions is not None
        self.transactions.runtime.decide(
            index,
            lambda machine, now_ms: machine.marked(effect.transactional_id, effect.producer_id, effect.epoch, now_ms),
        )

    def _written(self, topic: str, index: int, marker: Marker) -> bool:
        try:
            self.write(topic, index, marker)
        except BrokerError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                return False
            if error.code not in GONE:  # fenced: a newer marker has been there
                logger.warning("no marker of producer %d in %s-%d: %s", marker.producer_id, topic, index, error)
        except Exception:  # a bug; but a transaction without an end would be one more
            logger.exception("no marker of producer %d in %s-%d yet", marker.producer_id, topic, index)
            return False
        return True

    def write(self, topic: str, index: int, marker: Marker) -> None:
        """Append the marker to one partition; offsets that were committed with the transaction count from now on."""
        append(self._replicas.get(topic, index), marker, self._clock.now_ms())
        if topic == self._groups.topic:
            self._groups.runtime.ended(index, marker.producer_id, committed=marker.commits)


def append(partition: Partition, marker: Marker, now_ms: int) -> None:
    partition.log.producers.check_marker(
        marker.producer_id, marker.epoch, marker.coordinator_epoch, version=marker.version
    )
    record = batch.Record(0, now_ms, KEY.pack(0, marker.commits), VALUE.pack(0, marker.coordinator_epoch), ())
    data = batch.build(
        [record],
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transactional=True,
        control=True,
    )
    partition.append(memoryview(data), now_ms, PRODUCE_VERSION, client=False)
