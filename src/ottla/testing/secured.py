"""A secured broker for tests: TLS and SASL listeners, generated certificates, settings for clients.

    with SecuredBroker() as broker:
        Producer(broker.confluent_kafka("SCRAM-SHA-512"))

The `login` is how a client authenticates:

    TLS             encrypted, without authentication
    CERTIFICATE     encrypted; the client is identified by its certificate
    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512     encrypted, with `user` and `password`

`ca`, `certificate` and `key` are PEM files of the CA and of the client. The listeners are SSL, CERTIFICATE, SASL_SSL,
SASL_PLAINTEXT and PLAINTEXT, in `addresses`; their ports stay the same when the broker is killed and restarted.
Needs `cryptography`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.embed import BrokerProcess, BrokerThread, Options, text
from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    import ssl

USER, PASSWORD = "ann", "ann-secret"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"  # creates the SCRAM users
PROTOCOLS: Final = {
    "SSL": "SSL",
    "CERTIFICATE": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "PLAINTEXT": "PLAINTEXT",
}
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOGINS: Final = ("TLS", "CERTIFICATE", "PLAIN", *SCRAM)
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
HOSTS: Final = ("127.0.0.1", "localhost", "::1")


class SecuredBroker:
    """One secured broker; `broker` is the broker process itself, with all its methods."""

    user, password = USER, PASSWORD

    def __init__(self, *, options: Options | None = None, mode: str = "process") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-secured-"))
        self.ca, self.certificate, self.key = (self.folder / f"{name}.pem" for name in ("ca", "client", "client-key"))
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True)
        }
        self._write_certificates()
        chosen = self._options() | {name: text(value) for name, value in (options or {}).items()}
        self.broker: BrokerProcess | BrokerThread = (
            BrokerThread(options=chosen) if mode == "thread" else BrokerProcess(options=chosen, log_level="info")
        )

    def _write_certificates(self) -> None:
        from ottla.testing.certificates import Certificate

        authority = Certificate("authority")
        authority.write_certificate(self.ca)
        Certificate("broker", authority, hosts=HOSTS).write(self.folder / "broker.pem")
        client = Certificate(self.user, authority)
        client.write_certificate(self.certificate)
        self.key.write_text(client.key_pem())

    def _options(self) -> dict[str, str]:
        users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{self.user}="{self.password}"'
        login = f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}" {users};'
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "listener.name.certificate.ssl.client.auth": "required",
            "listener.name.certificate.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/, DEFAULT",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }

    def start(self) -> Self:
        """Start the broker, and create the SCRAM user."""
        self.broker.start()
        self.add_user(self.user, self.password)
        return self

    def add_user(self, user: str, password: str) -> None:
        """Create a SCRAM user, or change its password."""
        from ottla.client.cluster import Cluster
        from ottla.client.security import security
        from ottla.client.users import set_password

        login = f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}";'
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
        with Cluster(self.addresses["SASL_PLAINTEXT"], security=security(options)) as cluster:
            set_password(cluster, user, password, mechanisms=SCRAM)

    def bootstrap(self, login: str = "TLS") -> str:
        """The bootstrap address for clients with this login."""
        return self.addresses[listener(login)]

    def confluent_kafka(self, login: str = "TLS") -> dict[str, Any]:
        """Settings for `Producer`, `Consumer` and `AdminClient` of confluent-kafka."""
        settings = {
            "bootstrap.servers": self.bootstrap(login),
            "security.protocol": PROTOCOLS[listener(login)],
            "ssl.ca.location": str(self.ca),
        }
        if login == "CERTIFICATE":
            settings |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
        elif login != "TLS":
            settings |= {"sasl.mechanism": login, "sasl.username": self.user, "sasl.password": self.password}
        return settings

    def kafka_python(self, login: str = "TLS") -> dict[str, Any]:
        """Keyword arguments of the clients of kafka-python."""
        settings = self._named(login) | {"ssl_cafile": str(self.ca)}
        if login == "CERTIFICATE":
            settings |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}
        return settings

    def aiokafka(self, login: str = "TLS") -> dict[str, Any]:
        """Keyword arguments of the clients of aiokafka."""
        return self._named(login) | {"ssl_context": self.context(login)}

    def _named(self, login: str) -> dict[str, Any]:
        """Settings with the same names in kafka-python and aiokafka."""
        settings = {
            "bootstrap_servers": self.bootstrap(login),
            "security_protocol": PROTOCOLS[listener(login)],
        }
        if listener(login) == "SASL_SSL":
            settings |= {
                "sasl_mechanism": login,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return settings

    def context(self, login: str = "TLS") -> ssl.SSLContext:
        """An SSL context for a client that takes one of the standard library."""
        import ssl

        context = ssl.create_default_context(cafile=str(self.ca))
        if login == "CERTIFICATE":
            context.load_cert_chain(self.certificate, self.key)
        return context

    def stop(self) -> None:
        try:
            self.broker.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *error: object) -> None:
        self.stop()


def listener(login: str) -> str:
    if login not in LOGINS:
        raise ValueError(f"unknown login {login}: expected one of {', '.join(LOGINS)}")
    return {"TLS": "SSL", "CERTIFICATE": "CERTIFICATE"}.get(login, "SASL_SSL")
