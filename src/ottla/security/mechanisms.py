"""The mechanisms of a SASL listener, each with the source of its credentials.

PLAIN            the users in `listener.name.<name>.plain.sasl.jaas.config`: user_alice="password"
SCRAM-SHA-…      the users in the metadata store
OAUTHBEARER      the keys at `sasl.oauthbearer.jwks.endpoint.url`
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.client.security import MODULES, parse_jaas
from ottla.config.option import ConfigError
from ottla.security.bearer import Bearer, Expectations
from ottla.security.decoys import Decoys
from ottla.security.plain import Plain
from ottla.security.scram import Scram

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config import Listener
    from ottla.security.decoys import Stored
    from ottla.security.keys import Keys
    from ottla.security.login import LoginExchange
    from ottla.security.scram import Tokens, Users

BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PREFIX: Final = "user_"
NONCE_SIZE: Final = 24


def mechanisms(
    listener: Listener,
    users: Users,
    tokens: Tokens,
    keys: Keys | None,
    now_ms: Callable[[], int],
    random_bytes: Callable[[int], bytes],
    everybody: Callable[[], Stored],
) -> dict[str, Callable[[], LoginExchange]]:
    """The mechanisms by name, in the order in which they were enabled."""
    decoys = Decoys(random_bytes(32), everybody)
    made: dict[str, Callable[[], LoginExchange]] = {}
    for name in listener.security.sasl_enabled_mechanisms:
        if name == "PLAIN":
            made[name] = partial(Plain, plain_passwords(listener))
        elif name == "OAUTHBEARER":
            assert keys is not None, "an OAUTHBEARER listener has keys"
            made[name] = partial(Bearer, keys, expectations(listener), now_ms)
        else:
            made[name] = partial(new_scram, name, users, tokens, random_bytes, decoys)
    return made


def new_scram(
    mechanism: str, users: Users, tokens: Tokens, random_bytes: Callable[[int], bytes], decoys: Decoys
) -> Scram:
    return Scram(mechanism, users, random_bytes(NONCE_SIZE).hex(), decoys, tokens)


def expectations(listener: Listener) -> Expectations:
    """What a token must contain. Its login module, if one is named, takes no options."""
    if listener.security.jaas.get("OAUTHBEARER"):
        module, options = parse_jaas(listener.security.jaas["OAUTHBEARER"])
        if module != BEARER_MODULE or options:
            raise ConfigError(f"sasl.jaas.config of OAUTHBEARER: expected {BEARER_MODULE} required;")
    config = listener.security
    return Expectations(
        config.sasl_oauthbearer_expected_issuer,
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_clock_skew_seconds,
        config.sasl_oauthbearer_sub_claim_name,
    )


def plain_passwords(listener: Listener) -> dict[str, str]:
    options = login_options(listener, "PLAIN")
    return {name.removeprefix(PREFIX): word for name, word in options.items() if name.startswith(PREFIX)}


def login_options(listener: Listener, mechanism: str) -> dict[str, str]:
    """The options of the listener's login module for this mechanism."""
    option = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    try:
        module, options = parse_jaas(listener.security.jaas.get(mechanism, ""))
    except ValueError as error:
        raise ConfigError(f'{option}: {error}; expected <module> required name="value" …;') from None
    if mechanism not in MODULES.get(module, ()):
        right = next(known for known, mechanisms in MODULES.items() if mechanism in mechanisms)
        raise ConfigError(f"{option}: {module} is not the login module of {mechanism}, that is {right}")
    return options
