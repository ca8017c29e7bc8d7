"""Checkpoints and looks at folders pass over all logs in slices: the loop is free in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from log.making import TOPIC_ID, StillClock, a_store, settings

from ottla.log import housekeeping
from ottla.log.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ottla.log.log import Log

LOGS = 23
SLICE = 5


def test_the_loop_turns_after_each_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "LOGS_PER_LOOK", SLICE)
    clock, lines = StillClock(), Ledger.lines
    store = a_store(tmp_path, clock=clock)
    logs = [store.create("orders", index, TOPIC_ID, settings(), 0) for index in range(LOGS)]
    seen: list[tuple[int, int]] = []  # a turn of the loop, and how many logs were looked at in it
    turn = 0

    def look(ledger: Ledger, name: str, some: list[Log]) -> object:
        seen.append((turn, len(some)))
        return lines(ledger, name, some)

    monkeypatch.setattr(Ledger, "lines", look)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def story() -> None:
        counting = asyncio.ensure_future(count_turns())
        for work in (store.housekeeping.checkpoint, store.housekeeping.look):
            await work()
            clock.ms += 60_000
            before = turn
            await work()
            assert turn - before > LOGS // SLICE
        counting.cancel()

    asyncio.run(story())
    assert len({turn for turn, _ in seen}) == len(seen), "one slice in a turn"
    assert max(size for _, size in seen) == SLICE
    assert sum(size for _, size in seen) == 4 * len(logs), "each of the four files has all logs"
    written = (tmp_path / "replication-offset-checkpoint").read_text()
    assert written.splitlines()[1] == str(LOGS)
