"""Collects facts about the rows of a task as they pass: how many, for which topics, and a digest.

It also converts timestamps without a zone by the session's time zone: Spark's `timestamp_ntz` is a local time, and a
record's timestamp is an instant.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.failure import Failed
from ottla.records.native import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.spark.sink.options import SinkOptions

LOCAL: Final = Path("/etc/localtime")
UTC: Final = "UTC"
READ_AS: Final = "timestampType"  # a column of rows that were read from a topic


class Tally:
    def __init__(self, options: SinkOptions, used: frozenset[str], zone: str = UTC) -> None:
        self.rows = 0
        self.digest = 0
        self._topics = {options.topic} if options.topic is not None else set()
        self._used = used
        self._zone = zone
        self._digests = options.exactly_once
        self._buries = options.dead_letter is not None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._topics))

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted, with timestamps as instants; without empty ones."""
        for one in batches:
            if not one.num_rows:
                continue
            one = self._convert_times(one)
            self.rows += one.num_rows
            if self._digests:
                self._note(one)
            yield one

    def _note(self, one: pa.RecordBatch) -> None:
        names = ("topic", "key", "value", "headers", "timestamp", "partition")
        topics, keys, values, headers, *rest = (one.column(name) if name in self._used else None for name in names)
        if topics is not None:
            self._topics.update(name for name in pc.unique(topics).to_pylist() if name is not None)
        try:
            noted = digest(topics, keys, values, headers, *rest)
        except ValueError as error:
            if not self._buries:
                raise Failed(f"a row cannot be written: {error}") from None
            noted = digest(topics, keys, values, None, *rest)  # a header without a name: a dead letter later
        self.digest = (self.digest + noted) % 2**64

    def _convert_times(self, one: pa.RecordBatch) -> pa.RecordBatch:
        if "timestamp" not in self._used:
            return one
        index = one.schema.get_field_index("timestamp")
        given = times = one.column(index)
        if pa.types.is_timestamp(times.type) and times.type.tz is None:
            times = moments(times, self._zone)
        if times.null_count and READ_AS in one.schema.names:
            times = timeless(times, one.column(READ_AS))
        return one if times is given else one.set_column(index, "timestamp", times)


def timeless(times: pa.Array, kinds: pa.Array) -> pa.Array:
    """A row that was read from a topic has the type of its timestamp. If it has none, it is written without one."""
    none = pa.scalar(-1, pa.int64())
    if pa.types.is_timestamp(times.type):
        none = pa.scalar(-1, pa.timestamp("ms", times.type.tz)).cast(times.type)
    return pc.if_else(pc.and_(pc.is_null(times), pc.is_valid(kinds)), none, times)


def moments(times: pa.Array, zone: str) -> pa.Array:
    """The instants at which clocks in that zone show these times: the earlier of two, and in a gap as if it had not
    begun. So does Spark when it casts `timestamp_ntz` to `timestamp`."""
    try:
        early = pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="earliest")
        gap = pc.subtract(times, pc.local_timestamp(early))
        return pc.add(early, gap)
    except (pa.ArrowInvalid, OSError) as error:
        raise Failed(
            f"the session's time zone {zone} is not known here ({error}): cast the column timestamp from "
            "timestamp_ntz to timestamp"
        ) from None


def local_zone() -> str:
    """The zone of this machine, as a name of the time zone database."""
    target = str(LOCAL.resolve()).partition("/zoneinfo/")[2] if LOCAL.is_symlink() else ""
    return target or UTC
