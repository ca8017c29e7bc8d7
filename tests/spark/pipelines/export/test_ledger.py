"""Commits of a table, interrupted between any two steps: no file twice, none lost, none visible too early."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ottla.client.cluster import TopicPartition
from ottla.client.failure import Failed
from ottla.spark.pipelines.export.delta_ledger import DeltaLedger
from ottla.spark.pipelines.export.exporting import SUFFIX, ExportFile, TableShape
from ottla.spark.pipelines.export.ledger import FolderLedger, TableLedger, TableProgress
from ottla.spark.storage.location import Location

WHERE = TopicPartition("t", 0)
IDS = {WHERE: "id of t"}
SHAPE = TableShape(headers=False)


def test_a_folder_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = folder(tmp_path)
    assert ledger.read_progress(IDS) == TableProgress()
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    ledger.commit([staged(ledger, 10, 5), staged(ledger, 15, 5)], reached(20))
    ledger.close()
    again = folder(tmp_path)
    assert again.read_progress(IDS) == reached(20)
    assert seen(tmp_path) == list(range(20))


def test_what_is_staged_is_invisible_and_goes_with_the_run(tmp_path: Path) -> None:
    ledger = folder(tmp_path)
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    staged(ledger, 10, 10)
    assert seen(tmp_path) == list(range(10))
    killed(ledger)
    again = folder(tmp_path)
    assert again.read_progress(IDS) == reached(10)
    assert seen(tmp_path) == list(range(10))
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))


class Killed(BaseException):
    """Raised where the process would be killed."""


@pytest.mark.parametrize("step", range(1, 7))
def test_killed_at_any_step_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A commit is a link and a rename for each file; the process ends before the n-th of these."""
    ledger = folder(tmp_path)
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    files = [staged(ledger, 10 + 5 * index, 5) for index in range(4)]
    count = 0

    def counted(name: str) -> None:
        real = getattr(Path, name) if name == "replace" else os.link

        def call(*arguments: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            return real(*arguments)

        monkeypatch.setattr(Path if name == "replace" else os, name, call)

    counted("replace")
    counted("link")
    finished = True
    try:
        ledger.commit(files, reached(30))
    except Killed:
        finished = False
    monkeypatch.undo()
    killed(ledger)
    assert finished == (step > 5)
    decided = step > 1
    visible = seen(tmp_path)
    assert visible == sorted(set(visible)), "none twice"
    assert set(visible) <= set(range(30 if decided else 10)), "none before its time"
    again = folder(tmp_path)
    assert again.read_progress(IDS) == reached(30 if decided else 10)
    assert seen(tmp_path) == list(range(30 if decided else 10))


@pytest.mark.parametrize("kind", ["folder", "delta"])
def test_a_second_driver_is_refused_and_disturbs_nobody(tmp_path: Path, kind: str) -> None:
    first = made(kind, tmp_path)
    file = staged(first, 0, 10)
    with pytest.raises(Failed, match=r"^another run writes to the table at .*: stop it, or choose another path$"):
        made(kind, tmp_path)
    first.commit([file], reached(10))
    first.close()
    second = made(kind, tmp_path)
    assert second.read_progress(IDS) == reached(10)
    second.close()


HOLDER = """
import sys
from ottla.spark.pipelines.export.exporting import TableShape
from ottla.spark.pipelines.export.ledger import FolderLedger
from ottla.spark.storage.location import Location
ledger = FolderLedger(Location.parse(sys.argv[1]), TableShape())
print("taken", flush=True)
sys.stdin.read()
"""


def test_a_driver_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"taken\n"
        with pytest.raises(Failed, match="another run writes to the table"):
            folder(tmp_path)
        holder.kill()
    folder(tmp_path).close()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("kind", ["folder", "delta"])
def test_of_two_drivers_one_commits_where_there_are_no_locks(tmp_path: Path, kind: str) -> None:
    first = made(kind, tmp_path)
    first.read_progress(IDS)
    file = staged(first, 0, 10)
    second = made(kind, tmp_path)
    second.read_progress(IDS)
    assert (staging(first) / file.staged).exists(), "it may live"
    second.commit([staged(second, 0, 10)], reached(10))
    with pytest.raises(Failed, match="another run writes to the table"):
        first.commit([file], reached(10))
    visible = seen(tmp_path) if kind == "folder" else DeltaTable(tmp_path).to_pyarrow_table()["offset"].to_pylist()
    assert visible == list(range(10))


@pytest.mark.parametrize("kind", ["folder", "delta"])
def test_no_commit_goes_over_files_that_are_gone(tmp_path: Path, kind: str) -> None:
    ledger = made(kind, tmp_path)
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    files = [staged(ledger, 10, 5), staged(ledger, 15, 5)]
    shutil.rmtree(staging(ledger))
    with pytest.raises(Failed, match=r"was written and is gone, so nothing was added to the table"):
        ledger.commit(files, reached(20))
    ledger.close()
    assert made(kind, tmp_path).read_progress(IDS) == reached(10)


def test_a_committed_file_that_is_lost_is_told_until_somebody_has_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = folder(tmp_path)
    file = staged(ledger, 0, 10)
    link = os.link

    def vanishing(*paths: Path) -> None:
        link(*paths)
        (staging(ledger) / file.staged).unlink()

    monkeypatch.setattr(os, "link", vanishing)
    sentence = rf"{file.name} belongs to the table by .*, but is neither there nor in"
    with pytest.raises(Failed, match=sentence):
        ledger.commit([file], reached(10))
    ledger.close()
    with pytest.raises(Failed, match=sentence):
        folder(tmp_path)
    shutil.rmtree(staging(ledger))
    again = folder(tmp_path)
    assert again.read_progress(IDS) == reached(10)


def test_files_that_others_remove_later_are_their_business(tmp_path: Path) -> None:
    """For example old days that are no longer needed."""
    ledger = folder(tmp_path)
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    ledger.close()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert folder(tmp_path).read_progress(IDS) == reached(10)


def test_a_commit_that_could_not_be_finished_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example the disk is full when files are moved to their places: `close` must leave them for later."""
    ledger = folder(tmp_path)
    file = staged(ledger, 0, 10)

    def full(path: Path, place: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        ledger.commit([file], reached(10))
    ledger.close()
    monkeypatch.undo()
    assert folder(tmp_path).read_progress(IDS) == reached(10)
    assert seen(tmp_path) == list(range(10))


def test_old_commits_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.pipelines.export.ledger.KEPT", 3)
    ledger = folder(tmp_path)
    for number in range(6):
        ledger.commit([staged(ledger, number, 1)], reached(number + 1))
    assert len(list((tmp_path / "_ottla" / "commits").iterdir())) == 3
    ledger.close()
    assert folder(tmp_path).read_progress(IDS) == reached(6)


def test_damage_and_places_that_cannot_be_written(tmp_path: Path) -> None:
    ledger = folder(tmp_path / "a")
    ledger.commit([], reached(1))
    ledger.close()
    (tmp_path / "a" / "_ottla" / "commits" / f"{0:020}.json").write_text("{")
    for _ in range(2):  # what fails does not keep the lock
        with pytest.raises(Failed, match="is damaged: restore it"):
            folder(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match="cannot be written at"):
        folder(tmp_path / "file")


def test_delta_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = delta(tmp_path, SHAPE)
    assert ledger.read_progress(IDS).offsets == {}
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    lost = staged(ledger, 10, 10)
    (staging(ledger) / lost.staged).rename(tmp_path / lost.name)  # killed between the rename and the commit
    killed(ledger)
    again = delta(tmp_path, SHAPE)
    assert again.read_progress(IDS) == reached(10)
    again.commit([staged(again, 10, 10)], reached(20))
    assert again.read_progress(IDS) == reached(20)
    assert again.read_progress({WHERE: "another id"}).offsets == {}
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["offset"].to_pylist()) == list(range(20))
    DeltaTable(tmp_path).create_checkpoint()
    again.close()
    assert delta(tmp_path, SHAPE).read_progress(IDS) == reached(20)


def test_a_delta_table_of_another_shape_is_told(tmp_path: Path) -> None:
    delta(tmp_path, SHAPE).close()
    for _ in range(2):  # what fails does not keep the lock
        with pytest.raises(Failed, match="is partitioned by nothing: set partition to none"):
            delta(tmp_path, TableShape(headers=False, by_day=True))


@pytest.mark.parametrize("kind", ["folder", "delta"])
@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (TableShape(headers=False, value="string"), "was written with value=binary: set that"),
        (TableShape(headers=True), "was written with headers=false: set that"),
    ],
)
def test_one_table_has_one_kind_of_files(tmp_path: Path, kind: str, other: TableShape, sentence: str) -> None:
    ledger = made(kind, tmp_path)
    ledger.commit([staged(ledger, 0, 10)], reached(10))
    ledger.close()
    for _ in range(2):  # what fails does not keep the lock
        with pytest.raises(Failed, match=sentence):
            made(kind, tmp_path, other)
    made(kind, tmp_path).close()


def test_a_folder_whose_days_are_folders_keeps_them(tmp_path: Path) -> None:
    ledger = folder(tmp_path, TableShape(headers=False, by_day=True))
    ledger.commit([], reached(10))
    ledger.close()
    with pytest.raises(Failed, match="was written with partition=day: set that"):
        folder(tmp_path)


def made(kind: str, path: Path, shape: TableShape = SHAPE) -> FolderLedger | DeltaLedger:
    return folder(path, shape) if kind == "folder" else delta(path, shape)


def folder(path: Path, shape: TableShape = SHAPE) -> FolderLedger:
    return FolderLedger(Location.parse(path), shape)


def delta(path: Path, shape: TableShape = SHAPE) -> DeltaLedger:
    return DeltaLedger(Location.parse(path), shape, "cluster")


def staging(ledger: TableLedger) -> Path:
    assert ledger.staging is not None
    assert ledger.staging.local is not None
    return ledger.staging.local


def killed(ledger: FolderLedger | DeltaLedger) -> None:
    """The effect of a kill on the file system: the lock is free, everything else is unchanged."""
    assert ledger._lock is not None
    ledger._lock.release()


def reached(offset: int) -> TableProgress:
    return TableProgress("cluster", {WHERE: offset}, {"t": "id of t"})


def staged(ledger: TableLedger, first: int, count: int) -> ExportFile:
    """A file of rows at these offsets, as a task leaves it."""
    names = SHAPE.schema().names
    columns = {name: pa.nulls(count, SHAPE.schema().field(name).type) for name in names}
    columns["offset"] = pa.array(range(first, first + count), pa.int64())
    name = f"t-{first:05}-{id(ledger):x}"
    path = staging(ledger) / f"{name}{SUFFIX}"
    pq.write_table(pa.table(columns, SHAPE.schema()), path)
    return ExportFile(path.name, f"{name}.parquet", None, count, path.stat().st_size, first, first + count - 1)


def seen(table: Path) -> list[int]:
    """The offsets that a reader of the folder finds."""
    tables = [pq.read_table(path) for path in table.rglob("*.parquet")]
    return sorted(offset for table in tables for offset in table["offset"].to_pylist())
