"""One response to /metrics: runs all collectors in slices, so that a scrape of many partitions delays no request.

System calls (files, disks) run in a thread. The samples of a hanging disk are left out, and the disk is not read again
until it has answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.clock import monotonic
from ottla.metrics import process
from ottla.metrics.catalogue import LOOP_LAG
from ottla.metrics.clients import clients
from ottla.metrics.cluster import cluster
from ottla.metrics.counts import connections, quotas, requests, traffic
from ottla.metrics.disks import disks, spaces
from ottla.metrics.exposition import Exposition
from ottla.metrics.family import Sample
from ottla.metrics.groups import groups
from ottla.metrics.partitions import partitions
from ottla.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.metrics.sources import Sources

    Collector = Callable[[Sources], Iterable[Sample | None]]

TURN_S: Final = 0.002
LOOK_EVERY: Final = 50  # samples between two checks of the clock
SYSTEM_S_MAX: Final = 1.0


def loop_lag(sources: Sources) -> Iterator[Sample]:
    yield Sample(LOOP_LAG, (), sources.lag.distribution)


class Scrape:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._collectors: tuple[Collector, ...] = (
            traffic, requests, quotas, partitions, cluster, groups, connections, disks, loop_lag, clients
        )  # fmt: skip
        self._system: asyncio.Future[list[Sample]] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._steps = Steps("ottla.metrics")

    async def text(self, *, openly: bool) -> bytes:
        async with self._one_at_a_time:
            page, turn = Exposition(), Turn()
            for collector in self._collectors:
                with self._steps.attempt(f"collecting {collector.__name__}"):  # the other collectors continue
                    for sample in collector(self._sources):
                        if sample is not None:
                            page.add(sample)
                        await turn.pause()
            for sample in await self._of_the_system():
                page.add(sample)
            pieces = []
            for piece in page.text(openly=openly):
                pieces.append(piece.encode())
                await turn.pause(force=True)
            return b"".join(pieces)

    async def _of_the_system(self) -> list[Sample]:
        if self._system is None:
            store = self._sources.store
            self._system = asyncio.get_running_loop().run_in_executor(None, lambda: [*process.sample(), *spaces(store)])
        done, _ = await asyncio.wait((self._system,), timeout=SYSTEM_S_MAX)
        if not done:
            return []
        asked, self._system = self._system, None
        return asked.result()


class Turn:
    """Yields to the event loop when a time slice is over."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_S
        self._count = 0

    async def pause(self, *, force: bool = False) -> None:
        self._count += 1
        if (force or self._count % LOOK_EVERY == 0) and monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + TURN_S
