"""TLS and SASL against Apache Kafka's listeners, and the options that ask for them. No secret is ever shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import judge
import pytest
from client.certificates import PASSWORD, Certificates
from client.records import fresh, numbers, read

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.producing import Sender
from ottla.client.security import PLAIN, Security, credentials, scram_steps, security
from ottla.errors import ErrorCode
from ottla.tools.session import read_security
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.client.connection import Connection

pytestmark = pytest.mark.xdist_group("client")

MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
USERS = {"PLAIN": "alice", "SCRAM-SHA-256": "al,i=ce", "SCRAM-SHA-512": "bob"}
SECRET = 'pass "word\\ ö'
KINDS = {1: ("SCRAM-SHA-256", "sha256"), 2: ("SCRAM-SHA-512", "sha512")}
SESSION_MS = 2000
TIMEOUT_S = 60.0


class Listeners(NamedTuple):
    certificates: Certificates
    ssl: str
    mutual: str
    sasl: str
    sasl_ssl: str


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    ports = dict(zip(("SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL"), judge.free_ports(4), strict=True))
    kafka = judge.Kafka()
    protocols = {name: name for name in ports} | {"MUTUAL": "SSL", "CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"}
    here = [f"PLAINTEXT://127.0.0.1:{kafka.port}", *(f"{name}://127.0.0.1:{port}" for name, port in ports.items())]
    kafka._settings |= {
        "listeners": ",".join([*here, f"CONTROLLER://127.0.0.1:{kafka._side_port}"]),
        "advertised.listeners": ",".join(here),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(made.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MODULES),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism, module in MODULES.items():
            known = f' user_{USERS[mechanism]}="{properties(escaped(SECRET))}"' if mechanism == "PLAIN" else ""
            line = f"org.apache.kafka.common.security.{module}LoginModule required{known};"
            kafka._settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = line
    with kafka:
        with Cluster(kafka.bootstrap) as cluster:
            add_users(cluster)
        yield Listeners(made, *(f"127.0.0.1:{port}" for port in ports.values()))


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def properties(text: str) -> str:
    """As a file of Java properties has it."""
    return "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in text.replace("\\", "\\\\"))


def add_users(cluster: Cluster) -> None:
    users = []
    for number, (mechanism, kind) in KINDS.items():
        salt = f"salt of {mechanism}".encode()
        salted = hashlib.pbkdf2_hmac(kind, SECRET.encode(), salt, 4096)
        users.append(
            ScramCredentialUpsertion(
                name=USERS[mechanism], mechanism=number, iterations=4096, salt=salt, salted_password=salted
            )
        )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=users)
    (broker,) = cluster.brokers().values()
    answer = broker.ask(request, AlterUserScramCredentialsResponse)
    assert [one.error_code for one in answer.results] == [0, 0]


def jaas(mechanism: str, secret: str = SECRET) -> str:
    user, module = USERS[mechanism], MODULES[mechanism]
    return (
        f'org.apache.kafka.common.security.{module}LoginModule required username="{user}" password="{escaped(secret)}";'
    )


def login(mechanism: str, secret: str = SECRET, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, secret),
    }


def trusting(made: Certificates) -> dict[str, str]:
    return {"ssl.truststore.location": str(made.ca), "ssl.truststore.type": "PEM"}


def works(bootstrap: str, options: dict[str, str]) -> None:
    """A round trip, with a megabyte in each direction."""
    asked = security(options)
    asked = pickle.loads(pickle.dumps(asked))  # as it travels to other processes
    with Cluster(bootstrap, security=asked) as cluster:
        where = fresh(cluster)
        with Sender(cluster) as sender:
            sender.send(where, [numbers(index * 10, 10, size=20_000) for index in range(5)])
            sender.flush()
        assert read(cluster, where) == list(range(50))


def refused(bootstrap: str, options: dict[str, str]) -> Failed:
    with pytest.raises(Failed) as caught:
        Cluster(bootstrap, security=security(options), timeout_s=10)
    assert SECRET not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("text", [False, True])
def test_tls(listeners: Listeners, text: bool) -> None:
    made = listeners.certificates
    trust = {"ssl.truststore.certificates": made.ca.read_text().replace("\n", " ")} if text else trusting(made)
    works(listeners.ssl, {"security.protocol": "SSL", **trust})


def test_a_client_proves_itself_by_a_certificate(listeners: Listeners) -> None:
    made = listeners.certificates
    base = {"security.protocol": "SSL", **trusting(made)}
    key, chain = ((made.folder / f"client.{kind}").read_text() for kind in ("key", "crt"))
    locked = made.encrypted("client")
    for more in (
        {"ssl.keystore.location": str(made.client), "ssl.keystore.type": "PEM"},
        {"ssl.keystore.location": str(locked), "ssl.keystore.type": "PEM", "ssl.key.password": PASSWORD},
        {"ssl.keystore.key": key.replace("\n", " "), "ssl.keystore.certificate.chain": chain},
    ):
        works(listeners.mutual, {**base, **more})
    refused(listeners.mutual, base)
    wrong = {"ssl.keystore.location": str(locked), "ssl.keystore.type": "PEM", "ssl.key.password": "wrong"}
    assert "ssl.key.password" in str(refused(listeners.mutual, {**base, **wrong}))


def test_a_store_of_java(listeners: Listeners, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(listeners.certificates.pkcs12("client"))
    trust = {"security.protocol": "SSL", "ssl.truststore.location": store, "ssl.truststore.password": PASSWORD}
    own = {"ssl.keystore.location": store, "ssl.keystore.password": PASSWORD}
    works(listeners.ssl, trust)
    works(listeners.mutual, {**trust, **own})
    wrong = refused(listeners.mutual, {**trust, **own, "ssl.keystore.password": "wrong"})
    assert "the password is wrong" in str(wrong)
    assert "No such file" in str(refused(listeners.ssl, {**trust, "ssl.truststore.location": "/nowhere.p12"}))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    assert "pip install cryptography" in str(refused(listeners.ssl, trust))


def test_a_broker_that_is_not_known_is_not_talked_to(listeners: Listeners) -> None:
    made = listeners.certificates
    strange = {**trusting(made), "security.protocol": "SSL", "ssl.truststore.location": str(made.stranger)}
    assert "ssl.truststore.location" in str(refused(listeners.ssl, strange))
    assert "is not accepted" in str(refused(listeners.ssl, {"security.protocol": "SSL"}))
    # Its certificate is for 127.0.0.1 only.
    base = {"security.protocol": "SSL", **trusting(made)}
    other = listeners.ssl.replace("127.0.0.1", "localhost")
    assert "ssl.endpoint.identification.algorithm" in str(refused(other, base))
    Cluster(other, security=security({**base, "ssl.endpoint.identification.algorithm": ""})).close()


@pytest.mark.parametrize("mechanism", MODULES)
def test_passwords(listeners: Listeners, mechanism: str) -> None:
    works(listeners.sasl, login(mechanism))
    works(listeners.sasl_ssl, {**login(mechanism, protocol="SASL_SSL"), **trusting(listeners.certificates)})
    error = refused(listeners.sasl, login(mechanism, "wrong secret"))
    assert isinstance(error, Refused)
    assert error.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong secret" not in str(error)


def test_the_wrong_door(listeners: Listeners) -> None:
    made = listeners.certificates
    assert "does its listener speak SSL" in str(refused(listeners.sasl, {"security.protocol": "SSL", **trusting(made)}))
    for plain in (listeners.ssl, listeners.sasl):
        assert "wants TLS or a login, set security.protocol" in str(refused(plain, {}))
    without_login = refused(listeners.sasl_ssl, {"security.protocol": "SSL", **trusting(made)})
    assert "wants a login, set security.protocol" in str(without_login)


def test_a_session_is_renewed_before_it_ends(listeners: Listeners) -> None:
    """Requests go on for longer than a session lasts, some of them unanswered when it is renewed."""
    with Cluster(listeners.sasl, security=security(login("SCRAM-SHA-256"))) as cluster:
        where = fresh(cluster)
        (first,) = cluster.brokers().values()
        until = time.monotonic() + 2.5 * SESSION_MS / 1000
        count = 0
        with Sender(cluster, request_bytes_max=1) as sender:
            while time.monotonic() < until:
                sender.send(where, [numbers(count, 1)])
                assert cluster.brokers() == {1: first}
                count += 1
            sender.flush()
            (link,) = sender._links.values()
        assert link.connection.alive
        assert read(cluster, where) == list(range(count))
        # It is the renewal that keeps a connection: without, the broker ends it.
        first._renew_at = None
        with pytest.raises(Unreachable, match="went away"):
            ask_for_long(first)


def ask_for_long(connection: Connection) -> None:
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        connection.ask(MetadataRequest(topics=[]), MetadataResponse)


def test_options_that_make_no_sense(tmp_path: object) -> None:
    for options, said in (
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites is not supported"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI is not supported: expected one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config: expected"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("SCRAM-SHA-256")},
         "that is org.apache.kafka.common.security.plain.PlainLoginModule"),
        ({"ssl.truststore.location": "x.jks"}, "a JKS store cannot be read; make PEM"),
        ({"ssl.keystore.location": "x", "ssl.keystore.type": "BKS"}, "expected one of PEM, PKCS12"),
        ({"ssl.truststore.certificates": "hello"}, "must be PEM"),
        ({"ssl.keystore.key": "-----BEGIN X-----\nAA==\n-----END X-----"}, "give both, or neither"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "expected https, or nothing"),
    ):  # fmt: skip
        with pytest.raises(Failed) as caught:
            security(options)
        assert said in str(caught.value)
        assert SECRET not in str(caught.value)
    assert security({}) == PLAIN


def test_files_that_are_not_there_are_named(own: object) -> None:
    bootstrap = own.bootstrap  # type: ignore[attr-defined]
    base = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    error = refused(bootstrap, {**base, "ssl.truststore.location": "/nowhere/ca.pem"})
    assert str(error) == "ssl.truststore.location: /nowhere/ca.pem: No such file or directory"
    error = refused(bootstrap, {**base, "ssl.truststore.location": __file__})
    assert "there are no PEM certificates in" in str(error)
    error = refused(bootstrap, {"security.protocol": "SSL", "ssl.keystore.location": "/nowhere/key.pem"})
    assert "ssl.keystore.location: /nowhere/key.pem: No such file" in str(error)


def test_nothing_secret_is_shown() -> None:
    made = Security(password=SECRET, key="KEY", key_password="KP", trust_password="TP", key_store_password="SP")
    assert not any(secret in repr(made) for secret in (SECRET, "KEY", "KP", "TP", "SP"))


def test_a_secret_by_reference_is_looked_up_for_each_connection(
    listeners: Listeners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jaas"
    file.write_text(f"{jaas('SCRAM-SHA-512')}\n")
    by_file = {key: value for key, value in login("SCRAM-SHA-512").items() if key != "sasl.jaas.config"}
    by_file["sasl.jaas.config.file"] = str(file)
    works(listeners.sasl, by_file)
    monkeypatch.setenv("A_SECRET", SECRET)
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USERS["PLAIN"]}
    works(listeners.sasl, {**plain, "sasl.password.env": "A_SECRET"})
    works(listeners.sasl, {**plain, "sasl.password": SECRET})
    made = pickle.loads(pickle.dumps(security(by_file)))
    file.write_text(jaas("SCRAM-SHA-512", "another"))
    with pytest.raises(Refused, match="SASL_AUTHENTICATION_FAILED"), Cluster(listeners.sasl, security=made) as cluster:
        cluster.topics()
    file.write_text(jaas("SCRAM-SHA-512"))
    with Cluster(listeners.sasl, security=made) as cluster:
        cluster.topics()


def test_a_key_by_reference(listeners: Listeners, tmp_path: Path) -> None:
    parts = listeners.certificates.client.read_text().partition("-----BEGIN CERTIFICATE")
    (tmp_path / "key").write_text(parts[0])
    works(
        listeners.mutual,
        {
            "security.protocol": "SSL",
            **trusting(listeners.certificates),
            "ssl.keystore.certificate.chain": parts[1] + parts[2],
            "ssl.keystore.key.file": str(tmp_path / "key"),
        },
    )


def test_a_reference_travels_without_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jaas").write_text(jaas("PLAIN", "unseen-one"))
    monkeypatch.setenv("KEY_PASSWORD", "unseen-two")
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    made = security({**base, "sasl.jaas.config.file": str(tmp_path / "jaas"), "ssl.key.password.env": "KEY_PASSWORD"})
    assert b"unseen" not in pickle.dumps(made)
    assert made.resolve().password == "unseen-one"
    assert made.resolve().key_password == "unseen-two"
    assert (made.user, made.mechanism, made.protocol) == ("alice", "PLAIN", "SASL_SSL")
    (tmp_path / "jaas").unlink()
    with pytest.raises(Failed, match=r"sasl\.jaas\.config\.file=.*: No such file or directory"):
        made.resolve()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{} required username="a" password="b";', ("a", "b")),
        ("{} required\n  password='b'\n username=a ;", ("a", "'b'")),
        ('{} required serviceName="x" username="a\\"b" password="c;d=e \\\\";', ('a"b', "c;d=e \\")),
        ('{} required username="" password="";', ("", "")),
    ],
)
def test_jaas(line: str, found: tuple[str, str]) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert credentials(line.format(module), "PLAIN") == found


@pytest.mark.parametrize("line", ["", "x", "{}", '{} required username="a";', '{} required username="a" password="b"'])
def test_jaas_that_is_none(line: str) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    with pytest.raises(Failed, match=r"sasl\.jaas\.config"):
        credentials(line.format(module), "PLAIN")


def conversation(challenge: str, verdict: str) -> None:
    """A broker that answers with these; `{nonce}` is the client's."""
    steps = scram_steps(Security(mechanism="SCRAM-SHA-256", user="u", password=SECRET), "the broker")
    nonce = next(steps).decode().rpartition("r=")[2]
    steps.send(challenge.format(nonce=nonce).encode())
    steps.send(verdict.encode())


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        ("", "something other than a SCRAM challenge"),
        ("e=other-error", "something other than a SCRAM challenge"),
        ("r={nonce}x,s=c2FsdA==,i=many", "something other than a SCRAM challenge"),
        ("r={nonce}x,s=@@@@,i=4096", "something other than a SCRAM challenge"),
        ("r=other,s=c2FsdA==,i=4096", "not ours"),
        ("r={nonce},s=c2FsdA==,i=4096", "not ours"),
        ("r={nonce}x,s=c2FsdA==,i=1", "asks for 1 rounds"),
        ("r={nonce}x,s=c2FsdA==,i=999999999999", "asks for 999999999999 rounds"),
        ("r={nonce}x,s=c2FsdA==,i=4096", "does not know the password"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_found_out(challenge: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        conversation(challenge, "v=" + base64.b64encode(hmac.digest(b"x", b"y", "sha256")).decode())


def test_the_tools_pass_on_what_librdkafka_is_told(listeners: Listeners) -> None:
    made = listeners.certificates
    trust = {"ssl.ca.location": str(made.ca), "client.id": "x"}
    options = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": USERS["SCRAM-SHA-512"],
        "sasl.password": SECRET,
        **trust,
    }
    Cluster(listeners.sasl_ssl, security=read_security(options)).close()
    options = {
        "security.protocol": "ssl",
        "ssl.key.location": str(made.folder / "client.key"),
        "ssl.certificate.location": str(made.folder / "client.crt"),
        **trust,
    }
    Cluster(listeners.mutual, security=read_security(options)).close()
    with pytest.raises(Failed, match=r"ssl\.ca\.certificate\.stores is not supported"):
        read_security({"ssl.ca.certificate.stores": "x"})
    with pytest.raises(Failed, match=r"ssl\.key\.location: /nowhere: No such file"):
        read_security({"ssl.key.location": "/nowhere"})
