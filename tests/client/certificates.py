"""An authority, a broker's and a client's certificate, made by the openssl command for one test run."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DAYS = "2"
PASSWORD = "key-secret"


class Certificates:
    """PEM files in a folder: `ca`, and for `broker` and `client` the key with its certificate in one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = self._authority("ca")
        self.stranger = self._authority("stranger")
        self.broker = self._signed("broker", "IP:127.0.0.1")
        self.client = self._signed("client", "DNS:client")

    def _authority(self, name: str) -> Path:
        made = self.folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", f"/CN={name}",
                "-keyout", self.folder / f"{name}.key", "-out", made)  # fmt: skip
        return made

    def _signed(self, name: str, alternative: str) -> Path:
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        names = self.folder / f"{name}.ext"
        names.write_text(f"subjectAltName={alternative}\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
                "-days", DAYS, "-extfile", names, "-out", certificate)  # fmt: skip
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def encrypted(self, name: str) -> Path:
        """The same key under a password, with its certificate."""
        made = self.folder / f"{name}-encrypted.key"
        openssl("pkcs8", "-topk8", "-in", self.folder / f"{name}.key", "-passout", f"pass:{PASSWORD}", "-out", made)
        both = self.folder / f"{name}-encrypted.pem"
        both.write_text(made.read_text() + (self.folder / f"{name}.crt").read_text())
        return both

    def pkcs12(self, name: str) -> Path:
        """Key, certificate and authority in one store."""
        made = self.folder / f"{name}.p12"
        openssl("pkcs12", "-export", "-in", self.folder / f"{name}.pem", "-certfile", self.ca, "-out", made,
                "-passout", f"pass:{PASSWORD}")  # fmt: skip
        return made


def openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
