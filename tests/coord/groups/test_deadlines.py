"""The deadlines of a group and its one timer."""

from ottla.coord.groups.deadlines import Deadlines
from ottla.coord.groups.outcome import Outcome


def test_the_timer_is_set_for_the_earliest_and_not_again_for_later_ones() -> None:
    deadlines, out = Deadlines("g"), Outcome()
    assert deadlines.timers() == []
    deadlines.silence("a", 50, out)
    deadlines.silence("b", 60, out)
    deadlines.revoke("b", 3, 40, out)
    deadlines.sync("b", 45, out)
    assert out.timers == [(("session", "g"), 50), (("session", "g"), 40)]
    assert deadlines.timers() == [(("session", "g"), 40)]


def test_who_is_late_is_found_when_it_rings() -> None:
    deadlines, out = Deadlines("g"), Outcome()
    deadlines.silence("a", 50, out)
    deadlines.silence("b", 60, out)
    deadlines.revoke("b", 3, 40, out)
    deadlines.join("c", 45, out)
    deadlines.join("c", 99, out)
    assert deadlines.due(39) == {}
    assert deadlines.due(40) == {"b": 3}
    assert deadlines.due(50) == {"b": 3, "c": None, "a": None}
    assert deadlines.due(60) == {"b": None, "c": None, "a": None}, "silence is worse than being slow"
    deadlines.forget("b")
    deadlines.forget("c")
    again = Outcome()
    deadlines.rearm(again)
    assert again.timers == [(("session", "g"), 50)]
