"""A long request may wait for another broker. Requests queued behind it do not wait for that broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.net import turns
from ottla.net.turns import Lane

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest


def work(awaited: asyncio.Future[Any] | None, log: list[str], name: str) -> Generator[Any, None, str]:
    log.append(f"{name} begins")
    yield awaited
    log.append(f"{name} ends")
    return name


def test_one_that_waits_for_long_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.01)
    monkeypatch.setattr(turns, "PATIENCE_S_MIN", 0.001)

    async def story() -> None:
        lane, log = Lane(strict=True), list[str]()
        silent = [asyncio.get_running_loop().create_future() for _ in range(3)]
        stuck = [lane.add(work(one, log, f"stuck {at}")) for at, one in enumerate(silent)]
        others = [lane.add(work(None, log, f"other {at}")) for at in range(3)]
        async with asyncio.timeout(5):
            assert await asyncio.gather(*others) == ["other 0", "other 1", "other 2"]
        assert not any(one.done() for one in stuck)
        silent[2].set_result(None)
        silent[0].set_result(None)
        stuck[1].cancel()
        async with asyncio.timeout(5):
            assert await stuck[2] == "stuck 2"
            assert await stuck[0] == "stuck 0"
            await asyncio.sleep(0)
        assert silent[1].cancelled()
        assert lane._aside == 0
        assert len(lane) == 0

    asyncio.run(story())


def test_one_that_waits_for_a_moment_keeps_its_place() -> None:
    async def story() -> None:
        lane, log = Lane(strict=True), list[str]()
        awaited = asyncio.get_running_loop().create_future()
        first, second = lane.add(work(awaited, log, "first")), lane.add(work(None, log, "second"))
        await asyncio.sleep(0.01)
        awaited.set_result(None)
        await asyncio.gather(first, second)
        assert log == ["first begins", "first ends", "second begins", "second ends"]

    asyncio.run(story())
