"""How this broker authenticates to other brokers: what the inter-broker listener requires.

TLS as a client, with the broker's own certificate, and a login with the name and the password in the listener's
`sasl.jaas.config`. Changed files are reloaded for new connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.failure import Failed
from ottla.client.security import plain_steps, scram_steps, security
from ottla.config.option import ConfigError
from ottla.errors import OutsideError
from ottla.security.certificates import stamps, store_of
from ottla.security.mechanisms import login_options

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator

    from ottla.config import Listener


class ProofError(OutsideError):
    """The other broker is not authentic, or refuses our login."""


class Credentials:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._context: ssl.SSLContext | None = None
        self._stamps: object = None
        self.mechanism = ""
        self._user = self._password = ""  # nosec B105 # none is given
        if listener.authenticated:
            self._read_login(listener)
        if listener.encrypted:
            self.context()

    def _read_login(self, listener: Listener) -> None:
        self.mechanism = mechanism = listener.security.sasl_mechanism_inter_broker_protocol
        if mechanism not in listener.security.sasl_enabled_mechanisms:
            raise ConfigError(f"sasl.mechanism.inter.broker.protocol: {mechanism} is not in sasl.enabled.mechanisms")
        if mechanism == "OAUTHBEARER":
            raise ConfigError("sasl.mechanism.inter.broker.protocol: brokers log in by PLAIN or SCRAM only")
        options = login_options(listener, mechanism)
        if not options.get("username") or not options.get("password"):
            option = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
            raise ConfigError(f"{option}: the inter-broker listener needs a username and a password here")
        self._user, self._password = options["username"], options["password"]

    def context(self) -> ssl.SSLContext | None:
        """The context for a new connection; None without TLS. May read files."""
        if not self._listener.encrypted:
            return None
        config = self._listener.security
        seen = stamps(config)
        if self._context is None or seen != self._stamps:
            try:
                self._context = store_of(config).context()
            except (Failed, ConfigError) as error:
                if self._context is None:
                    raise ConfigError(str(error)) from None
            self._stamps = seen
        return self._context

    def proof(self) -> Proof:
        """Start a login."""
        made = security(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": self.mechanism, "sasl.username": self._user,
             "sasl.password": self._password}
        )  # fmt: skip
        steps = plain_steps(made) if self.mechanism == "PLAIN" else scram_steps(made, "the other broker")
        return Proof(steps)


class Proof:
    """One login: the client's side of the exchange."""

    def __init__(self, steps: Generator[bytes, bytes, None]) -> None:
        self._steps = steps

    def begin(self) -> bytes:
        return next(self._steps)

    def respond(self, token: bytes) -> bytes | None:
        """The next message; None if there is none left. May take long, because SCRAM hashes a password many times."""
        try:
            return self._steps.send(token)
        except StopIteration:
            return None
        except Failed as error:
            raise ProofError(str(error)) from None
