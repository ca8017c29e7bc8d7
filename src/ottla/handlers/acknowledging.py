"""A Produce answer that waits until all its appends are committed, have failed or timed out.

Callbacks instead of a task, for speed: with several replicas every Produce with acks=all ends here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse

    Append = tuple[asyncio.Future[None], PartitionProduceResponse]  # what it waits for, and its result

# After these errors the records are in the log, and the answer has their offset. After others that is unknown.
APPENDED = frozenset((ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT))


class Acknowledgement:
    __slots__ = ("_answer", "_appends", "_left", "_timer", "future")

    def __init__(self, answer: ProduceResponse | None, appends: list[Append], timeout_ms: int | None) -> None:
        """`timeout_ms` None: it waits only for this broker's disk, without a limit."""
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ProduceResponse | None] = loop.create_future()
        self._answer = answer
        self._appends = appends
        self._left = len(appends)
        self._timer = None if timeout_ms is None else loop.call_later(max(0, timeout_ms) / 1000, self._expire)
        for waited, _ in appends:
            waited.add_done_callback(self._on_done)
        self.future.add_done_callback(self._release)

    def _release(self, future: asyncio.Future[ProduceResponse | None]) -> None:
        """Stop waiting when the client disconnects: its timeout may be days."""
        if future.cancelled():
            if self._timer is not None:
                self._timer.cancel()
            for waited, _ in self._appends:
                waited.cancel()

    def _on_done(self, _: asyncio.Future[None]) -> None:
        self._left -= 1
        if self._left == 0 and not self.future.done():
            self._finish()

    def _expire(self) -> None:
        late = [append for append in self._appends if not append[0].done()]
        for waited, result in late:
            refuse(result, BrokerError(ErrorCode.REQUEST_TIMED_OUT))
            waited.cancel()
        if not self.future.done():
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waited, result in self._appends:
            if waited.done() and not waited.cancelled():
                error = waited.exception()
                if isinstance(error, BrokerError):
                    refuse(result, error)
                elif error is not None:
                    self.future.set_exception(error)
                    return
        self.future.set_result(self._answer)


def refuse(result: PartitionProduceResponse, error: BrokerError) -> None:
    result.error_code, result.error_message = error.code, error.message or None
    if error.code not in APPENDED:
        result.base_offset = -1
