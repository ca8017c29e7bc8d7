"""A topic that is made again under its name: what it has of another of its lives is found, and what it has lost."""

import json

import pytest

from ottla.sim.seasons import Season, planted_in


def wrong_with(found: dict[int, bytes]) -> list[str]:
    season, wrong = Season(1, b"i" * 16), list[str]()
    season.sent.update((b"a", b"b"))
    season.acked = {0: b"a"}
    season.check(found, wrong.append)
    return wrong


@pytest.mark.parametrize("found", [{0: b"a"}, {0: b"a", 1: b"b"}, {0: b"a", 1: b"a"}])
def test_what_was_sent_may_be_there(found: dict[int, bytes]) -> None:
    assert wrong_with(found) == []


@pytest.mark.parametrize("found", [{0: b"a", 1: b"of the last"}, {}, {0: b"b"}, {1: b"a"}])
def test_nothing_else_may_and_what_was_acknowledged_must(found: dict[int, bytes]) -> None:
    assert len(wrong_with(found)) == 1


def test_a_move_has_ended_when_nothing_is_added_or_removed() -> None:
    said = {"topic_id": "aWlpaWlpaWlpaWlpaWlpaQ", "partitions": {"0": [1, 2]}, "adding_replicas": {}}
    assert planted_in(json.dumps(said).encode()) == (b"i" * 16, [1, 2])
    said["removing_replicas"] = {"0": [1]}
    assert planted_in(json.dumps(said).encode()).replicas is None
