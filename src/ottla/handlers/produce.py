"""Produce (0), v0-13: append each batch to its partition and answer with its offset.

v0-1 magic 0 and 1 message sets; v2 append time in the answer; v3 record batches and transactions; v5 log start in the
answer; v7 zstd; v8 errors of single records; v9 flexible; v10 the current leader in the answer; v12 transactions
without a separate AddPartitionsToTxn; v13 topics by id.

acks 0: no answer, and any error closes the connection; 1: answer after the local append; -1: answer when the in-sync
replicas have it, or after the request's timeout. With `flush.messages` the answer also waits for the disk.

A batch that takes long to check, because it decompresses to a lot, is checked in a thread. A request with many batches
is handled in slices. Until it is done the connection handles nothing else, which keeps the order of its requests.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.acknowledging import Acknowledgement
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.hints import leader_hint
from ottla.records import aside, batch
from ottla.records.validate import LargeError, MalformedError, validate
from ottla.replica.partition import ALL
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.handlers.acknowledging import Append
    from ottla.handlers.call import Steps
    from ottla.handlers.shortcut import Shortcut
    from ottla.quota.quotas import Quotas
    from ottla.records.validate import Accepted
    from ottla.replica.partition import Partition
    from ottla.security.authorizer import Authorizer
    from ottla.wire.messages.produce import PartitionProduceData, TopicProduceData

# The first versions with a feature; see the list above.
BATCHES, HINTS, ABORTABLE, NEWER_TRANSACTIONS, BY_ID = 3, 10, 11, 12, 13
ATTRIBUTES = 22  # position of the low byte of a batch's attributes
TRANSACTIONAL = batch.TRANSACTIONAL
LATER = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
# After these errors the answer has no log start offset. After others it has, as after a success.
OF_PARTITIONS = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
    )
)
ACKS = frozenset((-1, 0, 1))
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOTHING = memoryview(b"")
TURN_S = 0.005  # how long a request may block the loop, beyond its first batch
ADMIN_CLIENT = "__admin_client"  # the client id of Kafka's own repair tools


def make_shortcut(parts: Parts, version: int, authorizer: Authorizer | None, quotas: Quotas | None) -> Shortcut | None:
    from ottla.handlers import shortcut  # it continues here if a request does not qualify

    return shortcut.make(parts, version, authorizer, quotas)


@handles(ProduceRequest, shortcut=make_shortcut)
def produce(
    parts: Parts, call: Call, request: ProduceRequest
) -> ProduceResponse | Steps[ProduceResponse | asyncio.Future[Any] | None] | asyncio.Future[Any] | None:
    if request.acks not in ACKS:
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    return Work(parts, call, request).go_on()


class UnverifiedError(BrokerError):
    """A batch may not open a transaction: refused before the log is looked up."""


class Undecided(Exception):
    """The coordinator of the batch's transaction must answer first; append again when the future is done."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        super().__init__()
        self.future = future


