"""TLS handshakes in progress: each is a task with a timeout, their number is limited, and none blocks the loop.

Signing takes milliseconds with a large key, so it is done in a thread. A client that does not finish in time is closed.
If there are too many, the oldest is dropped, so that clients that never finish keep nobody else out.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.security.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

logger = logging.getLogger("ottla.net")

HANDSHAKES_MAX: Final = 500
HANDSHAKE_S: Final = 10.0
RECEIVE_SIZE: Final = 16 * 1024
RECORD_TYPES: Final = range(20, 24)
RECORD_HEADER: Final = Struct(">BHH")  # type, version, size
RECORD_SIZE_MAX: Final = (16 << 10) + 2048  # larger ones are refused
SIZE_MAX: Final = 256 * 1024  # the most bytes of a client before the end: its certificate and its chain


class HandshakeError(Exception):
    """The handshake failed; the text says why."""


class Handshakes:
    """The handshakes of all listeners of a broker."""

    def __init__(self) -> None:
        self._under_way: dict[asyncio.Task[Stream], None] = {}  # oldest first
        self._pool = ThreadPoolExecutor(2, "tls")

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        sock: socket,
        context: ssl.SSLContext,
        done: Callable[[Stream], None],
        failed: Callable[[str], None],
    ) -> None:
        """Do the handshake, then call one of the two functions."""
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._shake_hands(sock, context))
        self._under_way[task] = None
        # Not in the task itself: a task that is cancelled before its first step never runs.
        task.add_done_callback(partial(self._finish, done, failed))

    def _finish(
        self, done: Callable[[Stream], None], failed: Callable[[str], None], task: asyncio.Task[Stream]
    ) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():
            failed("too many handshakes in progress")
            return
        error = task.exception()
        if error is None:
            done(task.result())
        elif isinstance(error, TimeoutError):
            failed(f"it did not finish within {HANDSHAKE_S:g} s")
        elif isinstance(error, OSError):
            failed(error.strerror or "connection lost")
        else:
            if not isinstance(error, HandshakeError):
                logger.error("a handshake failed", exc_info=error)
            failed(str(error) or type(error).__name__)

    async def _shake_hands(self, sock: socket, context: ssl.SSLContext) -> Stream:
        async with asyncio.timeout(HANDSHAKE_S):
            return await self._exchange(sock, context)

    async def _exchange(self, sock: socket, context: ssl.SSLContext) -> Stream:
        loop, stream, held, size_max = asyncio.get_running_loop(), Stream(context), bytearray(), SIZE_MAX
        while True:
            await receive_record(sock, held, size_max)
            whole = whole_size(held)
            size_max -= whole
            stream.feed(held[:whole])
            del held[:whole]
            reason = ""
            try:
                finished = await loop.run_in_executor(self._pool, stream.shake_hands)
            except ssl.SSLError as error:
                reason = reason_of(error)
            if owed := stream.take_cipher():  # after a failure, too: it tells the client why
                await loop.sock_sendall(sock, owed)
            if reason:
                raise HandshakeError(reason)
            if finished:
                stream.feed(held)  # the start of the next record
                return stream

    async def close(self) -> None:
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)


async def receive_record(sock: socket, held: bytearray, size_max: int) -> None:
    """Receive until TLS can continue. Bytes that arrive one by one wake up nothing else."""
    loop, fd = asyncio.get_running_loop(), sock.fileno()
    received: asyncio.Future[None] = loop.create_future()

    def take() -> None:
        error: Exception | None = None
        try:
            data = sock.recv(RECEIVE_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as failure:
            data, error = b"", failure
        held.extend(data)
        if not data:
            error = error or HandshakeError("it disconnected")
        elif len(held) > size_max:
            error = HandshakeError(f"more than {SIZE_MAX} bytes")
        elif not whole_size(held):
            return
        loop.remove_reader(fd)
        if received.done():  # it was cancelled
            return
        if error is None:
            received.set_result(None)
        else:
            received.set_exception(error)

    if whole_size(held):
        return
    loop.add_reader(fd, take)
    try:
        await received
    finally:
        loop.remove_reader(fd)


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
