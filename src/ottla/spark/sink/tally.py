"""What the rows of a task are, noted as they pass: how many, for which topics, and a digest of them.

Also where times without a zone get the session's: Spark's `timestamp_ntz` is what a clock on the wall shows, and a
record's time is a moment.
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


class Tally:
    def __init__(self, options: SinkOptions, used: frozenset[str], zone: str = UTC) -> None:
        self.rows = 0
        self.digest = 0
        self._topics = {options.topic} if options.topic is not None else set()
        self._used = used
        self._zone = zone
        self._digests = options.exactly_once

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._topics))

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, noted, with moments for times; empty ones left out."""
        for one in batches:
            if not one.num_rows:
                continue
            one = self._timed(one)
            self.rows += one.num_rows
            if self._digests:
                self._note(one)
            yield one

    def _note(self, one: pa.RecordBatch) -> None:
        names = ("topic", "key", "value", "headers", "timestamp", "partition")
        topics, *rest = (one.column(name) if name in self._used else None for name in names)
        if topics is not None:
            self._topics.update(name for name in pc.unique(topics).to_pylist() if name is not None)
        try:
            self.digest = (self.digest + digest(topics, *rest)) % 2**64
        except ValueError as error:
            raise Failed(f"a row cannot be written: {error}") from None

    def _timed(self, one: pa.RecordBatch) -> pa.RecordBatch:
        index = one.schema.get_field_index("timestamp") if "timestamp" in self._used else -1
        kind = one.schema.field(index).type if index >= 0 else None
        if kind is None or not pa.types.is_timestamp(kind) or kind.tz is not None:
            return one
        return one.set_column(index, "timestamp", moments(one.column(index), self._zone))


def moments(times: pa.Array, zone: str) -> pa.Array:
    """When clocks of that zone show these times; of two moments the first, and in a gap as if it had not begun: as
    Spark casts `timestamp_ntz` to `timestamp`."""
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
    """Of this machine, as a name of the database of time zones."""
    target = str(LOCAL.resolve()).partition("/zoneinfo/")[2] if LOCAL.is_symlink() else ""
    return target or UTC
