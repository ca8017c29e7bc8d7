"""The options of TLS and SASL. Each may be set for one listener: `listener.name.<name>.<option>`.

What is set for a listener goes before what is set for all. Login modules are set for a listener and one of its
mechanisms: `listener.name.<name>.<mechanism>.sasl.jaas.config`. Nothing of it names a class that would be loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.option import (
    HIGH,
    LOW,
    PER_BROKER,
    ConfigError,
    Option,
    Table,
    Value,
    integer,
    long,
    maybe,
    rows,
    secret,
    string,
    strings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "listener.name."
JAAS = "sasl.jaas.config"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Kafka's configurations of OAUTHBEARER name this class; it does what is done here, and no other is known.
VALIDATOR = "oauthbearer.sasl.server.callback.handler.class"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
STORE_TYPE = "PEM or PKCS12. Unset: what the file's ending says."


class SecurityConfig(Table):
    given: Mapping[str, str]  # what was written, by option; of a listener, what holds for it
    jaas: Mapping[str, str]  # of a listener: the login module of each mechanism

    # TLS
    ssl_keystore_location: str | None = maybe(
        "The file with this broker's certificate, its chain and its key. It is read again when it changes.",
        importance=HIGH,
        live=PER_BROKER,
    )
    ssl_keystore_type: str = string("JKS", STORE_TYPE, live=PER_BROKER)
    ssl_keystore_password: str | None = secret("Opens a PKCS12 file.", importance=HIGH)
    ssl_keystore_certificate_chain: str | None = secret("The certificate and its chain as PEM text.", importance=HIGH)
    ssl_keystore_key: str | None = secret("The key as PEM text.", importance=HIGH)
    ssl_key_password: str | None = secret("Opens the key.", importance=HIGH)
    ssl_truststore_location: str | None = maybe(
        "The file with the authorities that sign the certificates of clients and other brokers. Unset: the system's.",
        importance=HIGH,
        live=PER_BROKER,
    )
    ssl_truststore_type: str = string("JKS", STORE_TYPE, live=PER_BROKER)
    ssl_truststore_password: str | None = secret("Opens a PKCS12 file.", importance=HIGH)
    ssl_truststore_certificates: str | None = secret("Those authorities as PEM text.", importance=HIGH)
    ssl_client_auth: str = string(
        "none",
        "Whether clients must have a certificate (required), may have one (requested), or are not asked.",
        choices=("required", "requested", "none"),
    )
    ssl_enabled_protocols: tuple[str, ...] = strings(
        ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are spoken.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: tuple[str, ...] = strings(
        (), "Cipher suites that are allowed, by their IANA or OpenSSL names. None: those of OpenSSL.", importance=LOW
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT", "How the name in a client's certificate becomes a principal: RULE:pattern/replacement/[LU], DEFAULT."
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https", "https checks the names of other brokers against their certificates; empty does not.", importance=LOW
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("GSSAPI",), f"How clients may prove who they are: {', '.join(MECHANISMS)}."
    )
    sasl_server_max_receive_size: int = integer(
        524288, "Bytes of one request before the client has proved who it is.", least=1
    )
    sasl_mechanism_inter_broker_protocol: str = string("GSSAPI", "How this broker proves who it is to the others.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = maybe(
        "Where the keys are that sign the tokens of OAUTHBEARER: a JWKS, as https://… or file:///…."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(3_600_000, "How often they are read again.", importance=LOW)
    sasl_oauthbearer_expected_issuer: str | None = maybe("Who must have issued a token.", importance=LOW)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (), "Whom a token must be for: one of these.", importance=LOW
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "By how much the clock of the issuer may differ.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim that has the user's name.", importance=LOW)
    connections_max_reauth_ms: int = long(
        0, "How long a proof of who a client is holds; then the client must renew it. 0: as long as the connection."
    )


OPTIONS: dict[str, Option] = rows(SecurityConfig)
_DEFAULTS: dict[str, Value] = {row.attribute: row.default for row in OPTIONS.values()}


def listener_config(name: str, pairs: Mapping[str, str]) -> SecurityConfig:
    """The options of TLS and SASL as they hold for a listener."""
    prefix = f"{PREFIX}{name.lower()}."
    given = {option: text for option, text in pairs.items() if option in OPTIONS}
    jaas: dict[str, str] = {}
    for full, text in pairs.items():
        if not full.startswith(prefix):
            continue
        option = full.removeprefix(prefix)
        if option.endswith(f".{JAAS}"):
            jaas[option.removesuffix(f".{JAAS}").upper()] = text
        elif option in OPTIONS:
            given[option] = text
    values = {**_DEFAULTS}
    for option, text in given.items():
        row = OPTIONS[option]
        try:
            values[row.attribute] = row.parse(text)
        except ConfigError as error:
            raise ConfigError(str(error).replace(option, f"{prefix}{option}")) from None
    return SecurityConfig({**values, "given": given, "jaas": jaas})


def listener_row(full: str) -> Option | None:
    """The row of an option that is set for one listener."""
    if not full.startswith(PREFIX):
        return None
    return OPTIONS.get(full.removeprefix(PREFIX).partition(".")[2])


def listener_of(full: str) -> str | None:
    """The listener that an option is set for."""
    return full.removeprefix(PREFIX).partition(".")[0].upper() if full.startswith(PREFIX) else None


def is_for_listener(full: str, text: str, listeners: Iterable[str]) -> bool:
    """Whether this is an option of TLS or SASL for one listener. ConfigError if it is for one that is not there."""
    name, _, option = full.removeprefix(PREFIX).partition(".")
    if not full.startswith(PREFIX) or not (option in OPTIONS or option.endswith(f".{JAAS}") or option == VALIDATOR):
        return False
    if name != name.lower():
        raise ConfigError(f"{full}: the name of a listener is lower case here")
    if name.upper() not in listeners:
        raise ConfigError(f"{full}: there is no listener {name.upper()}")
    if option == VALIDATOR and text not in VALIDATORS:
        raise ConfigError(f"{full}: Java classes cannot be loaded")
    mechanism = option.removesuffix(f".{JAAS}")
    if mechanism != option and mechanism.upper() not in MECHANISMS:
        raise ConfigError(f"{full}: the mechanisms are {', '.join(MECHANISMS)}, in lower case here")
    return True
