"""TLS between the bytes of a socket and those of the protocol. Nothing here waits.

The cipher text passes through memory: one read of the socket brings many TLS records, where OpenSSL itself would ask
the kernel twice for each. `shake_hands` is the one part that takes long, for it signs: it runs in a thread.
"""

from __future__ import annotations

import ssl
from threading import local
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from socket import socket

CIPHER_SIZE: Final = 256 * 1024  # bytes read from a socket at once
OWED_SIZE_MAX: Final = 64 * 1024  # bytes that TLS itself has to say: a peer that makes us talk and never listens


class Buffer(local):
    """Of a loop's thread, for the moment of one read: brokers of one process may have a thread each."""

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
        self.more = False  # whether there may be bytes that were received and not asked for yet

    def shake_hands(self) -> bool:
        """Go on with the handshake. False: more has to come first. SSLError: it has failed."""
        if self._context is not None:  # here and not before: it takes a while, and some never send a byte
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
        """The peer's, checked; None if it has none."""
        return self._tls.getpeercert(binary_form=True)

    def feed(self, cipher: bytes | bytearray) -> None:
        self._incoming.write(cipher)

    def take_cipher(self) -> bytes:
        """What TLS has to say."""
        return self._outgoing.read()

    @property
    def owed_size(self) -> int:
        return self._outgoing.pending

    def receive(self, sock: socket, buffer: memoryview) -> int:
        """As `recv_into`: BlockingIOError when nothing is there, 0 at the end."""
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
            if not count:  # the end; after what came before it, it is found again
                self.more = size > 0
                return size
            size += count
        self.more = size == room
        if not size:
            raise BlockingIOError
        return size

    def encrypt(self, data: bytes | memoryview) -> None:
        """What it becomes is among what is owed."""
        self._tls.write(data)

    def end(self) -> None:
        """Say goodbye, if TLS is in a state to do so."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            return
