"""Counting; the ages are tested with records in `test_groups.py`."""

import pytest
from confluent_kafka import Consumer

from ottla.tools.lag import Commit, Lag, OffsetSpan, lags

T = ("t", 0)


@pytest.mark.parametrize(
    ("commit", "span", "lag"),
    [
        (Commit(10), OffsetSpan(0, 10), Lag(10, 0, 10, 0, 0.0)),
        (Commit(12), OffsetSpan(0, 10), Lag(12, 0, 10, 0, 0.0)),  # the topic was made anew and is shorter now
        (None, OffsetSpan(5, 5), Lag(None, 5, 5, 0, 0.0)),
        (Commit(7), None, Lag(7, None, None, None, None)),  # the topic is gone
        (None, None, Lag(None, None, None, None, None)),
    ],
)
def test_without_anything_to_read_nobody_is_asked(commit: Commit | None, span: OffsetSpan | None, lag: Lag) -> None:
    nowhere = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    assert lags(nowhere, {T: commit} if commit else {}, {T: span} if span else {}, [T]) == {T: lag}
    nowhere.close()


def test_a_record_that_does_not_come_in_time_has_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.tools.lag.TIMEOUT_S", 0.2)
    monkeypatch.setattr("ottla.tools.lag.WAIT_S", 0.1)
    nowhere = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    assert lags(nowhere, {T: Commit(3)}, {T: OffsetSpan(5, 10)}, [T]) == {T: Lag(3, 5, 10, 7, None)}
    nowhere.close()
