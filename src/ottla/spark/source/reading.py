"""Turns one split into Arrow record batches for Spark. Runs in the Python workers of the executors.

    fetch (client/fetching)  →  whole batches as the broker has them  →  decode_columns (records/native)  →  RecordBatch

A thread fetches and decodes one batch ahead while Spark takes the one before: decoding releases the GIL, and so does
socket I/O. At most three batches of about `COLUMNS_BYTES` are in memory, besides the two fetches. A record batch that
decompresses to more is decoded as a whole and handed on in parts, because the JVM needs several times the memory of
what it is given at once. The columns `topic` and `partition` are slices of constant arrays; nothing is done per row in
Python. A worker keeps its connection for the next split of the same cluster.

An error in the data or the cluster is reported in one sentence with topic, partition, offset and what to do. The same
goes for records that are gone; with failOnDataLoss=false that is a warning, and reading continues at the earliest
available offset.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.client import offsets
from ottla.client.cluster import Patience
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.fetching import OutOfRange, Recreated, fetch
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.compress import SIZE_MAX, CorruptError
from ottla.records.native import decode_columns
from ottla.spark.source.data_source import columns
from ottla.spark.worker import at_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.client.cluster import Cluster, Topic, TopicPartition
    from ottla.client.fetching import Piece
    from ottla.records.columns import Columns
    from ottla.spark.source.options import SourceOptions
    from ottla.spark.source.planning import Split

    Sift = Callable[[pa.Table, Iterable[tuple[pa.Array, str]]], pa.Table]  # removes the rows that masks mark

COLUMNS_BYTES: Final = 4 << 20  # target size of one Arrow batch; docs/spark.md has the measurements
NO_TIMESTAMP: Final = pa.scalar(-1, pa.int64())
MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
GONE: Final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
KEEP: Final = "set failOnDataLoss to false to read what is left"

TIME_MAX_MS: Final = (2**63 - 1) // 1000
BEYOND: Final = "its timestamp lies beyond the year 294246, the last that tables can hold"

log = logging.getLogger("ottla.spark")


class BeyondCalendar(Failed):
    """A time that no timestamp of Spark or Parquet can hold."""


def batches(split: Split, options: SourceOptions, sift: Sift | None = None) -> Iterator[pa.RecordBatch]:
    """The records of a split in order, with the columns of `source.columns`.

    `sift` removes those whose timestamp is out of range. It is called in another thread."""
    with at_work():
        yield from _ahead(_batches(split, options, sift))


def _ahead(items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same items, each made in a thread while the one before is in use."""
    pool = ThreadPoolExecutor(1, "ottla-read")
    try:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
    finally:
        pool.shutdown(wait=False)  # a consumer that stops early does not wait for the item in progress


def _batches(split: Split, options: SourceOptions, sift: Sift | None = None) -> Iterator[pa.RecordBatch]:
    shape, start = RowShape(split.where, options.include_headers, sift), split.start
    try:
        cluster = _take(options)
        patience = Patience(cluster)
        while start < split.stop:
            if not _same_topic(cluster, split, options):
                break
            try:
                for piece in _pieces(cluster, split, start, options):
                    for some in decode(piece, split, options):
                        yield from shape.batches(some)
                    start = piece.end
                    patience.progress()
                break
            except OutOfRange as error:
                later = _go_on(cluster, split, start, options)
                if later == start:  # it exists after all
                    patience.bear(Refused(error.what, ErrorCode.OFFSET_NOT_AVAILABLE, error.more))
                start = later
    except Recreated:
        _report_loss(f"{_at(split, start)}: the topic was deleted and recreated while it was read", options)
    except Refused as error:
        if error.code in GONE:
            _report_loss(f"{_at(split, start)}: the topic was deleted while it was read", options)
        elif error.code == ErrorCode.OFFSET_NOT_AVAILABLE:
            _report_loss(
                f"{_at(split, start)}: the log ends before offset {split.stop}, records were lost{error.more}", options
            )
        else:
            raise Failed(f"{_at(split, start)}: {error}") from None
    except Unreachable as error:
        raise Failed(f"{_at(split, start)}: {error}") from None
    _give_back(cluster, options)


