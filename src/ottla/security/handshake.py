"""Handshakes under way: each a task with an end, not too many at once, and none of them on the loop's time.

Signing takes milliseconds with a large key, so it is done in a thread. Who does not finish in time is closed. When
there are too many the oldest goes: a crowd that never finishes keeps nobody out who does.
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
SIZE_MAX: Final = 256 * 1024  # bytes that a client may say before it has finished: its certificate and its chain


class HandshakeError(Exception):
    """No TLS with this client; the text says why."""


class Handshakes:
    """Of all listeners of a broker."""

    def __init__(self) -> None:
        self._under_way: dict[asyncio.Task[Stream], None] = {}  # the oldest first
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
        """Shake hands with who is at the other end of the socket, then call one of the two, never both."""
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._shake_hands(sock, context))
        self._under_way[task] = None
        # Not in the task itself: one that is cancelled before its first step never runs.
        task.add_done_callback(partial(self._finish, done, failed))

    def _finish(
        self, done: Callable[[Stream], None], failed: Callable[[str], None], task: asyncio.Task[Stream]
    ) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():
            failed("too many are under way")
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
        loop, stream, size, held = asyncio.get_running_loop(), Stream(context), 0, b""
        while True:
            data = await loop.sock_recv(sock, RECEIVE_SIZE)
            size += len(data)
            if not data:
                raise HandshakeError("it went away")
            if size > SIZE_MAX:
                raise HandshakeError(f"more than {SIZE_MAX} bytes")
            held += data
            if not has_record(held):
                continue
            stream.feed(held)
            held, reason = b"", ""
            try:
                finished = await loop.run_in_executor(self._pool, stream.shake_hands)
            except ssl.SSLError as error:
                reason = reason_of(error)
            if owed := stream.take_cipher():  # after a failure, too: the client is told why
                await loop.sock_sendall(sock, owed)
            if reason:
                raise HandshakeError(reason)
            if finished:
                return stream

    async def close(self) -> None:
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)


def has_record(data: bytes) -> bool:
    """Whether TLS can go on: a whole record is there, or something that is none.

    A turn in the thread for every byte of a client that sends them one by one would keep the broker busy.
    """
    if data[0] not in RECORD_TYPES:
        return True
    if len(data) < RECORD_HEADER.size:
        return False
    size: int = RECORD_HEADER.unpack_from(data)[2]
    return size > RECORD_SIZE_MAX or len(data) >= RECORD_HEADER.size + size


def reason_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    return (error.reason or "no TLS").replace("_", " ").lower()
