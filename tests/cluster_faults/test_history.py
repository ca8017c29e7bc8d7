"""The checker names each kind of violation in a history, and finds none in a correct one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_faults.history import Event, Recorder, examine, load

if TYPE_CHECKING:
    from pathlib import Path

SENT: list[Event] = [("sent", "p", "t", 0, value) for value in "abc"]
ACKED: list[Event] = [("acked", "t", 0, offset, value) for offset, value in enumerate("abc")]
FOUND: list[Event] = [("found", "t", 0, offset, value) for offset, value in enumerate("abc")]
READ: list[Event] = [("read", "r", "t", 0, offset, value) for offset, value in enumerate("abc")]
RIGHT: list[Event] = [
    *SENT,
    *ACKED,
    ("starts", "r", "t", 0, 0),
    *READ,
    ("high", "r", "t", 0, 3),
    *FOUND,
    ("bytes", "t", 0, 1, "616263"),
    ("bytes", "t", 0, 2, "616263"),
]


UNPLACED: Event = ("acked", "t", 0, None, "c")


def without(*events: Event) -> list[Event]:
    return [event for event in RIGHT if event not in events]


def test_a_right_one_has_none() -> None:
    assert examine(RIGHT) == []


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    assert examine(without(ACKED[2])) == []
    assert examine(without(ACKED[2], READ[2], FOUND[2])) == []


def test_an_acknowledgement_may_tell_no_offset() -> None:
    assert examine([*without(ACKED[2]), UNPLACED]) == []


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("lost", without(FOUND[2], READ[2])),
        ("lost", [*without(ACKED[2], FOUND[2], READ[2]), UNPLACED]),
        ("duplicate", [*RIGHT, ("found", "t", 0, 3, "c")]),
        ("duplicate", [*without(ACKED[2]), UNPLACED, ("found", "t", 0, 3, "c")]),
        ("duplicate", [*RIGHT, ("read", "r", "t", 0, 3, "a")]),
        ("reordered", [*SENT, ("found", "t", 0, 0, "b"), ("found", "t", 0, 1, "a")]),
        ("reordered", [*SENT, ("acked", "t", 0, 5, "a"), ("acked", "t", 0, 4, "b")]),
        ("reordered", [*RIGHT, ("read", "r", "t", 0, 1, "b")]),
        ("skipped", without(READ[1])),
        ("inconsistent", [*SENT, *ACKED, ("read", "r", "t", 0, 0, "b")]),
        ("invented", [*RIGHT, ("read", "r", "t", 0, 3, "z")]),
        ("backwards", [*RIGHT, ("high", "r", "t", 0, 2)]),
        ("diverged", [*without(RIGHT[-1]), ("bytes", "t", 0, 2, "616264")]),
    ],
)
def test_each_kind_is_named(kind: str, events: list[Event]) -> None:
    assert kind in {violation.kind for violation in examine(events)}


def test_a_file_has_the_same_history(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    for event in RIGHT:
        recorder.note(*event)
    recorder.close()
    assert load(tmp_path / "history") == recorder.events == RIGHT
    assert recorder.count("acked") == 3


def test_an_event_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such event"):
        examine([("senta",)])
