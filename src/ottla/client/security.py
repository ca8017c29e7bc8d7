"""TLS and SASL for a client, with the option names of Kafka's Java clients.

    security({"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem",
              "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": '… required username="u" password="p";'})

Certificates and keys are PEM, in files or in the options themselves; a PKCS12 store is read where the `cryptography`
package is installed; JKS stores cannot be read. Host names are checked unless that is switched off. With SCRAM (RFC
5802) the password is not sent, and the broker must prove that it knows it, too.

Any of them may be given by reference, as `sasl.jaas.config.file` or `.env` (secret.py). Without a JAAS line,
`sasl.username` and `sasl.password` are used.

A `Security` is a plain value that can be sent to other processes. Nothing secret is in its repr or in any message.
Secrets that were given by reference are stored as the reference only, and read for each connection.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed, Refused, Unreachable, detail
from ottla.client.secret import base, refers, resolve
from ottla.errors import ErrorCode
from ottla.wire.messages.auth import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Mapping

    from ottla.client.connection import Connection

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *SCRAM)
STORES: Final = ("PEM", "PKCS12", "JKS")
MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": tuple(SCRAM),
}
OPTIONS: Final = (
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
)
ITERATIONS_MIN: Final = 4096  # RFC 7677; with fewer a broker could guess the password cheaply
ITERATIONS_MAX: Final = 1 << 20  # about a second of work; more would be a denial of service
TO_PEM: Final = "keytool -importkeystore -srcstoretype JKS -deststoretype PKCS12, then openssl pkcs12 -nodes"


@dataclass(frozen=True)
class Security:
    """How to connect to a listener. The default is a plain connection."""

    protocol: str = "PLAINTEXT"
    trust: str = ""  # file
    trust_type: str = "PEM"
    trust_text: str = ""
    key_store: str = ""  # file
    key_store_type: str = "PEM"
    key_chain: str = ""
    check_host: bool = True
    mechanism: str = ""
    user: str = ""
    trust_password: str = field(default="", repr=False)
    key_store_password: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # the options, if some are references

    def resolve(self) -> Security:
        """This security with the secrets that were given by reference."""
        return security(resolve(dict(self.given))) if self.given else self

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        return self.protocol.startswith("SASL")

    def wrap(self, plain: socket.socket, host: str, name: str) -> socket.socket:
        """The connection, encrypted if the protocol requires it."""
        if not self.encrypted:
            return plain
        try:
            return self.resolve().context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise Failed(
                f"the certificate of the broker at {name} is not accepted ({error.verify_message}): "
                "see ssl.truststore.location, or ssl.endpoint.identification.algorithm if only the name differs"
            ) from None
        except ssl.SSLError as error:
            reason = (error.reason or "it hung up").replace("_", " ").lower()
            raise Failed(
                f"no TLS with the broker at {name} ({reason}): does its listener speak {self.protocol}, "
                "and does it accept what ssl.keystore.location has?"
            ) from None
        except TimeoutError:
            raise Unreachable(f"the broker at {name} does not answer") from None
        except OSError as error:
            raise Unreachable(
                f"the broker at {name} went away during the TLS handshake ({error.strerror or error})"
            ) from None

    def authenticate(self, connection: Connection) -> int:
        """Authenticate. Returns the lifetime of the session in milliseconds; 0: until the connection ends."""
        if not self.authenticated:
            return 0
        what = f"the broker at {connection.name}"
        shaken = connection.ask(SaslHandshakeRequest(mechanism=self.mechanism), SaslHandshakeResponse)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise Refused(what, shaken.error_code, f": it offers {offered}; see sasl.mechanism")
        own = self.resolve()
        steps = plain_steps(own) if own.mechanism == "PLAIN" else scram_steps(own, what)
        token = next(steps)
        while True:
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if answer.error_code:
                more = f"{detail(answer.error_message)}; see sasl.jaas.config"
                raise Refused(f"{what}, user {own.user}", answer.error_code, more)
            try:
                token = steps.send(answer.auth_bytes)
            except StopIteration:
                return answer.session_lifetime_ms

    def doubt(self) -> str:
        """A hint for when a broker closes the connection at once, or sends an invalid answer."""
        missing = " or ".join(("TLS",) * (not self.encrypted) + ("a login",) * (not self.authenticated))
        return f"; if its listener wants {missing}, set security.protocol" if missing else ""

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_host
        self.load_trust(context)
        if self.key_store or self.key:
            self.load_key(context)
        return context

    def load_trust(self, context: ssl.SSLContext) -> None:
        if not self.trust and not self.trust_text:
            context.load_default_certs()
            return
        name = "ssl.truststore.location" if self.trust else "ssl.truststore.certificates"
        try:
            if self.trust and self.trust_type == "PKCS12":
                context.load_verify_locations(cadata=read_pkcs12(name, self.trust, self.trust_password)[0])
            elif self.trust:
                context.load_verify_locations(cafile=self.trust)
            else:
                context.load_verify_locations(cadata=self.trust_text)
        except ssl.SSLError:
            raise Failed(
                f"{name}: there are no PEM certificates {f'in {self.trust}' if self.trust else 'in it'}"
            ) from None
        except OSError as error:
            raise Failed(f"{name}: {self.trust}: {error.strerror or error}") from None

    def load_key(self, context: ssl.SSLContext) -> None:
        """The ssl module reads keys only from files, so a key given as text is put in a temporary file."""
        name = "ssl.keystore.location" if self.key_store else "ssl.keystore.key"
        password = self.key_password
        if self.key_store and self.key_store_type == "PKCS12":
            text = read_pkcs12(name, self.key_store, self.key_store_password)[1]
        elif self.key_store:
            text = ""
        else:
            text = f"{self.key}\n{self.key_chain}\n"
        try:
            if not text:
                context.load_cert_chain(self.key_store, password=lambda: password)
                return
            with tempfile.TemporaryDirectory() as folder:  # for its owner only
                path = os.path.join(folder, "key.pem")
                with open(path, "w", opener=lambda at, flags: os.open(at, flags, 0o600)) as file:
                    file.write(text)
                context.load_cert_chain(path, password=lambda: password)
        except ssl.SSLError:
            raise Failed(
                f"{name}: expected a PEM key with its certificates, and ssl.key.password if it is encrypted"
            ) from None
        except OSError as error:
            raise Failed(f"{name}: {self.key_store}: {error.strerror or error}") from None


PLAIN: Final = Security()


def security(options: Mapping[str, str]) -> Security:
    """Parse these options, named as in Kafka's Java clients; a plain connection if there are none."""
    if strange := sorted(name for name in options if base(name) not in OPTIONS):
        raise Failed(f"{strange[0]} is not supported; these are: {', '.join(OPTIONS)}")
    if refers(options):  # resolved now to check them, and again for each connection
        checked = security(resolve(options))
        bare = replace(checked, trust_password="", key_store_password="", key="", key_password="", password="")  # nosec B106 # taken away
        return replace(bare, given=tuple(sorted(options.items())))
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise Failed(f"security.protocol={protocol}: expected one of {', '.join(PROTOCOLS)}")
    mechanism = user = password = ""  # nosec B105 # none is given
    if protocol.startswith("SASL"):
        mechanism = options.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in MECHANISMS:
            raise Failed(f"sasl.mechanism={mechanism} is not supported: expected one of {', '.join(MECHANISMS)}")
        user, password = login(options, mechanism)
    identification = options.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if identification not in ("", "https"):
        raise Failed("ssl.endpoint.identification.algorithm: expected https, or nothing to accept any host name")
    made = Security(
        protocol=protocol,
        trust=options.get("ssl.truststore.location", ""),
        trust_type=store(options, "ssl.truststore"),
        trust_text=pem(options.get("ssl.truststore.certificates", "")),
        trust_password=options.get("ssl.truststore.password", ""),
        key_store=options.get("ssl.keystore.location", ""),
        key_store_type=store(options, "ssl.keystore"),
        key_store_password=options.get("ssl.keystore.password", ""),
        key_chain=pem(options.get("ssl.keystore.certificate.chain", "")),
        key=pem(options.get("ssl.keystore.key", "")),
        key_password=options.get("ssl.key.password", ""),
        check_host=identification == "https",
        mechanism=mechanism,
        user=user,
        password=password,
    )
    if bool(made.key) != bool(made.key_chain):
        raise Failed("ssl.keystore.key and ssl.keystore.certificate.chain: give both, or neither")
    return made


