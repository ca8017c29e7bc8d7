"""`spark.readStream.format("ottla")`: what Spark calls for each micro-batch of a streaming query.

    initialOffset ─ latestOffset ─ partitions ─ (tasks: read) ─ latestOffset ─ partitions ─ ...

Everything but `read` runs in the planner: one Python process beside the driver, which lives as long as the run of the
query. `read` runs in the workers, on a pickled copy of an object that never planned. Spark writes the result of
latestOffset into the checkpoint before it asks for partitions. It calls latestOffset(start) only when everything before
`start` is done; that is when progress is committed. At the end of a query Spark terminates the planner without waiting.

checkpoint.py defines what is written, admission.py decides where a batch ends, lookout.py asks the cluster.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client import offsets
from ottla.client.failure import Failed
from ottla.spark.source import checkpoint, planning, positions
from ottla.spark.source.admission import advance, early, failure, pending, ranges
from ottla.spark.source.checkpoint import Position
from ottla.spark.source.data_source import check_schema
from ottla.spark.source.lookout import Lookout
from ottla.spark.source.planning import Range, Split
from ottla.spark.source.progress import Announcement, Progress, announce, explain
from ottla.spark.source.sampling import Sampler
from ottla.spark.source.watch import RetentionWatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ottla.client.cluster import Cluster
    from ottla.spark.source.admission import ClusterReport, Loss
    from ottla.spark.source.options import SourceOptions

log = logging.getLogger("ottla.spark")

# By default a partition is one task, so that its rows keep their order: a query that copies a topic relies on it.
UNCUT: Final = 1 << 62
END_S: Final = 15  # how long the planner takes at most to commit its final progress
GROUP_TIMEOUT_MS: Final = 5_000  # committing progress holds nothing up for longer


@dataclass(frozen=True)
class First(Split):
    """The first split of a batch. Its task also announces which query this is."""

    announcement: Announcement | None = None


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Both are checked by the planner: the last line of an error raised while PySpark makes a reader is PySpark's,
        about a variable of its own."""
        self._options = options
        self._schema = schema
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            options = self._options.for_stream()
            check_schema(self._schema, options)
            self._planner = Planner(options)
            self._end_politely()
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial().dump()

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark passes it back where it applies. It can only be one of the two, so the planner also reads the
        options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = checkpoint.load(start)
        end = self.planner.next(position, limited=not isinstance(limit, ReadAllAvailable))
        return start if end.same_place(position) else end.dump()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.planner.latest().dump()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.planner.splits(checkpoint.load(start), checkpoint.load(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.source import reading

        assert isinstance(partition, Split), "the planner makes splits"
        if isinstance(partition, First) and partition.announcement is not None:
            say(self._options, partition, partition.announcement)
        return reading.batches(partition, self._options)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.stop()
            self._planner = None

    def _end_politely(self) -> None:
        """Spark ends the planner with SIGTERM at any point; it commits its progress before it exits."""
        if threading.current_thread() is not threading.main_thread():
            return

        def end(number: int, frame: object) -> None:
            # Spark may send it twice, and we may hold a lock that `stop` needs: then the alarm ends the process.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.alarm(END_S)
            self.stop()
            os._exit(0)

        signal.signal(signal.SIGTERM, end)


class Planner:
    """Plans from one position to the next."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lookout = Lookout(options)
        self._sampler: Sampler | None = None
        self._progress: Progress | None = None
        self._watch: RetentionWatch | None = None
        self._initial: Position | None = None
        self._target: Position | None = None
        self._admitted_at: float | None = None

    def initial(self) -> Position:
        """Where a query without a checkpoint starts. Spark asks twice and must get the same answer."""
        if self._initial is None:
            cluster = self._lookout.cluster
            wheres, ids = positions.select_partitions(cluster, self._options)
            found = positions.starts(cluster, self._options, wheres)
            named = {topic: ids[topic] for topic in {where.topic for where in wheres}}
            self._initial = Position(found, found, named, cluster.id, secrets.token_hex(6))
        return self._initial

    def fix_target(self) -> None:
        """For Trigger.AvailableNow: records that arrive from now on are left to another run."""
        seen = self._lookout.look()
        self._target = Position(seen.latest, ids=seen.ids, cluster=seen.cluster)

    def latest(self) -> Position:
        return Position(self._lookout.latest)

    def next(self, start: Position, *, limited: bool) -> Position:
        """The end of the batch that begins at `start`, or `start` if there is no batch to make now."""
        if not start.token:  # written by Spark's own source
            start = replace(start, token=secrets.token_hex(6))
        self._progress_of(start).done(start.offsets)
        self._watch_retention(start)
        if self._target is None and self._lookout.idle(start.offsets):
            return start
        seen, end, losses = self._advance(start, limited=limited)
        if losses:
            self._tell(losses)
        elif limited and self._too_early(start, seen):
            return start
        if not end.same_place(start):
            self._admitted_at = time.monotonic()
        return end

    def _advance(self, start: Position, *, limited: bool) -> tuple[ClusterReport, Position, list[Loss]]:
        """Check losses a second time: a broker that has just started may not know everything yet."""
        limit = self._options.max_offsets_per_trigger if limited else None
        attempts = self._options.retries + 1
        while True:
            seen: ClusterReport = self._lookout.look()
            end, losses = advance(start, seen, self._lookout.wants, target=self._target, limit=limit)
            attempts -= 1
            if not losses or attempts <= 0:
                return seen, end, losses
            time.sleep(self._options.retry_interval_ms / 1000)

    def _tell(self, losses: list[Loss]) -> None:
        if self._options.fail_on_data_loss:
            raise failure(losses)
        for loss in losses:
            log.warning("%s", loss.warning())

    def _too_early(self, start: Position, seen: ClusterReport) -> bool:
        """Judged by all pending records, not by one batch's share."""
        if self._target is not None:  # nothing more will come
            return False
        size = pending(start, advance(start, seen, self._lookout.wants)[0])
        waited_ms = None if self._admitted_at is None else (time.monotonic() - self._admitted_at) * 1000
        return early(size, self._options.min_offsets_per_trigger, waited_ms, self._options.max_trigger_delay_ms)

    def splits(self, start: Position, end: Position) -> list[Split]:
        """The splits of a batch; none for an empty one."""
        spans = ranges(start, end)
        if unknown := end.offsets.keys() - spans.keys():  # a batch that Spark's own source planned
            for where, begin in offsets.earliest(self._lookout.cluster, unknown).items():
                spans[where] = (min(begin, end.offsets[where]), end.offsets[where])
        for where, (begin, stop) in spans.items():
            if begin > stop:
                raise Failed(
                    f"the batch in the checkpoint ends at offset {stop} of {where.topic} partition {where.partition}, "
                    f"before its beginning at {begin}: {checkpoint.FIX}"
                )
        if self._sampler is None:
            self._sampler = Sampler(self._lookout.cluster)
        least, split_bytes = self._options.min_partitions, self._options.split_bytes or UNCUT
        wanted = [Range(where, *span, end.ids.get(where.topic)) for where, span in sorted(spans.items())]
        made = planning.splits(
            wanted,
            self._sampler.profiles(wanted, split_bytes=split_bytes, least=least),
            split_bytes=split_bytes,
            least=least,
            records_max=self._options.max_records_per_partition,
        )
        return [self._first(made[0], end), *made[1:]] if made else []

    def _first(self, split: Split, end: Position) -> Split:
        told = self._progress_of(end).announcement(split.where) if end.token else None
        return First(split.topic, split.partition, split.start, split.stop, split.topic_id, told)

    def _progress_of(self, position: Position) -> Progress:
        """Where progress is committed. A repeated first batch has the token of its first attempt."""
        if self._progress is None or self._progress.token != position.token:
            self._progress = Progress(
                lambda: group_cluster(self._options),
                position.token,
                group=self._options.group or self._options.group_id,
                prefix=self._options.group_id_prefix,
                nonce=lambda: secrets.token_hex(4),
            )
        return self._progress

    def _watch_retention(self, position: Position) -> None:
        if self._watch is None:
            self._watch = RetentionWatch(
                lambda: group_cluster(self._options),
                self._options.retention_warning_ms,
                lambda more: self._progress.note(more) if self._progress is not None else None,
            )
            self._watch.start()
        self._watch.stands(position.offsets)

    def stop(self) -> None:
        """May be called by a signal handler at any time."""
        if self._watch is not None:
            self._watch.stop()
        if self._progress is not None:
            self._progress.stop()
        self._lookout.close()


def group_cluster(options: SourceOptions) -> Cluster:
    return replace(options, request_timeout_ms=min(options.request_timeout_ms, GROUP_TIMEOUT_MS)).cluster()


_speaking: dict[tuple[object, ...], Cluster] = {}  # a worker serves many batches with one connection


def say(options: SourceOptions, split: Split, told: Announcement) -> None:
    """In a task: make the announcement. Failures do not fail the read."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return
    key = (options.bootstrap, options.security, options.client_id)
    try:
        cluster = _speaking.get(key)
        if cluster is None:
            cluster = _speaking[key] = group_cluster(options)
        announce(cluster, split.where, split.start, told, task)
    except Failed as error:
        _speaking.pop(key, None)
        log.warning("the lag of this query cannot be shown for now, its records are safe: %s", explain(error))
