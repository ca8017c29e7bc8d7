"""TLS handshakes in progress: each has a deadline, their number is limited, and none blocks the loop.

Signing takes milliseconds with a large key, so it is done in a thread. A client that does not finish in time is closed.
If there are too many, the oldest is dropped, so that clients that never finish keep nobody else out.

Hostile clients start hundreds of handshakes a second, so one must cost the loop little. It is a few callbacks and not a
task, all of them share one timer, and a failure is a reason and not an exception: an exception that is kept refers to
itself through its traceback, so that only the garbage collector can free it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.security.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    Serve = Callable[[Callable[[], None]], bool]

logger = logging.getLogger("ottla.net")

HANDSHAKES_MAX: Final = 500
HANDSHAKE_S: Final = 10.0
EXPIRED_MAX: Final = 10  # at once; the next ones follow after EXPIRE_PAUSE_S
EXPIRE_PAUSE_S: Final = 0.005
THREADS: Final = 2
RECEIVE_SIZE: Final = 16 * 1024
RECORD_TYPES: Final = range(20, 24)
RECORD_HEADER: Final = Struct(">BHH")  # type, version, size
RECORD_SIZE_MAX: Final = (16 << 10) + 2048  # larger ones are refused
SIZE_MAX: Final = 256 * 1024  # the most bytes of a client before the end: its certificate and its chain


class Handshakes:
    """The handshakes of all listeners of a broker."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, None] = {}  # oldest first
        self._pool = ThreadPoolExecutor(THREADS, "tls")
        self._timer: asyncio.TimerHandle | None = None  # set while a handshake is in progress

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        sock: socket,
        context: ssl.SSLContext,
        serve: Serve,
        done: Callable[[Stream], None],
        failed: Callable[[str], None],
    ) -> None:
        """Do the handshake, then call one of the two functions. `serve` (of `Newcomers`) does its steps on the loop."""
        loop = asyncio.get_running_loop()
        if len(self._under_way) >= HANDSHAKES_MAX:
            next(iter(self._under_way)).fail("too many handshakes in progress")
        handshake = Handshake(self, loop, sock, context, serve, done, failed)
        self._under_way[handshake] = None
        if self._timer is None:
            self._timer = loop.call_at(handshake.deadline, self._expire, loop)

    def forget(self, handshake: Handshake) -> None:
        self._under_way.pop(handshake, None)

    def submit(self, work: Callable[[], None]) -> None:
        self._pool.submit(work)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the handshakes that took too long, a few at a time."""
        self._timer, now = None, loop.time()
        for handshake in list(islice(self._under_way, EXPIRED_MAX)):
            if handshake.deadline <= now:
                handshake.fail(f"it did not finish within {HANDSHAKE_S:g} s")
        oldest = next(iter(self._under_way), None)
        if oldest is not None:
            self._timer = loop.call_at(max(oldest.deadline, now + EXPIRE_PAUSE_S), self._expire, loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for handshake in list(self._under_way):
            handshake.fail("the broker stops")
        self._pool.shutdown(wait=False, cancel_futures=True)


class Handshake:
    """Receives whole records, lets a thread work on them, sends the result, until TLS is set up or has failed."""

    __slots__ = (
        "_all",
        "_done",
        "_ended",
        "_failed",
        "_held",
        "_loop",
        "_serve",
        "_size_max",
        "_socket",
        "_stream",
        "_waits",
        "deadline",
    )

    def __init__(
        self,
        all_: Handshakes,
        loop: asyncio.AbstractEventLoop,
        sock: socket,
        context: ssl.SSLContext,
        serve: Serve,
        done: Callable[[Stream], None],
        failed: Callable[[str], None],
    ) -> None:
        self.deadline = loop.time() + HANDSHAKE_S
        self._all = all_
        self._loop = loop
        self._socket = sock
        self._stream = Stream(context)
        self._serve = serve
        self._done = done
        self._failed = failed
        self._held = bytearray()  # received, and not yet given to TLS
        self._size_max = SIZE_MAX
        self._waits = False  # behind work for other new clients
        self._ended = False
        loop.add_reader(sock.fileno(), self._on_readable)

    def fail(self, reason: str) -> None:
        self._end()
        self._failed(reason)

    def _end(self) -> None:
        self._ended = True
        self._all.forget(self)
        fd = self._socket.fileno()
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)

    def _on_readable(self) -> None:
        if not self._serve(self._receive) and not self._ended:
            self._loop.remove_reader(self._socket.fileno())  # until it is served
            self._waits = True

    def _receive(self) -> None:
        """Receive until TLS can continue. Bytes that arrive one by one wake no thread."""
        if self._ended:
            return
        if self._waits:
            self._waits = False
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
        try:
            data = self._socket.recv(RECEIVE_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.fail(reason_of_loss(error))
            return
        self._held += data
        if not data:
            self.fail("it disconnected")
        elif len(self._held) > self._size_max:
            self.fail(f"more than {SIZE_MAX} bytes")
        elif whole_size(self._held):
            self._loop.remove_reader(self._socket.fileno())
            self._continue()

    def _continue(self) -> None:
        """Give the whole records to TLS."""
        whole = whole_size(self._held)
        self._size_max -= whole
        self._stream.feed(self._held[:whole])
        del self._held[:whole]
        self._all.submit(self._work)

    def _work(self) -> None:
        """Runs in a thread."""
        finished, reason = False, ""
        try:
            finished = self._stream.shake_hands()
        except ssl.SSLError as error:
            reason = reason_of(error)
        except Exception as error:
            logger.exception("a handshake failed")
            reason = str(error) or type(error).__name__
        try:
            self._loop.call_soon_threadsafe(self._serve, partial(self._after_work, finished, reason))
        except RuntimeError:  # the loop is closed
            return

    def _after_work(self, finished: bool, reason: str) -> None:
        if not self._ended:
            # After a failure, too: it tells the client why.
            self._send(memoryview(self._stream.take_cipher()), finished, reason)

    def _send(self, cipher: memoryview, finished: bool, reason: str) -> None:
        while cipher:
            try:
                sent = self._socket.send(cipher)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket.fileno(), self._send, cipher, finished, reason)
                return
            except OSError as error:
                self.fail(reason or reason_of_loss(error))
                return
            cipher = cipher[sent:]
        if reason:
            self.fail(reason)
        elif finished:
            self._end()
            self._stream.feed(self._held)  # the start of the next record
            self._done(self._stream)
        else:
            self._loop.remove_writer(self._socket.fileno())
            if whole_size(self._held):
                self._continue()
            else:
                self._loop.add_reader(self._socket.fileno(), self._on_readable)


def whole_size(data: bytearray) -> int:
    """How many of these bytes TLS can use: whole records, or all of them if they are not TLS records."""
    position = 0
    while position < len(data):
        if data[position] not in RECORD_TYPES:
            return len(data)
        if len(data) - position < RECORD_HEADER.size:
            return position
        size: int = RECORD_HEADER.unpack_from(data, position)[2]
        if size > RECORD_SIZE_MAX:
            return len(data)
        if len(data) - position < RECORD_HEADER.size + size:
            return position
        position += RECORD_HEADER.size + size
    return position


def reason_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was rejected ({error.verify_message})"
    return (error.reason or "no TLS").replace("_", " ").lower()


def reason_of_loss(error: OSError) -> str:
    return error.strerror or "connection lost"
