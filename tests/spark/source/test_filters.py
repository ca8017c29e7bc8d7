"""Filters of a query: which offsets still have to be read, and that no row is lost."""

from __future__ import annotations

import operator
import random
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from spark import filling
from spark.comparing import rows

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.producing import Sender
from ottla.records.batch import Record, build
from ottla.spark.source.batch import OttlaReader, PushingReader
from ottla.spark.source.data_source import COLUMNS, OttlaDataSource
from ottla.spark.source.filters import Bounds, Interval, bounds, is_pushdown, narrow
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.planning import Range, Split

if TYPE_CHECKING:
    from collections.abc import Callable

    from judge import Kafka
    from process import Ottla
    from pyspark.sql import DataFrame, SparkSession

    Broker = Ottla | Kafka

COMPARED: Final = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
PARTITION, OFFSET, TIME, TOPIC = ("partition",), ("offset",), ("timestamp",), ("topic",)
PUSHING: Final = "spark.sql.python.filterPushdown.enabled"


def moment(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Bounds()),
        ([EqualTo(OFFSET, 5)], Bounds(offsets=Interval(5, 5))),
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 9)], Bounds(offsets=Interval(6, 8))),
        ([GreaterThanOrEqual(OFFSET, 5), LessThanOrEqual(OFFSET, 9)], Bounds(offsets=Interval(5, 9))),
        ([In(OFFSET, (7, 3, None))], Bounds(offsets=Interval(3, 7))),
        ([GreaterThan(OFFSET, 5), GreaterThan(OFFSET, 2)], Bounds(offsets=Interval(6, None))),
        ([EqualTo(PARTITION, 1)], Bounds(partitions=Interval(1, 1), listed=frozenset({1}))),
        ([In(PARTITION, (0, 4)), LessThan(PARTITION, 3)], Bounds(partitions=Interval(0, 2), listed=frozenset({0, 4}))),
        ([EqualTo(TOPIC, "a"), In(TOPIC, ("a", "b"))], Bounds(topics=frozenset({"a"}))),
        ([EqualTo(TIME, moment(5))], Bounds(times=Interval(5))),
        ([EqualTo(TIME, moment(5.5)), LessThan(TIME, moment(9))], Bounds(times=Interval(6))),
        ([GreaterThan(TIME, moment(5))], Bounds(times=Interval(6))),
        ([GreaterThan(TIME, moment(5.5))], Bounds(times=Interval(6))),
        ([GreaterThanOrEqual(TIME, moment(5.5))], Bounds(times=Interval(6))),
        ([In(TIME, (moment(9), moment(4)))], Bounds(times=Interval(4))),
        ([Not(EqualTo(OFFSET, 5)), IsNotNull(OFFSET), EqualNullSafe(OFFSET, None), EqualTo(OFFSET, None)], Bounds()),
        ([EqualTo(OFFSET, True), EqualTo(OFFSET, 1.5), EqualTo(("value",), b"x")], Bounds()),
        ([StringStartsWith(TOPIC, "a")], Bounds()),
        ([EqualTo(("headers", "offset"), 5), GreaterThan(TIME, datetime(2026, 1, 1))], Bounds()),
    ],
)  # fmt: skip
def test_what_filters_say(filters: list[Filter], expected: Bounds) -> None:
    assert bounds(filters) == expected


def test_no_wanted_record_is_left_out_and_ranges_only_shrink() -> None:
    """Random logs with times in any order, random filters: every record that fulfils them is in what is read."""
    chance = random.Random(11)
    narrower = 0
    for _ in range(500):
        logs = {
            TopicPartition(topic, number): [chance.choice((-1, *range(60))) for _ in range(chance.randrange(30))]
            for topic in ("a", "b")
            for number in range(3)
        }
        whole = [Range(where, min(2, len(times)), len(times)) for where, times in logs.items()]
        filters = [some_filter(chance) for _ in range(chance.randrange(1, 4))]

        def at_time(asked: dict[TopicPartition, int], logs: Any = logs) -> dict[TopicPartition, int | None]:
            assert all(ms > 0 for ms in asked.values())
            found = {where: list(accumulate(logs[where], max)) for where in asked}
            return {
                where: next((i for i, t in enumerate(found[where]) if t >= ms), None) for where, ms in asked.items()
            }

        left = narrow(whole, bounds(filters), at_time)
        for before, after in zip(whole, left, strict=True):
            assert before.start <= after.start <= after.stop <= before.stop
            narrower += after != before
            for offset in range(before.start, before.stop):
                record = {**before.where._asdict(), "offset": offset, "timestamp": logs[before.where][offset]}
                if all(holds(one, record) for one in filters):
                    assert after.start <= offset < after.stop, (filters, before, after)
    assert narrower > 500


