"""One broker with a listener of every protocol, and the certificates that it takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from security.tokens import jwks

from ottla.client.cluster import Cluster
from ottla.client.users import set_password
from ottla.embed import BrokerThread
from ottla.testing.certificates import Certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f"""{PLAIN_MODULE} required username="admin" password="admin-secret"
    user_admin="admin-secret" user_alice="wonder land";"""

RENEWED_MS = 60_000


class Place(NamedTuple):
    """A running broker, and the files that clients need."""

    broker: BrokerThread
    ca: Path  # of the authority that signed the broker's certificate
    stranger: Path  # of one that did not
    client: Path  # a client's key and certificate
    expired: Path  # the same, of yesterday
    folder: Path

    def address(self, listener: str) -> str:
        return self.broker.listeners[listener]

    def add_user(self, name: str, password: str) -> None:
        """Make a user who can log in by SCRAM."""
        with Cluster(self.address("PLAINTEXT")) as cluster:
            set_password(cluster, name, password, iterations=4096)


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("security")
    authority, stranger = Certificate("authority"), Certificate("stranger")
    server = Certificate("broker", authority, hosts=("127.0.0.1", "localhost"))
    client = Certificate("alice", authority)
    expired = Certificate("alice", authority, expired=True)
    misnamed = Certificate("broker", authority, hosts=("elsewhere.example",))
    outdated = Certificate("broker", authority, hosts=("127.0.0.1", "localhost"), expired=True)
    jwks_file = folder / "jwks.json"
    jwks_file.write_text(json.dumps(jwks()))
    ca = authority.write_certificate(folder / "ca.pem")
    mechanisms = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,MISNAMED://127.0.0.1:0,OLD://127.0.0.1:0,"
        "EXPIRED://127.0.0.1:0,BEARER://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,RENEWED://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,MISNAMED:SSL,OLD:SSL,EXPIRED:SSL,"
        "BEARER:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,RENEWED:SASL_PLAINTEXT",
        "ssl.keystore.location": str(server.write(folder / "server.pem")),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U, DEFAULT",
        "listener.name.misnamed.ssl.keystore.location": str(misnamed.write(folder / "misnamed.pem")),
        "listener.name.expired.ssl.keystore.location": str(outdated.write(folder / "outdated.pem")),
        "listener.name.bearer.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.bearer.sasl.oauthbearer.jwks.endpoint.url": jwks_file.as_uri(),
        "listener.name.bearer.sasl.oauthbearer.expected.issuer": "https://issuer",
        "listener.name.bearer.sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        **mechanisms,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
        "listener.name.renewed.plain.sasl.jaas.config": USERS,
        "listener.name.renewed.connections.max.reauth.ms": str(RENEWED_MS),
        "connection.failed.authentication.delay.ms": "20",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with BrokerThread(options=options) as broker:
        yield Place(
            broker,
            ca,
            stranger.write_certificate(folder / "stranger.pem"),
            client.write(folder / "client.pem"),
            expired.write(folder / "expired.pem"),
            folder,
        )
