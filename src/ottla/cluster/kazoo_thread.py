"""Connects kazoo's thread to the event loop: results and events go from the thread to the loop in order.

kazoo uses a handler for everything that depends on the threading model: how to wait, how to wake its thread, how to
deliver results and events. This is a handler for an event loop. kazoo's own uses two more threads, and blocks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from math import ceil
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any, Protocol

from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.cluster.metadata_store import FAREWELL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("ottla.zookeeper")


class Asker(Protocol):
    """A call that waits for its result."""

    def end(self, value: object, error: Exception | None) -> None: ...


class Mailbox:
    """A queue from kazoo's thread to the loop. The loop is woken once for all entries since it last read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False
        self._open = True

    def post(self, call: Callable[..., None], *arguments: object) -> None:
        self._letters.append((call, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        self._woken = False
        while self._letters and self._open:
            call, arguments = self._letters.popleft()
            call_guarded(call, *arguments)

    def close(self) -> None:
        self._open = False


class Answer:
    """A result that kazoo sets in its thread."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.call: Asker | None = None
        self._mailbox = mailbox

    def set(self, value: object = None) -> None:
        self._mailbox.post(self._deliver, value, None)

    def set_exception(self, error: Exception) -> None:
        self._mailbox.post(self._deliver, None, error)

    def _deliver(self, value: object, error: Exception | None) -> None:
        if self.call is not None:
            self.call.end(value, error)


class Counter:
    """A semaphore that can be polled, with the socket methods that kazoo uses."""

    def __init__(self) -> None:
        self._number = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._number

    def send(self, data: bytes) -> None:
        os.eventfd_write(self._number, len(data))

    def recv(self, size: int) -> None:
        os.eventfd_read(self._number)

    def close(self) -> None:
        """Called for each of the two ends."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler with a mailbox in place of its two worker threads.

    No wait is longer than `patience_s`. kazoo itself waits a full session timeout for a server that accepts the
    connection but does not respond, for example while it is starting: then the session has expired before the next try.
    """

    def __init__(self, mailbox: Mailbox, patience_s: float) -> None:
        super().__init__()
        self._mailbox = mailbox
        self._patience_s = patience_s

    def create_socket_pair(self) -> tuple[Any, Any]:
        """Wakes kazoo's thread, once for each call. kazoo's own socket pair is full after some 270, and blocks."""
        if not hasattr(os, "eventfd"):
            return super().create_socket_pair()  # type: ignore[no-any-return]
        counter = Counter()
        return counter, counter

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], errors: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets. kazoo's own version creates and closes a selector each time: half the cost of a call."""
        ready = poll()
        for sockets, mask in ((readers, POLLIN), (writers, POLLOUT)):
            for one in sockets:
                ready.register(one, mask)
        wait_s = self._patience_s if timeout is None else min(timeout, self._patience_s)
        found = dict(ready.poll(max(0, ceil(wait_s * 1000))))
        return [one for one in readers if one.fileno() in found], [one for one in writers if one.fileno() in found], []

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience_s), **kwargs)

    def spawn(self, func: Callable[[], object], *args: Any, **kwargs: Any) -> threading.Thread:
        """Start kazoo's thread. The client is notified when it ends."""
        thread = threading.Thread(target=call_guarded, args=(func, *args), kwargs=kwargs, name="kazoo", daemon=True)
        thread.start()
        return thread

    def async_result(self) -> Answer:
        return Answer(self._mailbox)

    def dispatch_callback(self, callback: Any) -> None:
        self._mailbox.post(callback.func, *callback.args)


async def stop_client(client: Any) -> None:
    """Close the session, which removes its ephemeral nodes at once.

    That takes a moment, and with an unresponsive server most of the session timeout: then it is not waited for. So it
    runs in a thread of its own: the event loop would wait for an executor thread when it closes.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def end() -> None:
        try:
            try:
                client.stop()
            finally:
                client.close()
        finally:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=call_guarded, args=(end,), name="kazoo-end", daemon=True).start()
    try:
        async with asyncio.timeout(FAREWELL_S):
            await done.wait()
    except TimeoutError:
        logger.info("ZooKeeper does not answer: the session will expire")


def call_guarded(call: Callable[..., object], *arguments: object) -> None:
    """Call a listener. If it raises, the others are still called."""
    try:
        call(*arguments)
    except Exception:
        logger.exception("%s failed", getattr(call, "__qualname__", call))
