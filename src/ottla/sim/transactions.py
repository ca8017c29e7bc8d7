"""Transactional clients in the simulation: producers that take turns under one transactional id, and their reader.

A producer begins transactions, writes to several partitions, commits an offset with them, and commits or aborts them.
Two producers share a transactional id: one that starts fences the other, which notices and takes over again some time
later. So one of them is often a zombie. In the older protocol a delayed request may affect a later transaction of the
same epoch. That is not the broker's fault, so a producer that missed a response requests another epoch first. In the
newer protocol every transaction has its own epoch.

The reader is read_committed: it skips records that the responses list as aborted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.sim.clients import RETRY, ReadingClient
from ottla.sim.link import LinkError
from ottla.wire import codec
from ottla.wire.messages.commits import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    ControlRecordTypeSchema,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.sim.atomic import SimTransaction, SimTransactions
    from ottla.sim.clients import Address, Client
    from ottla.sim.history import History, Partition

NAME, GROUP = "transfers", "accounts"
TIMEOUT_MS = 10_000
TRANSACTIONS, GROUPS = 1, 0  # kinds of coordinators
ABORT = 0  # the type of a marker
AGAIN = RETRY | {ErrorCode.CONCURRENT_TRANSACTIONS}
FENCED = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,  # it was aborted meanwhile: by its timeout, or by another producer
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)


class Fenced(Exception):
    """Another producer has taken over, or the coordinator has aborted the transaction."""


class Coordinators:
    """Finds the coordinators of the transactional id and of the group, and sends requests to them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.lost = 0  # responses that never arrived
        self._found: dict[int, Address] = {}

    async def ask(self, kind: int, request: object, version: int) -> Any:
        """Send a request. LinkError if its outcome is unknown."""
        if kind not in self._found:
            wanted = FindCoordinatorRequest(key=NAME if kind == TRANSACTIONS else GROUP, key_type=kind)
            found = await self.client.ask(self.client.anybody(), wanted, 2)
            if found.error_code:
                raise LinkError("no coordinator")
            self._found[kind] = (found.host, found.port)
        try:
            return await self.client.ask(self._found[kind], request, version)
        except LinkError:
            self._found.pop(kind, None)
            self.lost += 1
            raise

    def forget(self, kind: int) -> None:
        self._found.pop(kind, None)

    async def offset(self, partition: Partition) -> int:
        """The group's committed offset, once no open transaction can change it."""
        topics = [OffsetFetchRequestTopic(name=partition[0], partition_indexes=[partition[1]])]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
        while True:
            try:
                answer = await self.ask(GROUPS, request, 7)
                one = answer.topics[0].partitions[0]
                if not answer.error_code and not one.error_code:
                    return int(one.committed_offset)
            except LinkError:
                pass
            self.forget(GROUPS)
            await self.client.rest()


