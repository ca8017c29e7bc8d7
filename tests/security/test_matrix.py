"""Apache Kafka's Java client and franz-go at every door: good credentials come in, and everything else stays out.

One process for each client runs all the cases. The other three clients are in test_clients.py.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import judge
import pytest
from security.tokens import tokens_of_now

if TYPE_CHECKING:
    from security.conftest import Place

HERE: Final = Path(__file__).parent
TIMEOUT_S: Final = 400
MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def by(mechanism: str, user: str = "", password: str = "", listener: str = "SASL_SSL", **said: str) -> dict[str, str]:
    names = {"user": user, "password": password} if user else {}
    return {"listener": listener, "mechanism": mechanism, **names, **said}


def bearer(token: str) -> dict[str, str]:
    return by("OAUTHBEARER", listener="BEARER", token=token)


IN: Final = ("ok", "ok")
LOGIN: Final = ("SaslAuthenticationException", "SASL_AUTHENTICATION_FAILED")
TOKEN: Final = ("SaslAuthenticationException", "oauth response")  # franz-go expects none but for a failure
TLS: Final = "SslAuthenticationException"
# How a client comes in, and what Java and Go say of it: a part of their message, or ok.
CASES: Final[dict[str, tuple[dict[str, str], tuple[str, str]]]] = {
    "tls": ({"listener": "SSL"}, IN),
    "tls 1.2": ({"listener": "SSL", "ssl.enabled.protocols": "TLSv1.2"}, IN),
    "tls 1.1": ({"listener": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, (TLS, "protocol version")),
    "certificate": ({"listener": "MUTUAL", "own": "client"}, IN),
    "no certificate": ({"listener": "MUTUAL"}, (TLS, "certificate required")),
    "expired certificate": ({"listener": "MUTUAL", "own": "expired"}, (TLS, "expired certificate")),
    "another host": ({"listener": "MISNAMED"}, (TLS, "failed to verify certificate")),
    "another authority": ({"listener": "SSL", "trust": "stranger"}, (TLS, "unknown authority")),
    "expired broker": ({"listener": "EXPIRED"}, (TLS, "certificate has expired")),
    "plain": (by("PLAIN", "alice", "wonder land"), IN),
    "plain without tls": (by("PLAIN", "alice", "wonder land", "SASL_PLAINTEXT"), IN),
    "plain, wrong": (by("PLAIN", "alice", "x"), LOGIN),
    "scram 256": (by("SCRAM-SHA-256", "erin", "pencil"), IN),
    "scram 256, wrong": (by("SCRAM-SHA-256", "erin", "x"), LOGIN),
    "scram 512": (by("SCRAM-SHA-512", "erin", "pencil"), IN),
    "scram 512, nobody": (by("SCRAM-SHA-512", "nobody", "x"), LOGIN),
    "bearer": (bearer("good"), IN),
    "bearer, of yesterday": (bearer("old"), TOKEN),
    "bearer, of another key": (bearer("forged"), TOKEN),
    "bearer, for others": (bearer("for others"), TOKEN),
    "not offered": (
        by("OAUTHBEARER", token="good"),
        ("UnsupportedSaslMechanismException", "UNSUPPORTED_SASL_MECHANISM"),
    ),
}


@pytest.fixture(scope="module")
def lines(place: Place) -> str:
    """The cases as both programs read them: the options of Java's client, and what Go needs beside them."""
    place.add_user("erin", "pencil")
    tokens = tokens_of_now()
    return "".join(
        "\t".join([name, *(f"{key}={value}" for key, value in options(place, said, tokens).items())]) + "\n"
        for name, (said, _) in CASES.items()
    )


def options(place: Place, said: dict[str, str], tokens: dict[str, str]) -> dict[str, str]:
    listener, mechanism = said["listener"], said.get("mechanism", "")
    tls, sasl = listener != "SASL_PLAINTEXT", bool(mechanism)
    made = {
        "bootstrap.servers": place.address(listener),
        "security.protocol": f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}",
        "test.topic": "matrix",
        **{name: value for name, value in said.items() if name.startswith("ssl.")},
    }
    if tls:
        trusted = place.stranger if "trust" in said else place.ca
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    if "own" in said:
        own = place.client if said["own"] == "client" else place.expired
        made |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
    if not sasl:
        return made
    login = "".join(
        f' {name}="{said[given]}"' for name, given in (("username", "user"), ("password", "password")) if given in said
    )
    made |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULES[mechanism]} required{login};"}
    made |= {"test.user": said.get("user", ""), "test.password": said.get("password", "")}
    if "token" in said:
        path = place.folder / f"{said['token'].replace(' ', '-')}.jwt"
        path.write_text(tokens[said["token"]])
        made |= {"sasl.login.callback.handler.class": HANDLER, "sasl.oauthbearer.token.endpoint.url": path.as_uri()}
        made["test.token"] = tokens[said["token"]]
    return made


def outcomes(command: list[str], lines: str) -> dict[str, str]:
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert found.keys() == CASES.keys(), f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return found


def wrong(found: dict[str, str], client: int) -> list[str]:
    expected = {name: told[client] for name, (_, told) in CASES.items()}
    return [
        f"{name}: expected {expected[name]}, not {outcome}"
        for name, outcome in found.items()
        if (outcome != "ok" if expected[name] == "ok" else expected[name] not in outcome)
    ]


def test_the_java_client(place: Place, lines: str) -> None:
    path = judge.classpath()
    command = judge.command(HERE / "java" / "Doors.java", path=path, options=judge.logging_options(judge.NEWEST))
    assert not wrong(outcomes(command, lines), 0)


def test_franz_go(place: Place, lines: str) -> None:
    folder = HERE / "go"
    texts = b"\0".join((folder / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))

    def build(target: Path) -> None:
        judge.run(["go", "build", "-trimpath", "-o", target / "doors", "."], "building the Go program", cwd=folder)

    program = judge.cached(f"go-doors-{hashlib.sha256(texts).hexdigest()[:16]}", build) / "doors"
    assert not wrong(outcomes([str(program)], lines), 1)
