"""Collections walk over new objects only, and garbage among the old ones is found in the end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from ottla import garbage
from ottla.garbage import USED_MIN, YOUNG_MAX, Garbage

if TYPE_CHECKING:
    from collections.abc import Iterator


class Link:
    """Refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector() -> Iterator[Garbage]:
    """A `Garbage` at work. Its timer is never due, since its loop does not run on."""
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    found = Garbage()

    async def start() -> None:
        found.start()

    asyncio.run(start())
    try:
        yield found
    finally:
        found.stop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        if enabled:
            gc.enable()


def test_an_object_is_walked_over_once(collector: Garbage) -> None:
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(50 * YOUNG_MAX)]
    finally:
        gc.callbacks.remove(note)
    assert len(seen) >= 40, "it did not collect"
    assert max(seen) < 3 * YOUNG_MAX, f"a collection walked over {max(seen)} objects, of {len(kept)} that are in use"


def test_new_garbage_is_freed_by_the_next_collection(collector: Garbage) -> None:
    link = weakref.ref(Link())
    assert link() is not None, "freed without the collector: this test shows nothing"
    kept = [[number] for number in range(3 * YOUNG_MAX)]
    assert link() is None, f"still there after {len(kept)} new objects"


def test_old_garbage_is_freed_when_there_may_be_much(collector: Garbage) -> None:
    collector.look()
    first = Link()
    link = weakref.ref(first)
    kept = [[number] for number in range(3 * YOUNG_MAX)]
    del first
    collector.look()
    assert link() is not None, "few new objects are no reason to walk over all"
    kept += [[number] for number in range(2 * max(USED_MIN, gc.get_freeze_count()))]
    collector.look()
    assert link() is None
    assert gc.get_freeze_count() > len(kept), "what is in use is set aside again"


def test_all_are_walked_over_only_after_they_have_doubled(collector: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "USED_MIN", 1)
    walks = 0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal walks
        walks += phase == "start" and info["generation"] == 2

    gc.callbacks.append(note)
    try:
        kept: list[list[int]] = []
        for doubled in (False, False, True, False, False, True):
            before = walks
            if doubled:
                kept += [[number] for number in range(gc.get_freeze_count() + 3 * YOUNG_MAX)]
            collector.look()
            assert walks - before == doubled, f"with {len(kept)} new objects"
    finally:
        gc.callbacks.remove(note)


def test_it_looks_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looks_twice() -> None:
        looked, twice = 0, asyncio.Event()

        class Looking(Garbage):
            def look(self) -> None:
                nonlocal looked
                looked += 1
                if looked == 2:
                    twice.set()

        monkeypatch.setattr(garbage, "LOOK_S", 0.001)
        found = Looking()
        found._wait()
        await asyncio.wait_for(twice.wait(), 60)
        assert found._timer is not None
        found._timer.cancel()

    asyncio.run(looks_twice())