def store(options: Mapping[str, str], name: str) -> str:
    """The type of a store, from the option or from the file's extension."""
    location = options.get(f"{name}.location", "")
    kind = options.get(f"{name}.type", "").upper()
    if not kind:
        ending = location.lower().rpartition(".")[2]
        kind = {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM", "crt": "PEM", "cer": "PEM", "key": "PEM"}.get(
            ending, "JKS"
        )
        kind = kind if location else "PEM"
    if kind not in STORES:
        raise Failed(f"{name}.type={kind}: expected one of {', '.join(STORES[:2])}")
    if kind == "JKS" and location:
        raise Failed(
            f"{name}.location={location}: a JKS store cannot be read; make PEM ({TO_PEM}) and set {name}.type=PEM"
        )
    return kind


def pem(text: str) -> str:
    """PEM as Java's options allow it: also on one line, with spaces instead of line ends."""
    found = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text, re.DOTALL)
    if text and not found:
        raise Failed("a certificate or key in an option must be PEM: -----BEGIN …----- to -----END …-----")
    parts = []
    for kind, body in found:
        lines = body.split()
        headers = "\n" + body.strip() if ":" in body else "\n" + "\n".join(lines)  # an encrypted key in the old format
        parts.append(f"-----BEGIN {kind}-----{headers}\n-----END {kind}-----\n")
    return "".join(parts)


