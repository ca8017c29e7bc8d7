"""The stored form of a SCRAM password: enough to verify it, not enough to know it. Kafka's text, in the metadata store.

salt=bXlzYWx0,stored_key=…,server_key=…,iterations=4096
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # as in the protocol
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384


class Credential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def credential(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    kind = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", kind)
    server_key = hmac.digest(salted_password, b"Server Key", kind)
    return Credential(salt, hashlib.new(kind, client_key).digest(), server_key, iterations)


def encode(made: Credential) -> str:
    salt, stored, server = (base64.b64encode(part).decode() for part in made[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={made.iterations}"


def decode(text: str) -> Credential:
    """ValueError if it is malformed."""
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored, server = (
            base64.b64decode(pairs[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return Credential(salt, stored, server, int(pairs["iterations"]))
    except (KeyError, binascii.Error):
        raise ValueError("not a SCRAM credential") from None
