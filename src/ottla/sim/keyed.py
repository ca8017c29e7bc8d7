"""A compacted topic: a producer that writes the same few keys over and over, and a reader of their last values (V11).

The reader reads the topic from the beginning to the end, again and again, as if to restore a table from it. For each
key it must find the value that was last acknowledged before it started, or a later one. A key whose last record is a
tombstone may be missing. Meanwhile `checks.py` checks every replica.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.sim.clients import RETRY, end_of, records
from ottla.sim.link import LinkError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import InitProducerIdRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ottla.sim.clients import Client
    from ottla.sim.history import Partition

NAME = "latest"
PARTITION: Partition = (NAME, 0)
KEYS = 6
DELETE_RETENTION_MS = 3000
CONFIGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}


class Written(NamedTuple):
    """An acknowledged record. `value` is None for a tombstone."""

    offset: int
    value: bytes | None


class KeyLedger:
    """Records what was written, and checks what was read. Pure."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self.last: dict[bytes, Written] = {}  # key → record that was acknowledged last
        self.values: dict[int, tuple[bytes, bytes | None]] = {}  # by offset, all that any client saw
        self._sent: set[tuple[bytes, bytes | None]] = set()
        self._wrong = wrong

    @property
    def end(self) -> int:
        """The offset after the last acknowledged record."""
        return max((one.offset + 1 for one in self.last.values()), default=0)

    def note_sent(self, key: bytes, value: bytes | None) -> None:
        self._sent.add((key, value))

    def note_acknowledged(self, offset: int, key: bytes, value: bytes | None) -> None:
        self._note(offset, key, value)
        if offset > self.last.get(key, Written(-1, None)).offset:
            self.last[key] = Written(offset, value)

    def note_read(self, offset: int, key: bytes, value: bytes | None) -> None:
        if (key, value) not in self._sent:
            self._wrong(f"V11 {NAME}: {key!r}={value!r} at {offset}, and nobody sent it")
        self._note(offset, key, value)

    def _note(self, offset: int, key: bytes, value: bytes | None) -> None:
        known = self.values.setdefault(offset, (key, value))
        if known != (key, value):
            self._wrong(f"V11 {NAME}: {(key, value)} at {offset}, and {known} was there before")

    def check(self, before: dict[bytes, Written], found: dict[bytes, Written], *, slow: bool) -> None:
        """`before`: what was acknowledged when the reader started. `slow`: it took longer than tombstones are kept."""
        for key, written in before.items():
            read = found.get(key, Written(-1, None))
            gone = written.value is None and (read.offset < 0 or slow)
            if read.offset < written.offset and not gone:
                self._wrong(f"V11 {NAME}: of {key!r} the last that was read is {read}, and {written} was acknowledged")


class KeyedProducer:
    """One idempotent producer, one batch at a time."""

    def __init__(self, client: Client, ledger: KeyLedger) -> None:
        self.client = client
        self.ledger = ledger
        self.stopping = False
        self.refused: list[str] = []
        self._producer = (-1, -1)
        self._count = 0

    async def run(self) -> None:
        """Run until stopped and everything is acknowledged."""
        await self._begin()
        sequence = 0
        while not self.stopping:
            found = [self._make() for _ in range(self.client.chance.randint(1, 4))]
            for key, value in found:
                self.ledger.note_sent(key, value)
            base = await self._write(found, sequence)
            for offset, (key, value) in enumerate(found, base):
                self.ledger.note_acknowledged(offset, key, value)
            sequence += len(found)
            await asyncio.sleep(self.client.chance.expovariate(8))

    def _make(self) -> tuple[bytes, bytes | None]:
        chance, self._count = self.client.chance, self._count + 1
        key = f"key {chance.randrange(KEYS)}".encode()
        return key, None if chance.random() < 0.1 else f"{self._count} {'.' * chance.randint(0, 60)}".encode()

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while self._producer == (-1, -1):
            try:
                answer = await self.client.ask(self.client.anybody(), request, 4)
                if not answer.error_code:
                    self._producer = answer.producer_id, answer.producer_epoch
            except LinkError:
                await self.client.rest()

    async def _write(self, found: list[tuple[bytes, bytes | None]], sequence: int) -> int:
        """Send one batch until it is acknowledged. Returns its first offset."""
        producer_id, epoch = self._producer
        made = [batch.Record(at, 1_700_000_000_000, key, value) for at, (key, value) in enumerate(found)]
        data = batch.build(made, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        one = PartitionProduceData(index=0, records=memoryview(data))
        topic = TopicProduceData(name=NAME, partition_data=[one])
        request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic])
        while True:
            try:
                leader = self.client.leader(PARTITION)
                if leader is not None:
                    answer = await self.client.ask(leader, request, 9)
                    result = answer.responses[0].partition_responses[0]
                    code = ErrorCode(result.error_code)
                    if code is ErrorCode.NONE:
                        return int(result.base_offset)
                    if code not in RETRY or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                        self.refused.append(f"{NAME}: {code.name} for {sequence}")
            except LinkError:
                pass
            await self.client.rest()
            await self.client.refresh(NAME)


class TableReader:
    def __init__(self, client: Client, ledger: KeyLedger) -> None:
        self.client = client
        self.ledger = ledger
        self.refused: list[str] = []
        self.passes = 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.restore()
            await asyncio.sleep(self.client.chance.expovariate(1))

    async def restore(self) -> None:
        """Read from the beginning to the end. The end moves: a missing record may have been replaced meanwhile."""
        before, began = dict(self.ledger.last), self.client.loop.time()
        found: dict[bytes, Written] = {}
        at = high = 0
        while at < max(high, self.ledger.end):
            try:
                answer = await self._fetch(at)
                data, high = bytes(answer.records or b""), answer.high_watermark
            except LinkError:
                await self.client.rest()
                await self.client.refresh(NAME)
                continue
            for record in records(data):
                if record.offset >= at:
                    assert record.key is not None
                    self.ledger.note_read(record.offset, record.key, record.value)
                    found[record.key] = Written(record.offset, record.value)
            at = max(at, end_of(data))
        slow = self.client.loop.time() - began > DELETE_RETENTION_MS / 2000
        self.ledger.check(before, found, slow=slow)
        self.passes += 1

    async def _fetch(self, at: int) -> Any:
        leader = self.client.leader(PARTITION)
        if leader is None:
            raise LinkError("no leader")
        epoch = self.client.epoch(PARTITION)
        one = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=at, partition_max_bytes=4096)
        topic = FetchTopic(topic=NAME, partitions=[one])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        answer: Any = await self.client.ask(leader, request, 12)
        if answer.error_code or not answer.responses or answer.responses[0].partitions[0].error_code:
            raise LinkError("refused")
        return answer.responses[0].partitions[0]
