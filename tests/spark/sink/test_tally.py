"""Times of rows as they pass: those that were read without a time are written without one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.tally import Tally

KINDS = pa.array([0, None, -1, 0], pa.int32())


@pytest.mark.parametrize(
    ("times", "none"),
    [
        (pa.array([5, None, None, None], pa.int64()), -1),
        (pa.array([5_000, None, None, None], pa.timestamp("us", tz="UTC")), -1_000),
        (pa.array([5_000, None, None, None], pa.timestamp("us")), -1_000),
    ],
)
def test_a_row_that_was_read_without_a_time_has_none(times: pa.Array, none: int) -> None:
    tally = Tally(SinkOptions.load({"kafka.bootstrap.servers": "a:1", "topic": "t"}), frozenset({"value", "timestamp"}))
    values = pa.array([b"a", b"b", b"c", b"d"])

    def passed(**columns: pa.Array) -> list[Any]:
        (one,) = tally.over([pa.RecordBatch.from_pydict({"value": values, **columns})])
        found: list[Any] = one.column("timestamp").cast(pa.int64()).to_pylist()
        return found

    first = times.cast(pa.int64())[0].as_py()
    assert passed(timestamp=times, timestampType=KINDS) == [first, None, none, none]
    assert passed(timestamp=times) == [first, None, None, None], "null by itself is the time of writing"
