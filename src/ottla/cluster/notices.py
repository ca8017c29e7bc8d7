"""Follows the numbered change notices by which brokers announce what they have changed in the metadata store.

A broker writes a change and its notice in one transaction. The others read the new notices, and then the nodes that
these name. After a lost session, a malformed notice or a failure they read everything, because they may have missed a
notice. Every broker removes old notices; the first to do so wins.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.cluster.metadata_store import NoNode, SessionEvent, stop_watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.steps import Steps

logger = logging.getLogger("ottla.member")

KEPT_S = 15 * 60.0  # as in Kafka: a broker that was disconnected for longer has lost its session
RETRY_S = 1.0
MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)

Name = TypeVar("Name")


class Notices(Generic[Name]):
    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        steps: Steps,
        parents: Sequence[str],
        *,
        what: str,
        decode: Callable[[bytes], Name],
        read: Callable[[Iterable[Name]], Awaitable[None]],
        read_all: Callable[[], Awaitable[None]],
    ) -> None:
        """`decode` returns the name in a notice, `read` reads the named nodes, `read_all` reads everything."""
        self._store = store
        self._clock = clock
        self._steps = steps
        self._parents = parents
        self._what = what
        self._decode = decode
        self._read = read
        self._read_all = read_all
        self._seen: dict[str, float] = {}  # paths of notices, and when they were first seen
        self._changed = asyncio.Event()
        self._all = False  # whether notices may have been missed
        self._task: asyncio.Task[None] | None = None
        self._cancels: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Read everything, and follow changes."""
        self._cancels = [
            *(self._store.watch(path, lambda event: self._changed.set()) for path in self._parents),
            self._store.subscribe(self._listen),
        ]
        self._seen = dict.fromkeys(await self._list(), self._clock.monotonic())
        await self._read_all()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def _listen(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._all = True
            self._changed.set()

    async def _list(self) -> list[str]:
        return [f"{parent}/{name}" for parent in self._parents for name in await self._store.children(parent)]

    async def _follow(self) -> None:
        """Read after each change, retrying until it succeeds."""
        current = True
        while True:
            await (self._changed.wait() if current else asyncio.sleep(RETRY_S))
            current = False
            self._changed.clear()
            with self._steps.attempt(f"reading {self._what}"):
                await self._take()
                current = True
            self._all |= not current

    async def _take(self) -> None:
        paths = await self._list()
        everything, self._all = self._all, False
        named = None if everything else await self._read_new(paths)
        if named is None:
            await self._read_all()
        elif named:
            await self._read(named)
        now = self._clock.monotonic()
        self._seen = {path: self._seen.get(path, now) for path in paths}
        for path in [path for path, since in self._seen.items() if now - since > KEPT_S]:
            try:
                await self._store.delete(path)
            except NoNode:
                continue

    async def _read_new(self, paths: Iterable[str]) -> dict[Name, None] | None:
        """The names in the new ones of these notices, once each; None if one of them is malformed."""
        named: dict[Name, None] = {}
        for path in paths:
            if path in self._seen:
                continue
            try:
                named[self._decode((await self._store.get(path)).data)] = None
            except NoNode:
                continue
            except MALFORMED:
                logger.warning("a notice cannot be understood: reading everything again", extra={"path": path})
                return None
        return named

    async def close(self) -> None:
        await stop_watching(self._cancels, self._task)
