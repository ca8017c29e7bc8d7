"""The answer to a request: parts to send, or a promise of them (`Deferred`), or None for no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.net.outbox import Part

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.net.counts import Times


class Deferred:
    """An answer that is still pending: `encode` turns the finished future into parts to send, or None for no answer.

    `exclusive`: handle no further request of the connection until this answer is ready.
    """

    __slots__ = ("encode", "exclusive", "fault", "future", "parts", "ready", "times")

    def __init__(
        self,
        future: asyncio.Future[Any],
        encode: Callable[[asyncio.Future[Any]], list[Part] | None],
        *,
        exclusive: bool = False,
    ) -> None:
        self.future = future
        self.encode = encode
        self.exclusive = exclusive
        self.ready = False
        self.fault: str | None = None  # why there is no answer: the connection is closed with this reason
        self.parts: list[Part] | None = None
        self.times: Times | None = None


Answer = list[Part] | Deferred | None
