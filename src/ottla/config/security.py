"""The options of TLS and SASL. Each can be set for one listener: `listener.name.<name>.<option>`.

A value for one listener overrides the value for all. Login modules are set for a listener and one of its mechanisms:
`listener.name.<name>.<mechanism>.sasl.jaas.config`. None of these options loads a class.
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
# Kafka's OAUTHBEARER configurations name this class. It does what Ottla does; no other class is accepted.
VALIDATOR = "oauthbearer.sasl.server.callback.handler.class"
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
STORE_TYPE = "PEM or PKCS12. Unset: by the file name extension."


class SecurityConfig(Table):
    given: Mapping[str, str]  # the configured texts, by option; for a listener, those that apply to it
    jaas: Mapping[str, str]  # for a listener: the login module of each mechanism

    # TLS
    ssl_keystore_location: str | None = maybe(
        "The file with this broker's certificate, its chain and its key. It is reloaded when it changes.",
        importance=HIGH,
        live=PER_BROKER,
    )
    ssl_keystore_type: str = string("JKS", STORE_TYPE, live=PER_BROKER)
    ssl_keystore_password: str | None = secret("Password of a PKCS12 keystore.", importance=HIGH)
    ssl_keystore_certificate_chain: str | None = secret("The certificate and its chain as PEM text.", importance=HIGH)
    ssl_keystore_key: str | None = secret("The key as PEM text.", importance=HIGH)
    ssl_key_password: str | None = secret("Password of the key.", importance=HIGH)
    ssl_truststore_location: str | None = maybe(
        "The file with the CAs that sign the certificates of clients and other brokers. Unset: the system's CAs.",
        importance=HIGH,
        live=PER_BROKER,
    )
    ssl_truststore_type: str = string("JKS", STORE_TYPE, live=PER_BROKER)
    ssl_truststore_password: str | None = secret("Password of a PKCS12 truststore.", importance=HIGH)
    ssl_truststore_certificates: str | None = secret("These CAs as PEM text.", importance=HIGH)
    ssl_client_auth: str = string(
        "none",
        "Whether clients must send a certificate (required), may send one (requested), or are not asked (none).",
        choices=("required", "requested", "none"),
    )
    ssl_enabled_protocols: tuple[str, ...] = strings(
        ("TLSv1.2", "TLSv1.3"), "Enabled TLS versions.", choices=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: tuple[str, ...] = strings(
        (), "Allowed cipher suites, by IANA or OpenSSL names. Empty: OpenSSL's defaults.", importance=LOW
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT", "Rules that map a client certificate's name to a principal: RULE:pattern/replacement/[LU], DEFAULT."
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https", "https checks the names of other brokers against their certificates; empty does not.", importance=LOW
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("GSSAPI",), f"SASL mechanisms offered to clients: {', '.join(MECHANISMS)}."
    )
    sasl_server_max_receive_size: int = integer(
        524288, "Maximum size of a request before the client is authenticated.", least=1
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "GSSAPI", "SASL mechanism of this broker's connections to other brokers."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = maybe(
        "URL of the keys (JWKS) that sign OAUTHBEARER tokens: https://… or file:///…."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "How often these keys are reloaded.", importance=LOW
    )
    sasl_oauthbearer_expected_issuer: str | None = maybe("Required issuer of tokens.", importance=LOW)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (), "Accepted audiences of tokens; one must match.", importance=LOW
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Allowed clock difference to the issuer, in seconds.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = string("sub", "The claim with the user's name.", importance=LOW)
    connections_max_reauth_ms: int = long(
        0, "How long an authentication is valid before the client must reauthenticate. 0: no limit."
    )


OPTIONS: dict[str, Option] = rows(SecurityConfig)
_DEFAULTS: dict[str, Value] = {row.attribute: row.default for row in OPTIONS.values()}


def listener_config(name: str, pairs: Mapping[str, str]) -> SecurityConfig:
    """The TLS and SASL options that apply to a listener."""
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
    """Whether this is a TLS or SASL option for one listener. ConfigError if that listener does not exist."""
    name, _, option = full.removeprefix(PREFIX).partition(".")
    if not full.startswith(PREFIX) or not (option in OPTIONS or option.endswith(f".{JAAS}") or option == VALIDATOR):
        return False
    if name != name.lower():
        raise ConfigError(f"{full}: the listener name must be in lower case")
    if name.upper() not in listeners:
        raise ConfigError(f"{full}: there is no listener {name.upper()}")
    if option == VALIDATOR and text not in VALIDATORS:
        raise ConfigError(f"{full}: Java classes cannot be loaded")
    mechanism = option.removesuffix(f".{JAAS}")
    if mechanism != option and mechanism.upper() not in MECHANISMS:
        raise ConfigError(f"{full}: the mechanism must be one of {', '.join(MECHANISMS)}, in lower case")
    return True
