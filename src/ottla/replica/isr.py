"""Asks the controller to change in-sync sets: AlterPartition, many partitions in a request, one request at a time.

A proposal stays open until it is answered. Meanwhile the leader uses both sets, so nothing is lost however long the
controller takes. A request without a response is sent again, also to the next controller. When a new controller is
elected, the response of the former one is not awaited: it may have stopped without closing its connections. Only a
response that rejects the proposal withdraws it; after any other error LeaderAndIsr brings the current state. A
controller before release 2.8 has no topic ids: partitions that it does not know by id are sent again by name.

So a leader that cannot reach the controller, or has lost its session, cannot shrink its in-sync set by itself: records
that its followers no longer fetch are not acknowledged.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.clock import steady_ms
from ottla.cluster.peers import PeerError
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.leader import UNKNOWN
from ottla.steps import Steps
from ottla.wire.messages.peers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.peers import Peers
    from ottla.replica.leader import Proposal
    from ottla.replica.partition import Partition
    from ottla.wire.messages.peers import AlterPartitionResponse, AlterPartitionResponsePartitionData

    Key = tuple[str, int]

CHANNEL = "isr"
NAMED = 1  # the last version with topic names; later ones use topic ids
RETRY_S = 0.05
TIMEOUT_S = 30.0
LOOK_S_MAX = 5.0
# The proposal was rejected, but our state is current.
UNTOUCHED = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
# Our state is out of date: LeaderAndIsr or StopReplica will bring the current one.
OUTDATED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class Proposals:
    def __init__(self, peers: Peers, metadata: Metadata, clock: Clock, *, broker_epoch: Callable[[], int]) -> None:
        self._peers = peers
        self._metadata = metadata
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._open: dict[Key, tuple[Partition, Proposal]] = {}
        self._named: dict[Key, Proposal] = {}  # those to send by topic name
        self._asked: int | None = None  # the controller that has not answered yet
        self._wanted = asyncio.Event()
        self._steps = Steps("ottla.isr")
        self.shrinks = self.expands = 0  # in-sync sets that have become smaller, and larger
        metadata.subscribe(self._follow_controller)

    def _follow_controller(self, old: Image | None, new: Image) -> None:
        if self._asked is not None and self._asked != new.controller_id:
            self._peers.close_channel(self._asked, CHANNEL)

    def propose(self, partition: Partition) -> None:
        """Send a proposal if the in-sync set of this partition should change."""
        followers = partition.followers
        if followers is None:
            return
        proposal = followers.propose(steady_ms(self._clock))
        if proposal is not None:
            self._open[partition.topic, partition.index] = partition, proposal
            self._wanted.set()

    def look(self, partitions: Iterable[Partition]) -> None:
        """Called at intervals: propose to remove followers that have fallen behind."""
        now_ms = steady_ms(self._clock)
        for partition in partitions:
            if partition.followers is not None:
                partition.on_isr_change(moved=partition.followers.advance(now_ms))
                self.propose(partition)

    async def watch(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Check the partitions led by this broker periodically, until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S_MAX, self._metadata.config.replica_lag_time_max_ms / 2000))
            with self._steps.attempt("checking for lagging followers"):
                self.look(list(partitions()))

    async def run(self) -> None:
        """Send proposals, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with self._steps.attempt("proposing in-sync sets") as attempt:
                try:
                    await self._send()
                except PeerError as error:
                    raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            if attempt.failed:
                await asyncio.sleep(RETRY_S)
            if self._open:
                self._wanted.set()

    async def _send(self) -> None:
        # Drop proposals of partitions that are no longer led here, or were settled by LeaderAndIsr.
        self._open = {key: one for key, one in self._open.items() if is_open(*one)}
        if not self._open:
            return
        sent = dict(self._open)
        image = self._metadata.image
        controller = image.brokers.get(image.controller_id)
        if controller is None:
            raise PeerError("there is no controller")
        self._named = {key: one for key, one in self._named.items() if key in sent and sent[key][1] is one}
        by_name = bool(self._named) or any(not any(partition.topic_id) for partition, _ in sent.values())
        self._asked = controller.id
        try:
            answer = await self._peers.ask(
                controller,
                request(self._metadata.node_id, self._broker_epoch(), sent),
                version=NAMED if by_name else None,
                timeout_s=TIMEOUT_S,
                client_id=str(self._metadata.node_id),
                channel=CHANNEL,
            )
        finally:
            self._asked = None
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code))
        again = self._settle(answer, sent, by_name=by_name)
        if again:
            raise BrokerError(again, f"{again.name} for some partitions")

    def _settle(
        self, answer: AlterPartitionResponse, sent: dict[Key, tuple[Partition, Proposal]], *, by_name: bool
    ) -> ErrorCode:
        """Apply the response. Returns why some proposals must be sent again, or NONE."""
        again = ErrorCode.NONE
        names = {partition.topic_id: partition.topic for partition, _ in sent.values()}
        found = {
            (topic.topic_name or names.get(topic.topic_id, ""), one.partition_index): one
            for topic in answer.topics
            for one in topic.partitions
        }
        for key, (partition, proposal) in sent.items():
            told = found.get(key)
            if told is None:
                again = ErrorCode.UNKNOWN_SERVER_ERROR
                continue
            code = ErrorCode(told.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_ID and not by_name:
                self._named[key] = proposal
            elif code is ErrorCode.NONE or code in UNTOUCHED or code in OUTDATED:
                if self._open.get(key) == (partition, proposal):
                    del self._open[key]
                if is_open(partition, proposal):
                    self._conclude(partition, proposal, told, code)
            else:
                again = code
        return again

    def _conclude(
        self, partition: Partition, proposal: Proposal, told: AlterPartitionResponsePartitionData, code: ErrorCode
    ) -> None:
        followers = partition.followers
        assert followers is not None
        if code is ErrorCode.NONE:
            now_ms = steady_ms(self._clock)
            self.shrinks += len(told.isr) < len(followers.isr)
            self.expands += len(told.isr) > len(followers.isr)
            moved = followers.accept(told.isr, told.leader_epoch, told.partition_epoch, now_ms)
            partition.on_isr_change(moved=moved)
            self.propose(partition)  # another may have caught up meanwhile
        elif code in UNTOUCHED:
            followers.drop_proposal(proposal)


def is_open(partition: Partition, proposal: Proposal) -> bool:
    return partition.followers is not None and partition.followers.proposal is proposal


def request(me: int, broker_epoch: int, sent: dict[Key, tuple[Partition, Proposal]]) -> AlterPartitionRequest:
    """Sets the fields of all versions; encoding uses those of its version."""
    ordered = sorted(sent.values(), key=lambda one: (one[0].topic, one[0].index))
    return AlterPartitionRequest(
        broker_id=me,
        broker_epoch=broker_epoch,
        topics=[
            AlterPartitionRequestTopicData(
                topic_name=name,
                topic_id=topic_id,
                partitions=[
                    AlterPartitionRequestPartitionData(
                        partition_index=partition.index,
                        leader_epoch=proposal.leader_epoch,
                        new_isr=list(proposal.isr),
                        new_isr_with_epochs=states(proposal),
                        partition_epoch=proposal.version,
                    )
                    for partition, proposal in of
                ],
            )
            for (name, topic_id), of in groupby(ordered, lambda one: (one[0].topic, one[0].topic_id))
        ],
    )


def states(proposal: Proposal) -> list[BrokerState]:
    """Members with their broker epochs: the controller rejects one that has restarted since, as its log may be lost."""
    lives = dict(proposal.lives)
    return [BrokerState(broker_id=broker, broker_epoch=lives.get(broker, UNKNOWN)) for broker in proposal.isr]
