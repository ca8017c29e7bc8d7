"""Writes rows to topics, in the Python worker of a task: Arrow columns in, record batches out, pipelined to the
leaders.

Records never become Python objects: a few Arrow batches are gathered, split by topic if there is such a column, and
encoded as a whole. Rows of one partition keep their order.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed, Refused, check
from ottla.client.producing import Sender
from ottla.client.transaction import enlist
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.native import encode_columns
from ottla.spark.sink.sieve import TopicLimits, faults, letters, sift
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.client.transaction import ProducerIdentity
    from ottla.spark.sink.options import SinkOptions
    from ottla.spark.sink.producers import Producer

GATHER_BYTES: Final = 4 << 20  # encode this much Arrow data at once: batches come out full, even with many partitions
BYTES_MAX: Final = 2**31 - 1
NO_TOPIC: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}


class NoTopic(Failed):
    """A topic that does not exist, or an invalid name."""


class Writer:
    """Writes the rows of one task. It sends nothing before the first row."""

    def __init__(
        self,
        producer: Producer,
        options: SinkOptions,
        used: frozenset[str],
        identity: ProducerIdentity | None = None,
    ) -> None:
        """With an identity, everything is written in its transaction, which stays open; otherwise with the producer's
        own id."""
        self._producer = producer
        self._cluster = producer.cluster
        self._options = options
        self._used = used
        self._identity = identity
        self._transactional = identity is not None
        self._sender: Sender | None = None
        self._targets: dict[str, TopicLimits] = {}
        self._missing: dict[str, str] = {}  # topics that do not exist, and the error
        self._sequences = {} if self._transactional else producer.sequences
        self._enlisted: set[TopicPartition] = set()
        self._partitioner = partitioner(options.partitioner) if options.partitioner else None
        self.buried = 0  # rows that went to the dead-letter topic

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows; returns when the last one is acknowledged."""
        try:
            for gathered in gather(batches):
                for topic, part in self._by_topic(gathered):
                    self._put(topic, part)
            if self._sender is not None:
                self._sender.flush()
        finally:
            if self._sender is not None:
                self._sender.close()

    def _by_topic(self, gathered: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if "topic" not in self._used:
            assert self._options.topic is not None, "columns() has checked that one of the two is there"
            yield self._options.topic, gathered
            return
        column = gathered.column("topic").combine_chunks()
        if column.null_count:
            gathered = self._without_topicless(gathered, column)
            column = gathered.column("topic").combine_chunks()
        topics = column.dictionary_encode()
        names = topics.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], gathered
            return
        order = pc.array_sort_indices(topics.indices)  # stable: rows of one topic keep their order
        ordered, counts = gathered.take(order), pc.value_counts(topics.indices)
        position = 0
        for index, count in sorted((one["values"].as_py(), one["counts"].as_py()) for one in counts):
            yield names[index], ordered.slice(position, count)
            position += count

    def _without_topicless(self, gathered: pa.Table, topics: pa.Array) -> pa.Table:
        if self._options.dead_letter is None:
            raise Failed("a row has no topic: its column topic is null; fill it, or set option topic")
        good, bad, reasons = sift(gathered, iter([(pc.is_null(topics), "its column topic is null")]))
        self._bury(bad, reasons, None)
        return good

    def _put(self, topic: str, rows: pa.Table) -> None:
        try:
            target = self._targets.get(topic) or self._reach(topic)
        except NoTopic as error:
            if self._options.dead_letter is None or "topic" not in self._used or topic == self._options.dead_letter:
                raise
            self._bury(rows, [str(error)] * rows.num_rows, topic)
            return
        if self._options.dead_letter is not None:
            rows = self._sift(topic, rows, target)
        if rows.num_rows:
            columns = {name: rows.column(name) for name in self._used - {"topic", "partition"}}
            self._send(topic, target, columns, self._partitions(topic, rows, target))

    def _send(
        self,
        topic: str,
        target: TopicLimits,
        columns: dict[str, pa.ChunkedArray],
        partitions: pa.ChunkedArray | pa.Array | None = None,
    ) -> None:
        sender = self._sender or self._start()
        sequences = self._sequences.setdefault(topic, {})
        try:
            encoded = self._encode(target, columns, partitions, sequences)
        except ValueError as error:
            raise Failed(f"a row cannot be written to topic {topic}: {error}") from None
        if self._transactional:
            self._enlist(topic, encoded)
        for index, batches in encoded.items():
            for data in batches:
                if len(data) > self._options.request_bytes:
                    raise Failed(
                        f"a record for topic {topic} makes a batch of {len(data)} bytes, and kafka.max.request.size is "
                        f"{self._options.request_bytes}: raise it, and max.message.bytes of the topic with it, or "
                        "write smaller values"
                    )
            count = sum(batch.header(data).count for data in batches)
            sequences[index] = (sequences.get(index, 0) + count) & batch.SEQUENCE_MAX
            sender.send(TopicPartition(topic, index), batches)

    def _encode(
        self,
        target: TopicLimits,
        columns: dict[str, pa.ChunkedArray],
        partitions: pa.ChunkedArray | pa.Array | None = None,
        sequences: dict[int, int] | None = None,
    ) -> dict[int, list[bytes]]:
        producer = self._identity
        return encode_columns(
            columns.get("key"),
            columns.get("value"),
            columns.get("headers"),
            columns.get("timestamp"),
            partitions,
            partition_count=target.partitions,
            codec=self._options.codec,
            level=self._options.level,
            batch_bytes=target.batch_bytes,
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            base_sequences=sequences,
            transactional=self._transactional,
            now_ms=now_ms(),
        )

    # ------------------------------------------------------------------ dead letters

    def room(self, topic: str) -> int:
        """About how many bytes a record for this topic may have."""
        target = self._targets.get(topic) or self._reach(topic)
        return min(target.batch_bytes, target.record_bytes)

    def _sift(self, topic: str, rows: pa.Table, target: TopicLimits) -> pa.Table:
        """The rows that can be written; the others go to the dead-letter topic."""
        columns = {name: rows.column(name) for name in self._used - {"topic", "partition"}}
        partitions = self._partitions(topic, rows, target)
        given = dict(columns)
        if "timestamp" in columns:
            given["timestamp"] = milliseconds(columns["timestamp"])

        def encoded_size(index: int) -> int:
            alone = {name: column.slice(index, 1) for name, column in columns.items() if name != "timestamp"}
            try:
                return max(len(data) for batches in self._encode(target, alone).values() for data in batches)
            except ValueError:
                return 0  # another check gives the reason

        good, bad, reasons = sift(rows, faults(topic, given, partitions, target, now_ms(), encoded_size))
        if reasons:
            self._bury(bad, reasons, topic)
        return good

    def _bury(self, bad: pa.Table, reasons: list[str], topic: str | None) -> None:
        where = self._options.dead_letter
        assert where is not None
        partitions = bad.column("partition").to_pylist() if "partition" in self._used else None
        table = letters(bad, reasons, self._used, topic, partitions, self.room(where))
        self._send(where, self._targets[where], {name: table.column(name) for name in table.column_names})
        self.buried += len(reasons)

    def _partitions(self, topic: str, rows: pa.Table, target: TopicLimits) -> pa.ChunkedArray | pa.Array | None:
        """From the column or the user's function; None where keys decide."""
        who = "column partition" if "partition" in self._used else str(self._options.partitioner)
        chosen = rows.column("partition") if "partition" in self._used else None
        if self._partitioner is not None and (chosen is None or chosen.null_count):
            own = self._choose_partitions(rows, target)
            chosen = own if chosen is None else pc.coalesce(chosen, pa.chunked_array([own]))
        if chosen is None:
            return None
        span = pc.min_max(chosen).as_py()
        if (
            self._options.dead_letter is None
            and span["min"] is not None
            and not 0 <= span["min"] <= span["max"] < target.partitions
        ):
            wrong = span["min"] if span["min"] < 0 else span["max"]
            raise Failed(
                f"{who} gives {wrong}, but topic {topic} has partitions 0 to {target.partitions - 1}: give one of "
                "those, or null for the partition of the key"
            )
        return chosen

    def _choose_partitions(self, rows: pa.Table, target: TopicLimits) -> pa.Array:
        assert self._partitioner is not None
        whole = rows.combine_chunks().to_batches()
        chosen = self._partitioner(whole[0], target.partitions)
        if not isinstance(chosen, pa.Array) or chosen.type != pa.int32() or len(chosen) != rows.num_rows:
            raise Failed(
                f"ottla.partitioner {self._options.partitioner} did not return an int32 array of {rows.num_rows} "
                "numbers, one for each row: return pa.array(..., pa.int32())"
            )
        return chosen

    # ------------------------------------------------------------------ the cluster

    def _start(self) -> Sender:
        if self._identity is None:
            self._identity = self._producer.identify(self._options)
        self._sender = Sender(
            self._cluster,
            acks=self._options.acks,
            identity=self._identity,
            timeout_ms=self._options.request_timeout_ms,
            in_flight=self._options.in_flight,
            request_bytes_max=self._options.request_bytes,
        )
        return self._sender

    def _enlist(self, topic: str, encoded: Iterable[int]) -> None:
        assert self._identity is not None
        new = {TopicPartition(topic, index) for index in encoded} - self._enlisted
        if new:
            enlist(self._cluster, self._identity, sorted(new))
            self._enlisted |= new

    def _reach(self, topic: str) -> TopicLimits:
        if topic in self._missing:
            raise NoTopic(self._missing[topic])
        try:
            known = self._cluster.topics([topic]).get(topic)
            if known is None:
                self._ask_for(topic)
                known = self._cluster.retrying(lambda: self._cluster.topic(topic), what=f"topic {topic}")
        except Refused as error:
            if error.code not in NO_TOPIC:
                raise
            told = self._missing[topic] = self._why_missing(topic, error)
            raise NoTopic(told) from None
        configs = self._configs(topic)
        record_bytes = min(self._options.request_bytes, int(configs.get("max.message.bytes", BYTES_MAX)))
        batch_bytes = min(self._options.batch_bytes, record_bytes)
        target = self._targets[topic] = TopicLimits.of(known.partitions, record_bytes, batch_bytes, configs)
        return target

    def _why_missing(self, topic: str, error: Refused) -> str:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return str(error)
        return (
            f"topic {topic} does not exist, and the cluster does not create topics by itself: create it, such as by "
            f"`ottla topics create {topic}`"
        )

    def _ask_for(self, topic: str) -> None:
        """Request metadata as a Kafka producer does: a cluster with auto.create.topics.enable then creates the
        topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

        def attempt() -> None:
            (broker, *_) = self._cluster.brokers().values()
            for found in broker.ask(request, MetadataResponse).topics:
                check(f"topic {topic}", found.error_code)

        self._cluster.retrying(attempt, what=f"topic {topic}")

    def _configs(self, topic: str) -> dict[str, str]:
        """The topic's configs, if this user may see them."""
        try:
            return self._cluster.configs(topic)
        except Refused:
            return {}


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather neighbouring batches until there is enough to encode."""
    some: list[pa.RecordBatch] = []
    size = 0
    for one in batches:
        some.append(one)
        size += one.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)


def milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """As integers, as they are written."""
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    return times.cast(pa.int64())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def partitioner(name: str) -> Callable[[pa.RecordBatch, int], object]:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise Failed(
            f"ottla.partitioner {name} cannot be found ({error}): write module:function, and send the module to the "
            "executors with --py-files"
        ) from None
    if not callable(found):
        raise Failed(f"ottla.partitioner {name} is not a function: it must take a pyarrow.RecordBatch and a number")
    chosen: Callable[[pa.RecordBatch, int], object] = found
    return chosen
