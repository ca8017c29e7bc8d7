"""The send queue of a connection: bytes and regions of log files, in order.

A large region is sent by `sendfile`, from the page cache to the socket without a copy. A small one is read and sent
together with the bytes around it, because the copy costs less than another system call.
"""

from __future__ import annotations

import os
import socket as sockets
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from ottla.net.buffer import SendBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from socket import socket

    from ottla.net.region_sender import Piece

# An int, because arithmetic on the flag's enum type runs in Python code. macOS does not have this flag.
MORE = int(getattr(sockets, "MSG_MORE", 0))
# Up to this size, copying a region into the answer (one pread) is cheaper than a system call of its own.
COPY_SIZE_MAX = 16 * 1024
# The most buffers of one sendmsg; far below the kernel's limit of 1024.
GATHER_MAX = 64


class Region(Protocol):
    """A region of a file that is sent without reading it into memory: `size` bytes at `position` of `fd`."""

    @property
    def size(self) -> int: ...

    @property
    def fd(self) -> int: ...

    @property
    def position(self) -> int: ...

    def read(self) -> bytes: ...


Part = Any  # bytes, memoryview or Region; the wire codec returns lists of these
BUFFERS = frozenset((bytes, memoryview, bytearray))  # the parts that are not regions


def size_of(parts: Iterable[Part]) -> int:
    size = 0
    for part in parts:
        size += len(part) if part.__class__ in BUFFERS else part.size
    return size


class Outbox:
    __slots__ = ("_buffer", "_parts", "size")

    def __init__(self, *, fits_buffer: bool = False) -> None:
        """`fits_buffer`: see `SendBuffer`."""
        self._parts: deque[Part] = deque()
        self._buffer = SendBuffer() if fits_buffer else None
        self.size = 0  # bytes not yet sent

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, parts: list[Part]) -> None:
        for part in parts:
            self._parts.append(part)
            self.size += len(part) if part.__class__ in BUFFERS else part.size

    def clear(self) -> None:
        self._parts.clear()
        self.size = 0

    def take_parts(self) -> list[Part]:
        parts = list(self._parts)
        self.clear()
        return parts

    def fit_buffer(self, sock: socket, *, crowded: bool) -> None:
        """Call this when a region was sent in part. `crowded`: see `SendBuffer`."""
        if self._buffer is not None:
            self._buffer.fit(sock, crowded=crowded)

    def list_pieces(self) -> list[Piece]:
        """The next parts, for `RegionSender`. Empty if the next one is not a large region."""
        pieces: list[Piece] = []
        for part in self._parts:
            if part.__class__ not in BUFFERS:
                if not pieces and part.size <= COPY_SIZE_MAX:
                    break
                pieces.append((part.fd, part.position, part.size))
            elif pieces and len(part) <= COPY_SIZE_MAX:
                pieces.append(bytes(part))
            else:
                break
            if len(pieces) == GATHER_MAX:
                break
        return pieces

    def drop(self, count: int) -> None:
        """Remove the next `count` parts, which were sent by others."""
        for _ in range(count):
            part = self._parts.popleft()
            self.size -= len(part) if part.__class__ in BUFFERS else part.size

    def send(self, sock: socket) -> bool:
        """Send until the socket is full (False) or everything is sent (True). OSError if the peer is gone."""
        parts = self._parts
        try:
            while parts:
                first = parts[0]
                if first.__class__ not in BUFFERS:
                    whole = self._send_region(sock, first)
                elif len(parts) == 1:
                    whole = self._send_last(sock, first)
                else:
                    whole = self._send_gathered(sock)
                if not whole:
                    return False
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _send_last(self, sock: socket, part: Part) -> bool:
        sent = sock.send(part)
        self.size -= sent
        if sent == len(part):
            self._parts.clear()
            return True
        self._parts[0] = memoryview(part)[sent:]
        return False

    def _send_gathered(self, sock: socket) -> bool:
        """Send all bytes before the next large region in one call; False if the socket took only some of them."""
        parts, buffers, more = self._parts, list[Part](), 0
        for part in parts:
            if part.__class__ in BUFFERS:
                buffers.append(part)
            elif part.size > COPY_SIZE_MAX:
                more = MORE  # the region follows at once: let the kernel combine both into one packet
                break
            else:
                buffers.append(part.read())
            if len(buffers) == GATHER_MAX:
                break
        wanted = sum(map(len, buffers))
        sent = sock.send(buffers[0], more) if len(buffers) == 1 else sock.sendmsg(buffers, (), more)
        self.size -= sent
        for _ in buffers:
            parts.popleft()
        if sent == wanted:
            return True
        for index, part in enumerate(buffers):
            if sent < len(part):
                parts.extendleft([*reversed(buffers[index + 1 :]), memoryview(part)[sent:]])
                break
            sent -= len(part)
        return False

    def _send_region(self, sock: socket, region: Region) -> bool:
        if region.size <= COPY_SIZE_MAX:
            self._parts[0] = region.read()
            return True
        sent = os.sendfile(sock.fileno(), region.fd, region.position, region.size)
        if sent == 0:
            raise OSError("the log file is shorter than the region to send")
        self.size -= sent
        if sent == region.size:
            self._parts.popleft()
            return True
        self._parts[0] = UnsentRegion(region, sent)
        return False


class UnsentRegion:
    """The unsent rest of a region; keeps the region, and so its file, open."""

    __slots__ = ("_whole", "fd", "position", "size")

    def __init__(self, whole: Region, sent: int) -> None:
        self._whole = whole
        self.fd = whole.fd
        self.position = whole.position + sent
        self.size = whole.size - sent

    def read(self) -> bytes:
        data = os.pread(self.fd, self.size, self.position)
        if len(data) < self.size:
            raise OSError("the log file is shorter than the region to send")
        return data