class Work:
    """One request in progress: its results so far, in the order of its partitions."""

    __slots__ = ("_timed", "call", "now_ms", "parts", "request", "results", "waiting")

    def __init__(self, parts: Parts, call: Call, request: ProduceRequest) -> None:
        self.parts = parts
        self.call = call
        self.request = request
        self.now_ms = parts.clock.now_ms()
        self.results: list[PartitionProduceResponse] = []
        self.waiting: list[Append] = []
        self._timed = False  # whether the answer waits for other brokers

    def go_on(
        self,
    ) -> ProduceResponse | Steps[ProduceResponse | asyncio.Future[Any] | None] | asyncio.Future[Any] | None:
        """Append the partitions without a result, and answer."""
        clock = self.parts.clock
        until = clock.monotonic() + TURN_S
        for topic, data in self.remaining():
            try:
                if self.results and clock.monotonic() >= until:
                    return self.put_off()
                self.append(topic, data)
            except (LargeError, Undecided):
                return self.put_off()
        answer = self.answer()
        return self.acknowledge(answer) if self.waiting else answer

    def remaining(self) -> list[tuple[TopicProduceData, PartitionProduceData]]:
        """The partitions that have no result yet."""
        return pieces(self.request)[len(self.results) :]

    def find(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        if self.call.version >= BY_ID:
            return self.parts.replicas.require_led_by_id(topic.topic_id, data.index)
        return self.parts.replicas.require_led(topic.name, data.index)

    def append(self, topic: TopicProduceData, data: PartitionProduceData, accepted: Accepted | None = None) -> None:
        """Append the batch of one partition.

        LargeError: check it in a thread first, then pass the result as `accepted`. Undecided: its transaction's
        coordinator must answer first.
        """
        version, partition = self.call.version, None
        try:
            partition = self.find(topic, data)
            if partition.internal and self.call.client_id != ADMIN_CLIENT:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is not for clients")
            records = data.records or NOTHING
            if not records and version >= BATCHES:
                raise MalformedError("the request carries no records for this partition")
            if version >= BATCHES and batch.is_transactional(records):
                admit(self.parts, self.request.transactional_id, partition, records, version)
            appended = partition.append(records, self.now_ms, version, accepted=accepted, acks=self.request.acks)
        except (LargeError, Undecided):
            raise
        except BrokerError as error:
            self.results.append(refuse_append(data.index, error, partition))
            return
        self.note(partition, appended.base, appended.last, appended.append_time, appended.start)

    def note(self, partition: Partition, base: int, last: int, append_time: int, start: int) -> None:
        """Store the result of the next partition, whose records are appended."""
        result = PartitionProduceResponse(
            index=partition.index,
            error_code=0,
            base_offset=base,
            log_append_time_ms=append_time,
            log_start_offset=start,
        )
        self.results.append(result)
        log = partition.log
        if partition.followers is not None and self.request.acks == ALL:
            self._timed = True
            waited = partition.wait_for_commit(last + 1)
        elif log.durability.owes_flush:
            waited = asyncio.ensure_future(self.parts.store.flusher.wait_for(log, log.durability.owed))
        else:
            return
        if waited is not None:
            self.waiting.append((waited, result))

    def put_off(self) -> Steps[ProduceResponse | asyncio.Future[Any] | None]:
        """Handle the rest of the request in slices. Copies it, because the frame is only valid until this returns."""
        for _, data in self.remaining():
            data.records = memoryview(bytes(data.records or b""))
        return self._finish()

    def _finish(self) -> Steps[ProduceResponse | asyncio.Future[Any] | None]:
        """Handle the rest of a request in slices. The connection waits, so order is kept."""
        for topic, data in self.remaining():
            yield from self._append_later(topic, data)
            yield None
        answer = self.answer()
        return self.acknowledge(answer) if self.waiting else answer  # it waits without keeping the request

    def _append_later(
        self, topic: TopicProduceData, data: PartitionProduceData, accepted: Accepted | None = None
    ) -> Steps[None]:
        while True:
            try:
                self.append(topic, data, accepted)
                return
            except Undecided as undecided:
                yield undecided.future
            except LargeError as large:
                yield from self._append_slowly(topic, data, large)
                return

    def _append_slowly(self, topic: TopicProduceData, data: PartitionProduceData, large: LargeError) -> Steps[None]:
        partition = self.find(topic, data)
        if partition.log.config.magic != batch.MAGIC:  # every message has its own offset, which only the loop knows
            self.results.append(answer_error(data.index, large))
            return
        records = data.records or NOTHING
        check = partial(
            validate,
            records,
            partition.log.config,
            base=0,
            epoch=0,
            now_ms=self.now_ms,
            produce_version=self.call.version,
            thorough=True,
        )
        try:
            future = aside.run(len(records), check)
            yield future
            accepted = future.result()
            if accepted.header is None or self.find(topic, data) is not partition:
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition has changed meanwhile")
        except BrokerError as error:
            self.results.append(refuse_append(data.index, error, partition))
            return
        yield from self._append_later(topic, data, accepted)

    def answer(self) -> ProduceResponse | None:
        if self.request.acks == 0:
            for (topic, data), result in zip(pieces(self.request), self.results, strict=True):
                if result.error_code:
                    failed = f"{ErrorCode(result.error_code).name} for {topic.name}-{data.index}"
                    raise Hangup(f"a produce with acks=0 failed: {failed}")
            return None
        at, responses = 0, []
        for topic in self.request.topic_data:
            end = at + len(topic.partition_data)
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=self.results[at:end])
            )
            at = end
        response = ProduceResponse(responses=responses)
        if self.call.version >= HINTS and any(one.error_code == NOT_LEADER for one in self.results):
            self._hint(response)
        return response

    def _hint(self, response: ProduceResponse) -> None:
        """Add the leaders of partitions that this broker does not lead."""
        endpoints: dict[int, NodeEndpoint] = {}
        for (topic, data), result in zip(pieces(self.request), self.results, strict=True):
            if result.error_code == NOT_LEADER:
                by_id = self.parts.metadata.image.names_by_id
                name = by_id.get(topic.topic_id, "") if self.call.version >= BY_ID else topic.name
                hint = leader_hint(self.parts, self.call, name, data.index)
                if hint is not None:
                    result.current_leader = LeaderIdAndEpoch(leader_id=hint.leader, leader_epoch=hint.epoch)
                    endpoints[hint.leader] = NodeEndpoint(
                        node_id=hint.leader, host=hint.host, port=hint.port, rack=hint.rack
                    )
        response.node_endpoints = list(endpoints.values())

    def acknowledge(self, answer: ProduceResponse | None) -> asyncio.Future[ProduceResponse | None]:
        """The answer, once all partitions are committed and on disk, or have failed."""
        return Acknowledgement(answer, self.waiting, self.request.timeout_ms if self._timed else None).future


