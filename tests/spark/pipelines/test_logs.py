"""`logs`: lines are shipped once whatever happens to their files, and its table is whole at every moment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from spark.launching import OTTLA, Launched, finished
from spark.topics import Topics, eventually

from ottla.client.failure import Failed
from ottla.spark.pipeline import Run
from ottla.spark.pipelines import logs
from ottla.spark.pipelines.archive import Layout, ParquetArchive, archive, exchange
from ottla.spark.pipelines.shipping import CHUNK, Files, Place, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


# --- files -----------------------------------------------------------------------------------------------------------


def test_whole_lines() -> None:
    assert lines(b"") == ([], 0)
    assert lines(b"half") == ([], 0)
    assert lines(b"one\ntwo\r\n\nhalf") == (["one", "two", ""], 10)
    assert lines(b"\xff\n") == (["\ufffd"], 2)


class Shipped:
    """Files read as the shipper does; what is known survives, the reader does not."""

    def __init__(self, *patterns: str) -> None:
        self.patterns = list(patterns)
        self.known: dict[int, Place] = {}
        self.lines: list[str] = []

    def round(self) -> list[str]:
        files = Files(self.patterns, self.known)
        before = len(self.lines)
        for place, found in list(files.new()):
            self.lines += found
            files.sent(place)
        return self.lines[before:]


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(f"{tmp_path}/*.log")
    assert shipped.round() == []
    path.write_text("one\ntw")
    assert shipped.round() == ["one"]
    assert shipped.round() == []
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert shipped.round() == ["two", "three"]


def test_a_file_that_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(f"{tmp_path}/*.log")
    path.write_text("one\n")
    shipped.round()
    with path.open("a") as file:
        file.write("two\n")
    path.rename(tmp_path / "app.log.1")
    path.write_text("three\n")
    assert shipped.round() == ["two", "three"], "the rest of the old one first"
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    assert shipped.round() == []


def test_a_file_that_is_truncated_or_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    shipped = Shipped(str(path))
    path.write_text("one\ntwo\n")
    shipped.round()
    path.write_text("three\n")
    assert shipped.round() == ["three"], "shorter than it was"
    inode = path.stat().st_ino
    path.write_text("another first line\n")
    assert path.stat().st_ino == inode
    assert shipped.round() == ["another first line"], "the same inode, another file"


def test_a_line_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(b"x" * (CHUNK + 1))
    with pytest.raises(Failed, match=r"a line in .*app.log is longer than 1048576 bytes: leave this file out of ship"):
        Shipped(f"{tmp_path}/*.log").round()


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_shipped_twice_or_not_at_all(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path, written = tmp_path / "app.log", list[str]()
    shipped = Shipped(f"{tmp_path}/*.log", f"{tmp_path}/*.log.*")
    for step in range(60):
        deed = random.random()
        if deed < 0.5:
            with path.open("a") as file:
                for number in range(random.randint(1, 5)):
                    written.append(f"{step}.{number}")
                    file.write(f"{step}.{number}\n")
        elif deed < 0.65 and path.exists():
            path.rename(tmp_path / f"app.log.{step}")
        else:
            shipped.round()
    shipped.round()
    assert sorted(shipped.lines) == sorted(written)


# --- tables ----------------------------------------------------------------------------------------------------------


def put(table: Path, batch: int, folders: dict[str, list[int]]) -> None:
    for folder, numbers in folders.items():
        (table / folder).mkdir(parents=True, exist_ok=True)
        draft = table / folder / "_draft"
        pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), draft)
        draft.rename(table / folder / f"batch-{batch:010}.parquet")


def numbers(table: Path) -> list[int]:
    return sorted(ds.dataset(table, partitioning="hive").to_table()["number"].to_pylist())


def test_small_files_are_put_together(tmp_path: Path) -> None:
    table = ParquetArchive(tmp_path, Layout(("day", "host"), (), 3, 10_000))
    for batch in range(5):
        put(tmp_path, batch, {"day=1/host=a": [batch]} | ({"day=1/host=b": [100 + batch]} if batch < 2 else {}))
    before = numbers(tmp_path)
    assert table.compact(before=4) == 4
    assert sorted(path.name for path in (tmp_path / "day=1/host=a").iterdir()) == [
        "batch-0000000003-all.parquet",
        "batch-0000000004.parquet",
    ], "batch 4 may come again"
    assert numbers(tmp_path) == before
    assert table.compact() == 0, "two are not many"
    put(tmp_path, 5, {"day=1/host=a": [5]})
    assert table.compact() == 3
    assert numbers(tmp_path) == sorted([*before, 5])
    assert pq.read_table(tmp_path / "day=1/host=a/batch-0000000005-all.parquet", partitioning=None)[
        "number"
    ].to_pylist() == [0, 1, 2, 3, 4, 5], "in the order of the batches"


def test_large_files_are_left_alone(tmp_path: Path) -> None:
    table = ParquetArchive(tmp_path, Layout(("day",), (), 2, 400))
    for batch in range(4):
        put(tmp_path, batch, {"day=1": [batch]})
    assert table.compact() == 0


def test_folders_change_places(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "nowhere")


KILLED = """
import sys
from pathlib import Path
from ottla.spark.pipelines.archive import Layout, ParquetArchive
table = ParquetArchive(Path(sys.argv[1]), Layout(("day",), (), 2, 1 << 20))
print("ready", flush=True)
while table.compact():
    pass
