"""Sends batches of one partition to its leader, one after another: for copies inside a transaction.

The client's `Sender` serves many partitions, and retries what failed. The copy of a partition needs neither: if
anything goes wrong the transaction is not committed, and the next one begins where this one began. Up to five requests
are in flight, as many as a broker remembers of a producer.

The first batch of a transaction is sent alone and is retried while its error is temporary. Only after it does the
broker know the producer, and a later batch cannot be mistaken for the first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.client.connection import Uncopied
from ottla.client.failure import Failed, Refused
from ottla.client.producing import ANNOUNCED_UNTIL, NAMES_UNTIL, Batch, explain
from ottla.client.transaction import newer_protocol
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.client.connection import Connection

IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 30_000

Data = memoryview | bytes


class Pusher:
    """Sends the batches of one partition, transaction after transaction."""

    def __init__(self, cluster: Cluster, where: TopicPartition, transactional_id: str) -> None:
        self._cluster = cluster
        self._where = where
        self._name = f"{where.topic} partition {where.partition}"
        self._records = Uncopied(b"")
        part = PartitionProduceData(index=where.partition, records=self._records)  # type: ignore[arg-type]
        self._request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[part])],
        )
        self._connection: Connection | None = None
        self._newest = 0
        self._flying: deque[Data] = deque()
        self._known = False  # does the broker know the producer of this transaction?

    def begin(self) -> None:
        """Begin a transaction."""
        assert not self._flying, "the transaction before was flushed"
        self._known = False

    def send(self, batches: list[Data]) -> None:
        for data in batches:
            if not self._known:
                self._cluster.retrying(lambda data=data: self._alone(data), what=f"writing to {self._name}")  # type: ignore[misc]
                self._known = True
                continue
            if len(self._flying) >= IN_FLIGHT:
                self._answer()
            self._push(data)

    def flush(self) -> None:
        while self._flying:
            self._answer()

    def close(self) -> None:
        if self._connection is not None:
            self._cluster.release(self._connection)
        self._connection = None
        self._flying.clear()

    def _alone(self, data: Data) -> None:
        try:
            self._push(data)
            self._answer()
        except Failed:
            self.close()
            raise

    def _push(self, data: Data) -> None:
        if self._connection is None:
            self._newest = NAMES_UNTIL if newer_protocol(self._cluster) else ANNOUNCED_UNTIL
            self._connection = self._cluster.lease(self._where)
        self._records.data = data
        self._connection.send(self._request, newest=self._newest, wait_s=TIMEOUT_MS / 1000)
        self._flying.append(data)

    def _answer(self) -> None:
        """Handle the response to the oldest request in flight."""
        assert self._connection is not None, "an answer is awaited where a request was sent"
        answer = self._connection.receive(ProduceResponse)
        data = self._flying.popleft()
        for topic in answer.responses:
            for one in topic.partition_responses:
                if one.error_code:
                    raise Refused(f"writing to {self._name}", one.error_code, explain(Batch(bytes(data)), one))
