"""The certificate and the trust store of a TLS listener: the context of its handshakes, reloaded with its files.

Files and options are those of the blocking client (`ottla.client.security`): PEM, or PKCS12 if the `cryptography`
package is installed; a Java store is refused with the command that converts it.

Handshakes and connections keep the context that they began with. If a file cannot be read, the previous context stays
in use.
"""

from __future__ import annotations

import os
import re
import ssl
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed
from ottla.client.security import OPTIONS, security
from ottla.config.option import ConfigError
from ottla.security.mapping import Mapping

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.config import Listener
    from ottla.config.security import SecurityConfig

FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
NEWEST_SUITES: Final = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))


class Certificates:
    """The certificates of one listener."""

    def __init__(self, listener: Listener) -> None:
        self.name = listener.name
        self._config = listener.security
        self._stamps = stamps(self._config)
        self.context = server_context(self._config)
        self.mapping = Mapping(self._config.ssl_principal_mapping_rules)

    def __str__(self) -> str:
        return self.name

    def renew(self, config: SecurityConfig) -> bool:
        """Reload the files if they, or the options, have changed. ConfigError keeps the previous ones."""
        seen = stamps(config)
        if seen == self._stamps and config == self._config:
            return False
        context = server_context(config)
        mapping = Mapping(config.ssl_principal_mapping_rules)
        self.context, self.mapping, self._config, self._stamps = context, mapping, config, seen
        return True


def stamps(config: SecurityConfig) -> list[tuple[int, int, int] | None]:
    """A fingerprint of each file, to notice changes."""
    return [stamp(config.given.get(name)) for name in FILES]


def stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_context(config: SecurityConfig) -> ssl.SSLContext:
    """The TLS context of a listener with these options."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # no session resumption: a resumed session would outlive the checked certificate
    versions = choose_suites(context, config)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    store = store_of(config)
    try:
        store.load_key(context)
        if config.ssl_client_auth != "none":
            store.load_trust(context)
    except Failed as error:
        raise ConfigError(str(error)) from None
    context.verify_mode = VERIFY[config.ssl_client_auth]
    return context


def store_of(config: SecurityConfig) -> Security:
    """The key and the trusted CAs, as the blocking client reads them."""
    given = {name: text for name, text in config.given.items() if name.startswith("ssl.") and name in OPTIONS}
    for kind in ("keystore", "truststore"):
        if given.get(f"ssl.{kind}.type", "").upper() == "PEM" and f"ssl.{kind}.password" in given:
            reason = f"ssl.{kind}.password: a PEM store has none; a key of its own has ssl.key.password"
            raise ConfigError(reason)
    try:
        return security({**given, "security.protocol": "SSL"})
    except Failed as error:
        raise ConfigError(str(error)) from None


def choose_suites(context: ssl.SSLContext, config: SecurityConfig) -> list[ssl.TLSVersion]:
    """Allow the configured cipher suites. Returns the remaining versions of TLS."""
    versions = [VERSIONS[name] for name in config.ssl_enabled_protocols]
    wanted = config.ssl_cipher_suites
    if not versions:
        raise ConfigError("ssl.enabled.protocols: name at least one version")
    if not wanted:
        return versions
    newest = NEWEST_SUITES.intersection(wanted)
    if newest and newest != NEWEST_SUITES:
        every = ", ".join(sorted(NEWEST_SUITES))
        raise ConfigError(f"ssl.cipher.suites: name all TLS 1.3 suites or none: {every}")
    older = [openssl_name(name) for name in wanted if name not in NEWEST_SUITES]
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: OpenSSL does not know {name}") from None
    if older:
        context.set_ciphers(":".join(older))
    left = [one for one in versions if (newest if one is VERSIONS["TLSv1.3"] else older)]
    if not left:
        raise ConfigError("ssl.cipher.suites: none of them is of a version in ssl.enabled.protocols")
    return left


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 to OpenSSL."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"^(AES|ARIA|CAMELLIA)_(\d+)", r"\1\2", cipher).replace("_CBC", "").replace("_", "-")
    cipher = cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
