"""The progress line, made from Spark's progress: records instead of rows, what is left, and the speed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import pytest

from ottla.client.cluster import TopicPartition
from ottla.spark.runner.meter import CountRate, Meter, count_records, lag
from ottla.spark.runner.rounds import Rounds
from ottla.spark.source.checkpoint import Position

if TYPE_CHECKING:
    from ottla.spark.runner.state import QueryProgress

TOPIC = UUID(int=7)


def at(*offsets: int, begun: dict[int, int] | None = None) -> str:
    """A position in the partitions 0, 1, ... of one topic, as it stands in Spark's progress."""
    where = {TopicPartition("t", index): offset for index, offset in enumerate(offsets)}
    first = {TopicPartition("t", index): offset for index, offset in (begun or {}).items()}
    return json.dumps(Position(where, first, {"t": TOPIC}, "c", "ab").dump())


def source(start: str | None, end: str | None, latest: str | None = None) -> dict[str, Any]:
    return {"startOffset": start, "endOffset": end, "latestOffset": latest}


@pytest.mark.parametrize(
    ("rows", "sources", "expected"),
    [
        (10, [source(at(0, 5), at(5, 10))], 10),
        (20, [source(at(0, 5), at(5, 10))], 10),  # a plan that scans the source twice
        (4, [source(at(0), at(10))], 4),  # compacted: six offsets have no record any more
        (7, [source(None, at(107, begun={0: 100}))], 7),  # the first batch
        (18, [source(at(5), at(8, 6, begun={1: 0}))], 9),  # a partition that is new
        (5, [source(at(5), at(8)), source(at(1), at(3))], 5),
        (3, [source("17", "20")], 3),  # some other source
        (9, [source("17", "20"), source(at(5), at(8))], 9),
        (0, [source(None, None)], 0),
    ],
)
def test_records_are_counted_once(rows: int, sources: list[dict[str, Any]], expected: int) -> None:
    assert count_records({"numInputRows": rows, "sources": sources}) == expected


def test_lag_is_what_was_there_and_not_read() -> None:
    assert lag([source(None, at(5, 10), at(7, 10))]) == 2
    assert lag([source(None, at(5), at(5, 3))]) == 3, "a partition that nobody has read of yet"
    assert lag([source(None, at(5), at(6)), source(None, at(1), at(3))]) == 3
    assert lag([source("17", "20", "30")]) is None
    assert lag([source(None, None, None)]) is None


def test_batches_between_two_looks_count_too() -> None:
    where = TopicPartition("t", 0)
    query, meter = Rounds("q"), Meter()

    def look() -> QueryProgress:
        (found,) = meter.read([query])
        return found

    assert (look().rows, look().batch, look().lag) == (0, None, None)
    for rows in (1, 2, 3):
        query.done(rows, {where: rows}, {where: 10})
    assert (look().rows, look().batch, look().lag) == (6, 2, 7)
    query.done(10, {where: 10}, {where: 10})
    assert look().rows == 16
    assert (look().rows, look().lag) == (16, 0), "nothing new"


def test_before_the_first_batch_has_ended_it_says_what_spark_does() -> None:
    class Query:
        name = "q"
        lastProgress = None
        status: ClassVar = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}

    (found,) = Meter().read([Query()])  # type: ignore[list-item]
    assert (found.batch, found.doing) == (None, "Processing new data")


def test_a_rate_is_not_that_of_a_moment() -> None:
    rate = CountRate()
    assert rate.at(5.0, 0) == 0.0
    assert rate.at(5.001, 10_000) == 0.0
    assert rate.at(7.0, 10_000) == 5000.0
    assert rate.at(9.0, 12_000) == 3000.0
    assert rate.at(30.0, 12_000) == 0.0, "of what was long ago nothing is left"
