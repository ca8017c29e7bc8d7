"""A follower's fetch costs only what has changed, however many partitions it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replica.cluster import World, append, play
from waiting import until

from ottla.handlers.fetch import Reading
from ottla.replica.copying import Copy
from ottla.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FEW, MANY, APPENDS = 5, 150, 20


def looks(folder: Path, partitions: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many partitions the leader checked, and how many the follower's requests named, for a few appends."""
    seen = [0, 0]
    read, wanted = Reading._read_one, Copy.build_request

    def counted_read(self: Reading, *args: Any, **more: Any) -> Any:
        seen[0] += 1
        return read(self, *args, **more)

    def counted_wanted(self: Copy, *args: Any) -> Any:
        seen[1] += 1
        return wanted(self, *args)

    async def story(world: World) -> None:
        led = [world.lead(0, index=index) for index in range(partitions)]
        await until(lambda: all(one.followers and one.followers.followers[1].end == 0 for one in led))
        before = len(world.requests(FetchRequest))
        await until(lambda: len(world.requests(FetchRequest)) > before + 3)
        with monkeypatch.context() as patch:
            patch.setattr(Reading, "_read_one", counted_read)
            patch.setattr(Copy, "build_request", counted_wanted)
            for number in range(APPENDS):
                append(led[number % FEW])
                await until(lambda: all(one.high == one.log.end for one in led[:FEW]))

    play(folder, story, ids=(0, 1))
    return seen[0], seen[1]


def test_what_is_idle_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looks(tmp_path / "few", FEW, monkeypatch), looks(tmp_path / "many", MANY, monkeypatch)
    assert all(after < before * 3 + 20 for before, after in zip(few, many, strict=True)), (few, many)
    assert many[0] < APPENDS * 10
