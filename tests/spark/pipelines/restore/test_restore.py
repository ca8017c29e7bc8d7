"""`restore`: the state of a compacted topic at any moment, against pandas on the same records."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from spark import filling
from spark.launching import OTTLA, Launched, finished
from spark.topics import Topics

from ottla.client.failure import Failed
from ottla.spark.pipelines.restore import pipeline as restore
from ottla.spark.pipelines.restore.pipeline import PartitionSpan, RestorePoint, moment
from ottla.spark.runner import Run, UsageError, state
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


START_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
COUNT = 2000


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("", RestorePoint()),
        ("now", RestorePoint()),
        ("1200", RestorePoint(offset=1200)),
        ("0", RestorePoint(offset=0)),
        ("1769860800000", RestorePoint(time_ms=START_MS)),
        ("2026-01-31T12:00:00Z", RestorePoint(time_ms=START_MS)),
        ("2026-01-31T12:00:00", RestorePoint(time_ms=START_MS)),
        ("2026-01-31 13:00:00.5+01:00", RestorePoint(time_ms=START_MS + 500)),
        ("2026-01-31", RestorePoint(time_ms=START_MS - 43_200_000)),
        ('{"0": 5, "1": 7}', RestorePoint(offsets={0: 5, 1: 7})),
    ],
)
def test_moments(text: str, when: RestorePoint) -> None:
    assert moment(text) == when


@pytest.mark.parametrize("text", ["yesterday", "-5", "{", '{"a": 1}', '{"0": null}', "2026-99-01"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(
        UsageError, match="expected a time such as 2026-01-31T12:00:00Z, milliseconds, an offset, or offsets"
    ):
        moment(text)


class Accounts:
    """Generated records in a topic with two partitions, a second apart, and the result computed with pandas."""

    def __init__(self, broker: Ottla, topic: str) -> None:
        self.broker, self.topic = broker, topic
        run = Run(
            pipeline=restore.PIPELINE, bootstrap=broker.bootstrap, folder=Path(), options={"topic": topic}, seed=3
        )
        run.ensure_topic(topic, 2, cleanup_policy="compact", min_compaction_lag_ms="3600000")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number, record in enumerate(islice(restore.records(run), COUNT)):
            producer.produce(topic, record.value, record.key, timestamp=START_MS + number * 1000)
        assert producer.flush(30) == 0
        self.frame = self._read()

    def _read(self) -> pd.DataFrame:
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "test", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(2)])
        rows: list[dict[str, Any]] = []
        ended = 0
        while ended < 2:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                ended += 1
                continue
            value = message.value()
            rows.append(
                {
                    "key": message.key().decode(),
                    "value": value and value.decode(),
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "ms": message.timestamp()[1],
                }
            )
        consumer.close()
        return pd.DataFrame(rows)

    def state(self, kept: pd.Series) -> pd.DataFrame:
        chosen = self.frame[kept].sort_values(["partition", "offset"]).groupby("key", as_index=False).last()
        newest = self.frame[kept].sort_values("offset").drop_duplicates("key", keep="last")
        assert len(newest) == len(chosen)
        return newest[newest["value"].notna()].sort_values("key", ignore_index=True)

    def restored(self, spark: SparkSession, folder: Path, **options: str) -> pd.DataFrame:
        run = Run(
            pipeline=restore.PIPELINE,
            bootstrap=self.broker.bootstrap,
            folder=folder,
            options={"topic": self.topic, **options},
            once=True,
            session=spark,
        )
        restore.run(run)
        return read(folder / "tables" / self.topic, options.get("format", "parquet"))


def read(path: Path, format: str) -> pd.DataFrame:
    if format == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(path)).to_pandas()
    else:
        found = pd.read_parquet(path)
    found["ms"] = pd.to_datetime(found.pop("timestamp"), utc=True).astype("datetime64[ms, UTC]").astype("int64")
    return found.sort_values("key", ignore_index=True)


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected[list(found.columns)], check_dtype=False)


@pytest.fixture(scope="module")
def accounts(ottla: Ottla) -> Accounts:
    return Accounts(ottla, "accounts")


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_now_and_then(accounts: Accounts, spark: SparkSession, tmp_path: Path, format: str) -> None:
    frame = accounts.frame
    whole = accounts.state(frame["offset"] >= 0)
    assert 0 < len(whole) < frame["key"].nunique(), "some accounts are closed"
    same(accounts.restored(spark, tmp_path, format=format), whole)
    early = accounts.state(frame["offset"] < 100)
    same(accounts.restored(spark, tmp_path, format=format, at="100"), early)
    assert not early.equals(whole)


def test_at_a_time(accounts: Accounts, spark: SparkSession, tmp_path: Path) -> None:
    ms = START_MS + 777_000
    expected = accounts.state(accounts.frame["ms"] <= ms)
    same(accounts.restored(spark, tmp_path, at=str(ms)), expected)
    at = datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    same(accounts.restored(spark, tmp_path, at=at), expected)
    assert accounts.restored(spark, tmp_path, at=str(START_MS - 1)).empty
    same(accounts.restored(spark, tmp_path, at=str(START_MS * 2)), accounts.state(accounts.frame["ms"] > 0))


def test_at_offsets(accounts: Accounts, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame = accounts.frame
    kept = ((frame["partition"] == 0) & (frame["offset"] < 300)) | ((frame["partition"] == 1) & (frame["offset"] < 20))
    same(accounts.restored(spark, tmp_path, at='{"0": 300, "1": 20}', show="3"), accounts.state(kept))
    told = capfd.readouterr()
    assert f"{len(accounts.state(kept))} keys of accounts in {tmp_path}" in told.err
    assert f", restored from {sum(kept)} records\n" in told.err
    assert "more keys" not in told.err, "nothing was compacted"
    assert "only showing top 3 rows" in told.out
    with pytest.raises(UsageError, match="at names partition 2, but accounts has 0 to 1"):
        accounts.restored(spark, tmp_path, at='{"2": 1}')


def test_a_past_that_is_gone_is_one_sentence(ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make("past-", 1, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    for number in range(10):
        topics.producer.produce(topic, str(number), key=f"k{number}", timestamp=START_MS + number)
    assert topics.producer.flush(30) == 0
    topics.cut(topic, 0, 5)

    def restored(**options: str) -> list[str]:
        run = Run(
            pipeline=restore.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options={"topic": topic, **options},
            once=True, session=spark,
        )  # fmt: skip
        restore.run(run)
        return list(read(tmp_path / "tables" / topic, "parquet")["value"])

    assert restored() == ["5", "6", "7", "8", "9"]
    for at in ("3", str(START_MS + 3)):
        with pytest.raises(Failed, match=f"{topic} partition 0 starts at offset 5 now, after the requested moment"):
            restored(at=at)
    assert restored(at=str(START_MS + 6)) == ["5", "6"]
    with pytest.raises(Failed, match=r"topic nowhere does not exist at .*: create it, or correct the name"):
        restored(topic="nowhere")


def test_the_past_of_a_partition_that_retention_has_emptied(ottla: Ottla, tmp_path: Path) -> None:
    """It has no records, so at every time its state is empty, and nothing is missing."""
    topics = Topics(ottla.bootstrap)
    topic = topics.make("emptied-", 2, {"retention.ms": "-1"})
    for number in range(10):
        topics.producer.produce(topic, str(number), key="k", partition=number % 2, timestamp=START_MS + number)
    assert topics.producer.flush(30) == 0
    topics.cut(topic, 0, 5)
    run = Run(pipeline=restore.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options={"topic": topic})
    late = restore.bounds(run, RestorePoint(time_ms=START_MS + 60_000))
    assert late == {0: PartitionSpan(5, 5, 5), 1: PartitionSpan(0, 5, 5)}
    topics.cut(topic, 1, 4)
    assert restore.bounds(run, RestorePoint(time_ms=START_MS + 60_000)) == {
        0: PartitionSpan(5, 5, 5),
        1: PartitionSpan(4, 5, 5),
    }
    with pytest.raises(Failed, match="partition 1 starts at offset 4 now, after the requested moment"):
        restore.bounds(run, RestorePoint(time_ms=START_MS + 5))


def table(path: Path, value: str) -> Path:
    """A table as Spark writes it."""
    path.mkdir(parents=True)
    for name in ("part-00000-1.snappy.parquet", ".part-00000-1.snappy.parquet.crc", "_SUCCESS", "._SUCCESS.crc"):
        (path / name).write_text(value)
    return path


@pytest.mark.parametrize("other", ["orders/", "notes.txt", "day=2026-01-31/", "_ottla/", "rows.parquet"])
def test_a_folder_that_is_not_all_table_is_not_replaced(tmp_path: Path, other: str) -> None:
    place = table(tmp_path / "tables", "old")
    restore.check_replaceable(Location.parse(place))
    restore.check_replaceable(Location.parse(tmp_path / "nowhere"))
    (place / "_delta_log").mkdir()
    restore.check_replaceable(Location.parse(place))
    (place / other).mkdir() if other.endswith("/") else (place / other).touch()
    name = other.rstrip("/")
    with pytest.raises(
        Failed, match=f"tables has {name} in it, which is not part of a table and would be removed: choose"
    ):
        restore.check_replaceable(Location.parse(place))
    run = Run(
        pipeline=restore.PIPELINE, bootstrap="nowhere:1", folder=tmp_path, options={"topic": "t", "path": str(place)}
    )
    with pytest.raises(Failed, match="choose another path"):
        restore.run(run)
    assert (place / other).exists()
    with pytest.raises(Failed, match="is not a folder: choose another path"):
        restore.check_replaceable(Location.parse(place / "_SUCCESS"))


def test_two_runs_to_one_path_do_not_mix_and_what_a_killed_one_left_goes(tmp_path: Path) -> None:
    place = tmp_path / "tables" / "accounts"
    with restore.beside(place) as first, restore.beside(place) as second:
        table(first, "first")
        table(second, "second")
        restore.replace(first, place)
        restore.replace(second, place)
        assert {path.read_text() for path in place.iterdir()} == {"second"}
        assert {path.read_text() for path in second.iterdir()} == {"first"}, "it goes when this ends"
    assert list(place.parent.iterdir()) == [place]
    left = place.parent / "_ottla-accounts-0123"
    table(left / "table", "half")
    (left / "lock").touch()
    with restore.beside(place):
        assert not left.exists()
    assert {path.read_text() for path in place.iterdir()} == {"second"}


def test_what_compaction_may_have_removed_is_counted(
    ottla: Ottla, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    filling.compacted(ottla, "restored-holes")
    left = filling.offsets(ottla, "restored-holes")
    run = Run(
        pipeline=restore.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, once=True, session=spark,
        options={"topic": "restored-holes", "at": str(sorted(left)[1])},
    )  # fmt: skip
    restore.run(run)
    told = capfd.readouterr().err
    assert "more keys were written later and may have had a value then, which compaction has removed since" in told


def test_killed_and_started_again(accounts: Accounts, ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    """The table is the old one or the new one, whenever the run is killed; then the new one."""
    folder = tmp_path / "my run: ü 100%"  # a URL of it would be escaped
    command = [*OTTLA, "pipeline", "run", "restore", "--once", "--option", "topic=accounts"]
    table = folder / "tables" / "accounts"
    early = accounts.state(accounts.frame["offset"] < 100)
    same(accounts.restored(spark, folder, at="100"), early)
    with Launched(command, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until(lambda now: now.state == state.RUNNING, "the start")
        os.killpg(running.process.pid, signal.SIGKILL)
    now = accounts.state(accounts.frame["offset"] >= 0)
    assert len(read(table, "parquet")) in (len(early), len(now))
    told = finished(command, folder=folder, bootstrap=ottla.bootstrap)
    assert f"{len(now)} keys of accounts in {table}, restored from {COUNT:,} records\n" in told
    assert f"restore done: {COUNT:,} rows read in this run\n" in told
    same(read(table, "parquet"), now)


def test_a_key_in_two_partitions_has_its_latest_value(
    ottla: Ottla, spark: SparkSession, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("moved"), 2)
    for value, partition, second in (("a", 0, 1), ("b", 0, 2), ("c", 1, 3), ("old", 1, 0)):
        key = "late" if value == "old" else "k"
        topics.producer.produce(topic, value, key=key, partition=partition, timestamp=START_MS + second)
    topics.producer.produce(topic, None, key="late", partition=0, timestamp=START_MS + 5)
    topics.producer.produce(topic, "no key", partition=0)
    assert topics.producer.flush(30) == 0
    run = Run(
        pipeline=restore.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options={"topic": topic}, once=True,
        session=spark,
    )  # fmt: skip
    restore.run(run)
    assert list(read(tmp_path / "tables" / topic, "parquet")["value"]) == ["c"]
