"""The table is complete at every moment, and only the query that owns its batches writes to it."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
from random import Random
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from waiting import wait_until

from ottla.client.failure import Failed
from ottla.spark.pipelines.logs.archive import ArchiveLayout, ParquetArchive, archive
from ottla.spark.storage.exchange import exchange
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


DAILY = ArchiveLayout(("day",), ("number",), 2, 1 << 20)


def put(table: Path, batch: int, folders: dict[str, list[int]]) -> None:
    for folder, numbers in folders.items():
        (table / folder).mkdir(parents=True, exist_ok=True)
        draft = table / folder / "_draft"
        pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), draft)
        draft.rename(table / folder / f"batch-{batch:010}.parquet")


def numbers(table: Path) -> list[int]:
    return sorted(ds.dataset(table, partitioning="hive").to_table()["number"].to_pylist())


def folders(table: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in table.glob("day=*")}


def test_small_files_are_put_together(tmp_path: Path) -> None:
    table = ParquetArchive(Location.parse(tmp_path), ArchiveLayout(("day", "host"), (), 3, 10_000))
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
    table = ParquetArchive(Location.parse(tmp_path), ArchiveLayout(("day",), (), 2, 400))
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
from ottla.spark.pipelines.logs.archive import ArchiveLayout, ParquetArchive
from ottla.spark.storage.location import Location
table = ParquetArchive(Location.parse(sys.argv[1]), ArchiveLayout(("day",), (), 2, 1 << 20))
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
        """The table has the old or the new content; in both cases every number once."""
        nonlocal reads
        while not ended.is_set():
            with lock:
                least = len(expected)
            try:
                before = folders(tmp_path)
                found = numbers(tmp_path)
                exchanged = folders(tmp_path) != before
            except FileNotFoundError:  # a list of files from before the exchange
                continue
            reads += 1
            # A list that was begun before an exchange may end in a folder that the next one removes.
            if len(set(found)) != len(found) or (len(found) < least and not exchanged):
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
            assert process.stdout.readline() == b"ready\n"
            try:
                process.wait(random.random() * 0.05)
            except subprocess.TimeoutExpired:
                process.kill()
            process.wait()
            process.stdout.close()
            assert numbers(tmp_path) == expected
    table = ParquetArchive(Location.parse(tmp_path), ArchiveLayout(("day",), (), 2, 1 << 20))
    table.compact()
    wait_until(lambda: reads > 20)
    ended.set()
    reader.join()
    assert wrong == []
    assert numbers(tmp_path) == expected
    assert len(list(tmp_path.glob("day=*/*.parquet"))) == 2


def test_a_table_is_written_by_one_run_at_a_time(tmp_path: Path) -> None:
    one = ParquetArchive(Location.parse(tmp_path), DAILY)
    one.own("a")
    staged = tmp_path / "_ottla" / "staging" / "day=1"
    staged.mkdir(parents=True)
    with pytest.raises(
        Failed, match=r"another run writes to .*: stop it with `ottla pipeline stop`, or choose another"
    ):
        ParquetArchive(Location.parse(tmp_path), DAILY)
    assert staged.exists(), "what a run is writing is its own"
    one.close()
    other = ParquetArchive(Location.parse(tmp_path), DAILY)
    other.own("a")
    assert not staged.exists(), "what a run has left is not"
    other.close()


def test_a_table_has_the_batches_of_one_query(tmp_path: Path) -> None:
    for query in ("a", "a", "b", "a"):
        table = ParquetArchive(Location.parse(tmp_path), DAILY)
        if query == "b":
            (tmp_path / "_ottla" / "staging").mkdir()
            with pytest.raises(Failed, match=r"has the batches of another run.*remove the table to rewrite it"):
                table.own(query)
            assert (tmp_path / "_ottla" / "staging").exists()
        else:
            table.own(query)
        table.close()


def test_a_table_where_there_are_no_locks_or_no_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    tables = [ParquetArchive(Location.parse(tmp_path), DAILY) for _ in range(2)]
    for table in tables:
        table.own("a")
        table.close()
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match=r"the table .*file cannot be written \(Not a directory\): choose another with"):
        ParquetArchive(Location.parse(tmp_path / "file"), DAILY)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_batch_that_comes_again_is_not_added_again(spark: SparkSession, tmp_path: Path, format: str) -> None:
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "some-query")  # as it is in a batch
    try:
        for rows, batch in (([1, 2], 0), ([3, 4], 1), ([3, 4], 1), ([5], 2)):
            table = archive(Location.parse(tmp_path), format, ArchiveLayout(("day",), ("number",), 2, 1 << 20))
            table.add(spark.createDataFrame([("1", number) for number in rows], "day string, number long"), batch)
            table.compact(before=batch)
            table.close()
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert sorted(read(tmp_path, format)["number"]) == [1, 2, 3, 4, 5]


def test_batches_of_a_query_that_began_anew_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """For example after a run's folder was removed but its table was not."""
    rows = spark.createDataFrame([("1", 1)], "day string, number long")
    try:
        for query, batches in (("some-query", (0, 1)), ("another-query", ())):
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
            table = ParquetArchive(Location.parse(tmp_path), DAILY)
            for batch in batches:
                table.add(rows, batch)
            if not batches:
                with pytest.raises(Failed, match="has the batches of another run"):
                    table.add(rows.where("false"), 0)
            table.close()
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert sorted(read(tmp_path, "parquet")["number"]) == [1, 1]


def read(table: Path, format: str) -> pd.DataFrame:
    if format == "parquet":
        return pd.read_parquet(table)
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pandas()