class TransactionalProducer:
    def __init__(
        self,
        client: Client,
        history: History,
        transactions: SimTransactions,
        partitions: Sequence[Partition],
        *,
        newer: bool,
    ) -> None:
        self.client = client
        self.history = history
        self.transactions = transactions
        self.partitions = list(partitions)
        self.stopping = False
        self.refused: list[str] = []
        self._newer = newer
        self._coordinators = Coordinators(client)
        self._producer: tuple[int, int] | None = None
        self._count = 0
        self._sequences: dict[Partition, int] = {}

    async def run(self) -> None:
        """Run until stopped and no transaction is open."""
        chance = self.client.chance
        while not self.stopping:
            try:
                _, epoch = self._producer or await self._begin()
                await self._transact(self.transactions.begin(epoch))
            except Fenced:
                self._producer = None
                await asyncio.sleep(chance.expovariate(1 / 3))
            await asyncio.sleep(chance.expovariate(1))

    async def _until(self, ask: Callable[[], Any], code_of: Callable[[Any], int], kind: int) -> Any:
        """Repeat a request until its result is definite. Raises Fenced if this producer must not continue."""
        while True:
            try:
                answer = await ask()
            except LinkError:
                await self.client.rest()
                continue
            code = ErrorCode(code_of(answer))
            if code is ErrorCode.NONE:
                return answer
            if code not in AGAIN:
                if code not in FENCED:
                    self.refused.append(f"{self.client.name}: {type(answer).__name__} {code.name}")
                raise Fenced
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.forget(kind)
            await self.client.rest()

    async def _coordinate(
        self, request: object, version: int, code_of: Callable[[Any], int], kind: int = TRANSACTIONS
    ) -> Any:
        return await self._until(lambda: self._coordinators.ask(kind, request, version), code_of, kind)

    async def _begin(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._coordinate(request, 4, error_code)
        self._become(answer.producer_id, answer.producer_epoch)
        self.client.loop.note(f"{self.client.name} transacts with epoch {answer.producer_epoch}")
        self.transactions.note_takeover(answer.producer_epoch)
        self._coordinators.lost = 0
        return answer.producer_id, answer.producer_epoch

    def _become(self, producer_id: int, epoch: int) -> None:
        if self._producer != (producer_id, epoch):
            self._producer, self._sequences = (producer_id, epoch), {}

    async def _transact(self, transaction: SimTransaction) -> None:
        chance = self.client.chance
        try:
            for _ in range(chance.randint(1, 4)):
                await self._write(transaction, chance.choice(self.partitions))
                if chance.random() < 0.02:
                    await asyncio.sleep(TIMEOUT_MS / 1000 + 2)  # too long
            if chance.random() < 0.5:
                await self._commit_offset(transaction)
            commit = chance.random() < 0.7
            if commit:
                self.transactions.note_commit_request(transaction)
            self.client.loop.note(f"{self.client.name} ends {transaction}, commit={commit}")
            await self._end(transaction, commit=commit)
        except Fenced:
            self.transactions.note_end(transaction, commit=False)
            raise
        if self._coordinators.lost and not self._newer:
            self._producer = None

    async def _write(self, transaction: SimTransaction, partition: Partition) -> None:
        assert self._producer is not None
        producer_id, epoch = self._producer
        values = []
        for _ in range(self.client.chance.randint(1, 3)):
            self._count += 1
            values.append(f"{self.client.name} {partition[1]} {self._count} in {transaction.number}".encode())
        self.history.note_sent(self.client.name, partition, values)
        self.transactions.note_write(transaction, partition, values)
        if not self._newer:
            topic = AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[topic],
            )
            await self._coordinate(request, 3, add_code)
        sequence = self._sequences.get(partition, 0)
        records = [batch.Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(values)]
        data = batch.build(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        one = PartitionProduceData(index=partition[1], records=memoryview(data))
        produce = ProduceRequest(
            transactional_id=NAME,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=partition[0], partition_data=[one])],
        )
        answer = await self._until(lambda: self._produce(partition, produce), produce_code, TRANSACTIONS)
        self._sequences[partition] = sequence + len(values)
        self.history.note_acknowledged(partition, answer.responses[0].partition_responses[0].base_offset, values)
        self.transactions.note_acknowledged(transaction, partition, values)

    async def _produce(self, partition: Partition, request: ProduceRequest) -> Any:
        await self.client.refresh(partition[0])
        leader = self.client.leader(partition)
        if leader is None:
            raise LinkError("no leader")
        try:
            return await self.client.ask(leader, request, 12 if self._newer else 9)
        except LinkError:
            self._coordinators.lost += 1
            raise

    async def _commit_offset(self, transaction: SimTransaction) -> None:
        assert self._producer is not None
        producer_id, epoch = self._producer
        if not self._newer:
            request = AddOffsetsToTxnRequest(
                transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
            )
            await self._coordinate(request, 3, error_code)
        topic, index = self.partitions[0]
        one = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=transaction.number + 1, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
        )
        await self._coordinate(commit, 5 if self._newer else 3, offset_code, GROUPS)
        transaction.offset = transaction.number + 1

    async def _end(self, transaction: SimTransaction, *, commit: bool) -> None:
        assert self._producer is not None
        producer_id, epoch = self._producer
        request = EndTxnRequest(transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, committed=commit)
        answer = await self._coordinate(request, 5 if self._newer else 3, error_code)
        self.transactions.note_end(transaction, commit=commit)
        if self._newer:
            self._become(answer.producer_id, answer.producer_epoch)


def error_code(answer: Any) -> int:
    return int(answer.error_code)


def add_code(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def produce_code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def offset_code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


class CommittedReader(ReadingClient):
    """A read_committed reader."""

    isolation = 1

    def __init__(
        self, client: Client, history: History, partitions: Sequence[Partition], transactions: SimTransactions
    ) -> None:
        super().__init__(client, history, partitions)
        self._transactions = transactions

    def _take(self, partition: Partition, found: Any) -> None:
        data = bytes(found.records or b"")
        aborted = sorted(
            ((one.first_offset, one.producer_id) for one in found.aborted_transactions or ()), reverse=True
        )
        open_now: set[int] = set()  # producers of aborted transactions whose marker was not read yet
        for entry in batch.entries(data):
            header = batch.header(data, entry.position)
            while aborted and aborted[-1][0] <= entry.last_offset:
                open_now.add(aborted.pop()[1])
            if header.control and header.producer_id in open_now and is_abort(data, entry.position):
                open_now.discard(header.producer_id)
            skipped = header.control or (header.transactional and header.producer_id in open_now)
            for record in batch.iterate(data, entry.position):
                if record.offset >= self.positions[partition] and not skipped:
                    self._transactions.note_read(partition, record.offset, record.value or b"")
            if entry.last_offset >= found.last_stable_offset:
                self.refused.append(f"{partition}: {entry.last_offset} was read, above {found.last_stable_offset}")
            self.positions[partition] = max(self.positions[partition], entry.last_offset + 1)


def is_abort(data: bytes, position: int) -> bool:
    (record,) = batch.iterate(data, position)
    assert record.key is not None
    return bool(codec.decode(ControlRecordTypeSchema, 0, memoryview(record.key)[2:]).type == ABORT)
