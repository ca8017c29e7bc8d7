"""Clients of the simulated cluster: producers and readers that record every response.

They are as simple as a correct client can be: a producer keeps a few batches in flight for each partition and resends
all of them, in order, until each is answered; a reader fetches the next records from the leader. All responses go into
the history. A client never returns to a leader of an older epoch, unless it is `trusting`, as some real ones are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.sim.link import LinkError, SimConnection
from ottla.sim.loop import PROCESS
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import InitProducerIdRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from ottla.sim.history import History, Partition
    from ottla.sim.net import Network

Address = tuple[str, int]

BACKOFF_S = 0.1
REQUEST_TIMEOUT_S = 5.0
IN_FLIGHT_MAX = 5
RETRY = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)


class RequestRefused(Exception):
    """The cluster answered with an error that a client does not expect."""


class Client:
    """Connections to brokers, and the leaders of partitions."""

    def __init__(self, network: Network, name: str, bootstrap: Sequence[Address], chance: Random) -> None:
        self.name = name
        self.chance = chance
        self.network = network
        self.loop = network.loop
        self.controller = -1
        self.trusting = False  # accepts metadata even if it is older than what it knows
        self._bootstrap = list(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[Partition, tuple[int, int]] = {}  # epoch, broker
        self._links: dict[tuple[Address, str], SimConnection] = {}

    async def link(self, address: Address, channel: str = "") -> SimConnection:
        known = self._links.get((address, channel))
        if known is None or known.closed:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    socket = await self.network.connect(PROCESS.get().name, *address)
            except (OSError, TimeoutError) as error:
                raise LinkError(str(error)) from None
            known = self._links[address, channel] = SimConnection(self.loop, socket)
        return known

    async def ask(
        self, address: Address, request: object, version: int, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        return await (await self.link(address)).ask(request, version, timeout_s=timeout_s, client_id=self.name)

    def anybody(self) -> Address:
        return self.chance.choice(sorted({*self._bootstrap, *self._brokers.values()}))

    @property
    def known(self) -> list[int]:
        """The brokers in the last metadata response."""
        return sorted(self._brokers)

    def address(self, broker: int) -> Address | None:
        return self._brokers.get(broker)

    async def refresh(self, *topics: str) -> None:
        """Ask some broker for the leaders; it may know less than we do, or not respond."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with suppress(LinkError):
            answer = await self.ask(self.anybody(), request, 9, timeout_s=1.0)
            self._brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
            self.controller = answer.controller_id
            for topic in answer.topics:
                for one in topic.partitions:
                    key = (topic.name, one.partition_index)
                    newer = self.trusting or one.leader_epoch >= self._leaders.get(key, (-1, -1))[0]
                    if newer and one.error_code == 0:
                        self._leaders[key] = one.leader_epoch, one.leader_id

    def leader(self, partition: Partition) -> Address | None:
        return self._brokers.get(self._leaders.get(partition, (-1, -1))[1])

    def epoch(self, partition: Partition) -> int:
        return self._leaders.get(partition, (-1, -1))[0]

    async def rest(self) -> None:
        await asyncio.sleep(BACKOFF_S * (0.5 + self.chance.random()))


class Sent:
    """A batch in flight, until it is acknowledged."""

    __slots__ = ("sequence", "values")

    def __init__(self, sequence: int, values: list[bytes]) -> None:
        self.sequence = sequence
        self.values = values


