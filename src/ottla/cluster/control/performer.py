"""Carries out the effects of a task on the store: concurrent reads and writes.

While the store does not answer, reads wait. An unanswered write is reported as failed: the task then reads whether it
was done.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.cluster.control.effects import List, Read, Write
from ottla.cluster.metadata_store import NoNode, StoreError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.cluster.metadata_store import MetadataStore, Op, Znode

T = TypeVar("T")
RETRY_S = 0.1
READS_AT_ONCE = 1000


class Performer:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def perform(self, effect: Read | List | Write) -> object:
        if isinstance(effect, Read):
            return await self._read(effect.paths)
        if isinstance(effect, List):
            return await self._again(partial(self._children, effect.path))
        return await asyncio.gather(*(self._multi(ops) for ops in effect.transactions))

    async def _read(self, paths: Sequence[str]) -> list[Znode | None]:
        found: list[Znode | None] = []
        for start in range(0, len(paths), READS_AT_ONCE):
            some = paths[start : start + READS_AT_ONCE]
            found += await asyncio.gather(*(self._again(partial(self._get, path)) for path in some))
        return found

    async def _get(self, path: str) -> Znode | None:
        try:
            return await self._store.get(path)
        except NoNode:
            return None

    async def _children(self, path: str) -> list[str] | None:
        try:
            return await self._store.children(path)
        except NoNode:
            return None

    async def _multi(self, ops: Sequence[Op]) -> StoreError | None:
        try:
            await self._store.multi(ops)
        except Unavailable as error:
            await self._wait_for_connection()
            return error
        except StoreError as error:
            return error
        return None

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except Unavailable:
                await self._wait_for_connection()

    async def _wait_for_connection(self) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            if self._store.connected:
                return