def _pieces(cluster: Cluster, split: Split, start: int, options: SourceOptions) -> Iterator[Piece]:
    return fetch(
        cluster,
        split.where,
        start=start,
        stop=split.stop,
        committed=options.committed,
        bytes_max=options.fetch_bytes,
        wait_ms=options.fetch_wait_ms,
        topic_id=split.topic_id,
    )


def decode(piece: Piece, split: Split, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The wanted records of a piece, in as many batches as needed.

    If a record batch decompresses to more than COLUMNS_BYTES, batches are decoded one by one until that one is
    found."""
    data, start, stop, aborted = piece.data, piece.start, min(piece.end, split.stop), piece.aborted
    alone, small = False, list[pa.RecordBatch]()
    while start < stop and data:
        try:
            if alone:
                found = _decode(data[: next(batch.entries(data)).size], range(start, stop), aborted, options, SIZE_MAX)
            else:
                found = _decode(data, range(start, stop), aborted, options, COLUMNS_BYTES)
        except (ValueError, CorruptError) as error:
            if not alone:
                alone = True
                continue
            raise Failed(
                f"{_at(split, start)}: a damaged record batch ({error}); restore the partition from another "
                "replica, or read around it with startingOffsets and endingOffsets"
            ) from None
        assert found.bytes_read, "a piece is whole batches"
        small.append(found.batch)
        alone = alone and found.batch.nbytes <= COLUMNS_BYTES
        if not alone or sum(one.nbytes for one in small) > COLUMNS_BYTES:
            yield from parts(together(small))
            small.clear()
        if aborted and found.bytes_read < len(data):
            aborted = find_unfinished(aborted, data[: found.bytes_read])
        start, data = found.next_offset, data[found.bytes_read :]
    if small:
        yield from parts(together(small))


def together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (made,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or [batches[0]]
    return made


def parts(whole: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most twice COLUMNS_BYTES, or of one row; nothing is copied."""
    rows = whole.num_rows
    if rows > 1 and whole.nbytes > 2 * COLUMNS_BYTES:
        yield from parts(whole.slice(0, rows // 2))
        yield from parts(whole.slice(rows // 2))
    elif rows:
        yield whole


def find_unfinished(aborted: list[tuple[int, int]], passed: memoryview) -> list[tuple[int, int]]:
    """The aborted transactions that may continue after these batches. An abort marker of their producer ends them."""
    ended = {}
    for entry in batch.entries(passed):
        if entry.magic == batch.MAGIC and (head := batch.header(passed, entry.position)).control:
            ended[head.producer_id] = head.base_offset
    return [(producer, first) for producer, first in aborted if first > ended.get(producer, -1)]


def _decode(
    data: memoryview, wanted: range, aborted: list[tuple[int, int]] | None, options: SourceOptions, size_max: int
) -> Columns:
    return decode_columns(
        data,
        start=wanted.start,
        stop=wanted.stop,
        headers=options.include_headers,
        aborted=aborted,
        check_crc=options.check_crcs,
        size_max=size_max,
    )


class RowShape:
    """Turns the decoder's columns into Spark's."""

    def __init__(self, where: TopicPartition, headers: bool, sift: Sift | None = None) -> None:
        self.schema = to_arrow_schema(columns(headers=headers), timezone="UTC")
        self._where = where
        self._sift = sift
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def batches(self, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same rows, without those that `sift` removes."""
        try:
            yield self.batch(found)
        except BeyondCalendar:
            if self._sift is None:
                raise
            times = found.column("timestamp")
            beyond = pc.or_(pc.greater(times, TIME_MAX_MS), pc.less(times, -TIME_MAX_MS))
            left = self._sift(pa.Table.from_batches([found]), [(beyond, BEYOND)])
            yield from map(self.batch, left.combine_chunks().to_batches())

    def batch(self, found: pa.RecordBatch) -> pa.RecordBatch:
        rows = found.num_rows
        if rows > len(self._topics):
            self._topics = pa.repeat(pa.scalar(self._where.topic, pa.string()), rows)
            self._partitions = pa.repeat(pa.scalar(self._where.partition, pa.int32()), rows)
        made = [
            found.column(0),
            found.column(1),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            found.column(2),
            self._timestamps(found),
            found.column(4),
        ]
        if found.num_columns > 5:
            made.append(found.column(5).cast(self.schema.field("headers").type))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)

    def _timestamps(self, found: pa.RecordBatch) -> pa.TimestampArray:
        """A record without a timestamp gets null; Spark's own source gives a millisecond before 1970."""
        times = found.column(3)
        if len(times) and pc.min(times).as_py() < 0:  # scanning all of them costs a third of a nanosecond each
            times = pc.if_else(pc.equal(times, NO_TIMESTAMP), pa.scalar(None, pa.int64()), times)
        try:
            return pc.multiply_checked(times, 1000).cast(MICROSECONDS)
        except pa.ArrowInvalid:
            at, last = found.column(2)[0], found.column(2)[-1]
            raise BeyondCalendar(
                f"{self._where.topic} partition {self._where.partition}: a record between offsets {at} and {last} has "
                "a timestamp beyond the year 294246, the last one in Spark; read around it with startingOffsets"
            ) from None


# Data loss.


def _same_topic(cluster: Cluster, split: Split, options: SourceOptions) -> bool:
    """Whether the topic is still the one that was planned for."""
    found = cluster.topics([split.topic]).get(split.topic) or _look_again(cluster, split.topic)
    if found is None:
        _report_loss(f"{_at(split, split.start)}: the topic was deleted", options)
        return False
    if split.topic_id and found.id and found.id != split.topic_id:
        _report_loss(
            f"{_at(split, split.start)}: the topic was deleted and recreated, so these records are gone", options
        )
        return False
    return True


def _look_again(cluster: Cluster, topic: str) -> Topic | None:
    """Ask again: a broker that has just started may not know the topic yet."""
    try:
        return cluster.retrying(lambda: cluster.topic(topic), what=f"topic {topic}")
    except Refused as error:
        if error.code not in GONE:
            raise
        return None


def _go_on(cluster: Cluster, split: Split, start: int, options: SourceOptions) -> int:
    """Where to continue if the offset does not exist; fails or warns."""
    first = offsets.earliest(cluster, [split.where])[split.where]
    end = offsets.latest(cluster, [split.where])[split.where]
    if start < first:
        gone = min(first, split.stop)
        _report_loss(
            f"{_at(split, start)}: records up to offset {gone} were removed by retention before they were read", options
        )
        return gone
    if start <= end:  # the error came from a broker that was no longer the leader, or not yet
        return start
    _report_loss(
        f"{_at(split, start)}: the log ends at offset {end}, records were lost or the topic was recreated", options
    )
    return split.stop


def _report_loss(what: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise Failed(f"{what}; {KEEP}")
    log.warning("%s; continuing, since failOnDataLoss is false", what)


def _at(split: Split, offset: int) -> str:
    return f"{split.topic} partition {split.partition} at offset {offset}"


# A worker reads one split after another, so it keeps the connection of the last one.

_kept: dict[tuple[object, ...], Cluster] = {}


def _key(options: SourceOptions) -> tuple[object, ...]:
    return options.bootstrap, options.security, options.client_id, options.poll_timeout_ms


def _take(options: SourceOptions) -> Cluster:
    """The connection of the last split, or a new one. The planner has reached the cluster, so waiting for it makes
    sense."""
    return _kept.pop(_key(options), None) or options.cluster(patience_ms=options.poll_timeout_ms)


def _give_back(cluster: Cluster, options: SourceOptions) -> None:
    """Only after a split that was read to its end: otherwise responses may still be in flight."""
    for other in _kept.values():
        other.close()
    _kept.clear()
    _kept[_key(options)] = cluster
