"""The send buffer of a client's socket, fitted to how the client reads.

How much of an answer the kernel should take at once depends on the client:

    It offers a large window: what the kernel has taken is on its way at once. With much of it on the way the data and
    its bookkeeping leave the processor's caches before the client has read them, which costs both sides more.
    It offers a small window, such as Java's consumer with its buffer of 64 kB: most of what the kernel has taken waits
    here. The broker is woken whenever a third of that is sent, so more at once means fewer wake-ups.

The window is small for every client at first and grows as it reads, so it is looked up again for a while, each time the
socket is full. A client that is not near keeps its buffer: on a long way, more must be on the way at once.

When several clients read large answers at the same time, their data share the caches, so each gets less.
"""

from __future__ import annotations

import socket as sockets
import sys
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket

KB = 1024
LARGE_WINDOW = 256 * KB
FOR_LARGE_WINDOWS = 200 * KB
FOR_CROWDS = 100 * KB  # the same for one of several
FOR_SMALL_WINDOWS = 500 * KB
NEAR_US = 200  # the shortest round trip so far; a machine of its own in the same room takes about as long
LOOKS_MAX = 32  # of one connection
LOOKS_BEFORE_SMALL = 8  # a window that is still small then will stay so

# The shortest round trip in microseconds and the peer's window in bytes, in Linux' `struct tcp_info`.
_INFO = Struct("=148xI76xI")
_TCP_INFO = getattr(sockets, "TCP_INFO", None) if sys.platform == "linux" else None


class SendBuffer:
    """Fits the buffer of one socket."""

    __slots__ = ("_looks", "_size", "_unknown")

    def __init__(self) -> None:
        self._looks = 0
        self._unknown = _TCP_INFO is not None  # whether the window is still to be looked up
        self._size = 0  # that was set because of a large window

    def fit(self, socket: socket, *, crowded: bool) -> None:
        """Call this when the socket has taken only a part of a region. `crowded`: others wait for theirs, too."""
        if self._unknown:
            self._look(socket)
        if self._size:
            size = FOR_CROWDS if crowded else FOR_LARGE_WINDOWS
            if size != self._size:
                self._size = size
                socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, size)

    def _look(self, socket: socket) -> None:
        assert _TCP_INFO is not None, "the window is unknown for ever otherwise"
        self._looks += 1
        try:
            info = socket.getsockopt(sockets.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        except OSError:  # not in every sandbox
            info = b""
        if len(info) < _INFO.size:
            self._unknown = False  # an old kernel
            return
        round_trip_us, window = _INFO.unpack(info)
        self._unknown = self._looks < LOOKS_MAX
        if round_trip_us > NEAR_US:
            return
        if window >= LARGE_WINDOW:
            self._unknown = False
            self._size = -1  # one of the two sizes, in any case another than now
        elif self._looks == LOOKS_BEFORE_SMALL:
            socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, FOR_SMALL_WINDOWS)
