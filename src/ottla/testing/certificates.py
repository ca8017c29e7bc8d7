"""Certificates for tests, made in memory in a few milliseconds each: a CA, and certificates that it signs.

    authority = Certificate("authority")
    broker = Certificate("broker", authority, hosts=("127.0.0.1", "localhost"))
    broker.write(folder / "broker.pem")

They are valid for two days. Needs `cryptography`.
"""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "store-secret"  # nosec B105 # for keystores that exist only during a test
DAY = datetime.timedelta(days=1)


class Certificate:
    """A certificate with its key and its issuer."""

    def __init__(
        self,
        name: x509.Name | str,
        signer: Certificate | None = None,
        *,
        hosts: tuple[str, ...] = (),
        expired: bool = False,
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.signer = signer or self
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if isinstance(name, str) else name
        now = datetime.datetime.now(datetime.UTC)
        until = now - DAY if expired else now + 2 * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        )
        if hosts:
            names = [alternative(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self.certificate = builder.sign(self.signer.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str = "") -> str:  # nosec B107 # none is given
        hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()

    def write(self, path: Path, password: str = "") -> Path:  # nosec B107 # none is given
        """Write the key, the certificate and the issuer's certificate as PEM."""
        path.write_text(self.key_pem(password) + self.pem + self.signer.pem)
        return path

    def write_certificate(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def write_pkcs12(self, path: Path) -> Path:
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own",
                self.key,
                self.certificate,
                [self.signer.certificate],
                BestAvailableEncryption(PASSWORD.encode()),
            )
        )
        return path


def alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
