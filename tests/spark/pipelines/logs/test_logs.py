"""`logs`: from files and other producers to a table that has every line once, by day and host."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from spark.launching import OTTLA, Launched, finished
from spark.topics import Topics

from ottla.spark.pipelines.logs import pipeline as logs
from ottla.spark.pipelines.logs.archive import ArchiveLayout, ParquetArchive
from ottla.spark.runner import Run
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


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
    """Equal as a set of rows. A line without a time has that of its record, which cannot be predicted."""
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
    topic, folder = fresh("logs"), tmp_path / "my run: ü 100%"  # a URL of it would be escaped
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


LONG = 'a "quoted" word, ' * 20_000  # deeper than a stack, for a pattern that goes down with every sign


def test_lines_that_somebody_else_sent(ottla: Ottla, spark: SparkSession, fresh: Callable[[str], str]) -> None:
    topics = Topics(ottla.bootstrap)
    topic = topics.make(fresh("other"))
    values = [
        "plain text",
        "2026-01-31 12:00:00,250 WARNING careful",
        "2026-13-41T99:00:00Z INFO no such time",
        '{"level": "ERROR", "at": "now"}',
        '{"host": "", "file": "", "line": "2026-01-31T12:00:00+02:00 x"}',
        "",
        "2026-01-31T12:00:00Z ERROR first\nsecond\rthird\x85fourth\u2028fifth\n",
        "progress\rWARN slow",
        '{"file": "a.py", "line": 42, "message": "careful"}',
        '{"host": "a", "file": "a.py", "line": 42}',
        '{"host": "a", "file": null, "line": "x"}',
        '{"host": "a", "file": "a.py", "line": "x", "message": "careful"}',
        ' {"line" : "a \\"b\\" \\\\", "file":"a.py","host":"web-2"}\n',
        json.dumps({"host": "a", "file": "b", "line": LONG}),
    ]
    for value in values:
        topics.producer.produce(topic, value, key="db-1", timestamp=1_767_225_600_000)
    topics.producer.produce(topic, None, key="db-1")
    assert topics.producer.flush(30) == 0
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", ottla.bootstrap).option("subscribe", topic)
    found = (
        logs.parse_lines(reader.load())
        .orderBy("offset")
        .selectExpr("host", "day", "date_format(at, 'HH:mm:ss.SSS') as at", "level", "message", "file")
    )
    midnight = ("db-1", "2026-01-01", "00:00:00.000")
    assert [tuple(row) for row in found.collect()] == [
        (*midnight, None, "plain text", None),
        ("db-1", "2026-01-31", "12:00:00.250", "WARNING", "WARNING careful", None),
        (*midnight, "INFO", "INFO no such time", None),
        (*midnight, "ERROR", '{"level": "ERROR", "at": "now"}', None),
        ("unknown", "2026-01-31", "10:00:00.000", None, "x", ""),
        (*midnight, None, "", None),
        ("db-1", "2026-01-31", "12:00:00.000", "ERROR", values[6].partition(" ")[2], None),
        (*midnight, "WARN", "progress\rWARN slow", None),
        *((*midnight, None, value, None) for value in values[8:12]),
        ("web-2", "2026-01-01", "00:00:00.000", None, 'a "b" \\', "a.py"),
        ("a", "2026-01-01", "00:00:00.000", None, LONG, "b"),
    ]


def test_hosts_become_folders_whatever_their_names_are(spark: SparkSession, tmp_path: Path) -> None:
    plain = ["web-1", "db.example.org", "fe80::1", "büro", "p" * 200]
    strange: list[bytes] = [
        b"web-1\n",
        b"a/b",
        b"a\0b",
        b"\xff",
        b"\xfe",
        b"\xff\xff",
        b"=",
        "ü".encode() * 120,
        b"x" * 300,
        b"x" * 301,
        b"." * 1000,
    ]
    keys = [*(name.encode() for name in plain), *strange]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    records = [(bytearray(key), bytearray(b"line"), moment, 0, offset) for offset, key in enumerate(keys)]
    rows = spark.createDataFrame(records, "key binary, value binary, timestamp timestamp, partition int, offset long")
    table = ParquetArchive(Location.parse(tmp_path), ArchiveLayout(logs.BY, logs.ORDER, 2, 1 << 20))
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "some-query")
    try:
        table.add(logs.parse_lines(rows), 0)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
        table.close()
    found = pd.read_parquet(tmp_path).sort_values("offset")
    hosts = found["host"].astype(str).to_list()
    assert hosts[: len(plain)] == plain
    assert len(set(hosts)) == len(keys), "different ones stay different"
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,60}-[0-9a-f]{8}", name) for name in hosts[len(plain) :])
