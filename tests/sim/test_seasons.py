"""A topic that is recreated under the same name: checks find records of its earlier lives, and records it has lost."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.sim.seasons import Gardener, Planted, Season, decode_planted


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
    assert decode_planted(json.dumps(said).encode()) == (b"i" * 16, [1, 2])
    said["removing_replicas"] = {"0": [1]}
    assert decode_planted(json.dumps(said).encode()).replicas is None


class CutOffController:
    """A client whose first response is from a controller that does not know the topic, and the next from another."""

    def __init__(self) -> None:
        self.planted: Planted | None = Planted(b"i" * 16, [1, 2])
        self.answers = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
        self.controller = 0

    async def refresh(self) -> None: ...

    async def rest(self) -> None: ...

    def address(self, broker: int) -> tuple[str, int]:
        return "b0", 9092

    async def ask(self, address: object, request: object, version: int) -> Any:
        code = self.answers.pop(0)
        if code is ErrorCode.NONE:
            self.planted = None
        return SimpleNamespace(responses=[SimpleNamespace(error_code=code)])


def test_a_topic_is_deleted_when_the_store_has_it_no_more_not_when_a_controller_does_not_know_it() -> None:
    client: Any = CutOffController()
    gardener = Gardener(client, pytest.fail, lambda: client.planted)
    asyncio.run(gardener._delete(Season(0, b"i" * 16)))
    assert client.planted is None
    assert not client.answers


@pytest.mark.parametrize("planted", [None, Planted(b"j" * 16, [1, 2])])
def test_a_topic_that_nobody_knows_is_deleted_when_the_store_agrees(planted: Planted | None) -> None:
    client: Any = CutOffController()
    client.planted = planted
    gardener = Gardener(client, pytest.fail, lambda: client.planted)
    asyncio.run(gardener._delete(Season(0, b"i" * 16)))
    assert client.answers == [ErrorCode.NONE]
