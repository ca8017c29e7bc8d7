"""OAUTHBEARER: tokens with a good signature, and every other kind."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from security.tokens import NOW, jwks, text, token
from waiting import wait_until

from ottla.config import ConfigError, load
from ottla.embed import BrokerThread
from ottla.security.bearer import REFUSAL, Bearer, Expectations
from ottla.security.keys import Keys
from ottla.security.login import LoginError

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = Expectations("https://issuer", ("kafka", "other"), 30, "sub")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps(jwks()))
    made = Keys(path.as_uri())
    made.read()
    return made


def shown(keys: Keys, said: str, identity: str = "") -> tuple[bytes, Bearer]:
    exchange = Bearer(keys, EXPECTED, lambda: NOW * 1000)
    return exchange.respond(f"n,{identity},\x01auth=Bearer {said}\x01\x01".encode()), exchange


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "r"), ("PS256", "r"), ("ES256", "e"), ("RS256", None)])
def test_a_signed_token_is_a_proof(keys: Keys, algorithm: str, kid: str | None) -> None:
    said, exchange = shown(keys, token(algorithm, kid))
    assert (said, exchange.user, exchange.expires_s) == (b"", "alice", 100.0)


STRANGE = {
    "none": token("none"),
    "a shared secret": token("HS256"),
    "the key of another kind": token("RS256", "e"),
    "no such key": token("RS256", "x"),
    "a shared key": token("HS256", "shared"),
    "demands": token(header={"crit": ["x"]}),
    "expired": token(exp=NOW - 31),
    "never expires": token(exp=None),
    "expires in words": token(exp="tomorrow"),
    "not yet": token(nbf=NOW + 31),
    "of the future": token(iat=NOW + 31),
    "another issuer": token(iss="https://other"),
    "no issuer": token(iss=None),
    "another audience": token(aud="somebody"),
    "no audience": token(aud=None),
    "nobody": token(sub=None),
    "blank": token(sub="  "),
    "a number": token(sub=7),
    "no signature": token().rpartition(".")[0] + ".",
    "another signature": token()[:-6] + "AAAAAA",
    "other claims": ".".join((token().split(".")[0], token(sub="root").split(".")[1], token().split(".")[2])),
    "two parts": "a.b",
    "no json": "e30.e3.e30",
    "a list": f"{text(b'[]')}.{text(b'[]')}.x",
}


@pytest.mark.parametrize("case", STRANGE)
def test_every_other_token_is_refused_in_two_steps(keys: Keys, case: str) -> None:
    said, exchange = shown(keys, STRANGE[case])
    assert (said, exchange.user) == (REFUSAL, None)
    with pytest.raises(LoginError):
        exchange.respond(b"\x01")


@pytest.mark.parametrize("message", [b"", b"n,,", b"\xff", b"n,,\x01auth=Bearer x\x01", b"p=x,,\x01\x01"])
def test_what_is_no_message(keys: Keys, message: bytes) -> None:
    with pytest.raises(LoginError):
        Bearer(keys, EXPECTED, lambda: NOW * 1000).respond(message)


def test_another_identity_than_the_tokens(keys: Keys) -> None:
    assert shown(keys, token(), "a=alice")[1].user == "alice"
    with pytest.raises(LoginError):
        shown(keys, token(), "a=bob")


@pytest.mark.parametrize("address", ["http://issuer/keys", "ftp://x", "/etc/keys.json", "jar:file:///x"])
def test_keys_come_from_a_file_or_by_https(address: str) -> None:
    with pytest.raises(ConfigError, match="expected https"):
        Keys(address)


def test_torn_keys_leave_the_former(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(jwks()))
    found = Keys(path.as_uri())
    found.read()
    for torn in ("", "{}", "[]", '{"keys": []}', '{"keys": [7]}'):
        path.write_text(torn)
        with pytest.raises(ConfigError):
            found.read()
    assert shown(found, token())[1].user == "alice"


def options(path: Path, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        **more,
    }


def test_a_client_comes_in_with_a_token_only(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(jwks()))
    now = int(time.time())

    def client(address: str, said: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (said, time.time() + 3600, "alice", {}),
                "error_cb": lambda error: errors.append(error.name()),
                "log_level": 0,
            }
        )

    errors: list[str] = []
    with BrokerThread(options=options(path)) as broker:
        good = client(broker.bootstrap, token(exp=now + 3600, iat=now - 10))
        good.poll(0)
        assert good.list_topics(timeout=60).brokers
        bad = client(broker.bootstrap, token("none", exp=now + 3600, iat=now - 10))
        wait_until(lambda: bad.poll(0.1) or "_AUTHENTICATION" in errors)


def test_a_token_for_anybody_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    with pytest.raises(ConfigError, match="would accept any token signed with these keys"):
        load(options(path, **{"sasl.oauthbearer.expected.audience": ""}))
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    with pytest.raises(ConfigError, match="Java classes cannot be loaded"):
        load(options(path, **{name: "a.B"}))
