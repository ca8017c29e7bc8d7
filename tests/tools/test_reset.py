import pytest

from ottla.tools.lag import Commit, OffsetSpan
from ottla.tools.reset import At, Current, Earliest, Goal, Latest, OffsetMove, Shift, To, move, plan_restore
from ottla.tools.session import Failed

SPAN = OffsetSpan(10, 100)


@pytest.mark.parametrize(
    ("goal", "committed", "found", "new"),
    [
        (Earliest(), 50, None, 10),
        (Earliest(), None, None, 10),
        (Latest(), 50, None, 100),
        (Current(), 50, None, 50),
        (Current(), None, None, 100),
        (Current(), 5, None, 5),  # where it is, even if that is gone
        (To(40), 50, None, 40),
        (To(10), None, None, 10),
        (To(100), None, None, 100),
        (At(1_000), 50, 77, 77),
        (At(1_000), 50, None, 100),
        (Shift(7), 50, None, 57),
        (Shift(-40), 50, None, 10),
        (Shift(0), 50, None, 50),
    ],
)
def test_a_goal_gives_an_offset(goal: Goal, committed: int | None, found: int | None, new: int) -> None:
    told: list[str] = []
    commit = None if committed is None else Commit(committed)
    assert move(goal, ("t", 1), SPAN, commit, found, told.append) == OffsetMove("t", 1, committed, new)
    assert told == []


@pytest.mark.parametrize(
    ("goal", "new", "told"),
    [
        (To(9), 10, "t partition 1: offset 9 is before the start, 10 is used"),
        (To(101), 100, "t partition 1: offset 101 is beyond the end, 100 is used"),
        (Shift(-41), 10, "t partition 1: offset 9 is before the start, 10 is used"),
        (Shift(51), 100, "t partition 1: offset 101 is beyond the end, 100 is used"),
    ],
)
def test_an_offset_outside_becomes_the_nearest_inside_and_that_is_said(goal: Goal, new: int, told: str) -> None:
    heard: list[str] = []
    assert move(goal, ("t", 1), SPAN, Commit(50), None, heard.append).new == new
    assert heard == [told]


def test_there_must_be_something_to_shift() -> None:
    with pytest.raises(Failed, match="t partition 1 has no committed offset to shift"):
        move(Shift(1), ("t", 1), SPAN, None, None, pytest.fail)


def test_what_was_written_down_is_restored_with_its_metadata() -> None:
    wanted = {("t", 0): Commit(20, "note"), ("t", 1): Commit(5)}
    heard: list[str] = []
    moves = plan_restore(wanted, {("t", 0): SPAN, ("t", 1): SPAN}, {("t", 0): Commit(99)}, heard.append)
    assert moves == [OffsetMove("t", 0, 99, 20, "note"), OffsetMove("t", 1, None, 10)]
    assert heard == ["t partition 1: offset 5 is before the start, 10 is used"]


def test_what_is_gone_cannot_be_restored() -> None:
    with pytest.raises(Failed, match="no such partition: t:1, u:0"):
        plan_restore({("u", 0): Commit(1), ("t", 0): Commit(1), ("t", 1): Commit(1)}, {("t", 0): SPAN}, {}, pytest.fail)
