"""Batch reads: the plan, the rows that Spark gets, and the errors that a user reads."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import pytest
from compat.clients import Record
from compat.confluent import Confluent
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from spark import filling
from spark.comparing import OURS, THEIRS, rows, table

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.failure import Failed
from ottla.spark.source import batch
from ottla.spark.source.batch import OttlaReader
from ottla.spark.source.data_source import COLUMNS
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.planning import Range, Split

if TYPE_CHECKING:
    from process import Ottla
    from pyspark.sql import SparkSession

COUNTS: Final = {0: 100, 1: 50, 2: 0}
FIRST: Final = 20  # of partition 0: what was before is gone
TOPIC: Final = "batch"


@pytest.fixture(scope="session")  # as the broker: the tests of a module need not follow each other
def filled(ottla: Ottla) -> Ottla:
    filling.create(ottla, TOPIC, len(COUNTS))
    client = Confluent(ottla.bootstrap)
    for partition, count in COUNTS.items():
        for start in range(0, count, 10):
            records = [Record(filling.NOW_MS + n, b"%d" % n, b"x" * 100) for n in range(start, start + 10)]
            client.produce(TOPIC, records, partition=partition)
    client.trim(TOPIC, FIRST)
    client.close()
    return ottla


def options(broker: Ottla, **given: str) -> SourceOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SourceOptions.load({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC, **named}).for_batch()


def at(*numbers: int) -> str:
    return json.dumps({TOPIC: {str(index): number for index, number in enumerate(numbers)}})


def planned(broker: Ottla, **given: str) -> list[tuple[int, int]]:
    with Cluster(broker.bootstrap) as cluster:
        found = batch.ranges(cluster, options(broker, **given))
    assert [one.where for one in found] == [TopicPartition(TOPIC, index) for index in COUNTS]
    assert all(isinstance(one, Range) and one.topic_id for one in found)
    return [(one.start, one.stop) for one in found]


def test_a_batch_reads_from_the_first_record_to_the_last(filled: Ottla) -> None:
    assert planned(filled) == [(FIRST, 100), (0, 50), (0, 0)]
    assert planned(filled, startingOffsets=at(30, 10, 0), endingOffsets=at(40, -1, 0)) == [(30, 40), (10, 50), (0, 0)]
    assert planned(filled, startingOffsets=at(100, 50, 0)) == [(100, 100), (50, 50), (0, 0)]


@pytest.mark.parametrize(
    ("given", "sentence", "instead"),
    [
        (
            {"startingOffsets": at(5, 10, 0)},
            "batch partition 0 should be read from offset 5, but begins at 20: set other offsets, or failOnDataLoss to "
            "false to read what is there",
            [(FIRST, 100), (10, 50), (0, 0)],
        ),
        (
            {"endingOffsets": at(100, 70, 0)},
            "batch partition 1 should be read up to offset 70, but ends at 50",
            [(FIRST, 100), (0, 50), (0, 0)],
        ),
        (
            {"startingOffsets": at(0, 60, 0), "endingOffsets": at(10, 70, 0)},
            "should be read from offset 0, but begins at 20",
            [(10, 10), (50, 50), (0, 0)],
        ),
    ],
)
def test_what_is_not_there_is_said_or_passed_over(
    filled: Ottla,
    given: dict[str, str],
    sentence: str,
    instead: list[tuple[int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(Failed) as caught:
        planned(filled, **given)
    assert sentence in str(caught.value)
    with caplog.at_level(logging.WARNING, "ottla.spark"):
        assert planned(filled, **given, failOnDataLoss="false") == instead
    assert "reading what is there" in caplog.text


def test_a_start_behind_the_end_is_refused(filled: Ottla) -> None:
    late = {"startingOffsets": at(90, 50, 0), "endingTimestamp": f"{filling.NOW_MS + 30}"}
    with pytest.raises(Failed, match="batch partition 0 would start at offset 90 and end before that, at 30"):
        planned(filled, **late)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, [1, 1]),
        ({"minPartitions": "6"}, [4, 2]),
        ({"maxRecordsPerPartition": "15"}, [6, 4]),
        ({"minPartitions": "5", "maxRecordsPerPartition": "100"}, [3, 2]),
        ({"ottla_split_bytes": "2000"}, [5, 3]),
    ],
)
def test_tasks_are_as_many_as_asked_for(filled: Ottla, given: dict[str, str], parts: list[int]) -> None:
    splits = OttlaReader(options(filled, **given), COLUMNS).partitions()
    assert all(isinstance(split, Split) for split in splits)
    found = [[split for split in splits if isinstance(split, Split) and split.partition == index] for index in COUNTS]
    assert [sum(split.stop - split.start for split in some) for some in found] == [100 - FIRST, 50, 0]
    counts = [len(some) for some in found[:2]]
    assert all(abs(count - part) <= 1 for count, part in zip(counts, parts, strict=True)), counts
    least = int(given.get("minPartitions", 1))
    assert sum(counts) >= least


# On Spark.


def frame(spark: SparkSession, broker: Ottla, form: str = OURS, **given: str) -> Any:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return table(spark, form, broker.bootstrap, {"subscribe": TOPIC, **named})


def test_spark_reads_in_as_many_tasks_and_may_stop_early(spark: SparkSession, filled: Ottla) -> None:
    read = frame(spark, filled, minPartitions="5")
    assert read.rdd.getNumPartitions() >= 5
    assert read.count() == 130
    assert len(read.limit(3).collect()) == 3
    assert [row.offset for row in read.where("partition = 1 AND offset < 3").orderBy("offset").collect()] == [0, 1, 2]
    assert read.selectExpr("sum(length(value))").first()[0] == 13_000


def test_nothing_to_read_is_no_rows(spark: SparkSession, filled: Ottla) -> None:
    assert frame(spark, filled, startingOffsets=at(100, 50, 0)).count() == 0
    nothing = {"kafka.bootstrap.servers": filled.bootstrap, "subscribePattern": "no-such-.*"}
    assert spark.read.format(OURS).options(**nothing).load().count() == 0


def test_both_sources_pass_over_what_is_gone(spark: SparkSession, filled: Ottla) -> None:
    given = {"startingOffsets": at(5, 10, 0), "failOnDataLoss": "false"}
    ours = rows(frame(spark, filled, OURS, **given))
    assert ours == rows(frame(spark, filled, THEIRS, **given))
    assert len(ours) == 80 + 40


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": "latest"}, "a batch that starts at latest would be empty"),
        ({"endingOffsets": "earliest"}, "a batch that ends at earliest would be empty"),
        ({"startingOffsets": at(1, 2, -1)}, "startingOffsets of batch partition 2 is latest (-1)"),
        ({"startingOffsets": at(30)}, "startingOffsets does not name batch partition 1"),
        ({"startingOffsets": at(50, 0, 0), "endingOffsets": at(40, 0, 0)}, "would start at 50 and end before that"),
        ({"startingOffsets": "{}}"}, "should be earliest, latest, or JSON"),
        ({"startingTimestamp": f"{filling.NOW_MS + 70}"}, "has no record at or after timestamp"),
        ({"assign": '{"batch":[0]}'}, "subscribe and assign are both set"),
        ({"minPartitions": "0"}, 'option minPartitions is "0"'),
        ({"kafka.auto.offset.reset": "latest"}, "set startingOffsets to earliest or latest"),
        ({"kafka.key.deserializer": "x"}, "cast or parse the column key"),
        ({"subscribe": "not-there"}, "topic not-there does not exist"),
    ],
)
def test_what_sparks_own_source_refuses_is_refused_with_the_fix(
    spark: SparkSession, filled: Ottla, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        frame(spark, filled, OURS, **given).count()
    last = [line for line in str(caught.value).splitlines() if "Failed: " in line][-1]
    assert sentence in last
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame(spark, filled, THEIRS, fetchOffset_numRetries="1", **given).count()


def test_a_wrong_option_fails_when_it_is_said_not_when_it_is_used(spark: SparkSession, filled: Ottla) -> None:
    with pytest.raises(PySparkException, match="there is no option subscrib: did you mean subscribe"):
        spark.read.format(OURS).option("kafka.bootstrap.servers", filled.bootstrap).option("subscrib", "a").load()


def test_columns_are_fixed(spark: SparkSession, filled: Ottla) -> None:
    given = {"kafka.bootstrap.servers": filled.bootstrap, "subscribe": TOPIC}
    with pytest.raises(PySparkException, match=r"the columns of a topic are fixed: omit .schema\(...\)"):
        spark.read.format(OURS).schema("value string").options(**given).load().count()


def test_a_cluster_that_is_not_there_is_one_sentence(spark: SparkSession) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TOPIC}
    with pytest.raises(PySparkException, match=r"nothing answers at 127\.0\.0\.1:1"):
        spark.read.format(OURS).options(**given).load().count()


def test_what_goes_wrong_in_a_task_reaches_the_user(spark: SparkSession, ottla: Ottla) -> None:
    """The topic is deleted between planning and reading, which only a kept plan can show."""
    filling.create(ottla, "vanishing", 1)
    client = Confluent(ottla.bootstrap)
    client.produce("vanishing", [Record(None, None, b"x")] * 10)
    read = spark.read.format(OURS).option("kafka.bootstrap.servers", ottla.bootstrap).option("subscribe", "vanishing")
    planned_rows = read.load().rdd
    assert planned_rows.getNumPartitions() == 1
    client.delete("vanishing")
    client.close()
    with pytest.raises(Exception, match="vanishing partition 0 at offset 0: the topic was deleted"):
        planned_rows.count()
