"""Fetches that wait: for enough new bytes in any of their partitions, or for their time to pass.

A wait is woken at most once. The answer is built on a later turn of the loop, not inside the append that woke it: the
producer's acknowledgement goes first, and what else arrives in the same turn travels in the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from ottla.replica.partition import Partition


class Waits:
    """All the waits of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: set[Wait] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, partitions: Iterable[Partition], size_missing: int, timeout_ms: int, answer: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        """A future of `answer()`, taken when size_missing bytes have come to the partitions, or at the timeout."""
        wait = Wait(self, tuple(partitions), size_missing, answer)
        self._open.add(wait)
        wait.timer = self._loop.call_later(timeout_ms / 1000, wait.finish)
        for partition in wait.partitions:
            partition.waits.append(wait)
        wait.future.add_done_callback(wait.forget)
        return wait.future

    def release(self) -> None:
        """Answer everybody now with what there is: the broker is stopping."""
        for wait in list(self._open):
            wait.finish()


class Wait:
    __slots__ = ("_answer", "_size_missing", "_waits", "_woken", "future", "partitions", "timer")

    def __init__(
        self, waits: Waits, partitions: tuple[Partition, ...], size_missing: int, answer: Callable[[], Any]
    ) -> None:
        self._waits = waits
        self._answer = answer
        self._size_missing = size_missing
        self._woken = False
        self.partitions = partitions
        self.future: asyncio.Future[Any] = waits._loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def grow(self, size: int) -> None:
        """Some bytes came to one of the partitions."""
        self._size_missing -= size
        if self._size_missing <= 0:
            self.wake()

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._waits._loop.call_soon(self.finish)

    def finish(self) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self._answer())
        except Exception as error:  # the future is the task root here: dispatch answers for what it holds
            self.future.set_exception(error)

    def forget(self, _: asyncio.Future[Any]) -> None:
        self._waits._open.discard(self)
        if self.timer is not None:
            self.timer.cancel()
        for partition in self.partitions:
            partition.waits.remove(self)
