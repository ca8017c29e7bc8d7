import json
import logging
import sys

import pytest

from ottla import logging_setup
from ottla.logging_setup import LINES_PER_S, FloodGuard, JsonLines, TextLines


def event(message: str, **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("ottla.net.connection", logging.WARNING, "", 0, message, None, None)
    record.created, record.msecs = 1794735000.25, 250.0
    vars(record).update(fields)
    return record


def test_text_lines_end_with_their_fields() -> None:
    line = TextLines().format(event("closed", peer="127.0.0.1", requests=3))
    assert line.endswith(".250 WARNING net.connection: closed peer=127.0.0.1 requests=3")


def test_json_lines_are_one_object_each() -> None:
    line = JsonLines().format(event("closed", peer="a\nb"))
    assert json.loads(line) == {
        "time": "2026-11-15T09:30:00.250Z",
        "level": "warning",
        "source": "net.connection",
        "message": "closed",
        "peer": "a\nb",
    }
    assert "\n" not in line


def test_no_client_can_forge_a_line() -> None:
    line = TextLines().format(event("client said hello\nERROR all is lost", client="x\ny"))
    assert line.count("\n") == 0


def test_an_error_keeps_its_traceback() -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        record = event("failed")
        record.exc_info = sys.exc_info()
    assert "KeyError: 'gone'" in TextLines().format(record)
    assert "KeyError: 'gone'" in json.loads(JsonLines().format(record))["error"]


def test_a_flood_of_one_kind_is_held_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(logging_setup.time, "monotonic", lambda: now[0])
    guard = FloodGuard()
    kept = [guard.filter(event("closing the connection of %s")) for _ in range(LINES_PER_S + 7)]
    assert kept == [True] * LINES_PER_S + [False] * 7
    assert guard.filter(event("another kind")), "others are not held back"
    now[0] += 1.0
    next_one = event("closing the connection of %s")
    assert guard.filter(next_one)
    assert TextLines().format(next_one).endswith(" unlogged=7")
    now[0] += 1.0
    later = event("closing the connection of %s")
    assert guard.filter(later)
    assert not hasattr(later, "unlogged")


def test_kinds_without_end_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_setup, "KINDS_MAX", 3)
    guard = FloodGuard()
    assert all(guard.filter(event(f"kind {number}")) for number in range(100))
    assert len(guard._kinds) <= 3
