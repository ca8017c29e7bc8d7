"""PLAIN (RFC 4616): the client sends its password, so use it on encrypted listeners only. Users are set by file."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_MATCH = "Authentication failed: Invalid username or password"
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"


class Plain:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user: str | None = None
        self.expires_s: float | None = None
        self.by_token = False
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes:
        try:
            words = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginError("the token is not UTF-8") from None
        if len(words) != 3:
            raise refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(words)}")
        identity, name, password = words
        if not name:
            raise refusal("Authentication failed: username not specified")
        if not password:
            raise refusal("Authentication failed: password not specified")
        # Compared in constant time, whether the user exists or not.
        expected = self._passwords.get(name)
        same = hmac.compare_digest(digest(password), digest(password + "\0" if expected is None else expected))
        if expected is None or not same:
            raise refusal(NO_MATCH)
        if identity not in ("", name):
            raise refusal(OTHER_IDENTITY)
        self.user = name
        return b""


def digest(password: str) -> bytes:
    """The same length for every password."""
    return hmac.digest(b"plain", password.encode(), "sha256")


def refusal(message: str) -> LoginError:
    return LoginError(message, told=message)
