"""Work on records that would block the loop: done in a few threads.

Native code in these threads runs without the GIL. The bytes that wait for a thread are limited. Beyond that the client
gets a retriable error, so that memory does not pile up behind slow checks.
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
        self._lock = Lock()  # brokers in the same process share the threads
        self._size = 0  # of everything waiting or in progress

    def run(self, size: int, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` in a thread. Returns a future of its result; `size` is the number of bytes that it keeps in
        memory."""
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
        except RuntimeError as error:  # the system cannot start a thread
            release()
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        job.add_done_callback(release)
        return asyncio.wrap_future(job)


run: Final = Aside().run
