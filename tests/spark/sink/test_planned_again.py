"""A batch number that is used again for other input is refused with a reason, so that nothing is lost silently.

A decided epoch writes nothing and Spark continues, so it must have the same input. The last test shows the opposite: a
real repetition counts as done, even if its rows differ.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from spark.copies import content
from spark.topics import Topics, numbers

from ottla.client.cluster import Cluster
from ottla.client.transaction import ongoing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import DataFrame, SparkSession

WAIT_S: Final = 500
EXACTLY: Final = {"exactly.once": "true"}
pytestmark = pytest.mark.timeout(600, func_only=True)
# Spark gives a Python process ten seconds to start, which is little on a machine that has other work.
SLOW: Final = "connect back"
STARTS_MAX: Final = 20


@pytest.fixture
def topics(ottla: Ottla) -> Topics:
    return Topics(ottla.bootstrap)


@pytest.fixture(autouse=True)
def nothing_is_left_open(ottla: Ottla) -> Iterator[None]:
    yield
    with Cluster(ottla.bootstrap) as cluster:
        assert ongoing(cluster, "ottla-sink/") == []


class Copier:
    """A query from one topic to another, run until it has read what there is."""

    def __init__(self, spark: SparkSession, broker: Ottla, source: str, target: str, folder: Path) -> None:
        self.spark, self.broker, self.source, self.target, self.folder = spark, broker, source, target, folder

    def run(self, *, target: str | None = None, value: str = "value", start: str = "earliest", **options: str) -> None:
        there = {"kafka.bootstrap.servers": self.broker.bootstrap}
        stream = self.spark.readStream.format("ottla").options(**there, subscribe=self.source, startingOffsets=start)
        given = {**there, **EXACTLY, **{name.replace("_", "."): one for name, one in options.items()}}
        writer = stream.load().selectExpr("key", f"{value} AS value").writeStream.format("ottla").options(**given)
        writer = writer.option("checkpointLocation", str(self.folder)).option("topic", target or self.target)
        for _ in range(STARTS_MAX):
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(WAIT_S)
                return
            except StreamingQueryException as error:
                if SLOW not in str(error):
                    raise
            finally:
                query.stop()

    def refused(self, **options: Any) -> str:
        with pytest.raises(StreamingQueryException) as refused:
            self.run(**options)
        return str(refused.value)


@pytest.fixture
def copier(spark: SparkSession, ottla: Ottla, topics: Topics, tmp_path: Path) -> Copier:
    source, target = topics.make("source-", 2), topics.make("target-", 2)
    return Copier(spark, ottla, source, target, tmp_path / "checkpoint")


def values(broker: Ottla, topic: str) -> list[str]:
    return sorted((value or b"").decode() for some in content(broker, topic).values() for _, _, value, _ in some)


def test_a_checkpoint_restored_from_a_backup(copier: Copier, ottla: Ottla, topics: Topics) -> None:
    """One batch old: Spark uses the number of the last batch for newer input."""
    backup = copier.folder.with_name("backup")
    topics.fill(copier.source, numbers(0, 100))
    copier.run()
    shutil.copytree(copier.folder, backup)
    topics.fill(copier.source, numbers(100, 200))
    copier.run()
    shutil.rmtree(copier.folder)
    shutil.copytree(backup, copier.folder)
    topics.fill(copier.source, numbers(200, 300))
    told = copier.refused()
    assert "with 100 rows, and now has 200: nothing was written" in told
    assert "continue with the newest checkpoint" in told
    found = re.search(r"startingOffsets is (\{.*?\}\})", told)
    assert found, told
    assert json.loads(found[1]) == {copier.source: {"0": 100, "1": 100}}, "where the last batch ended"
    assert values(ottla, copier.target) == sorted(numbers(0, 200))


def test_a_checkpoint_copied_for_another_topic(copier: Copier, ottla: Ottla, topics: Topics) -> None:
    other = topics.make("other-", 2)
    copy = Copier(copier.spark, ottla, copier.source, other, copier.folder.with_name("copy"))
    topics.fill(copier.source, numbers(0, 50))
    copier.run()
    shutil.copytree(copier.folder, copy.folder)
    topics.fill(copier.source, numbers(50, 100))
    copier.run()
    told = copy.refused()
    assert f"is already in topic {copier.target}, but would now be written to topic {other}" in told
    assert "needs its own checkpoint" in told
    assert (len(values(ottla, copier.target)), values(ottla, other)) == (100, [])


def test_one_id_for_two_topics(spark: SparkSession, ottla: Ottla, topics: Topics) -> None:
    first, second = topics.make("target-"), topics.make("target-")
    save(spark.sql("SELECT 'a' AS value"), ottla, first, "two")
    save(spark.sql("SELECT 'a' AS value"), ottla, first, "two")  # a repetition
    with pytest.raises(PySparkException, match=r"writes to different topics need one ottla\.write\.id each"):
        save(spark.sql("SELECT 'a' AS value"), ottla, second, "two")
    with pytest.raises(PySparkException, match="with 1 rows, and now has 1 others"):
        save(spark.sql("SELECT 'b' AS value"), ottla, first, "two")
    assert (values(ottla, first), values(ottla, second)) == (["a"], [])
    save(spark.sql("SELECT 'b' AS value"), ottla, first, "two", "ottla.kept.batch", "0")
    assert values(ottla, first) == ["a"], "as was asked for"
    topic_column = spark.sql(f"SELECT 'a' AS value, '{first}' AS topic UNION ALL SELECT 'b', '{second}'")
    save(topic_column, ottla, None, "three")
    save(topic_column.repartition(3), ottla, None, "three")  # in other tasks and another order
    assert (values(ottla, first), values(ottla, second)) == (["a", "a"], ["b"])


def save(frame: DataFrame, broker: Ottla, topic: str | None, name: str, *more: str) -> None:
    writer = frame.write.format("ottla").options(**EXACTLY).option("kafka.bootstrap.servers", broker.bootstrap)
    if topic:
        writer = writer.option("topic", topic)
    if more:
        writer = writer.option(*more)
    writer.option("ottla.write.id", name).mode("append").save()


def test_a_true_repetition_is_done_though_its_rows_differ(copier: Copier, ottla: Ottla, topics: Topics) -> None:
    """The batch is in the topic, Spark does not know it, and uuid() differs each time."""
    commit = copier.folder / "commits" / "1"
    topics.fill(copier.source, ["first"])
    copier.run(value="uuid()")
    commit.mkdir()  # in the way of what Spark writes when the sink is done
    topics.fill(copier.source, numbers(0, 40))
    assert "oncurrent update to the log" in copier.refused(value="uuid()")
    written = values(ottla, copier.target)
    assert len(written) == 41
    commit.rmdir()
    copier.run(value="uuid()")
    assert values(ottla, copier.target) == written
