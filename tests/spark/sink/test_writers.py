"""Writing to topics with Spark: batches and streams, at least once and exactly once, and what is refused."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.functions import expr
from spark.copies import content
from spark.topics import Topics, numbers

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.offsets import latest
from ottla.client.transaction import ongoing
from ottla.records import batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import judge
    from process import Ottla
    from pyspark.sql import DataFrame, SparkSession

    Broker = Ottla | judge.Kafka

WAIT_S: Final = 120
_numbers = itertools.count()


@pytest.fixture
def topics(ottla: Ottla) -> Topics:
    return Topics(ottla.bootstrap)


@pytest.fixture(autouse=True)
def nothing_is_left_open(ottla: Ottla) -> Iterator[None]:
    yield
    with Cluster(ottla.bootstrap) as cluster:
        assert ongoing(cluster, "ottla-sink/") == [], "a write that failed has swept up, too"


def save(frame: DataFrame, broker: Broker, topic: str | None, options: Mapping[str, str] | None = None) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, **({"topic": topic} if topic else {}), **(options or {})}
    frame.write.format("ottla").options(**given).mode("append").save()


def values(broker: Broker, topic: str) -> list[str]:
    return sorted((value or b"").decode() for some in content(broker, topic).values() for _, _, value, _ in some)


def rows(spark: SparkSession, count: int, tasks: int = 3) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id % 7 as string) AS key", "cast(id as string) AS value")


EXACTLY: Final = {"exactly.once": "true"}


@pytest.mark.parametrize("cluster", ["ottla", "kafka"])
@pytest.mark.parametrize("options", [{}, EXACTLY], ids=["least", "exactly"])
def test_a_batch(spark: SparkSession, request: pytest.FixtureRequest, cluster: str, options: dict[str, str]) -> None:
    broker = request.getfixturevalue(cluster)
    topic = Topics(broker.bootstrap).make("batch-", 3)
    everything = rows(spark, 1000).selectExpr(
        "key",
        "value",
        "timestamp_millis(1700000000000 + cast(value as int)) AS timestamp",
        "cast(cast(value as int) % 3 as int) AS partition",
        "array(struct('n' AS key, cast(value as binary) AS value)) AS headers",
    )
    save(everything, broker, topic, options)
    found = content(broker, topic)
    for index, some in found.items():
        for moment, key, value, headers in some:
            number = int(value or b"")
            assert (number % 3, number % 7) == (index, int(key or b""))
            assert (moment, headers) == (1_700_000_000_000 + number, (("n", value),))
    assert sorted(int(value or b"") for some in found.values() for _, _, value, _ in some) == list(range(1000))


def test_the_same_write_again_is_done_already(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    topic = topics.make("again-")
    options = {**EXACTLY, "ottla.write.id": topic}
    for tasks in (3, 2, 5):
        save(rows(spark, 100, tasks), ottla, topic, options)
    assert len(values(ottla, topic)) == 100
    save(rows(spark, 100), ottla, topic, EXACTLY)
    assert len(values(ottla, topic)) == 200, "another write, without the id"


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    topic = topics.make("failing-")
    broken = rows(spark, 100).selectExpr("value", "if(value = '99', null, key) AS topic")
    with pytest.raises(PySparkException, match="a row has no topic: its column topic is null; fill it, or set option"):
        save(broken.selectExpr("value", f"if(topic is null, null, '{topic}') AS topic"), ottla, None, EXACTLY)
    assert values(ottla, topic) == []
    save(rows(spark, 100), ottla, topic, EXACTLY)
    assert len(values(ottla, topic)) == 100


def test_a_stream_copies_exactly_once(spark: SparkSession, ottla: Ottla, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make("source-", 2), topics.make("target-", 2)
    copy = copier(spark, ottla, "ottla", source, target, tmp_path)
    for start in (0, 150):
        topics.fill(source, numbers(start, start + 150))
        copy.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        assert values(ottla, target) == sorted(numbers(0, start + 150))


@pytest.mark.parametrize("theirs", [True, False], ids=["Spark's", "ours"])
def test_a_driver_that_stops_between_the_sink_and_its_checkpoint(
    spark: SparkSession, ottla: Ottla, topics: Topics, tmp_path: Path, theirs: bool
) -> None:
    """Spark repeats the batch: its own connector writes every row twice, ours knows that it is done."""
    source, target = topics.make("source-", 2), topics.make("target-", 2)
    copy = copier(spark, ottla, "kafka" if theirs else "ottla", source, target, tmp_path)
    commit = tmp_path / "checkpoint" / "commits" / "1"
    topics.fill(source, ["first"])
    query = copy.start()
    query.processAllAvailable()
    commit.mkdir()  # what Spark wants to write when the sink is done is in the way, and the query stops right there
    topics.fill(source, numbers(0, 100))
    with pytest.raises(StreamingQueryException, match="oncurrent update to the log"):
        query.awaitTermination(WAIT_S)
    written = [value for value in values(ottla, target) if value != "first"]
    assert written, "the batch is in the topic, and Spark does not know"
    commit.rmdir()
    query = copy.start()
    query.processAllAvailable()
    topics.fill(source, numbers(100, 110))
    query.processAllAvailable()
    query.stop()
    assert values(ottla, target) == sorted(["first", *numbers(0, 110), *(written if theirs else [])])


def copier(
    spark: SparkSession, broker: Broker, kind: str, source: str, target: str, folder: Path
) -> Any:  # a DataStreamWriter, whose module Spark's stubs do not export
    there = {"kafka.bootstrap.servers": broker.bootstrap}
    stream = spark.readStream.format(kind).options(**there, subscribe=source, startingOffsets="earliest").load()
    sink = {**there, "topic": target, **(EXACTLY if kind == "ottla" else {})}
    writer = stream.selectExpr("key", "value").writeStream.format(kind).options(**sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def test_each_batch_by_its_number(spark: SparkSession, ottla: Ottla, topics: Topics, tmp_path: Path) -> None:
    """foreachBatch may call again with the same batch; the write's id and epoch say so."""
    source, target = topics.make("source-", 2), topics.make("target-", 2)
    topics.fill(source, numbers(0, 60))

    def twice(frame: DataFrame, number: int) -> None:
        for _ in range(2):
            options = {**EXACTLY, "ottla.write.id": target, "ottla.write.epoch": str(number)}
            save(frame.selectExpr("value"), ottla, target, options)

    there = {"kafka.bootstrap.servers": ottla.bootstrap, "maxOffsetsPerTrigger": "20"}
    stream = spark.readStream.format("ottla").options(**there, subscribe=source, startingOffsets="earliest").load()
    query = (
        stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    )
    query.start().awaitTermination(WAIT_S)
    assert values(ottla, target) == sorted(numbers(0, 60))


