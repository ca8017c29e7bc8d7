"""Frames over a socket, without copies of large parts. Blocking, in one thread.

Data is read ahead, so that one system call returns many small answers. A large answer is received into a buffer of its
own, which then belongs to the caller. All waits have limits: an answer must start in time, and keep up `RATE_MIN`.
"""

from __future__ import annotations

import contextlib
import select
import ssl
import struct
import time
from typing import TYPE_CHECKING, Final

from ottla.wire.codec import DecodeError

if TYPE_CHECKING:
    import socket

ANSWER_SIZE_MAX: Final = 512 << 20  # more than any broker sends; a larger length is an error
PIECE: Final = 16 << 20  # allocated at once; beyond it memory follows what arrives, not what a broker claims
RATE_MIN: Final = 64 << 10  # bytes per second; a slower answer times out
JOIN_MAX: Final = 1 << 14  # smaller frames are joined: one copy costs less than a list of parts
PARTS_MAX: Final = 512  # per system call; POSIX guarantees 16, common systems take 1024
AHEAD: Final = 1 << 16
_SIZE: Final = struct.Struct(">i")

Part = bytes | memoryview


class Channel:
    def __init__(self, plain: socket.socket, timeout_s: float) -> None:
        self._socket = plain
        self._timeout_s = timeout_s
        self._limit_s: float | None = None  # the timeout that is set on the socket
        self._ahead = memoryview(bytearray(AHEAD))
        self._start = self._end = 0  # of data received but not yet returned
        self._limit(timeout_s)

    def send(self, parts: list[Part]) -> None:
        """Send one frame, with its length in front."""
        size = sum(map(len, parts))
        parts = [_SIZE.pack(size), *parts]
        if size <= JOIN_MAX or isinstance(self._socket, ssl.SSLSocket):
            self._socket.sendall(b"".join(parts))
            return
        left = size + _SIZE.size
        while True:
            sent = self._socket.sendmsg(parts[:PARTS_MAX])
            left -= sent
            if not left:
                return
            done = 0
            while sent >= len(parts[done]):
                sent -= len(parts[done])
                done += 1
            parts = [memoryview(parts[done])[sent:], *parts[done + 1 :]]

    def receive(self, wait_s: float = 0.0) -> bytearray:
        """The next frame. The timeout starts now: the request may have been sent long ago."""
        self._limit(self._timeout_s + wait_s)
        size = self._size(time.monotonic() + self._timeout_s + wait_s)
        start = self._start + _SIZE.size
        here = min(size, self._end - start)
        if here == size:
            data = bytearray(self._ahead[start : start + size])
        else:
            data = bytearray(min(size, PIECE))
            data[:here] = self._ahead[start : self._end]
        self._start = start + here
        deadline = time.monotonic() + self._timeout_s + size / RATE_MIN
        while here < size:
            if here == len(data):
                data += bytes(min(here, size - here))
            here = self._fill(data, here, deadline)
        return data

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Whether a frame has begun to arrive, or the connection has ended, within this time."""
        if self._end > self._start or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        waiting = select.poll()  # select itself fails in programs with a thousand open files
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(timeout_s * 1000))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _size(self, deadline: float) -> int:
        """The length in front of the next frame."""
        while (held := self._end - self._start) < _SIZE.size:
            self._ahead[:held] = self._ahead[self._start : self._end]
            self._start, self._end = 0, held
            if held and time.monotonic() > deadline:
                raise TimeoutError
            self._end += self._read(self._ahead[held:])
        size: int = _SIZE.unpack_from(self._ahead, self._start)[0]
        if not 4 <= size <= ANSWER_SIZE_MAX:
            raise DecodeError(f"a length of {size} bytes")
        return size

    def _fill(self, data: bytearray, position: int, deadline: float) -> int:
        """Receive to the end of the data; the position reached."""
        size = len(data)
        with memoryview(data) as view:
            while position < size:
                position += self._read(view[position:])
                if position < size and time.monotonic() > deadline:
                    raise TimeoutError
        return position

    def _read(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if not count:
            raise ConnectionError("connection closed")
        return count

    def _limit(self, seconds: float) -> None:
        if seconds != self._limit_s:  # it costs a system call
            self._socket.settimeout(seconds)
            self._limit_s = seconds
