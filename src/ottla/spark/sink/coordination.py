"""The exactly-once sink's port on a real cluster: transactional ids at their coordinators, decisions in a topic.

    _ottla_sink      compacted, few partitions; key: the query, partition: murmur2 of the key as everywhere
                     value: a decision as JSON (`decisions`), each in a transaction of the driver's own id

Decisions are read up to the high watermark and judged by their own transaction markers. The last stable offset cannot
be the bound: another query's driver may have a transaction open in the same partition, and decisions after it would be
missed. A driver that has just initialised its producer id finds every earlier decision with its marker, because
initialising waits for those markers. A task that reads meanwhile may miss a decision whose marker is not yet written;
no rule depends on that.

A read goes backwards from the end in growing pieces. The last decision of a live query is near the end, and for a query
without any decision the read scans once what compaction has left.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client import offsets
from ottla.client.cluster import TRANSACTION, TopicPartition
from ottla.client.failure import Failed, Refused, check
from ottla.client.fetching import fetch
from ottla.client.producing import Sender
from ottla.client.transaction import end, enlist, identify, ongoing
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.compress import Codec
from ottla.records.markers import COMMIT, read_type
from ottla.records.murmur2 import murmur2
from ottla.spark.sink.decisions import SinkDecision, decode
from ottla.spark.sink.exactly_once import IdState
from ottla.wire.messages.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.client.cluster import Cluster
    from ottla.client.connection import Connection
    from ottla.client.transaction import ProducerIdentity

TOPIC: Final = "_ottla_sink"
PARTITIONS: Final = 8
REPLICAS_MAX: Final = 3
# Small segments and an eager cleaner, so that a scan of the whole log stays short.
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "segment.ms": str(24 * 3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(16 << 20),  # a decision lists a transaction for every task
}
# A decision is one record, so its transaction is open for milliseconds.
TIMEOUT_MS: Final = 60_000
STEP: Final = 16  # offsets in the first piece of a backward read: every task reads it
STEP_MAX: Final = 1 << 14


class DecisionBatch(NamedTuple):
    """A batch of the log: a transaction marker, or the decisions in a transaction."""

    producer_id: int
    offset: int
    marker: int | None
    decisions: dict[str, bytes | None]  # by query, the last of each


class ClusterPort:
    """`exactly_once.Port` on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def identify(self, name: str) -> ProducerIdentity:
        return identify(self._cluster, name, timeout_ms=TIMEOUT_MS)

    def end(self, identity: ProducerIdentity) -> None:
        end(self._cluster, identity, commit=True)

    def ongoing(self, prefix: str) -> list[str]:
        return ongoing(self._cluster, prefix)

    def states(self, names: Sequence[str]) -> dict[str, IdState]:
        return self._cluster.retrying(lambda: self._states(names), what="asking for the state of transactions")

    def _states(self, names: Sequence[str]) -> dict[str, IdState]:
        asked: dict[Connection, list[str]] = {}
        for name, connection in self._cluster.coordinators(names, TRANSACTION).items():
            asked.setdefault(connection, []).append(name)
        found = {}
        for connection, some in asked.items():
            request = DescribeTransactionsRequest(transactional_ids=some)
            for one in connection.ask(request, DescribeTransactionsResponse).transaction_states:
                if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                check(f"transactional id {one.transactional_id}", one.error_code)
                found[one.transactional_id] = IdState(
                    one.transaction_state,
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_start_time_ms,
                    one.transaction_timeout_ms,
                )
        return found

    # ------------------------------------------------------------------ the log of decisions

    def last(self, query: str, *, surely: bool = True) -> SinkDecision | None:
        """The last decision. Without `surely` (in a task) one may be missed; a driver must not miss any.

        A broker that has just started may briefly report that a topic does not exist; trying to create it gives the
        truth. And somebody may have added partitions to the topic, so a query that seems new is looked up in all of
        them.
        """
        if not surely and TOPIC not in self._cluster.topics([TOPIC]):
            return None
        partitions = self._partitions()
        own = place(query, partitions)
        found = self._last_in(TopicPartition(TOPIC, own), query)
        others = (index for index in range(partitions) if index != own)
        while surely and found is None and (index := next(others, None)) is not None:
            found = self._last_in(TopicPartition(TOPIC, index), query)
        return found

    def open(self, fence: ProducerIdentity, query: str) -> None:
        enlist(self._cluster, fence, [self._place(query)])

    def record(self, fence: ProducerIdentity, query: str, decision: SinkDecision | None) -> None:
        self.append(fence, query, decision)
        self.end(fence)

    def append(self, fence: ProducerIdentity, query: str, decision: SinkDecision | None) -> None:
        """The first half of `record`: it takes effect when the fence's transaction is committed."""
        where = self._place(query)
        value = decision.encode() if decision is not None else None
        record = batch.Record(0, time.time_ns() // 1_000_000, query.encode(), value, ())
        data = batch.build(
            [record],
            codec=Codec.GZIP,  # the names in it are very similar
            producer_id=fence.producer_id,
            producer_epoch=fence.epoch,
            base_sequence=0,  # a new producer epoch has written nothing yet
            transactional=True,
        )
        with Sender(self._cluster, identity=fence) as sender:
            sender.send(where, [data])
            sender.flush()

    def _place(self, query: str) -> TopicPartition:
        return TopicPartition(TOPIC, place(query, self._partitions()))

    def _partitions(self) -> int:
        """The topic's number of partitions; creates the topic if it does not exist."""
        known = self._cluster.topics([TOPIC]).get(TOPIC)
        if known is None:
            self._create()
            known = self._cluster.topics([TOPIC])[TOPIC]
        return known.partitions

    def _create(self) -> None:
        replicas = min(REPLICAS_MAX, len(self._cluster.brokers()))
        safe = {"min.insync.replicas": str(replicas - 1)} if replicas == REPLICAS_MAX else {}
        try:
            self._cluster.create(TOPIC, PARTITIONS, replicas=replicas, configs={**CONFIGS, **safe})
        except Refused as error:
            raise Failed(
                f"{error}: exactly.once=true keeps its decisions in topic {TOPIC}; let this user create it, or create "
                "it with cleanup.policy=compact and let this user read and write it"
            ) from None

    def _last_in(self, where: TopicPartition, query: str) -> SinkDecision | None:
        # In this order: what is stable now has its marker before the end that is requested next.
        stable = offsets.latest(self._cluster, [where], committed=True)[where]
        first, stop = (ask(self._cluster, [where])[where] for ask in (offsets.earliest, offsets.latest))
        step = STEP
        markers: dict[int, int] = {}  # by producer: the first marker after the current position of the scan
        while stop > first:
            start = max(first, stop - step)
            for one in reversed(list(self._read_batches(where, start, stop))):
                if one.marker is not None:
                    markers[one.producer_id] = one.marker
                elif query in one.decisions and is_committed(one, markers.get(one.producer_id), stable):
                    value = one.decisions[query]
                    return decode(value) if value is not None else None
            stop = start
            step = min(4 * step, STEP_MAX)
        return None

    def _read_batches(self, where: TopicPartition, start: int, stop: int) -> Iterator[DecisionBatch]:
        for piece in fetch(self._cluster, where, start=start, stop=stop):
            for entry in batch.entries(piece.data):
                head = batch.header(piece.data, entry.position)
                if entry.magic != batch.MAGIC or not head.transactional or not start <= head.base_offset < stop:
                    continue  # decisions are always in a transaction
                records = list(batch.iterate(piece.data, entry.position))
                if head.control:
                    marker = read_type(records[0].key) if records else None
                    yield DecisionBatch(head.producer_id, head.base_offset, marker, {})
                else:
                    decisions = {(one.key or b"").decode(): one.value for one in records}
                    yield DecisionBatch(head.producer_id, head.base_offset, None, decisions)


def is_committed(one: DecisionBatch, marker: int | None, stable: int) -> bool:
    """By its marker. Without one the transaction is open, or so old that compaction removed the marker and kept the
    decision."""
    return marker == COMMIT if marker is not None else one.offset < stable


def place(query: str, partitions: int) -> int:
    """The partition of a query's decisions."""
    return (murmur2(query.encode()) & 0x7FFFFFFF) % partitions