def some_filter(chance: random.Random) -> Filter:
    kind = chance.choice([*COMPARED, In])
    name, values = chance.choice(
        [
            (TOPIC, ["a", "b", "c"]),
            (PARTITION, [0, 1, 2, 7]),
            (OFFSET, list(range(-3, 33))),
            (TIME, [moment(ms / 2) for ms in range(-20, 130)]),
        ]
    )
    if kind is In:
        return In(name, tuple(chance.sample(values, 2)))
    made: Filter = kind(name, chance.choice(values))
    return made


def holds(one: Any, record: dict[str, Any]) -> bool:
    value = record[one.attribute[0]]
    if one.attribute == TIME:
        if value < 0:
            return False  # null
        value = moment(value)
    if isinstance(one, In):
        return value in one.value
    return bool(COMPARED[type(one)](value, one.value))


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    fill(found, "filtered")
    return found


def fill(broker: Broker, topic: str) -> None:
    """Three partitions whose times go up and down."""
    filling.create(broker, topic, 3)
    with Cluster(broker.bootstrap) as cluster:
        sender = Sender(cluster)
        for partition in range(3):
            for start in range(0, 100, 5):
                times = [1000 * partition + 10 * (start // 20 * 20) + (7 * n) % 11 for n in range(5)]
                records = [Record(n, time, None, b"%d" % (start + n)) for n, time in enumerate(times)]
                sender.send(TopicPartition(topic, partition), [build(records)])
        sender.flush()
        sender.close()


def planned(broker: Broker, *filters: Filter, **more: str) -> list[tuple[int, int, int]]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "filtered", **more}
    reader = PushingReader(SourceOptions.load(given).for_batch(), COLUMNS)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies them to the rows all the same"
    splits = [split for split in reader.partitions() if isinstance(split, Split)]
    return [(split.partition, split.start, split.stop) for split in splits]


def test_only_what_is_needed_is_planned(broker: Broker) -> None:
    assert planned(broker) == [(0, 0, 100), (1, 0, 100), (2, 0, 100)]
    assert planned(broker, EqualTo(PARTITION, 1)) == [(1, 0, 100)]
    assert planned(broker, GreaterThan(PARTITION, 0), LessThan(OFFSET, 10)) == [(1, 0, 10), (2, 0, 10)]
    assert planned(broker, GreaterThanOrEqual(OFFSET, 40), LessThanOrEqual(OFFSET, 41), In(PARTITION, (0, 2))) == [
        (0, 40, 42), (2, 40, 42)
    ]  # fmt: skip
    assert planned(broker, EqualTo(TOPIC, "another")) == []
    assert planned(broker, GreaterThan(OFFSET, 99)) == []
    # Times are 1000 * partition + 0, 200, 400, ... for twenty records each, plus up to 10.
    assert planned(broker, GreaterThanOrEqual(TIME, moment(1600))) == [(1, 60, 100), (2, 0, 100)]
    assert planned(broker, GreaterThan(TIME, moment(2810))) == []
    assert planned(broker, LessThan(TIME, moment(5))) == planned(broker), "a late record may come before an early one"
    assert planned(broker, GreaterThan(TIME, moment(-2))) == planned(broker)
    offsets = '{"filtered":{"0":10,"1":10,"2":10}}'
    assert planned(broker, LessThan(OFFSET, 5), startingOffsets=offsets) == []


def test_filters_are_taken_where_spark_hands_them_over_and_nowhere_else() -> None:
    assert not is_pushdown()
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "any"}
    reader = OttlaDataSource(options).reader(COLUMNS)
    assert type(reader) is OttlaReader, "Spark refuses any other while filters are switched off"


def test_rows_are_the_same_with_and_without(spark: SparkSession, ottla: Ottla) -> None:
    """By Spark itself, in a session that hands filters over: fewer tasks, the same rows."""
    fill(ottla, "filtered-by-spark")

    def read() -> DataFrame:
        given = {"kafka.bootstrap.servers": ottla.bootstrap, "subscribe": "filtered-by-spark"}
        return spark.read.format("ottla").options(**given, includeHeaders="true").load()

    every = rows(read())
    assert len(every) == 300
    cases: list[tuple[str, Callable[[Any], bool], int]] = [
        ("partition IN (0, 2) AND offset BETWEEN 30 AND 34", lambda row: row[1] != 1 and 30 <= row[2] <= 34, 2),
        ("timestamp > timestamp_millis(2605) AND offset < 90", lambda row: row.micros > 2_605_000 and row[2] < 90, 1),
        ("partition = 0 OR offset = 7", lambda row: row[1] == 0 or row[2] == 7, 3),
    ]
    spark.conf.set(PUSHING, "true")
    try:
        for condition, wanted, tasks in cases:
            found = read().where(condition)
            expected = [row for row in every if wanted(row)]
            assert rows(found) == expected != [], condition
            assert found.rdd.getNumPartitions() == tasks, condition
    finally:
        spark.conf.unset(PUSHING)
