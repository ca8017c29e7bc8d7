"""How a client enters a listener that is not PLAINTEXT: first TLS, then SASL, as the listener's protocol requires."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.net.connection import Connection
from ottla.net.encrypted import EncryptedConnection
from ottla.security.mapping import UnmappedError
from ottla.security.principal import ANONYMOUS, user
from ottla.security.subject import Malformed, subject_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from ottla.net.login_gate import LoginGate
    from ottla.net.newcomers import Newcomers
    from ottla.security.certificates import Certificates
    from ottla.security.handshake import Handshakes
    from ottla.security.principal import Principal
    from ottla.security.stream import Stream

    Make = Callable[..., Connection]


class Entrance:
    """The entrance of one listener. No certificates: no TLS. No gate: no login."""

    def __init__(
        self, handshakes: Handshakes, *, certificates: Certificates | None, gate: LoginGate | None, delay_s: float
    ) -> None:
        self.certificates = certificates
        self.gate = gate
        self.delay_s = delay_s  # how long a failed connection stays open, to slow down repeated attempts
        self._handshakes = handshakes

    def begin(
        self, sock: socket, newcomers: Newcomers, join: Callable[[Make], None], turn_away: Callable[[str], None]
    ) -> None:
        """Call `join` with the factory of the connection once the client is admitted, else `turn_away`."""
        if self.certificates is None:
            join(partial(Connection, sock))
            return

        def greet(stream: Stream) -> None:
            try:
                principal = self._principal(stream)
            except (UnmappedError, Malformed) as error:
                turn_away(str(error))
                return
            join(partial(EncryptedConnection, sock, stream, principal=principal))

        self._handshakes.begin(
            sock,
            self.certificates.context,
            newcomers.serve,
            greet,
            lambda reason: turn_away(f"TLS handshake failed: {reason}"),
        )

    def _principal(self, stream: Stream) -> Principal:
        certificate = stream.certificate
        if certificate is None or self.gate is not None:
            return ANONYMOUS
        assert self.certificates is not None
        return user(self.certificates.mapping.name(subject_of(certificate)))
