"""How long the loop of a broker was held: the most processor time that its thread used between two beats on it.

Processor time of that thread, not time that passed: a slow or busy machine makes no difference.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.embed import BrokerThread

BEAT_S = 0.005
GAP_S_MAX = 0.2  # the law says about 0.05; what frees memory and collects garbage comes on top


class Gaps:
    largest_s = 0.0

    async def beat(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(BEAT_S)
            now = time.thread_time()
            self.largest_s = max(self.largest_s, now - before)
            before = now


@contextmanager
def watched(broker: BrokerThread) -> Iterator[Gaps]:
    assert broker._loop is not None
    gaps = Gaps()
    beating = asyncio.run_coroutine_threadsafe(gaps.beat(), broker._loop)
    try:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(BEAT_S), broker._loop).result(60)  # it has begun to beat
        yield gaps
        # What was done since the last beat counts as well.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(3 * BEAT_S), broker._loop).result(60)
    finally:
        beating.cancel()