class ProducingClient:
    """An idempotent producer of some partitions."""

    def __init__(self, client: Client, history: History, partitions: Sequence[Partition], *, pause_s: float) -> None:
        self.client = client
        self.history = history
        self.partitions = partitions
        self.stopping = False
        self.acked = 0
        self.refused: list[str] = []
        self.waiting = 0  # batches without an acknowledgement
        self._pause_s = pause_s
        self._producer = (-1, -1)

    async def run(self) -> None:
        """Run until stopped and everything is acknowledged."""
        await self._begin()
        await asyncio.gather(*(self._feed(partition) for partition in self.partitions))

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while self._producer == (-1, -1):
            with suppress(LinkError):
                answer = await self.client.ask(self.client.anybody(), request, 4)
                if not answer.error_code:
                    self._producer = answer.producer_id, answer.producer_epoch
                    return
            await self.client.rest()

    async def _feed(self, partition: Partition) -> None:
        client, chance = self.client, self.client.chance
        waiting: deque[Sent] = deque()
        count = sequence = 0
        while not self.stopping or waiting:
            while not self.stopping and len(waiting) < chance.randint(1, IN_FLIGHT_MAX):
                values = []
                for _ in range(chance.randint(1, 4)):
                    values.append(f"{client.name} {partition[1]} {count} {'.' * chance.randint(0, 100)}".encode())
                    count += 1
                waiting.append(Sent(sequence, values))
                sequence += len(values)
                self.waiting += 1
                self.history.note_sent(client.name, partition, values)
            if not await self._deliver(partition, waiting):
                await client.rest()
                await client.refresh(partition[0])
            elif not waiting:
                await asyncio.sleep(chance.expovariate(1 / self._pause_s))

    async def _deliver(self, partition: Partition, waiting: deque[Sent]) -> bool:
        """Send all waiting batches in order. Returns whether all of them were acknowledged."""
        leader, epoch = self.client.leader(partition), self.client.epoch(partition)
        if leader is None:
            return False
        try:
            link = await self.client.link(leader, f"{partition}")
        except LinkError:
            return False
        answers = [(sent, link.send(self._request(partition, sent), 9, self.client.name)) for sent in waiting]
        fine = True
        deadline = self.client.loop.time() + REQUEST_TIMEOUT_S + 1
        for sent, future in answers:
            try:
                async with asyncio.timeout_at(deadline):
                    answer = (await future).responses[0].partition_responses[0]
            except (LinkError, TimeoutError):
                link.close()
                fine = False
                continue
            fine = self._settle(partition, waiting, sent, answer, epoch) and fine
        return fine

    def _settle(self, partition: Partition, waiting: deque[Sent], sent: Sent, answer: Any, epoch: int) -> bool:
        code = ErrorCode(answer.error_code)
        first = waiting and waiting[0] is sent
        if code is ErrorCode.NONE:
            waiting.remove(sent)
            self.waiting -= 1
            self.acked += len(sent.values)
            self.history.note_acknowledged(partition, answer.base_offset, sent.values)
            return True
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            waiting.remove(sent)  # it was written, but the offset is unknown
            self.waiting -= 1
            return True
        if code not in RETRY or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and first):
            self.refused.append(f"{partition} at epoch {epoch}: {code.name} for {sent.sequence}")
        return False

    def _request(self, partition: Partition, sent: Sent) -> ProduceRequest:
        producer_id, epoch = self._producer
        records = [batch.Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(sent.values)]
        data = batch.build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sent.sequence)
        one = PartitionProduceData(index=partition[1], records=memoryview(data))
        topic = TopicProduceData(name=partition[0], partition_data=[one])
        return ProduceRequest(acks=-1, timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topic_data=[topic])


class ReadingClient:
    """Reads some partitions from the beginning with read_uncommitted, and asks for their end offsets."""

    isolation = 0

    def __init__(self, client: Client, history: History, partitions: Sequence[Partition]) -> None:
        self.client = client
        self.history = history
        self.positions = dict.fromkeys(partitions, 0)
        self.refused: list[str] = []
        self._ends: dict[Partition, int] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(*(self._follow(partition) for partition in self.positions))

    async def _follow(self, partition: Partition) -> None:
        client = self.client
        while True:
            try:
                leader = client.leader(partition)
                if leader is None:
                    raise LinkError("no leader")
                link = await client.link(leader, f"{partition}")
                if client.chance.random() < 0.05:
                    await self._look(link, partition)
                fine = await self._fetch(link, partition)
            except LinkError:
                fine = False
            if not fine:
                await client.rest()
                await client.refresh(partition[0])

    async def _fetch(self, link: SimConnection, partition: Partition) -> bool:
        at, epoch = self.positions[partition], self.client.epoch(partition)
        one = FetchPartition(
            partition=partition[1], current_leader_epoch=epoch, fetch_offset=at, partition_max_bytes=4096
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation,
            topics=[FetchTopic(topic=partition[0], partitions=[one])],
        )
        answer = await link.ask(request, 12, client_id=self.client.name)
        if answer.error_code or not answer.responses:
            return False
        found = answer.responses[0].partitions[0]
        code = ErrorCode(found.error_code)
        if code is not ErrorCode.NONE:
            if code not in RETRY:
                self.refused.append(f"{partition} at {at} in epoch {epoch}: {code.name}")
            return False
        self._take(partition, found)
        return True

    def _take(self, partition: Partition, found: Any) -> None:
        data = bytes(found.records or b"")
        for record in records(data):
            if record.offset >= self.positions[partition]:
                self.history.note_read(self.client.name, partition, record.offset, record.value or b"")
                if record.offset >= found.high_watermark:
                    self.refused.append(f"{partition}: {record.offset} was read, above {found.high_watermark}")
        self.positions[partition] = max(self.positions[partition], end_of(data))

    async def _look(self, link: SimConnection, partition: Partition) -> None:
        """Get the end offset that clients see: it must never decrease."""
        one = ListOffsetsPartition(
            partition_index=partition[1], current_leader_epoch=self.client.epoch(partition), timestamp=-1
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=partition[0], partitions=[one])])
        answer = await link.ask(request, 5, client_id=self.client.name)
        found = answer.topics[0].partitions[0]
        if not found.error_code:
            self.history.note_high(self.client.name, partition, found.offset)


def records(data: bytes) -> Iterator[batch.Record]:
    """The records that producers sent, without transaction markers."""
    for entry in batch.entries(data):
        if not batch.header(data, entry.position).control:
            yield from batch.iterate(data, entry.position)


def end_of(data: bytes) -> int:
    return max((entry.last_offset + 1 for entry in batch.entries(data)), default=0)
