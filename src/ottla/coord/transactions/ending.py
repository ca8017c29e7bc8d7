"""Writes the markers that end a transaction to every partition of the transaction.

The machine decides once how a transaction ends; this module carries that out. Partitions that this broker leads get
their markers at once. For the others, markers are sent to the leaders, many in one request. Failed writes are retried,
at the current leader, as long as this broker coordinates the transaction: without its marker, read_committed consumers
would wait forever. A deleted partition needs no marker. A partition that refuses because it has seen a newer epoch
needs none either: the transaction has already ended there.

When every marker is committed, `machine.complete` records that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.image import NO_LEADER
from ottla.cluster.peers import PeerError
from ottla.coord.transactions.markers import Marker
from ottla.errors import BrokerError, ErrorCode
from ottla.steps import Steps
from ottla.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.coord.runtime import Runtime
    from ottla.coord.transactions.machine import TransactionMachine
    from ottla.coord.transactions.markers import MarkerWriter
    from ottla.coord.transactions.transaction import WriteMarkers

logger = logging.getLogger("ottla.coord")

RETRY_S = 0.1  # after the first failure; then doubled each time, up to RETRY_S_MAX
RETRY_S_MAX = 1.0
AT_ONCE = 100  # partitions handled in one time slice
CHANNEL = "markers"
MARKERS_MAX = 1000  # in one request
WRITTEN = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,  # no transaction can have written to that partition
    )
)

Place = tuple[str, int]  # topic and partition


class Endings:
    def __init__(
        self,
        runtime: Runtime[TransactionMachine],
        metadata: Metadata,
        markers: MarkerWriter,
        peers: Peers | None,
        topic: str,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._markers = markers
        self._peers = peers
        self._topic = topic  # of the coordinator
        self._senders: dict[int, MarkerSender] = {}
        self._steps = Steps("ottla.coord")
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, index: int, effect: WriteMarkers) -> None:
        """Write the markers that the machine of a partition has decided on. Completes the transaction afterwards."""
        machine = self._machine(index)
        if machine is None:
            return  # no longer the leader: the new leader finds the decision in the log
        left, delay_s = set(effect.partitions), 0.0
        awaited: list[asyncio.Future[set[Place]]] = []
        if len(left) <= AT_ONCE:
            written, awaited = self._begin(index, effect, left)
            left -= written
            delay_s = RETRY_S
        if not left:
            self._complete(index, effect)
            return
        work = self._finish(index, machine, effect, left, awaited, delay_s)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop_broker(self, broker_id: int) -> None:
        """A broker is gone. Do not wait for its responses: its markers go to the new leaders."""
        if self._peers is not None and broker_id in self._senders:
            self._peers.close_channel(broker_id, CHANNEL)

    async def stop(self) -> None:
        tasks = [*self._tasks, *(sender.task for sender in self._senders.values() if sender.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _machine(self, index: int) -> TransactionMachine | None:
        try:
            return self._runtime.peek(index)
        except BrokerError:
            return None

    async def _finish(
        self,
        index: int,
        machine: TransactionMachine,
        effect: WriteMarkers,
        left: set[Place],
        awaited: list[asyncio.Future[set[Place]]],
        delay_s: float,
    ) -> None:
        """Write the markers that are `left`. Some are in flight (`awaited`); the others are retried after a delay."""
        while True:
            for written in await asyncio.gather(*awaited):
                left -= written
            if not left:
                break
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s or RETRY_S, RETRY_S_MAX)
            places, awaited = sorted(left), []
            for first in range(0, len(places), AT_ONCE):
                if self._machine(index) is not machine or not machine.is_ending(effect):
                    return
                written, sent = self._begin(index, effect, places[first : first + AT_ONCE])
                left -= written
                awaited += sent
                await asyncio.sleep(0)
        if self._machine(index) is machine:
            self._complete(index, effect)

    def _complete(self, index: int, effect: WriteMarkers) -> None:
        self._runtime.decide(
            index,
            lambda machine, now_ms: machine.complete(effect.transactional_id, effect.producer_id, effect.epoch, now_ms),
        )

    def _begin(
        self, index: int, effect: WriteMarkers, places: Iterable[Place]
    ) -> tuple[set[Place], list[asyncio.Future[set[Place]]]]:
        """Write or send markers where a leader is known. Returns the partitions done, and futures of the others."""
        epoch = self._runtime.epoch(index)
        marker = Marker(effect.producer_id, effect.epoch, epoch, effect.version, commits=effect.commits)
        done: set[Place] = set()
        awaited: list[asyncio.Future[set[Place]]] = []
        elsewhere: dict[int, list[Place]] = {}
        for place in sorted(places):
            leader = self._leader(place)
            if leader is None:
                done.add(place)
            elif leader == self._metadata.node_id:
                waiting = self._write(place, marker)
                if isinstance(waiting, asyncio.Future):
                    awaited.append(waiting)
                elif waiting:
                    done.add(place)
            elif leader != NO_LEADER:
                elsewhere.setdefault(leader, []).append(place)
        for leader, sent in elsewhere.items():
            awaited.append(self._sender(leader).send(marker, sent))
        return done, awaited

    def _leader(self, place: Place) -> int | None:
        """The leader of a partition; None if the partition no longer exists."""
        topics = self._metadata.image.topics
        topic = topics.get(place[0])
        if topic is not None and 0 <= place[1] < len(topic.partitions):
            return topic.partitions[place[1]].leader
        return None if self._topic in topics else NO_LEADER  # without our own topic, the metadata is not loaded yet

    def _write(self, place: Place, marker: Marker) -> bool | asyncio.Future[set[Place]]:
        """Write a marker to a partition that this broker leads. Returns whether it is done, or a future."""
        topic, index = place
        with self._steps.attempt(f"marker in {topic}-{index}"):
            try:
                uncommitted = self._markers.write(topic, index, marker)
            except BrokerError as error:
                return is_settled(place, marker, error, self._steps)
            if uncommitted is None:
                return True
            return asyncio.ensure_future(self._commit(place, marker, uncommitted))
        return False

    async def _commit(self, place: Place, marker: Marker, uncommitted: asyncio.Future[None]) -> set[Place]:
        try:
            await uncommitted
        except BrokerError as error:
            return {place} if is_settled(place, marker, error, self._steps) else set()
        return {place}

    def _sender(self, broker_id: int) -> MarkerSender:
        sender = self._senders.get(broker_id)
        if sender is None:
            assert self._peers is not None, "another broker leads a partition, and this broker has no peers"
            sender = self._senders[broker_id] = MarkerSender(broker_id, self._metadata, self._peers, self._steps)
        return sender


class Sending(NamedTuple):
    marker: Marker
    places: list[Place]
    future: asyncio.Future[set[Place]]  # the partitions that are done


class MarkerSender:
    """Sends markers to one other broker. One request is in flight at a time; new markers wait for the next."""

    def __init__(self, broker_id: int, metadata: Metadata, peers: Peers, steps: Steps) -> None:
        self.task: asyncio.Task[None] | None = None
        self._broker_id = broker_id
        self._metadata = metadata
        self._peers = peers
        self._steps = steps
        self._queue: list[Sending] = []

    def send(self, marker: Marker, places: list[Place]) -> asyncio.Future[set[Place]]:
        loop = asyncio.get_running_loop()
        sending = Sending(marker, places, loop.create_future())
        self._queue.append(sending)
        if self.task is None or self.task.done():
            self.task = loop.create_task(self._run())
        return sending.future

    async def _run(self) -> None:
        while self._queue:
            batch = self._take()
            done: dict[int, set[Place]] = {}
            with self._steps.attempt(f"markers to broker {self._broker_id}"):
                done = await self._ask(batch)
            for sending in batch:
                if not sending.future.done():
                    sending.future.set_result(done.get(sending.marker.producer_id, set()))

    def _take(self) -> list[Sending]:
        """Take the next markers off the queue: one per producer, since the response is keyed by producer."""
        taken: dict[int, Sending] = {}
        later = []
        for sending in self._queue:
            if len(taken) < MARKERS_MAX and sending.marker.producer_id not in taken:
                taken[sending.marker.producer_id] = sending
            else:
                later.append(sending)
        self._queue = later
        return list(taken.values())

    async def _ask(self, batch: list[Sending]) -> dict[int, set[Place]]:
        broker = self._metadata.image.brokers.get(self._broker_id)
        if broker is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE)
        request = WriteTxnMarkersRequest(markers=[encode_marker(one.marker, one.places) for one in batch])
        client_id = f"broker-{self._metadata.node_id}-txn-marker-sender"
        try:
            answer: WriteTxnMarkersResponse = await self._peers.ask(
                broker, request, client_id=client_id, channel=CHANNEL
            )
        except PeerError as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
        markers = {one.marker.producer_id: one.marker for one in batch}
        done: dict[int, set[Place]] = {}
        for result in answer.markers:
            marker = markers.get(result.producer_id)
            if marker is None:
                continue
            written = done.setdefault(result.producer_id, set())
            for topic in result.topics:
                for one in topic.partitions:
                    place = (topic.name, one.partition_index)
                    if one.error_code == 0 or is_settled(place, marker, make_error(one.error_code), self._steps):
                        written.add(place)
        return done


def encode_marker(marker: Marker, places: list[Place]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.commits,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.version,
    )


def make_error(code: int) -> BrokerError:
    """The error for another broker's code. A newer broker may send a code that we do not know."""
    try:
        return BrokerError(ErrorCode(code))
    except ValueError:
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}")


def is_settled(place: Place, marker: Marker, error: BrokerError, steps: Steps) -> bool:
    """Whether this error means that the partition needs no marker. Logs the error."""
    if error.code in WRITTEN:
        logger.warning("no marker of producer %d in %s-%d: %s", marker.producer_id, *place, error)
        return True
    steps.note_failure(f"marker in {place[0]}-{place[1]}", error)
    return False
