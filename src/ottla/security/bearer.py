"""OAUTHBEARER (RFC 7628): the client sends a token signed by a third party. The broker checks the signature.

A token is a JWT, signed by a key of a JWKS (`keys.py`). The broker's options, never the token, decide what is valid:
the algorithm must be one for its key, and `none` and shared secrets are not allowed; it must not have expired; issuer
and audience must be the configured ones, if any.

A refusal follows the RFC: the broker sends a JSON text, then ends the exchange.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.security.keys import Keys

FIRST: Final = re.compile(r"n,(?:a=(?P<identity>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
TOKEN: Final = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9_\-.]+) *")
REFUSAL: Final = b'{"status":"invalid_token"}'
TOKEN_SIZE_MAX: Final = 64 * 1024


class Expectations(NamedTuple):
    """What a token must contain."""

    issuer: str | None
    audiences: tuple[str, ...]  # one of them, if any are set
    skew_s: int
    subject: str  # the claim with the name of the user


class Bearer:
    def __init__(self, keys: Keys, expected: Expectations, now_ms: Callable[[], int]) -> None:
        self.user: str | None = None
        self.expires_s: float | None = None
        self.by_token = False
        self._keys = keys
        self._expected = expected
        self._now_ms = now_ms
        self._refused = ""

    def respond(self, token: bytes) -> bytes:
        if self._refused:  # the client has acknowledged the refusal with one byte
            raise LoginError(self._refused, told='{"status":"invalid_token"}')
        first = FIRST.fullmatch(token.decode(errors="replace"))
        if first is None:
            raise LoginError("malformed message")
        pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair)
        shown = TOKEN.fullmatch(pairs.get("auth", ""))
        try:
            if shown is None:
                raise LoginError("no token")
            name, expires_s = self._check(shown["token"])
        except LoginError as error:
            self._refused = str(error)
            return REFUSAL
        if first["identity"] not in (None, "", name):
            raise LoginError("the requested identity is not the token's")
        self.user, self.expires_s = name, expires_s
        return b""

    def _check(self, token: str) -> tuple[str, float]:
        """The user of a token, and its remaining lifetime in seconds."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > TOKEN_SIZE_MAX:
            raise LoginError("the token is not a signed JWT")
        header, claims = decode(parts[0]), decode(parts[1])
        if "crit" in header:
            raise LoginError("the token has unknown critical headers")
        algorithm = header.get("alg")
        signed = f"{parts[0]}.{parts[1]}".encode()
        if not isinstance(algorithm, str) or not self._keys.verify(
            header.get("kid"), algorithm, signed, decode_bytes(parts[2])
        ):
            raise LoginError("the token is not signed by any known key")
        return self._read(claims)

    def _read(self, claims: dict[str, Any]) -> tuple[str, float]:
        expected, now = self._expected, self._now_ms() / 1000
        expires, begins, issued = (claims.get(name) for name in ("exp", "nbf", "iat"))
        if expires is None or not is_number(expires) or now > expires + expected.skew_s:
            raise LoginError("the token has expired, or has no expiry")
        for moment in (begins, issued):
            if moment is not None and (not is_number(moment) or moment > now + expected.skew_s):
                raise LoginError("the token was issued in the future")
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise LoginError("the token has another issuer")
        said = claims.get("aud")
        audiences = said if isinstance(said, list) else [said]
        if expected.audiences and not any(one in expected.audiences for one in audiences if isinstance(one, str)):
            raise LoginError("the token is for another audience")
        name = claims.get(expected.subject)
        if not isinstance(name, str) or not name.strip():
            raise LoginError("the token names no user")
        return name, max(0.001, expires - now)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def decode(part: str) -> dict[str, Any]:
    try:
        found = json.loads(decode_bytes(part))
    except (ValueError, RecursionError):
        raise LoginError("the token is malformed") from None
    if not isinstance(found, dict):
        raise LoginError("the token is malformed")
    return found


def decode_bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise LoginError("the token is malformed") from None
