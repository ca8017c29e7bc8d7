"""The writers that PySpark asks for: what runs in a task, and what the driver does when all tasks are done.

Spark makes the writer on the driver for every micro-batch, where a plan that cannot be written fails at once. It
pickles the writer into the tasks, and makes another one, in a separate process, to call `commit` or `abort`. So a
writer holds plain values only, and the results of tasks travel in their messages.

By default rows are written at least once, as by Spark's own sink: a task that is repeated writes its rows again. With
`exactly.once` each attempt writes in a transaction that only the driver ends: `exactly_once` is the protocol.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.client.failure import Failed, Refused
from ottla.client.transaction import ProducerIdentity, end, identify
from ottla.errors import ErrorCode
from ottla.spark.sink import exactly_once
from ottla.spark.sink.columns import columns
from ottla.spark.sink.content import BatchPlan
from ottla.spark.sink.coordination import ClusterPort
from ottla.spark.sink.decisions import Prepared
from ottla.spark.worker import at_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.client.cluster import Cluster
    from ottla.spark.sink.decisions import TaskPart
    from ottla.spark.sink.options import SinkOptions
    from ottla.spark.sink.producers import Producer
    from ottla.spark.sink.tally import Tally

QUERY_ID = "sql.streaming.queryId"
ZONE = "spark.sql.session.timeZone"
BATCH_ID = "streaming.sql.batchId"
GIVEN_UP_S = 3.0  # a little more than spark.python.task.killTimeout
DROP_S = 5.0


@dataclass(frozen=True)
class WrittenMessage(WriterCommitMessage):
    """What a task of an at-least-once write reports: it is already done."""

    rows: int


class Sink:
    """What batch and stream share."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._used = columns(schema, options.topic)

    def _open(self) -> Cluster:
        return self._options.cluster(patience_ms=self._options.delivery_timeout_ms)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # These import pyarrow, which a driver that only commits does not need.
        from ottla.spark.sink.producers import producer
        from ottla.spark.sink.writing import Writer

        tally = self._tally()
        with at_work(), producer(self._options) as one:
            Writer(one, self._options, self._used).write(tally.over(batches))
        return WrittenMessage(tally.rows)

    def _tally(self) -> Tally:
        from ottla.spark.sink.tally import Tally, local_zone

        return Tally(self._options, self._used, task().getLocalProperty(ZONE) or local_zone())

    def _prepare(
        self, batches: Iterator[pa.RecordBatch], query: str, epoch: int, *, alone: bool = False
    ) -> WriterCommitMessage:
        """Write the rows of one attempt in a transaction, and leave the transaction open for the driver."""
        from ottla.spark.sink.producers import producer

        tally = self._tally()
        rows = tally.over(batches)
        first = next(rows, None)
        if first is None:
            return Prepared(query, epoch, 0, topics=tally.topics)
        with at_work(), producer(self._options) as one:
            index = task().partitionId()
            part: TaskPart | None
            if alone:
                part = exactly_once.begin_alone(query, epoch, index, task().taskAttemptId())
            else:
                part = exactly_once.begin(ClusterPort(one.cluster), query, epoch, index)
            if part is None:
                for _ in rows:
                    pass  # nothing is written, but the content is reported, and the driver compares
            else:
                part = self._fill(one, part, prepend(first, rows))
        return Prepared(query, epoch, tally.rows, tally.digest, tally.topics, decided=part is None, part=part)

    def _fill(self, one: Producer, part: TaskPart, rows: Iterator[pa.RecordBatch]) -> TaskPart:
        from ottla.spark.sink.writing import Writer

        identity = self._claim(one.cluster, part)
        try:
            Writer(one, self._options, self._used, identity).write(rows)
        except BaseException:
            drop(one.cluster, identity)
            raise
        return part._replace(producer_id=identity.producer_id, epoch=identity.epoch)

    def _claim(self, cluster: Cluster, part: TaskPart) -> ProducerIdentity:
        timeout_ms = self._options.transaction_timeout_ms
        try:
            return identify(cluster, part.name, timeout_ms=timeout_ms, two_phase=self._options.two_phase)
        except Refused as error:
            if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise Failed(
                    f"the brokers do not let a transaction stay open for kafka.transaction.timeout.ms={timeout_ms}: "
                    "set it lower, or their transaction.max.timeout.ms higher"
                ) from None
            if self._options.two_phase:
                raise Failed(
                    f"the brokers do not allow two-phase commit ({error}): set their "
                    "transaction.two.phase.commit.enable to true and grant it to this user, or remove ottla.two.phase"
                ) from None
            raise

    def _commit(self, epoch: int, messages: Sequence[WriterCommitMessage | None], *, alone: bool = False) -> None:
        if not self._options.exactly_once:
            return
        told = collect_prepared(messages)
        assert len(told) == len(messages), "Spark commits when every task has reported"
        with self._open() as cluster:
            exactly_once.commit(
                ClusterPort(cluster),
                epoch,
                told,
                plan=BatchPlan.read(self._options.checkpoint, epoch),
                lost_epoch=self._options.lost_batch,
                kept_epoch=self._options.kept_batch,
                alone=alone,
            )

    def _abort(self, epoch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            with self._open() as cluster:
                exactly_once.abort(ClusterPort(cluster), epoch, collect_prepared(messages))


class OttlaWriter(Sink, DataSourceArrowWriter):
    """`df.write.format("ottla")`. With `exactly.once` a write is one epoch of the query that `ottla.write.id` names."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise Failed('a topic cannot be overwritten: use mode("append"), or delete and create the topic first')
        super().__init__(options, schema)
        self._query = options.write_id or str(uuid.uuid4())
        self._alone = options.write_id is None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._options.exactly_once:
            return self._prepare(iterator, self._query, self._options.write_epoch, alone=self._alone)
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(self._options.write_epoch, messages, alone=self._alone)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(self._options.write_epoch, messages)
        if not self._options.exactly_once or not self._alone:
            return
        # Nobody sweeps later, and Spark lets abandoned tasks run for a while.
        unfinished = any(message is None for message in messages)
        with self._open() as cluster:
            for pause_s in (0.0, *([GIVEN_UP_S / 4] * 4 if unfinished else [])):
                time.sleep(pause_s)
                exactly_once.abandon(ClusterPort(cluster), self._query)


class OttlaStreamWriter(Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("ottla")`. Rows are appended even in complete mode, as by Spark's own sink."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if options.write_id is not None:
            raise Failed("ottla.write.id is for batch writes: a stream has its id in the checkpoint; remove it")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return self._write(iterator)
        query, epoch = (task().getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        assert query is not None, "Spark tells its tasks which query they belong to"
        assert epoch is not None, "and which batch"
        return self._prepare(iterator, query, int(epoch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(batchId, messages)


def task() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "this runs in a task"
    return found


def drop(cluster: Cluster, identity: ProducerIdentity) -> None:
    """Abort the transaction of a failed attempt soon, if the cluster answers, so that readers need not wait for it."""
    cluster.timeout_s = cluster.patience_s = min(cluster.timeout_s, DROP_S)
    with suppress(Failed):
        end(cluster, identity, commit=False)


def collect_prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    """What tasks reported; failed tasks report nothing."""
    return [message for message in messages if isinstance(message, Prepared)]


def prepend(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
