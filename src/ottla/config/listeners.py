"""Listeners: `NAME://host:port`. `listener.security.protocol.map` maps the name to a security protocol.

No host means all interfaces. Without `advertised.listeners` a client gets the address that it connected to. A listener
that cannot work (no certificate, an unknown mechanism) is refused here, before its socket is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config.option import ConfigError, invalid
from ottla.config.security import MECHANISMS, SecurityConfig, listener_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.option import Value

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    name: str
    protocol: str
    host: str  # "" for all interfaces
    port: int  # 0 for any free port
    connections_max: int | None  # listener.name.<name>.max.connections, on top of max.connections
    security: SecurityConfig

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol.startswith("SASL")


def names(values: Mapping[str, Value]) -> set[str]:
    """Names of all listeners, including controller listeners."""
    return {parse("listeners", text)[0] for text in _strings(values, "listeners")}


def parse_listeners(values: Mapping[str, Value], pairs: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners to open: all except those of a KRaft controller, which Ottla does not have."""
    controller = [name.upper() for name in _strings(values, "controller_listener_names")]
    protocols = _protocols(values["listener_security_protocol_map"])
    listeners: list[Listener] = []
    for text in _strings(values, "listeners"):
        name, host, port = parse("listeners", text)
        if name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {name}: add it to listener.security.protocol.map"
            )
        if name in controller:
            continue
        limit = pairs.get(f"listener.name.{name.lower()}.max.connections")
        security = listener_config(name, pairs)
        listeners.append(Listener(name, protocols[name], host, port, None if limit is None else int(limit), security))
    if not listeners:
        raise ConfigError("listeners: at least one non-controller listener is required")
    _check(listeners)
    for listener in listeners:
        _check_security(listener)
    return tuple(listeners)


def find_inter_broker(
    listeners: tuple[Listener, ...], values: Mapping[str, Value], pairs: Mapping[str, str]
) -> Listener:
    """The listener for connections between brokers."""
    wanted, protocol = values["inter_broker_listener_name"], values["security_inter_broker_protocol"]
    if wanted is None and "security.inter.broker.protocol" not in pairs:
        return listeners[0]
    if wanted is None:
        found = next((one for one in listeners if one.protocol == protocol), None)
        if found is None:
            raise ConfigError(f"security.inter.broker.protocol: no listener uses {protocol}")
        return found
    if "security.inter.broker.protocol" in pairs:
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    found = next((one for one in listeners if one.name == wanted), None)
    if found is None:
        raise ConfigError(f"inter.broker.listener.name: {wanted} is not one of the listeners")
    return found


def _check_security(listener: Listener) -> None:
    """Check that the options which this listener's protocol needs are set, and that they are supported."""
    name, security = listener.name, listener.security
    if listener.encrypted and not (security.ssl_keystore_location or security.ssl_keystore_key):
        raise ConfigError(
            f"{listener.protocol} listener {name}: set ssl.keystore.location, or ssl.keystore.certificate.chain and"
            " ssl.keystore.key"
        )
    if not listener.authenticated:
        return
    if not security.sasl_enabled_mechanisms:
        raise ConfigError(f"{listener.protocol} listener {name}: sasl.enabled.mechanisms is empty")
    for mechanism in security.sasl_enabled_mechanisms:
        if mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.enabled.mechanisms: {mechanism} is not supported; use {', '.join(MECHANISMS)}")
    if "PLAIN" in security.sasl_enabled_mechanisms and "PLAIN" not in security.jaas:
        raise ConfigError(
            f"{listener.protocol} listener {name}: PLAIN needs its users in listener.name.{name.lower()}.plain."
            "sasl.jaas.config"
        )
    if "OAUTHBEARER" in security.sasl_enabled_mechanisms:
        where = f"{listener.protocol} listener {name}: OAUTHBEARER"
        if not security.sasl_oauthbearer_jwks_endpoint_url:
            raise ConfigError(f"{where} needs the keys that sign its tokens: set sasl.oauthbearer.jwks.endpoint.url")
        if not security.sasl_oauthbearer_expected_issuer and not security.sasl_oauthbearer_expected_audience:
            raise ConfigError(
                f"{where} would accept any token signed with these keys: set sasl.oauthbearer.expected.audience,"
                " .issuer or both"
            )


def parse_advertised(values: Mapping[str, Value]) -> dict[str, tuple[str, int]]:
    """Listener name → advertised address. Empty if none was given."""
    names = {parse("listeners", text)[0] for text in _strings(values, "listeners")}
    controller = {name.upper() for name in _strings(values, "controller_listener_names")}
    addresses: dict[str, tuple[str, int]] = {}
    for text in _strings(values, "advertised_listeners"):
        name, host, port = parse("advertised.listeners", text)
        if host in ("", "0.0.0.0", "::"):  # nosec B104 # refused: clients cannot connect to it
            raise ConfigError(f"advertised.listeners: clients cannot connect to {text}")
        if name not in names:
            raise ConfigError(f"advertised.listeners: {name} is not one of the listeners")
        if name not in controller:
            addresses[name] = host, port
    return addresses


def parse(option: str, text: str) -> tuple[str, str, int]:
    """`NAME://host:port` as (name, host, port); IPv6 hosts are in brackets."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and name and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise invalid(text, option, "Expected NAME://host:port")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise invalid(text, option, "An IPv6 host must be in brackets")
    return name.upper(), host.removeprefix("[").removesuffix("]"), int(port)


def metrics_address(text: str) -> tuple[str, int | None] | None:
    """`host:port` of the metrics; port None means `auto`. Returns None if metrics are off."""
    option = "ottla.metrics.listener"
    if text.strip().lower() == "off":
        return None
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise invalid(text, option, "Expected host:port, or off")
    if port == "auto":
        _, host, _ = parse(option, f"HTTP://{host}:0")
        return host, None
    return parse(option, f"HTTP://{host}:{port}")[1:]


def _protocols(text: Value) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for pair in str(text).split(","):
        name, colon, protocol = pair.strip().partition(":")
        if not colon or protocol not in PROTOCOLS:
            raise invalid(
                pair.strip(), "listener.security.protocol.map", f"Expected NAME:PROTOCOL of {', '.join(PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol
    return protocols


def _check(listeners: list[Listener]) -> None:
    names = [listener.name for listener in listeners]
    ports = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(names)) != len(names):
        raise ConfigError("listeners: each must have a different name")
    if len(set(ports)) != len(ports):
        raise ConfigError("listeners: each must have a different port")


def _strings(values: Mapping[str, Value], attribute: str) -> tuple[str, ...]:
    value = values[attribute]
    return value if isinstance(value, tuple) else ()