def read_pkcs12(name: str, path: str, password: str) -> tuple[str, str]:
    """The certificates that a PKCS12 store trusts, and its own key with its chain, both as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import (  # type: ignore[import-not-found, unused-ignore]
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise Failed(
            f"{name}={path}: reading PKCS12 needs the cryptography package (pip install cryptography); "
            "or make PEM of it: openssl pkcs12 -nodes"
        ) from None
    try:
        with open(path, "rb") as file:
            found = pkcs12.load_pkcs12(file.read(), password.encode() if password else None)
    except OSError as error:
        raise Failed(f"{name}: {path}: {error.strerror or error}") from None
    except ValueError:
        raise Failed(f"{name}: {path}: not a PKCS12 store, or the password is wrong") from None
    others = [one.certificate.public_bytes(Encoding.PEM).decode() for one in found.additional_certs]
    own = [found.cert.certificate.public_bytes(Encoding.PEM).decode()] if found.cert else []
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() if found.key else ""
    return "".join(others + own), "".join([key, *own, *others])


def login(options: Mapping[str, str], mechanism: str) -> tuple[str, str]:
    """User and password, in a JAAS line or each by its own option."""
    jaas, user = options.get("sasl.jaas.config", ""), options.get("sasl.username", "")
    if not user and "sasl.password" not in options:
        return credentials(jaas, mechanism)
    if jaas:
        raise Failed("sasl.jaas.config has user and password: remove it, or remove sasl.username and sasl.password")
    if not user or not options.get("sasl.password"):
        raise Failed("sasl.username and sasl.password: give both, or sasl.jaas.config")
    return user, options["sasl.password"]


def credentials(jaas: str, mechanism: str) -> tuple[str, str]:
    """User and password of a JAAS line: `module required username="…" password="…";`"""
    what = "sasl.jaas.config"
    form = f'expected <module> required username="…" password="…"; for {mechanism}'
    try:
        module, found = parse_jaas(jaas)
    except ValueError:
        raise Failed(f"{what}: {form}") from None
    if mechanism not in MODULES.get(module, ()):
        right = next(module for module, mechanisms in MODULES.items() if mechanism in mechanisms)
        raise Failed(f"{what}: {module} is not the login module of {mechanism}, that is {right}")
    if "username" not in found or "password" not in found:
        raise Failed(f"{what}: {form}")
    return found["username"], found["password"]


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The module and the options of a JAAS line; ValueError if it is invalid."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|([^\s=;"]+)|(=)|(;)', text)
    texts = [
        re.sub(r"\\(.)", r"\1", quoted) if quoted or not (bare or sign or end) else bare or sign or end
        for quoted, bare, sign, end in words
    ]
    if len(texts) < 3 or texts[1].lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("no login module")
    if texts[-1] != ";":
        raise ValueError("no semicolon at the end")
    return texts[0], {
        name: value for name, sign, value in zip(texts[2:], texts[3:], texts[4:], strict=False) if sign == "="
    }


def plain_steps(own: Security) -> Generator[bytes, bytes, None]:
    """PLAIN (RFC 4616): the password itself, which the broker compares."""
    yield b"\0" + own.user.encode() + b"\0" + own.password.encode()


def scram_steps(own: Security, what: str) -> Generator[bytes, bytes, None]:
    """SCRAM (RFC 5802) without channel binding: yields what to send, receives the answers."""
    kind = SCRAM[own.mechanism]
    nonce = secrets.token_urlsafe(24)
    user = own.user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode(errors="replace")
    said = dict(part.partition("=")[::2] for part in challenge.split(","))
    try:
        salt = base64.b64decode(said["s"], validate=True)
        iterations = int(said["i"])
    except (KeyError, ValueError):
        raise Failed(f"{what} answered with something other than a SCRAM challenge") from None
    if not said.get("r", "").startswith(nonce) or said["r"] == nonce:
        raise Failed(f"{what} answered a SCRAM challenge that is not ours: a man in the middle is possible")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise Failed(
            f"{what} asks for {iterations} rounds of SCRAM, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}: "
            "set the user's password again"
        )
    salted = hashlib.pbkdf2_hmac(kind, own.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", kind)
    final = f"c=biws,r={said['r']}"
    message = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(kind, client_key).digest(), message, kind)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    verdict = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", kind), message, kind)
    if not hmac.compare_digest(verdict.encode(), b"v=" + base64.b64encode(expected)):
        raise Refused(what, ErrorCode.SASL_AUTHENTICATION_FAILED, ": the broker does not know the password")
