"""One broker, killed, paused, stopped and without power under load: the smallest simulation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ottla.sim.standalone import BrokenInvariant, Standalone

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = int(os.environ.get("SEEDS", "10"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost(seed: int, tmp_path: Path) -> None:
    world = Standalone(seed, tmp_path / "data", flush=bool(seed % 2))
    world.run()
    assert sum(len(story.acked) for story in world.history.partitions.values()) > 100


def test_a_seed_is_always_the_same_story(tmp_path: Path) -> None:
    first, again, other = (Standalone(seed, tmp_path / str(at), flush=True) for at, seed in enumerate((5, 5, 6)))
    traces: list[list[str]] = [[], [], []]
    for world, trace in zip((first, again, other), traces, strict=True):
        world.loop.trace = trace.append
        world.run()
    assert traces[0] == traces[1] != traces[2]
    assert first.loop.digest == again.loop.digest != other.loop.digest


def test_a_flush_that_does_nothing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that power cuts in the simulation do lose unflushed data."""
    monkeypatch.setattr("ottla.sim.disk.SimDisk.sync", lambda disk, fd: None)
    with pytest.raises((BrokenInvariant, TimeoutError)):
        run(range(1, 41, 2), tmp_path)


def test_a_broker_that_takes_everything_twice_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.producers.Producers.check", lambda *_, **__: None)
    with pytest.raises(BrokenInvariant, match=r"duplicate|reordered"):
        run(range(0, 40, 2), tmp_path)


def run(seeds: range, folder: Path) -> None:
    for seed in seeds:
        Standalone(seed, folder / str(seed), flush=bool(seed % 2)).run()