"""


def test_readers_see_every_row_once_while_files_are_put_together_and_that_is_killed(tmp_path: Path) -> None:
    random, expected = Random(1), list[int]()
    wrong: list[str] = []
    reads = 0
    ended = threading.Event()
    lock = threading.Lock()

    def look() -> None:
        """The table has what it had before, or what it has now: in any case every number once."""
        nonlocal reads
        while not ended.is_set():
            with lock:
                least = len(expected)
            try:
                found = numbers(tmp_path)
            except FileNotFoundError:  # a list of files from before the exchange
                continue
            reads += 1
            if len(set(found)) != len(found) or len(found) < least:
                wrong.append(f"{len(found)} rows, {len(set(found))} different ones, {least} expected")

    reader = threading.Thread(target=look)
    for batch in range(25):
        own = list(range(batch * 10, batch * 10 + 10))
        put(tmp_path, batch, {f"day={batch % 2}": own})
        with lock:
            expected += own
        if batch == 0:
            reader.start()
        if batch % 5 == 4:
            process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(random.random() * 0.05)
            except subprocess.TimeoutExpired:
                process.kill()
            process.wait()
            process.stdout.close()
            assert numbers(tmp_path) == expected
    ParquetArchive(tmp_path, Layout(("day",), (), 2, 1 << 20)).compact()
    eventually(lambda: reads > 20)
    ended.set()
    reader.join()
    assert wrong == []
    assert numbers(tmp_path) == expected
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


# --- the pipeline ----------------------------------------------------------------------------------------------------


def made_up(count: int, topic: str, bootstrap: str = "nowhere", folder: Path = Path()) -> tuple[Run, list[Any]]:
    options = {"topic": topic, "start": "2026-01-31T20:00:00", "hosts": "2"}
    run = Run(pipeline=logs.PIPELINE, bootstrap=bootstrap, folder=folder, options=options, seed=7, count=count)
    return run, list(islice(logs.records(run, datetime.now(UTC)), count))


def by_pandas(texts: list[str]) -> pd.DataFrame:
    """The table, computed from the values of the records in another way."""
    frame = pd.DataFrame([json.loads(text) for text in texts])
    iso = frame["line"].str.extract(r"^(?P<at>\S+Z) (?P<message>(?:\w+) .*)$")
    web = frame["line"].str.extract(r"\[(.*?)\]")[0]
    frame["at"] = pd.to_datetime(iso["at"], utc=True).fillna(
        pd.to_datetime(web, format="%d/%b/%Y:%H:%M:%S %z", utc=True)
    )
    frame["message"] = iso["message"].fillna(frame["line"])
    level = frame["line"].map(
        lambda line: next((word for word in re.findall(r"[A-Z]+", line) if word in logs.LEVELS), None)
    )
    return frame.assign(level=level, day=frame["at"].dt.strftime("%Y-%m-%d"))[
        ["day", "host", "at", "level", "message", "file"]
    ]


def compared(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Equal as a set of rows; a line that tells no time has that of its record, which nobody knows before."""
    columns = ["host", "file", "message", "level", "day", "at"]
    assert not found.duplicated(["partition", "offset"]).any()
    found, expected = found[columns].copy(), expected[columns].copy()
    for frame in (found, expected):
        frame["at"] = pd.to_datetime(frame["at"], utc=True).dt.as_unit("us")
        frame["day"] = frame["day"].astype(str)
        frame["host"] = frame["host"].astype(str)
        frame["level"] = frame["level"].where(frame["level"].notna(), "")
        timeless = frame["message"].isin(["  at shop.Cart.add(Cart.java:42)", "Caused by: timeout"])
        frame.loc[timeless, ["at", "day"]] = [pd.Timestamp(0, tz="UTC"), ""]
        frame.sort_values(columns, inplace=True, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_killed_and_resumed_it_has_every_line_once(ottla: Ottla, tmp_path: Path, fresh: Callable[[str], str]) -> None:
    topic, folder = fresh("logs"), tmp_path / "run"
    generating, made = made_up(2000, topic, ottla.bootstrap, folder)
    logs.generate(generating)
    words = ["--option", f"topic={topic}", "--option", "rows=400", "--option", "compact=3"]
    command = [*OTTLA, "pipeline", "run", "logs", *words]
    with Launched([*command, "--every", "0"], folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("logs", 800)
        running.kill()
    finished([*command, "--once"], folder=folder, bootstrap=ottla.bootstrap)
    table = folder / "tables" / "logs"
    found = pd.read_parquet(table)
    compared(found, by_pandas([record.value for record in made]))
    for _, own in found.groupby(["day", "host"], observed=True):
        assert own["offset"].is_monotonic_increasing, "lines are in the order in which they came"
    folders = [path for path in table.glob("*/*") if path.name.startswith("host=")]
    assert {path.name for path in folders} == {"host=web-1", "host=web-2"}
    assert {path.parent.name for path in folders} >= {"day=2026-01-31", "day=2026-02-01"}
    assert max(len(list(path.iterdir())) for path in folders) < 3, "small files are put together"


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_files_are_shipped_and_stored(
    ottla: Ottla, spark: SparkSession, tmp_path: Path, fresh: Callable[[str], str], format: str
) -> None:
    topic = fresh("shipped")
    _, made = made_up(300, topic)
    whole = [json.loads(record.value) for record in made]

    def once(machine: str) -> None:
        options = {
            "topic": topic,
            "ship": f"{tmp_path}/{machine}/*.log",
            "host": machine,
            "format": format,
            "compact": "2",
        }
        run = Run(
            pipeline=logs.PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path / "run", options=options, once=True
        )
        run.session = spark
        logs.run(run)

    def write(rows: list[dict[str, str]]) -> None:
        for row in rows:
            path = tmp_path / row["host"] / Path(row["file"]).name
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as file:
                file.write(row["line"] + "\n")

    write(whole[:100])
    once("web-1")
    write(whole[100:200])
    (tmp_path / "web-1" / "app.log").rename(tmp_path / "web-1" / "app.log.1")
    write(whole[200:])
    for machine in ("web-1", "web-2"):
        once(machine)
    table = tmp_path / "run" / "tables" / "logs"
    found = read(table, format)
    found["file"] = "/var/log/" + found["file"].str.extract(r"([a-z]+\.log)")[0]
    compared(found, by_pandas([record.value for record in made]))


def read(table: Path, format: str) -> pd.DataFrame:
    if format == "parquet":
        return pd.read_parquet(table)
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pandas()


SHIPPING = """
import sys
from pathlib import Path
from ottla.spark.pipeline import Run
from ottla.spark.pipelines import logs, shipping
shipping.CHUNK = 10_000
bootstrap, topic, path, folder = sys.argv[1:]
run = Run(pipeline=logs.PIPELINE, bootstrap=bootstrap, folder=Path(folder), once=True)
shipper = shipping.Shipper(run, topic, path, "here")
while lines := shipper.round():
    print(lines, flush=True)
"""


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_batch_that_comes_again_is_not_added_again(spark: SparkSession, tmp_path: Path, format: str) -> None:
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "some-query")  # as it is in a batch
    try:
        for rows, batch in (([1, 2], 0), ([3, 4], 1), ([3, 4], 1), ([5], 2)):
            table = archive(tmp_path, format, Layout(("day",), ("number",), 2, 1 << 20))
            table.add(spark.createDataFrame([("1", number) for number in rows], "day string, number long"), batch)
            table.compact(before=batch)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert sorted(read(tmp_path, format)["number"]) == [1, 2, 3, 4, 5]


def test_a_shipper_that_is_killed_has_sent_nothing_twice(
    ottla: Ottla, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("killed"), 2)
    path = tmp_path / "app.log"
    path.write_text("".join(f"line {number}\n" for number in range(20_000)))
    command = [sys.executable, "-c", SHIPPING, ottla.bootstrap, topic, str(path), str(tmp_path)]
    for rounds in (1, 3, 2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rounds):
                assert int(process.stdout.readline()) > 0
            process.kill()
    last = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert 0 < sum(map(int, last)) < 20_000, "some were sent before"
    assert sorted(shipped_lines(topics, topic)) == sorted(f"line {number}" for number in range(20_000))


def shipped_lines(topics: Topics, topic: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    found, ended = list[str](), 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(json.loads(message.value())["line"])
    consumer.close()
    return found


def test_lines_that_somebody_else_sent(ottla: Ottla, spark: SparkSession, fresh: Callable[[str], str]) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("other"))
    values = [
        "plain text",
        "2026-01-31 12:00:00,250 WARNING careful",
        "2026-13-41T99:00:00Z INFO no such time",
        '{"level": "ERROR", "at": "now"}',
        '{"host": "", "file": null, "line": "2026-01-31T12:00:00+02:00 x"}',
        "",
    ]
    for value in values:
        topics.producer.produce(topic, value, key="db-1", timestamp=1_767_225_600_000)
    topics.producer.produce(topic, None, key="db-1")
    assert topics.producer.flush(30) == 0
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", ottla.bootstrap).option("subscribe", topic)
    found = (
        logs.parsed(reader.load())
        .orderBy("offset")
        .selectExpr("host", "day", "date_format(at, 'HH:mm:ss.SSS') as at", "level", "message", "file")
    )
    midnight = ("db-1", "2026-01-01", "00:00:00.000")
    assert [tuple(row) for row in found.collect()] == [
        (*midnight, None, "plain text", None),
        ("db-1", "2026-01-31", "12:00:00.250", "WARNING", "WARNING careful", None),
        (*midnight, "INFO", "INFO no such time", None),
        (*midnight, "ERROR", '{"level": "ERROR", "at": "now"}', None),
        ("unknown", "2026-01-31", "10:00:00.000", None, "x", None),
        (*midnight, None, "", None),
    ]
