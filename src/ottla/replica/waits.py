"""Fetches that wait until enough bytes are readable in their partitions, or until their timeout.

A follower may read up to the end of the log, a consumer up to the high watermark, or up to the last stable offset with
read_committed. New bytes count only as far as that limit has moved: any number of records may follow an open
transaction.

A wait is woken at most once. The response is built in a later iteration of the event loop, not inside the append that
woke it: the producer's acknowledgement goes first, and other records that arrive meanwhile go into the same response.
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
        """A future of `answer()`, called when size_missing bytes can be read in the partitions, or at the timeout.

        `committed`: read only below the last stable offset; `to_end`: read up to the end of the log, as a follower;
        `session`: a follower's session, which gets reports from all of its partitions.
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
        """The broker stops: answer every wait now with what is available."""
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
        # The last stable offset at the last check, and the bytes appended above it since.
        self._unstable = {one: (one.log.last_stable(one.high), 0) for one in partitions} if committed else None
        self._woken = False
        self.partitions = partitions
        self.session: FetchSession | None = None
        self.future: asyncio.Future[Any] = waits._loop.create_future()
        self.timer: asyncio.TimerHandle | None = None

    def grow(self, partition: Partition, size: int) -> None:
        """`size` bytes were added to one of the partitions."""
        if self._unstable is not None:
            size = self._count_stable(partition, size)
        self._size_missing -= size
        if size and self._size_missing <= 0:
            self.wake()

    def _count_stable(self, partition: Partition, size: int) -> int:
        """How many bytes have become stable with an append of this size."""
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
            except BrokerError:  # deleted by now, or not readable: let the fetch report it, not the append
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
        except Exception as error:  # dispatch handles the exceptions of the future
            self.future.set_exception(error)

    def forget(self, _: asyncio.Future[Any]) -> None:
        self._waits._open.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
        for partition in self.partitions:
            partition.forget(self)
        if self.session is not None and self.session.wait is self:
            self.session.wait = None
