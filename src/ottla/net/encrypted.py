"""A connection over TLS. It begins after the handshake; frames and answers are handled as on any other connection.

`sendfile` cannot encrypt: regions of files are read and encrypted in pieces, each after the previous one is sent, and
after `TURN_SIZE` bytes other connections get the loop. Bytes may already be in the TLS buffer when the socket has none:
then the connection schedules its own reads, one turn at a time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.net.connection import Connection
from ottla.net.outbox import BUFFERS, Outbox, UnsentRegion
from ottla.security.stream import OWED_SIZE_MAX

if TYPE_CHECKING:
    from socket import socket

    from ottla.net.region_sender import Piece
    from ottla.security.stream import Stream

PIECE_SIZE = 128 * 1024  # encrypted at once
TURN_SIZE = 1 << 20  # encrypted before others get a turn


class EncryptedSocket:
    """The socket methods that a connection needs, over TLS."""

    __slots__ = ("_socket", "_stream")

    def __init__(self, sock: socket, stream: Stream) -> None:
        self._socket = sock
        self._stream = stream

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def recv_into(self, buffer: memoryview) -> int:
        return self._stream.receive(self._socket, buffer)

    def send(self, cipher: memoryview) -> int:
        return self._socket.send(cipher)

    def close(self) -> None:
        self._socket.close()


class EncryptedOutbox(Outbox):
    __slots__ = ("_cipher", "_encrypting", "_stream")

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self._cipher = memoryview(b"")  # encrypted and not yet sent
        self._encrypting = 0  # size of that before encryption

    def __len__(self) -> int:
        return len(self._parts) + (1 if self._cipher else 0)

    def clear(self) -> None:
        super().clear()
        self._cipher = memoryview(b"")

    def list_pieces(self) -> list[Piece]:
        """None: nobody else can encrypt them."""
        return []

    def send(self, sock: socket) -> bool:
        """Send until the socket is full or the turn is over (False), or everything is sent (True)."""
        left = TURN_SIZE
        try:
            while True:
                if self._cipher:
                    sent = sock.send(self._cipher)
                    self._cipher = self._cipher[sent:]
                    if self._cipher:
                        return False
                    self.size -= self._encrypting
                    self._encrypting = 0
                if not self._parts and not self._stream.owed_size:
                    return True
                if left <= 0:
                    return False
                left -= self._encrypt()
        except (BlockingIOError, InterruptedError):
            return False

    def _encrypt(self) -> int:
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._parts and size < PIECE_SIZE:
            piece = self._take(PIECE_SIZE - size)
            pieces.append(piece)
            size += len(piece)
        if pieces:
            self._stream.encrypt(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._encrypting += size
        self._cipher = memoryview(self._stream.take_cipher())
        return size

    def _take(self, size_max: int) -> bytes | memoryview:
        """The next bytes to send."""
        first = self._parts.popleft()
        if first.__class__ in BUFFERS:
            if len(first) > size_max:
                self._parts.appendleft(memoryview(first)[size_max:])
                return memoryview(first)[:size_max]
            whole: bytes | memoryview = first
            return whole
        if first.size > size_max:
            self._parts.appendleft(UnsentRegion(first, size_max))
        size = min(first.size, size_max)
        data = os.pread(first.fd, size, first.position)
        if len(data) < size:
            raise OSError("the log file is shorter than the region to send")
        return data


class EncryptedConnection(Connection):
    __slots__ = ("_stream",)

    def __init__(self, sock: socket, stream: Stream, **rest: Any) -> None:
        self._stream = stream
        super().__init__(EncryptedSocket(sock, stream), **rest)  # type: ignore[arg-type]
        self._out = EncryptedOutbox(stream)
        self._loop.call_soon(self._read_on)  # the first request may have arrived with the handshake

    def _on_readable(self) -> None:
        super()._on_readable()
        if self.closed:
            return
        if self._stream.owed_size and not self._writing:
            if self._stream.owed_size > OWED_SIZE_MAX:
                self.close()
                return
            self._send()
        self._look_for_more()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._look_for_more()

    def _look_for_more(self) -> None:
        if self._stream.more and self._reading and not self.closed:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._stream.more and self._reading and not self.closed:
            self._on_readable()

    def close(self) -> None:
        if not self.closed and not self._out:
            self._stream.end()
            with suppress(OSError):
                self._socket.send(self._stream.take_cipher())
        super().close()
