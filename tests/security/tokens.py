"""Tokens of OAUTHBEARER for tests, and the keys that sign them."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
NOW = 1_700_000_000
CLAIMS = {"iss": "https://issuer", "aud": ["kafka"], "sub": "alice", "exp": NOW + 100, "iat": NOW - 5}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def whole(number: int) -> str:
    return text(number.to_bytes((number.bit_length() + 7) // 8))


def jwks() -> dict[str, Any]:
    public, point = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    return {
        "keys": [
            {"kty": "oct", "kid": "shared", "k": text(b"secret")},
            {"kty": "RSA", "kid": "bad", "n": "!", "e": "AQAB"},
            {"kty": "RSA", "kid": "r", "n": whole(public.n), "e": whole(public.e), "use": "sig"},
            {"kty": "EC", "kid": "e", "crv": "P-256", "x": whole(point.x), "y": whole(point.y)},
        ]
    }


def sign(algorithm: str, signed: bytes) -> bytes:
    if algorithm == "RS256":
        return RSA.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "PS256":
        return RSA.sign(signed, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
    if algorithm == "ES256":
        first, second = decode_dss_signature(EC.sign(signed, ec.ECDSA(hashes.SHA256())))
        return first.to_bytes(32) + second.to_bytes(32)
    if algorithm == "HS256":  # with what everybody may know
        public = RSA.public_key().public_numbers()
        return hmac.digest(whole(public.n).encode(), signed, "sha256")
    return b""


def token(algorithm: str = "RS256", kid: str | None = "r", header: dict[str, Any] | None = None, **claims: Any) -> str:
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    head = {"alg": algorithm, **({"kid": kid} if kid else {}), **(header or {})}
    signed = f"{text(json.dumps(head).encode())}.{text(json.dumps(said).encode())}"
    return f"{signed}.{text(sign(algorithm, signed.encode()))}"


def tokens_of_now() -> dict[str, str]:
    """One that lets its owner in at this moment, and some that do not."""
    now = int(time.time())
    good = {"iat": now - 5, "exp": now + 3600}
    return {
        "good": token(**good),
        "old": token(iat=now - 7200, exp=now - 3600),
        "forged": token("ES256", "r", **good),
        "for others": token(aud=["somebody"], **good),
    }
