"""The history checker finds each kind of violation, and none in a correct history."""

from __future__ import annotations

import pytest

from ottla.sim.history import History

P = ("t", 0)


@pytest.fixture
def history() -> History:
    made = History()
    made.note_sent("p", P, [b"a", b"b", b"c"])
    made.note_sent("q", P, [b"x"])
    made.note_acknowledged(P, 0, [b"a"])
    made.note_acknowledged(P, 1, [b"b"])
    return made


def kinds(history: History) -> list[str]:
    return sorted({violation.kind for violation in history.violations})


def test_nothing_is_wrong_with_what_is_right(history: History) -> None:
    history.note_start("r", P, 0)
    for offset, value in enumerate((b"a", b"b", b"x", b"c")):
        history.note_read("r", P, offset, value)
        history.note_high("r", P, offset + 1)
    history.note_start("r", P, 1)
    history.note_read("r", P, 1, b"b")
    history.check_found(P, {0: b"a", 1: b"b", 2: b"x", 3: b"c"})
    history.compare_replicas(P, {"1": b"same", "2": b"same"})
    assert history.violations == []


def test_lost(history: History) -> None:
    history.check_found(P, {0: b"a"})
    assert kinds(history) == ["lost"]


def test_lost_though_nobody_knew_where_it_was(history: History) -> None:
    history.note_acknowledged(P, None, [b"x", b"c"])
    history.check_found(P, {0: b"a", 1: b"b", 2: b"x"})
    assert [str(violation) for violation in history.violations] == [
        "lost in t-0: b'c' was acknowledged and is not in the log"
    ]


def test_kept_though_nobody_knew_where_it_was(history: History) -> None:
    history.note_acknowledged(P, None, [b"c"])
    history.check_found(P, {0: b"a", 1: b"b", 2: b"c"})
    assert history.violations == []


def test_duplicate_of_one_that_nobody_knew_where_it_was(history: History) -> None:
    history.note_acknowledged(P, None, [b"c"])
    history.check_found(P, {0: b"a", 1: b"b", 2: b"c", 3: b"c"})
    assert kinds(history) == ["duplicate"]


def test_duplicate(history: History) -> None:
    history.check_found(P, {0: b"a", 1: b"b", 2: b"b"})
    assert kinds(history) == ["duplicate"]


def test_duplicate_acknowledged(history: History) -> None:
    history.note_acknowledged(P, 5, [b"b"])
    assert "duplicate" in kinds(history)


def test_reordered_in_the_log(history: History) -> None:
    history.check_found(P, {0: b"a", 1: b"b", 2: b"x"})
    assert history.violations == []
    other = History()
    other.note_sent("p", P, [b"a", b"b"])
    other.check_found(P, {0: b"b", 1: b"a"})
    assert kinds(other) == ["reordered"]


def test_reordered_acknowledgements() -> None:
    other = History()
    other.note_sent("p", P, [b"a", b"b"])
    other.note_acknowledged(P, 7, [b"a"])
    other.note_acknowledged(P, 3, [b"b"])
    assert kinds(other) == ["reordered"]


def test_reordered_for_a_reader(history: History) -> None:
    history.note_read("r", P, 3, b"c")
    history.note_read("r", P, 1, b"b")
    assert "reordered" in kinds(history)


def test_skipped(history: History) -> None:
    history.note_start("r", P, 0)
    history.note_read("r", P, 2, b"x")
    assert kinds(history) == ["skipped"]


def test_inconsistent(history: History) -> None:
    history.note_read("r", P, 1, b"x")
    assert kinds(history) == ["inconsistent"]


def test_invented(history: History) -> None:
    history.note_read("r", P, 2, b"nobody's")
    assert kinds(history) == ["invented"]


def test_backwards(history: History) -> None:
    history.note_high("r", P, 5)
    history.note_start("r", P, 0)
    history.note_high("r", P, 4)
    assert kinds(history) == ["backwards"]


def test_diverged(history: History) -> None:
    history.compare_replicas(P, {"1": b"same", "2": b"same", "3": b"sane"})
    assert kinds(history) == ["diverged"]
    assert "from byte 2 on" in history.violations[0].detail
