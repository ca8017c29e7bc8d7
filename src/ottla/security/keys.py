"""The keys that sign tokens: a JWKS (RFC 7517) in a file, or at an https address. Reloaded periodically.

Its location can only be set in the broker's file. A key is for the algorithms of its kind: RS256 to PS512 for RSA, and
ES256 to ES512 for its curve. Other entries of a JWKS are ignored. If it cannot be read, the previous keys stay in use.
"""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request, url2pathname

from ottla.config.option import ConfigError
from ottla.security.bearer import decode_bytes
from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Verify = Callable[[str, bytes, bytes], bool]  # algorithm, signed data, signature

OPTION: Final = "sasl.oauthbearer.jwks.endpoint.url"
SIZE_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0
RSA_BITS_MIN: Final = 2048
CURVES: Final = {
    "P-256": ("ES256", "SECP256R1", 32),
    "P-384": ("ES384", "SECP384R1", 48),
    "P-521": ("ES512", "SECP521R1", 66),
}
HASHES: Final = {"256": "SHA256", "384": "SHA384", "512": "SHA512"}


class Keys:
    def __init__(self, address: str) -> None:
        self._address = address
        self._keys: dict[str | None, list[Verify]] = {}
        parts = urlsplit(address)
        if parts.scheme not in ("https", "file"):
            raise ConfigError(f"{OPTION}: {address}: expected https://… or file:///…")

        try:
            import cryptography  # noqa: F401
        except ImportError:
            reason = "checking tokens needs the cryptography package: pip install ottla[security]"
            raise ConfigError(f"{OPTION}: {reason}") from None

    @property
    def is_local(self) -> bool:
        return self._address.startswith("file:")

    def __str__(self) -> str:
        return self._address

    def verify(self, key: object, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether one of the keys has signed it. If the token names a key id, only that key counts."""
        wanted = (
            self._keys.get(key, []) if isinstance(key, str) else [one for some in self._keys.values() for one in some]
        )
        return any(one(algorithm, signed, signature) for one in wanted)

    def read(self) -> None:
        """Read the keys now. Blocks. OSError or ConfigError keep the previous ones."""
        found: dict[str | None, list[Verify]] = {}
        for key, verify in parse(self._load()):
            found.setdefault(key, []).append(verify)
        if not found:
            raise ConfigError(f"{OPTION}: {self._address} has no key for signing tokens")
        self._keys = found

    def _load(self) -> bytes:
        parts = urlsplit(self._address)
        if parts.scheme == "file":
            with open(url2pathname(parts.path), "rb") as file:
                return file.read(SIZE_MAX)
        opener = OpenerDirector()  # https only: no proxies, no redirects to other schemes
        opener.add_handler(HTTPSHandler(context=ssl.create_default_context()))
        with opener.open(Request(self._address), timeout=TIMEOUT_S) as answer:
            if answer.status != 200:
                raise OSError(f"{self._address} answered with status {answer.status}")
            data: bytes = answer.read(SIZE_MAX)
            return data


def parse(data: bytes) -> Iterator[tuple[str | None, Verify]]:
    try:
        found = json.loads(data)["keys"]
        keys = [key for key in found if isinstance(key, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{OPTION}: not a JWKS") from None
    for key in keys:
        if key.get("use", "sig") != "sig":
            continue
        try:
            verify = rsa(key) if key.get("kty") == "RSA" else elliptic(key) if key.get("kty") == "EC" else None
        except (KeyError, ValueError, TypeError, LoginError):
            continue  # ignore an invalid key, and use the others
        if verify is not None:
            name = key.get("kid")
            yield name if isinstance(name, str) else None, verify


def number(text: str) -> int:
    return int.from_bytes(decode_bytes(text))


def rsa(key: dict[str, Any]) -> Verify:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    public = RSAPublicNumbers(number(key["e"]), number(key["n"])).public_key()
    if public.key_size < RSA_BITS_MIN:
        raise ValueError("too short")
    only = key.get("alg")

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        kind, digest = algorithm[:2], HASHES.get(algorithm[2:])
        if kind not in ("RS", "PS") or digest is None or only not in (None, algorithm):
            return False
        chosen = getattr(hashes, digest)()
        filling: Any = padding.PKCS1v15() if kind == "RS" else padding.PSS(padding.MGF1(chosen), chosen.digest_size)
        try:
            public.verify(signature, signed, filling, chosen)
        except InvalidSignature:
            return False
        return True

    return verify


def elliptic(key: dict[str, Any]) -> Verify:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    expected, curve, size = CURVES[key["crv"]]
    public = ec.EllipticCurvePublicNumbers(number(key["x"]), number(key["y"]), getattr(ec, curve)()).public_key()
    chosen = getattr(hashes, HASHES[expected[2:]])()

    def verify(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if algorithm != expected or len(signature) != 2 * size:
            return False
        pair = (int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
        try:
            public.verify(encode_dss_signature(*pair), signed, ec.ECDSA(chosen))
        except InvalidSignature:
            return False
        return True

    return verify
