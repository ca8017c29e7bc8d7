"""`spark.read.format("ottla")`: reads a range of each partition. The ranges are fixed once, when Spark plans the
query."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader

from ottla.client import offsets
from ottla.client.failure import Failed
from ottla.spark.source import planning, positions
from ottla.spark.source.filters import bounds, narrow
from ottla.spark.source.planning import Range, Split
from ottla.spark.source.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.spark.source.filters import Bounds
    from ottla.spark.source.options import SourceOptions

log = logging.getLogger("ottla.spark")

SPLIT_BYTES: Final = 128 << 20  # per task, unless options say otherwise; each task has an overhead of about 50 ms


class OttlaReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._bounds: Bounds | None = None

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.cluster(patience_ms=options.driver_patience_ms) as cluster:
            found = ranges(cluster, options)
            if self._bounds is not None:
                found = narrow(found, self._bounds, partial(_at_time, cluster))
            split_bytes = options.split_bytes or SPLIT_BYTES
            profiles = Sampler(cluster).profiles(found, split_bytes=split_bytes, least=options.min_partitions)
            return planning.splits(
                found,
                profiles,
                split_bytes=split_bytes,
                least=options.min_partitions,
                records_max=options.max_records_per_partition,
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.source import reading

        if not isinstance(partition, Split):  # Spark's placeholder if there is nothing to read
            return iter(())
        return reading.batches(partition, self._options)


class PushingReader(OttlaReader):
    """The same, for sessions with filter pushdown: filters narrow what is read (filters.py)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = bounds(filters)
        return filters


def _at_time(cluster: Cluster, at: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """Looked up among all records: an uncommitted record makes the range longer, not shorter."""
    return {where: found and found[0] for where, found in offsets.at_time(cluster, at).items()}


def ranges(cluster: Cluster, options: SourceOptions) -> list[Range]:
    """The ranges of a batch, from the start to the end that the options name, as far as the cluster has them."""
    partitions, ids = positions.select_partitions(cluster, options)
    first = offsets.earliest(cluster, partitions)  # looked up before the starts, `last` after the stops: both move
    starts = positions.starts(cluster, options, partitions)
    stops = positions.stops(cluster, options, partitions)
    last = offsets.latest(cluster, partitions, committed=options.committed)
    found = []
    for where in partitions:
        start, stop = starts[where], stops[where]
        what = f"{where.topic} partition {where.partition}"
        if start > stop:
            raise Failed(
                f"{what} would start at offset {start} and end before that, at {stop}: set a start at or before the end"
            )
        if start < first[where] and start < stop:
            _report_loss(f"{what} should be read from offset {start}, but begins at {first[where]}", options)
            start = min(first[where], stop)
        if stop > last[where]:
            _report_loss(f"{what} should be read up to offset {stop}, but ends at {last[where]}", options)
            start, stop = min(start, last[where]), last[where]
        found.append(Range(where, start, stop, ids[where.topic]))
    return found


def _report_loss(what: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise Failed(f"{what}: set other offsets, or failOnDataLoss to false to read what is there")
    log.warning("%s; reading what is there, since failOnDataLoss is false", what)