def test_small_writes_share_their_producers(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    """Brokers remember a producer for a day; a worker keeps its own from task to task."""
    topic = topics.make("small-", 2)
    for _ in range(4):
        save(rows(spark, 40, tasks=4), ottla, topic)
    ids = set()
    with Cluster(ottla.bootstrap) as cluster:
        for index in range(2):
            where = TopicPartition(topic, index)
            for piece in fetch(cluster, where, start=0, stop=latest(cluster, [where])[where]):
                ids |= {batch.header(piece.data, entry.position).producer_id for entry in batch.entries(piece.data)}
    assert len(values(ottla, topic)) == 160
    assert len(ids) <= 6, "16 tasks, in a few workers"


def test_times_without_a_zone_are_those_of_the_session(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    topic = topics.make("times-")
    frame = spark.sql("SELECT 'a' AS value, timestamp_ntz'2026-05-01 12:00:00' AS timestamp")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        save(frame, ottla, topic)
        save(frame.selectExpr("value", "cast(timestamp AS timestamp) AS timestamp"), ottla, topic)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    noon = 1777604400000  # 2026-05-01T03:00:00Z
    assert [moment for moment, _, _, _ in content(ottla, topic)[0]] == [noon, noon]


def test_dead_letters_once(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    topic, dead = topics.make("letters-", 2), topics.make("dead-")
    frame = rows(spark, 30).withColumn("partition", expr("cast(cast(value AS int) % 3 AS int)"))
    options = {**EXACTLY, "ottla.dead.letter": dead, "ottla.write.id": topic}
    for _ in range(2):
        save(frame, ottla, topic, options)
    assert (len(values(ottla, topic)), len(values(ottla, dead))) == (20, 10)
    ((_, key, value, headers), *_) = content(ottla, dead)[0]
    assert int(value or b"") % 3 == 2
    assert key is not None
    assert dict(headers)["ottla.dead.reason"] == f"topic {topic} has partitions 0 to 1 only".encode()


def test_complete_mode_appends(spark: SparkSession, ottla: Ottla, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make("source-"), topics.make("target-")
    topics.fill(source, ["a", "b", "a"])
    there = {"kafka.bootstrap.servers": ottla.bootstrap}
    stream = spark.readStream.format("ottla").options(**there, subscribe=source, startingOffsets="earliest").load()
    counts = stream.groupBy("value").count().selectExpr("concat(cast(value as string), ' ', count) AS value")
    writer = counts.writeStream.format("ottla").options(**there, **EXACTLY, topic=target).outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination(WAIT_S)
    assert values(ottla, target) == ["a 2", "b 1"]
    topics.fill(source, ["b"])
    writer.start().awaitTermination(WAIT_S)
    assert values(ottla, target) == ["a 2", "a 2", "b 1", "b 2"]


WRONG: Final = [
    ("SELECT 1 AS id", {}, "there is no column value, only id"),
    ("SELECT 1.5 AS value", {}, r"column value is decimal\(2,1\), but must be string or binary"),
    ("SELECT 'v' AS value", {"topics": "t"}, "there is no option topics: did you mean topic"),
    ("SELECT 'v' AS value", {"kafka.acks": "2"}, 'option kafka.acks is "2", but should be all or -1 or 1 or 0'),
    ("SELECT 'v' AS value", {"kafka.acks": "1", **EXACTLY}, "exactly.once needs kafka.acks=all"),
    ("SELECT 'v' AS value", {"kafka.partitioner.class": "x"}, "there is no Java here; add a column partition, or set"),
    ("SELECT 'v' AS value", {"kafka.transactional.id": "x"}, "set exactly.once to true"),
    ("SELECT 'v' AS value", {"kafka.value.serializer": "x"}, "write value as string or binary"),
    ("SELECT 'v' AS value", {"ottla.two.phase": "true"}, "set exactly.once to true"),
    ("SELECT 'v' AS value", {"ottla.two.phase": "true", **EXACTLY}, r"transaction\.two\.phase\.commit\.enable to true"),
    ("SELECT 'v' AS value", {"ottla.write.epoch": "1"}, "set ottla.write.id too"),
    (
        "SELECT 'v' AS value",
        {"kafka.transaction.timeout.ms": "2000000", **EXACTLY},
        r"set it lower, or their transaction\.max\.timeout\.ms higher",
    ),
    (
        "SELECT 'v' AS value",
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.delivery.timeout.ms": "100",
            "kafka.request.timeout.ms": "100",
        },
        "nothing answers at 127.0.0.1:1 .*: is a broker running there",
    ),
]


@pytest.mark.parametrize(("query", "options", "sentence"), WRONG)
def test_what_is_refused(
    spark: SparkSession, ottla: Ottla, topics: Topics, query: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        save(spark.sql(query), ottla, topics.make("refused-"), options)


def test_a_topic_is_not_overwritten(spark: SparkSession, ottla: Ottla) -> None:
    writer = rows(spark, 1).write.format("ottla").option("kafka.bootstrap.servers", ottla.bootstrap)
    with pytest.raises(PySparkException, match=r'a topic cannot be overwritten: use mode\("append"\)'):
        writer.option("topic", "t").mode("overwrite").save()


def test_a_topic_that_does_not_exist_is_made_where_the_cluster_makes_topics(spark: SparkSession, ottla: Ottla) -> None:
    topic = f"made{time.time_ns()}"
    save(rows(spark, 10), ottla, topic)
    assert len(values(ottla, topic)) == 10