def pieces(request: ProduceRequest) -> list[tuple[TopicProduceData, PartitionProduceData]]:
    return [(topic, data) for topic in request.topic_data for data in topic.partition_data]


def refuse_append(index: int, error: BrokerError, partition: Partition | None) -> PartitionProduceResponse:
    result = answer_error(index, error)
    early = error.code in OF_PARTITIONS or isinstance(error, (MalformedError, UnverifiedError))
    if partition is not None and not early:
        result.log_start_offset = partition.log.start
    return result


def admit(parts: Parts, name: str | None, partition: Partition, records: memoryview, version: int) -> None:
    """BrokerError unless a batch may open a transaction in this partition; Undecided while the coordinator is asked.

    This keeps a delayed batch from opening a transaction that nobody will end.
    """
    head = batch.header(records)
    producer = (head.producer_id, head.producer_epoch)
    if name is None:  # also in a transaction that is open already
        raise UnverifiedError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if partition.log.producers.in_transaction(*producer):
        return
    adds = version >= NEWER_TRANSACTIONS
    if adds or parts.config.transaction_partition_verification_enable:
        answer = parts.transactions.verification.admit(partition, name, producer, adds=adds)
        if not isinstance(answer, ErrorCode):
            raise Undecided(answer)
        code = answer
        unknown = adds and head.base_sequence > 0 and not partition.log.producers.knows(head.producer_id)
        if code is ErrorCode.NONE and unknown:
            raise BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)  # an earlier batch is missing
    else:
        return
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH  # abortable; the original code would be fatal for the producer
    if code in LATER:
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # makes the producer retry the same batch
    if code is not ErrorCode.NONE:
        outside = code is ErrorCode.INVALID_TXN_STATE
        raise UnverifiedError(code, "Partition was not added to the transaction" if outside else "")


def answer_error(index: int, error: BrokerError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=message)
            for position, message in getattr(error, "record_errors", ())
        ],
        error_message=error.message or None,
    )


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """The same error for every partition."""
    error = BrokerError(code)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[answer_error(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
