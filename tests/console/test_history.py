"""What is kept of seven days: thinned, bounded, after a restart, and whatever the file has become."""

import sqlite3
from pathlib import Path

from ottla.console import history
from ottla.console.history import History
from ottla.console.watch.snapshot import Group, Snapshot

NOW = 1_700_000_000


def a_snapshot(lag_rate: float = 1.0, version: int = 2) -> Snapshot:
    return Snapshot(
        version=version, cluster="c", groups={"g": Group("g", "classic", "Stable", "range", 1, rate=lag_rate)}
    )


def fill(kept: History, first: int, last: int, step: int = 10) -> None:
    for second in range(first, last, step):
        kept.note(a_snapshot(second), now=second)
        kept.wait()


def test_what_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "history.sqlite")
    kept = History(path)
    kept.note(a_snapshot(version=1), now=NOW - 10)  # without rates: not kept
    fill(kept, NOW, NOW + 60)
    kept.record("me", "create topic", "orders", "done", ok=True)
    kept.close()
    again = History(path)
    assert len(again.points("c", "group", "g", 100, now=NOW + 60)) == 6
    assert not again.points("another", "group", "g", 100, now=NOW + 60)
    assert [(entry.who, entry.what, entry.ok) for entry in again.audit()] == [("me", "create topic", True)]
    again.close()


def test_old_samples_are_thinned_and_then_gone(tmp_path: Path) -> None:
    kept = History(str(tmp_path / "history.sqlite"))
    base = kept._base
    (name,) = [kept._name("c", "group", "g")]
    rows = [(name, NOW - age, age, None, 0) for age in range(0, 9 * 86_400, 10)]
    with base:
        base.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", rows)
        kept._thin(NOW)
    ages = [NOW - at for (at,) in base.execute("SELECT at FROM samples ORDER BY at DESC")]
    assert len([age for age in ages if age <= 3_600]) >= 360
    assert 20 * 60 <= len([age for age in ages if 3_600 < age <= 86_400]) <= 24 * 60
    assert 800 <= len([age for age in ages if age > 86_400]) <= 900
    assert max(ages) <= 7 * 86_400
    assert len(kept.points("c", "group", "g", 604_800, now=NOW)) <= history.POINTS_MAX + 2
    kept.close()


def test_rows_are_bounded(tmp_path: Path) -> None:
    kept = History(str(tmp_path / "history.sqlite"))
    history_rows, history.ROWS_MAX = history.ROWS_MAX, 50  # type: ignore[misc]
    try:
        rows = [(kept._name("c", "group", "g"), NOW - age, age, None, 0) for age in range(0, 1000, 10)]
        with kept._base:
            kept._base.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", rows)
            kept._thin(NOW)
        assert kept._base.execute("SELECT count(*) FROM samples").fetchone()[0] <= 50
    finally:
        history.ROWS_MAX = history_rows  # type: ignore[misc]
    kept.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    kept = History(str(path))
    kept.record("me", "what", "where", "done", ok=True)
    assert len(kept.audit()) == 1
    assert (tmp_path / "history.sqlite.damaged").exists()
    kept.close()


def test_a_file_that_cannot_be_written_costs_the_history_only(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    kept = History(str(path))
    fill(kept, NOW, NOW + 30)
    assert len(kept.points("c", "group", "g", 100, now=NOW + 30)) == 3
    kept.close()


def test_a_write_that_fails_is_said_once_and_tried_again(tmp_path: Path) -> None:
    kept = History(str(tmp_path / "history.sqlite"))
    kept._base.execute("DROP TABLE samples")
    fill(kept, NOW, NOW + 20)
    assert kept.problem
    kept._base.executescript(history.SCHEMA)
    fill(kept, NOW + 20, NOW + 40)
    assert kept.problem is None
    assert isinstance(kept._base, sqlite3.Connection)
    kept.close()
