"""TLS between the bytes of a socket and those of the protocol, without blocking.

The ciphertext goes through memory: one read of the socket brings many TLS records, while OpenSSL itself would make two
system calls for each. Only `shake_hands` takes long, because it signs: it runs in a thread.
"""

from __future__ import annotations

import ssl
from threading import local
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from socket import socket

CIPHER_SIZE: Final = 256 * 1024  # bytes read from a socket at once
OWED_SIZE_MAX: Final = 64 * 1024  # unsent bytes of TLS itself; more means a peer that makes us answer and never reads


class Buffer(local):
    """The receive buffer of a loop's thread, used during one read: brokers of one process may have a thread each."""

    def __init__(self) -> None:
        self.cipher = memoryview(bytearray(CIPHER_SIZE))


_buffer = Buffer()


class Stream:
    __slots__ = ("_context", "_incoming", "_outgoing", "_tls", "more")
    _tls: ssl.SSLObject

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context: ssl.SSLContext | None = context  # until the handshake begins
        self.more = False  # whether there may be received bytes that were not read yet

    def shake_hands(self) -> bool:
        """Continue the handshake. False: more bytes are needed. SSLError: it failed."""
        if self._context is not None:  # not earlier: it takes a while, and some clients never send a byte
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._context = None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.more = True
        return True

    @property
    def certificate(self) -> bytes | None:
        """The verified certificate of the peer; None if it has none."""
        return self._tls.getpeercert(binary_form=True)

    def feed(self, cipher: bytes | bytearray) -> None:
        self._incoming.write(cipher)

    def take_cipher(self) -> bytes:
        """The pending output of TLS."""
        return self._outgoing.read()

    @property
    def owed_size(self) -> int:
        return self._outgoing.pending

    def receive(self, sock: socket, buffer: memoryview) -> int:
        """Like `recv_into`: BlockingIOError if there are no bytes, 0 at the end."""
        size, room, received = 0, len(buffer), False
        while size < room:
            try:
                count = cast("int", self._tls.read(room - size, buffer[size:]))
            except ssl.SSLWantReadError:
                if size or received:
                    break
                cipher = _buffer.cipher
                taken = sock.recv_into(cipher)
                if not taken:
                    return 0
                self._incoming.write(cipher[:taken])
                received = True
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:  # the end: report the bytes before it first, the next call finds it again
                self.more = size > 0
                return size
            size += count
        self.more = size == room
        if not size:
            raise BlockingIOError
        return size

    def encrypt(self, data: bytes | memoryview) -> None:
        """Encrypt data. The result is added to the pending output."""
        self._tls.write(data)

    def end(self) -> None:
        """Send close_notify, if TLS is in a state to do so."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            return
