"""The pipelines that write tables, on an S3 server: equal to pandas, and every visible file is complete and final.

The bucket is listed all the time, as another engine would: a visible file must be a complete Parquet file, must not
change afterwards, and must be named by a commit if its table has commits.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from s3 import S3
from spark.pipelines.activity.test_activity import framed, in_order, made_up, tables

from ottla.client.failure import Failed
from ottla.spark.pipelines.activity import pipeline as activity
from ottla.spark.pipelines.export import pipeline as export
from ottla.spark.pipelines.logs import pipeline as logs
from ottla.spark.pipelines.restore import pipeline as restore
from ottla.spark.runner import Pipeline, Run
from ottla.spark.storage import delta
from ottla.spark.storage.daily import Daily
from ottla.spark.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

BUCKET = "tables"
TRIES = 5  # Spark gives up when its Python is slow to start, and has no option for that
START_MS = int(time.time() * 1000) - 2 * 86_400_000  # what is older than a week goes by retention


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket(BUCKET)
        yield running


class Watcher(threading.Thread):
    """Lists a folder of the bucket again and again, and reads every file when it is first seen."""

    def __init__(self, s3: S3, folder: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, pa.Table] = {}
        self.uncommitted: list[str] = []
        self.looks = 0
        self._s3, self._folder = s3, folder
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.look()

    def look(self) -> None:
        files = self._s3.filesystem()
        keys = [key for key in self._s3.keys(self._folder) if key.endswith(".parquet") and "/_" not in key]
        commits = self._s3.keys(f"{self._folder}/_ottla/commits")
        named = {name for key in commits for _, name in json.loads(files.open_input_file(key).read())["files"]}
        for key in keys:
            if commits and key.removeprefix(f"{self._folder}/") not in named:
                self.uncommitted.append(key)
            if key not in self.seen:
                self.seen[key] = pq.ParquetFile(files.open_input_file(key)).read()
        self.looks += 1

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def check(self) -> None:
        """No visible file has changed since."""
        self.look()
        assert self.looks > 1
        assert self.seen
        assert self.uncommitted == []
        for key, table in self.seen.items():
            assert pq.ParquetFile(self._s3.filesystem().open_input_file(key)).read().equals(table), key


class Runs:
    def __init__(self, spark: SparkSession, broker: Ottla, s3: S3, folder: Path) -> None:
        self.spark, self.broker, self.s3, self.folder = spark, broker, s3, folder

    def once(self, pipeline: Pipeline, table: str, **options: str) -> None:
        given = {f"storage.{key}": value for key, value in self.s3.settings.items()}
        given |= {key.replace("_", "."): value for key, value in options.items()}
        given["path"] = f"s3://{BUCKET}/{table}"
        folder = self.folder / table.replace("/", "-")
        for _ in range(TRIES):
            run = Run(
                pipeline=pipeline, bootstrap=self.broker.bootstrap, folder=folder, options=given, once=True,
                session=self.spark,
            )  # fmt: skip
            try:
                pipeline.run(run)
                run.wait()
                return
            except Failed as error:
                if "too busy" not in str(error):
                    raise
        raise AssertionError(f"the machine was too busy {TRIES} times")

    @contextmanager
    def watched(self, name: str) -> Iterator[None]:
        watcher = Watcher(self.s3, f"{BUCKET}/{name}")
        watcher.start()
        try:
            yield
        finally:
            watcher.stop()
        watcher.check()

    def read(self, name: str, format: str) -> pd.DataFrame:
        if format == "delta":
            return delta.table_at(self.s3.location(f"{BUCKET}/{name}")).to_pandas()
        return (
            ds.dataset(f"{BUCKET}/{name}", filesystem=self.s3.filesystem(), partitioning="hive").to_table().to_pandas()
        )


@pytest.fixture
def runs(spark: SparkSession, ottla: Ottla, s3: S3, tmp_path: Path) -> Runs:
    return Runs(spark, ottla, s3, tmp_path)


def produce(broker: Ottla, topic: str, rows: list[tuple[str, str | None]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number, (key, value) in enumerate(rows):
        producer.produce(topic, value, key, partition=0, timestamp=START_MS + number * 60_000)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_export_restore_and_logs(runs: Runs, ottla: Ottla, fresh: Callable[[str], str], format: str) -> None:
    topic = fresh("stored")
    rows = [(f"host-{number % 5}:ü", f"line {number}" if number % 7 else None) for number in range(1000)]
    produce(ottla, topic, rows[:600])
    expected = pd.DataFrame(rows, columns=["key", "value"]).assign(offset=range(1000))
    name = f"{format} ü"
    for upto in (600, 1000):
        if upto == 1000:
            produce(ottla, topic, rows[600:])
        with runs.watched(f"{name}/export"):
            runs.once(export.PIPELINE, f"{name}/export", topics=topic, format=format, file_bytes="5000",
                      key="string", value="string", partition="day", name=topic)  # fmt: skip
        same(runs.read(f"{name}/export", format), expected[:upto])
        runs.once(restore.PIPELINE, f"{name}/restore", topic=topic, format=format, show="1")
        same(runs.read(f"{name}/restore", format), expected[:upto].groupby("key").tail(1).dropna())
        with runs.watched(f"{name}/logs"):
            runs.once(logs.PIPELINE, f"{name}/logs", topic=topic, format=format, rows="300", compact="3")
        found = runs.read(f"{name}/logs", format).rename(columns={"host": "key", "message": "value"})
        same(found, expected[:upto].dropna())
    if format == "parquet":
        assert runs.s3.keys(f"{BUCKET}/{name}/restore") == [f"{BUCKET}/{name}/restore/part-00000.parquet"]
    left = [key for key in runs.s3.keys(f"{BUCKET}/{name}") if "/staging/" in key or key.endswith(".part")]
    assert left == [], "nothing staged is left"


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    columns = ["key", "value", "offset"]
    found = found[columns].astype({"key": str}).sort_values("offset", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected[columns].reset_index(drop=True), check_dtype=False)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_activity(runs: Runs, ottla: Ottla, fresh: Callable[[str], str], format: str) -> None:
    topic, events = fresh("visits"), made_up(1, 600, datetime.fromisoformat("2026-01-30T06:00Z"))
    produce(ottla, topic, [("u", json.dumps(event)) for event in events])
    name = f"activity {format}"
    with runs.watched(f"{name}/tables/events"):
        runs.once(activity.PIPELINE, name, part="report", events=topic, format=format, rows="200")
    found = Daily(runs.s3.location(f"{BUCKET}/{name}/tables"), format)
    expected = tables(framed(events))
    for table in ("pages", "hours", "funnel"):
        assert in_order(found.read(table)) == in_order(expected[table])
    pages = runs.s3.keys(f"{BUCKET}/{name}/report")
    days = sorted({event["at"][:10] for event in events})
    assert [page.rpartition("/")[2] for page in pages] == [*(f"{day}.html" for day in days), "index.html"]
    assert not (runs.folder / "tables").exists(), "nothing of it is on the local disk"


def test_two_drivers_and_what_is_refused(runs: Runs, ottla: Ottla, s3: S3, fresh: Callable[[str], str]) -> None:
    """Only one of two drivers gets a commit number; a table with foreign files is not replaced."""
    from ottla.client.cluster import TopicPartition
    from ottla.spark.pipelines.export.exporting import TableShape
    from ottla.spark.pipelines.export.ledger import FolderLedger, TableProgress

    place = s3.location(f"{BUCKET}/two")
    first, second = (FolderLedger(place, TableShape()) for _ in range(2))
    where = TopicPartition("t", 0)
    first.commit([], TableProgress("c", {where: 1}, {"t": "id"}))
    with pytest.raises(Failed, match=r"^another run writes to the table at s3://tables/two: stop one of them"):
        second.commit([], TableProgress("c", {where: 2}, {"t": "id"}))
    first.close()
    second.close()
    assert FolderLedger(place, TableShape()).read_progress({}).offsets == {where: 1}
    Store(place).put("notes.txt", b"mine")
    with pytest.raises(Failed, match=r"^s3://tables/two has notes.txt in it, which is not part of a table"):
        runs.once(restore.PIPELINE, "two", topic=fresh("nothing"))
    for pipeline, option in ((export.PIPELINE, "topics"), (restore.PIPELINE, "topic"), (activity.PIPELINE, "events")):
        options: dict[str, Any] = {option: fresh("unread"), "path": "gopher://host/table"}
        run = Run(pipeline=pipeline, bootstrap=ottla.bootstrap, folder=runs.folder, options=options, once=True)
        with pytest.raises(Failed, match=r"^gopher:// is not a known kind of storage"):
            pipeline.run(run)
