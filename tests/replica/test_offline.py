"""A directory that fails while the broker runs is told of, once, however often that has to be tried."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from log.making import a_store
from waiting import until

from ottla.replica import offline
from ottla.replica.offline import watch_directories

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_it_is_told_until_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "LOOK_S", 0.005)

    async def story() -> None:
        store = a_store([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
        tries: list[int] = []

        async def tell() -> None:
            tries.append(len(tries))
            if len(tries) < 3:
                raise ConnectionError("no session")

        store.directories[0].fail(OSError(5, "before the start: the answers to LeaderAndIsr will say so"))
        task = asyncio.ensure_future(watch_directories(store, tell))
        await asyncio.sleep(0.05)
        assert not tries
        store.directories[1].fail(OSError(5, "broken"))
        await until(lambda: len(tries) >= 3)
        await asyncio.sleep(0.05)
        assert len(tries) == 3
        task.cancel()

    asyncio.run(story())
