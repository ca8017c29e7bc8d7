"""A metrics scrape of a broker with many partitions and groups runs in slices: other work runs in between."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metrics import scrape
from ottla.metrics.catalogue import LOG_END
from ottla.metrics.family import Sample
from ottla.metrics.scrape import LOOK_EVERY, Scrape

PARTITIONS = 20_000


def test_a_scrape_gives_the_loop_back_while_it_collects_and_while_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TURN_S", 0.0)  # its time slice is over whenever it checks the clock
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def many(_: object) -> Any:
        return (Sample(LOG_END, ("t", str(index)), index) for index in range(PARTITIONS))

    async def main() -> bytes:
        sources = SimpleNamespace(store=SimpleNamespace(directories=[]))
        one = Scrape(cast("Any", sources))
        one._collectors = (many,)
        busy = asyncio.create_task(others())
        text = await one.text(openly=False)
        busy.cancel()
        return text

    text = asyncio.run(main())
    assert text.count(b"ottla_partition_log_end_offset{") == PARTITIONS
    assert turns > PARTITIONS // LOOK_EVERY


def test_the_trouble_of_one_collector_is_its_own() -> None:
    def failing(_: object) -> Any:
        yield Sample(LOG_END, ("t", "0"), 1)
        raise RuntimeError("a fault of ours")

    def fine(_: object) -> Any:
        yield Sample(LOG_END, ("t", "1"), 2)

    async def main() -> bytes:
        one = Scrape(cast("Any", SimpleNamespace(store=SimpleNamespace(directories=[]))))
        one._collectors = (failing, fine)
        return await one.text(openly=False)

    text = asyncio.run(main())
    assert b'partition="1"} 2\n' in text
    assert b"process_cpu_seconds_total" in text
