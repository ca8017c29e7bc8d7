"""Waits until this broker's image has a change, so that a client sees the result when its request is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.cluster.image import Image
    from ottla.cluster.metadata import Metadata

    Condition = Callable[[Image], bool]


class Awaiting:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._waiters: dict[asyncio.Future[None], Condition] = {}
        self._by_topic: dict[str, dict[asyncio.Future[None], None]] = {}  # waiters by topic, "" for any change
        metadata.subscribe(self._on_image_change)

    async def until(self, condition: Condition, timeout_s: float, topics: Iterable[str] = ()) -> bool:
        """Whether the condition holds in time. Checked when one of the topics changes; if none are given, always."""
        if condition(self._metadata.image):
            return True
        names = list(topics)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for name in names:
            self._by_topic.setdefault(name, {})[waiter] = None
        self._waiters[waiter] = condition
        if not names:
            self._by_topic.setdefault("", {})[waiter] = None
        try:
            await asyncio.wait_for(waiter, timeout_s)
        except TimeoutError:
            return condition(self._metadata.image)
        finally:
            self._waiters.pop(waiter, None)
            for name in names or [""]:
                self._by_topic[name].pop(waiter, None)
                if not self._by_topic[name]:
                    del self._by_topic[name]
        return True

    def _on_image_change(self, old: Image | None, new: Image) -> None:
        if not self._waiters:
            return
        concerned: dict[asyncio.Future[None], None] = {**self._by_topic.get("", {})}
        for name in sorted(new.topics_changed_since(old)):
            concerned.update(self._by_topic.get(name, {}))
        for waiter in concerned:
            if not waiter.done() and self._waiters[waiter](new):
                waiter.set_result(None)
