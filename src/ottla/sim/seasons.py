"""A topic that is created, written, read, moved, deleted and created again under the same name, repeatedly (V15).

A recreated name starts empty: records are written to and read from a topic id, and only records sent to that id may be
read. At the end of every season (the life of one topic id) all acknowledged records must be there, and no record that
was not sent.

While the topic exists, its replicas may be moved: then in the end only the new replicas have it. Or the move is
cancelled, and the old replicas have it, unless the move was already done.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.sim.clients import RETRY, end_of, records
from ottla.sim.link import LinkError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.sim.clients import Address, Client

NAME = "seasons"
PLACES = ([0, 1], [1, 2], [2, 0])  # two replicas on three brokers, so there is room to move
NOTHING = bytes(16)
UNSURE = RETRY | {ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT}


class Season:
    """One life of the topic."""

    def __init__(self, number: int, topic_id: bytes) -> None:
        self.number = number
        self.topic_id = topic_id
        self.sent: set[bytes] = set()
        self.acked: dict[int, bytes] = {}
        self.unwanted = 0  # Records below it may be gone. Or not, as in Kafka: a kill may forget a log's start.

    def check(self, found: dict[int, bytes], wrong: Callable[[str], None]) -> None:
        """`found`: all records read in the end, by offset."""
        name = f"V15 {NAME}, season {self.number}"
        for offset, value in sorted(found.items()):
            if value not in self.sent:
                wrong(f"{name}: {value!r} at {offset} is of another")
        for offset, value in sorted(self.acked.items()):
            if offset >= self.unwanted and found.get(offset) != value:
                wrong(f"{name}: {value!r} was acknowledged at {offset}, and {found.get(offset)!r} was read")


class Gone(Exception):
    """The topic no longer exists: a deletion of the previous season was carried out late."""


class Gardener:
    def __init__(
        self,
        client: Client,
        wrong: Callable[[str], None],
        look: Callable[[], Planted | None],
        *,
        prunes: bool = False,
    ) -> None:
        """`look`: reads the topic from the store; `prunes`: sometimes deletes the first records."""
        self.client = client
        self.seasons = 0
        self.moved = 0
        self.stopping = False
        self.refused: list[str] = []
        self._wrong = wrong
        self._look = look
        self._prunes = prunes
        self._ids: set[bytes] = {NOTHING}
        self._unanswered = False  # whether a deletion may still be in flight

    async def run(self) -> None:
        """Run until stopped and the season has ended."""
        while not self.stopping:
            season = Season(self.seasons, await self._create())
            self.seasons += 1
            try:
                for _ in range(self.client.chance.randint(1, 3)):
                    await self._write(season)
                    if self._prunes and self.client.chance.random() < 0.6:
                        await self._prune(season)
                if self.client.chance.random() < 0.5:
                    await self._move(season)
                    await self._write(season)
                if self._prunes and self.client.chance.random() < 0.5:
                    await self._prune(season)
                    await self._write(season)
                season.check(await self._read(season), self._wrong)
            except Gone:
                continue
            if not self.stopping:
                await self._delete(season)

    async def _rest(self, season: Season) -> None:
        await self.client.rest()
        planted = self._look()
        if self._unanswered and (planted is None or planted.topic_id != season.topic_id):
            raise Gone

    # The topic.

    async def _ask_controller(self, request: object, version: int) -> Any:
        """Send a request to the controller. LinkError if there is none, or it does not respond."""
        await self.client.refresh()
        address = self.client.address(self.client.controller)
        if address is None:
            raise LinkError("no controller")
        return await self.client.ask(address, request, version)

    async def _describe(self) -> tuple[bytes, Address | None]:
        """The topic's id and its leader's address, according to some broker."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=False)
        answer = await self.client.ask(self.client.anybody(), request, 12)
        topic = answer.topics[0]
        if topic.error_code or not topic.partitions:
            return NOTHING, None
        brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
        return bytes(topic.topic_id), brokers.get(topic.partitions[0].leader_id)

    async def _create(self) -> bytes:
        place = self.client.chance.choice(PLACES)
        topic = CreatableTopic(
            name=NAME,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=place)],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        while True:
            try:
                await self._ask_controller(CreateTopicsRequest(topics=[topic]), 5)
                topic_id, _ = await self._describe()
                if topic_id not in self._ids:
                    self._ids.add(topic_id)
                    return topic_id
            except LinkError:
                pass
            await self.client.rest()

    async def _delete(self, season: Season) -> None:
        """Delete the topic. Repeat until it is gone, or another topic has its name.

        A controller that is cut off from the store may not know the topic: its response does not count.
        """
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=NAME, topic_id=NOTHING)], topic_names=[NAME], timeout_ms=3000
        )
        while True:
            try:
                answer = await self._ask_controller(request, 5)
                code = answer.responses[0].error_code
                planted = self._look()
                gone = planted is None or planted.topic_id != season.topic_id
                if code == ErrorCode.NONE or (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and gone):
                    return
            except LinkError:
                self._unanswered = True
            await self.client.rest()

    async def _move(self, season: Season) -> None:
        """Move the replicas; sometimes cancel the move halfway. In the end they are at the new place or the old one."""
        planted, place = self._look(), self.client.chance.choice(PLACES)
        ends = [place]
        if not await self._reassign(season, place):
            return
        if planted is not None and planted.replicas is not None and self.client.chance.random() < 0.4:
            # In any order: as in Kafka, the znode of a moving partition does not show the order.
            ends += [planted.replicas, planted.replicas[::-1]]
            await asyncio.sleep(self.client.chance.expovariate(5))
            if not await self._reassign(season, None):
                return
        while (planted := self._look()) is None or planted.replicas not in ends:  # without a limit: V17 ends it
            await self._rest(season)
        self.moved += 1

    async def _reassign(self, season: Season, place: list[int] | None) -> bool:
        """Request a move until it is accepted; None cancels the last one. Returns False if it was refused."""
        one = ReassignablePartition(partition_index=0, replicas=place)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=NAME, partitions=[one])])
        while True:
            try:
                answer = await self._ask_controller(request, 0)
                code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
                if code is ErrorCode.NONE or (place is None and code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
                    return True
                if code not in UNSURE:
                    self.refused.append(f"{NAME}: {code.name} for a move to {place}")
                    return False
            except LinkError:
                pass
            await self._rest(season)

    # Records.

    async def _write(self, season: Season) -> None:
        """Send one batch until it is acknowledged. It may be written twice: this producer is not idempotent."""
        values = [f"season {season.number} {len(season.sent) + number}".encode() for number in range(3)]
        season.sent.update(values)
        data = batch.build([batch.Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(values)])
        one = PartitionProduceData(index=0, records=memoryview(data))
        topic = TopicProduceData(name="", topic_id=season.topic_id, partition_data=[one])
        request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic])
        while True:
            try:
                topic_id, leader = await self._describe()
                if leader is not None and topic_id == season.topic_id:
                    answer = (await self.client.ask(leader, request, 13)).responses[0].partition_responses[0]
                    code = ErrorCode(answer.error_code)
                    if code is ErrorCode.NONE:
                        season.acked.update(enumerate(values, answer.base_offset))
                        return
                    if code not in RETRY:
                        self.refused.append(f"{NAME}: {code.name} for season {season.number}")
                        return
            except LinkError:
                pass
            await self._rest(season)

    async def _prune(self, season: Season) -> None:
        """Delete the first records, until that is answered."""
        low = self.client.chance.choice([0, *(offset + 1 for offset in season.acked)])
        season.unwanted = max(season.unwanted, low)
        one = DeleteRecordsPartition(partition_index=0, offset=low)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=NAME, partitions=[one])], timeout_ms=3000)
        while True:
            try:
                topic_id, leader = await self._describe()
                if leader is not None and topic_id == season.topic_id:
                    answer = (await self.client.ask(leader, request, 2)).topics[0].partitions[0]
                    code = ErrorCode(answer.error_code)
                    if code is ErrorCode.NONE:
                        return
                    if code not in RETRY | {ErrorCode.OFFSET_OUT_OF_RANGE}:
                        self.refused.append(f"{NAME}: {code.name} for a deletion")
                        return
            except LinkError:
                pass
            await self._rest(season)

    async def _read(self, season: Season) -> dict[int, bytes]:
        """Read all records from the leader, once everything acknowledged is committed."""
        found: dict[int, bytes] = {}
        at, last = 0, max(season.acked, default=-1)
        while at <= last:
            one = FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic_id=season.topic_id, partitions=[one])
            request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            try:
                topic_id, leader = await self._describe()
                if leader is not None and topic_id == season.topic_id:
                    answer = await self.client.ask(leader, request, 13)
                    part = answer.responses[0].partitions[0] if answer.responses else None
                    data = bytes(part.records or b"") if part is not None and not part.error_code else b""
                    found |= {one.offset: one.value or b"" for one in records(data) if one.offset >= at}
                    at = max(at, end_of(data))
                    if part is not None and part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        at += 1  # deleted
            except LinkError:
                pass
            await self._rest(season)
        return found


class Planted(NamedTuple):
    """The topic as in its znode."""

    topic_id: bytes
    replicas: list[int] | None  # None while they are changing


def decode_planted(data: bytes) -> Planted:
    topic = json.loads(data)
    topic_id = base64.urlsafe_b64decode(topic["topic_id"] + "==")
    changing = topic.get("adding_replicas") or topic.get("removing_replicas")
    return Planted(topic_id, None if changing else [int(broker) for broker in topic["partitions"]["0"]])
