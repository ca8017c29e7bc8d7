"""Members of a consumer group in the simulation: they join, assign partitions, read, commit, and start again.

The guarantees for groups are checked as events happen (V13, V14): a partition has one owner per generation,
acknowledged commits are not lost and do not go back, and generations never decrease.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.sim.clients import end_of, records
from ottla.sim.link import LinkError
from ottla.wire import codec
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.sim.clients import Address, Client
    from ottla.sim.history import History, Partition

SESSION_MS = 6000
REBALANCE_MS = 6000


class GroupLedger:
    """All responses that a group got, from any coordinator."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self.committed: dict[Partition, int] = {}
        self.owners: dict[tuple[int, Partition], str] = {}
        self.generation = 0
        self._wrong = wrong

    def note_owner(self, generation: int, partition: Partition, member: str) -> None:
        owner = self.owners.setdefault((generation, partition), member)
        if owner != member:
            self._wrong(f"V13 {partition}: {owner} and {member} own it in generation {generation}")

    def note_generation(self, generation: int) -> None:
        """Only for generations in responses: a member may learn of an older one late."""
        self.generation = max(self.generation, generation)

    def note_commit(self, partition: Partition, offset: int, member: str) -> None:
        before = self.committed.get(partition, 0)
        if offset < before:
            self._wrong(f"V13 {partition}: {member} committed {offset} after {before}")
        self.committed[partition] = max(before, offset)

    def check_fetch(self, partition: Partition, offset: int, least: int, member: str) -> None:
        """A member fetched a committed offset; `least` was acknowledged before its request."""
        if max(offset, 0) < least:
            self._wrong(f"V13 {partition}: {member} was told {offset}, and {least} had been committed")


class CoordinatorRefused(Exception):
    """The coordinator refused: join again, or find another one."""


class GroupMember:
    def __init__(
        self, client: Client, history: History, ledger: GroupLedger, group: str, partitions: Sequence[Partition]
    ) -> None:
        self.client = client
        self.history = history
        self.ledger = ledger
        self.group = group
        self.partitions = list(partitions)
        self.generation = -1
        self.mine: dict[Partition, int] = {}  # positions of our assigned partitions
        self._id = ""
        self._coordinator: Address | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._join()
                await self._consume()
            except (LinkError, CoordinatorRefused):
                self.mine = {}
            await self.client.rest()

    async def _ask(self, request: object, version: int, *, timeout_s: float = 5.0) -> Any:
        if self._coordinator is None:
            found = await self.client.ask(self.client.anybody(), FindCoordinatorRequest(key=self.group), 2)
            if found.error_code:
                raise CoordinatorRefused
            self._coordinator = (found.host, found.port)
        try:
            return await self.client.ask(self._coordinator, request, version, timeout_s=timeout_s)
        except LinkError:
            self._coordinator = None
            raise

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._id = ""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        raise CoordinatorRefused(code)

    async def _join(self) -> None:
        topics = sorted({topic for topic, _ in self.partitions})
        subscription = b"\0\0" + codec.encode(ConsumerProtocolSubscription(topics=topics), 0)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        joined = await self._ask(request, 5, timeout_s=REBALANCE_MS / 1000 + 2)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            raise CoordinatorRefused
        self._check(joined.error_code)
        self._id, generation = joined.member_id, joined.generation_id
        self.ledger.note_generation(generation)
        parts = self._share([one.member_id for one in joined.members]) if joined.leader == self._id else []
        sync = SyncGroupRequest(group_id=self.group, generation_id=generation, member_id=self._id, assignments=parts)
        synced = await self._ask(sync, 3, timeout_s=REBALANCE_MS / 1000 + 2)
        self._check(synced.error_code)
        await self._take(generation, bytes(synced.assignment))

    def _share(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        parts: dict[str, list[Partition]] = {member: [] for member in members}
        for at, partition in enumerate(self.partitions):
            parts[members[at % len(members)]].append(partition)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=b"\0\0"
                + codec.encode(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            AssignmentTopicPartition(topic=topic, partitions=[index]) for topic, index in mine
                        ],
                        user_data=None,
                    ),
                    0,
                ),
            )
            for member, mine in parts.items()
        ]

    async def _take(self, generation: int, assignment: bytes) -> None:
        told = codec.decode(ConsumerProtocolAssignment, 0, memoryview(assignment)[2:])
        mine = [(one.topic, index) for one in told.assigned_partitions for index in one.partitions]
        for partition in mine:
            self.ledger.note_owner(generation, partition, self._id)
        self.generation = generation
        least = {partition: self.ledger.committed.get(partition, 0) for partition in mine}
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index]) for topic, index in mine]
        positions: dict[Partition, int] = {}
        if mine:
            answer = await self._ask(OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True), 7)
            self._check(answer.error_code)
            for topic in answer.topics:
                for one in topic.partitions:
                    self._check(one.error_code)
                    partition = (topic.name, one.partition_index)
                    self.ledger.check_fetch(partition, one.committed_offset, least[partition], self._id)
                    positions[partition] = max(one.committed_offset, 0)
        self.mine = positions
        for partition, position in positions.items():
            self.history.note_start(f"{self.group} {self._id} {generation}", partition, position)

    async def _consume(self) -> None:
        """Read, commit and send heartbeats, until a response says that the group rebalances."""
        while True:
            beat = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self._id)
            self._check((await self._ask(beat, 3)).error_code)
            for partition in list(self.mine):
                await self._read(partition)
            if self.mine:
                await self._commit()
            await asyncio.sleep(0.2 + self.client.chance.random() * 0.3)

    async def _read(self, partition: Partition) -> None:
        client, at = self.client, self.mine[partition]
        leader = client.leader(partition)
        one = FetchPartition(partition=partition[1], fetch_offset=at, partition_max_bytes=8192)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic=partition[0], partitions=[one])]
        )
        try:
            if leader is None:
                raise LinkError("no leader")
            answer = await client.ask(leader, request, 11)
            found = answer.responses[0].partitions[0]
            if found.error_code:
                raise LinkError("an error")
        except LinkError:
            await client.refresh(partition[0])
            return
        data = bytes(found.records or b"")
        for record in records(data):
            if record.offset >= self.mine[partition]:
                reader = f"{self.group} {self._id} {self.generation}"
                self.history.note_read(reader, partition, record.offset, record.value or b"")
        self.mine[partition] = max(self.mine[partition], end_of(data))

    async def _commit(self) -> None:
        positions = dict(self.mine)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for (topic, index), offset in positions.items()
            ],
        )
        answer = await self._ask(request, 7)
        for topic in answer.topics:
            for one in topic.partitions:
                self._check(one.error_code)
                partition = (topic.name, one.partition_index)
                self.ledger.note_commit(partition, positions[partition], self._id)
