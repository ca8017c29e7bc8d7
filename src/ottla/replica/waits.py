"""Fetches that wait: for enough bytes that they may read in their partitions, or for their time to pass.

What a fetch may read ends at the end of the log for a follower, else at the high watermark, or at the last stable
offset for one that reads committed records. What comes counts only as far as that end has moved: behind an open
transaction any number of records may come.

A wait is woken at most once. The answer is built on a later turn of the loop, not inside the append that woke it: the
producer's acknowledgement goes first, and what else arrives in the same turn travels in the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from ottla.replica.partition import Partition
    from ottla.replica.sessions import FetchSession


class Waits:
    """All the waits of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[Wait, None] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        partitions: Iterable[Partition],
        size_missing: int,
        timeout_ms: int,
        answer: Callable[[], Any],
        *,
        committed: bool = False,
        to_end: bool = False,
        session: FetchSession | None = None,
    ) -> asyncio.Future[Any]:
        """A future of `answer()`, taken when size_missing bytes can be read in the partitions, or at the timeout.

        `committed`: only what lies below the last stable offset can be read; `to_end`: all there is, as by a follower;
        `session`: a follower's, which is told by all of its partitions what comes.
        """
        wait = Wait(self, tuple(partitions), size_missing, answer, committed=committed)
        if session is not None:
            wait.session = session
            session.wait = wait
        self._open[wait] = None
        wait.timer = self._loop.call_later(timeout_ms / 1000, wait.finish)
        for partition in wait.partitions:
            partition.expect(wait, to_end=to_end)
        wait.future.add_done_callback(wait.forget)
        return wait.future

    def release(self) -> None:
        """The broker stops: answer every wait now with what there is."""
        for wait in list(self._open):
            wait.finish()


class Wait:
    __slots__ = (
        "_answer",
        "_size_missing",
        "_unstable",
        "_waits",
        "_woken",
        "future",
        "partitions",
        "session",
        "timer",
    )

    def __init__(
        self,
        waits: Waits,
        partitions: tuple[Partition, ...],
        size_missing: int,
        answer: Callable[[], Any],
        *,
        committed: bool,
    ) -> None:
        self._waits = waits
        self._answer = answer
        self._size_missing = size_missing
        # Where the stable part of a log ended when it was looked at last, and how many bytes have come after it.
        self._unstable = {one: (one.log.last_stable(one.high), 0) for one in partitions} if committed else None
        self._woken = False
        self.partitions = partitions
        self.session: FetchSession | None = None
        self.future: asyncio.Future[Any] = waits._loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def grow(self, partition: Partition, size: int) -> None:
        """Some bytes came to one of the partitions."""
        if self._unstable is not None:
            size = self._count_stable(partition, size)
        self._size_missing -= size
        if size and self._size_missing <= 0:
            self.wake()

    def _count_stable(self, partition: Partition, size: int) -> int:
        """How many bytes have become stable by an append of this size."""
        assert self._unstable is not None
        end, held = self._unstable[partition]
        held += size
        stable = partition.log.last_stable(partition.high)
        settled = 0
        if stable == partition.high:
            settled = held
        elif stable > end:
            try:
                found = partition.log.read(end, held, offset_max=stable)
                settled = 0 if found is None else found.size
            except BrokerError:  # deleted by now, or not readable: the fetch will say so, not the append that came here
                settled = max(held, self._size_missing)
        self._unstable[partition] = stable, held - settled
        return settled

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
        self._waits._open.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
        for partition in self.partitions:
            partition.forget(self)
        if self.session is not None and self.session.wait is self:
            self.session.wait = None
