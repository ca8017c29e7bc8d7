"""Splits the bytes from another broker's connection into responses. Each gets a buffer of its own.

Small responses are read many at a time into one buffer. The rest of a response that does not fit there is received
directly into the buffer that the caller gets. That buffer grows with the received bytes, so a large declared length
alone allocates nothing. An impossible length closes the connection.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE: Final = Struct(">i")
AHEAD: Final = 1 << 16
PIECE: Final = 1 << 20  # initial size of a frame's buffer; it is doubled when full
ANSWER_SIZE_MAX: Final = 512 << 20  # more than any response between brokers


class Frames(asyncio.BufferedProtocol):
    """`took` is called with each frame, `ended` once with the reason when the connection is closed."""

    def __init__(
        self, took: Callable[[bytearray], None], ended: Callable[[str], None], size_max: int = ANSWER_SIZE_MAX
    ) -> None:
        self._took = took
        self._ended = ended
        self._size_max = size_max
        self._transport: asyncio.Transport | None = None
        self.reason: str | None = None  # why the connection was closed
        self._ahead = bytearray(AHEAD)
        self._view = memoryview(self._ahead)
        self._held = 0  # bytes at the start of `_ahead` that are not a complete frame yet
        self._frame: bytearray | None = None  # an incomplete frame with its own buffer
        self._size = self._filled = 0  # its length, and the bytes received of it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("connection lost" if exc is None else str(exc) or type(exc).__name__)

    def eof_received(self) -> bool:
        self._end("the other side closed the connection")
        return False

    def send(self, parts: list[bytes]) -> None:
        assert self._transport is not None
        self._transport.writelines([SIZE.pack(sum(map(len, parts))), *parts])

    @property
    def unsent_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self, reason: str) -> None:
        """Close the connection now, without sending the rest."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self._transport is not None:
            self._transport.abort()
        self._frame = None
        self._ended(reason)

    # Called by the transport: get a buffer to read into, and report how much was read.

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return self._view[self._held :]
        if self._filled == len(self._frame):
            self._frame += bytes(min(self._filled, self._size - self._filled))
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.reason is not None:
            return
        if self._frame is None:
            self._cut(self._held + nbytes)
            return
        self._filled += nbytes
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            self._took(frame)

    def _cut(self, end: int) -> None:
        """Deliver the complete frames in the first `end` bytes of `_ahead`, and keep the rest."""
        start = 0
        while self.reason is None and end - start >= SIZE.size:
            (size,) = SIZE.unpack_from(self._ahead, start)
            if not SIZE.size <= size <= self._size_max:
                self._end(f"it sent a length of {size} bytes")
                return
            first = start + SIZE.size
            if first + size > end:
                if first + size - start > AHEAD:
                    self._begin(size, self._view[first:end])
                    start = end
                break
            start = first + size
            self._took(bytearray(self._view[first:start]))
        self._held = end - start
        if start and self._held:
            self._ahead[: self._held] = self._ahead[start:end]

    def _begin(self, size: int, arrived: memoryview) -> None:
        self._size, self._filled = size, len(arrived)
        self._frame = bytearray(min(size, max(PIECE, self._filled)))
        self._frame[: self._filled] = arrived
