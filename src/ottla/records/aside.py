"""Work on records that would block the loop: done in a few threads, while the loop serves others.

Native code in these threads runs without the interpreter's lock. What waits for a thread is bounded by its bytes;
beyond that the client is told to try again, for memory must not pile up behind a slow check.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THREADS: Final = 2
WAITING_SIZE_MAX: Final = 64 << 20


class Aside:
    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._lock = Lock()  # several brokers of a process share the threads
        self._size = 0  # of everything that waits or is worked on

    def run(self, size: int, work: Callable[[], T]) -> asyncio.Future[T]:
        """A future of what `work` returns; `size` is that of the bytes it holds on to."""
        with self._lock:
            if self._size and self._size + size > WAITING_SIZE_MAX:
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "too many large batches wait to be looked at")
            self._size += size
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-records")

        def release(_: object = None) -> None:
            with self._lock:
                self._size -= size

        try:
            job = self._threads.submit(work)
        except RuntimeError as error:  # the system has no thread for us
            release()
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        job.add_done_callback(release)
        return asyncio.wrap_future(job)


run: Final = Aside().run
