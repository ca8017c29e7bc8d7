"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), the broker's side, without channel binding.

The iterations are the client's work: here a login costs a few hashes. A user that does not exist gets a challenge like
any other, always the same one, and fails at the end, so that nobody can find out which users exist. A part of each
nonce is ours and valid for one exchange, so that nothing can be replayed.

With the extension tokenauth=true the name is that of a delegation token, and its owner is logged in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.credential import HASHES, ITERATIONS_MIN, Credential, decode
from ottla.security.login import LoginError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.security.decoys import Decoys

    Users = Callable[[str], Mapping[str, str]]  # the credentials of a user, by mechanism
    Tokens = Callable[[str, str], "TokenLogin | None"]  # the login of a delegation token, by its id and the mechanism

FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<identity>[^,]*))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?P<more>(?:,[a-zA-Z]+=[^,]+)*))"
)
FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[a-zA-Z]+=[^,]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
NONCE_SIZE_MAX: Final = 1024
NAME_SIZE_MAX: Final = 1024
SALT_SIZE: Final = 26  # of delegation tokens


class TokenLogin(NamedTuple):
    """The credentials of a delegation token."""

    owner: str
    kept: str  # the stored form of the credential
    expires_s: float


class Scram:
    def __init__(
        self, mechanism: str, users: Users, nonce: str, decoys: Decoys, tokens: Tokens = lambda name, mechanism: None
    ) -> None:
        self.user: str | None = None
        self.expires_s: float | None = None
        self.by_token = False
        self._tokens = tokens
        self._owner = ""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._users = users
        self._nonce = nonce  # our half
        self._decoys = decoys
        self._name = self._challenge = self._first = self._header = ""
        self._credential: Credential | None = None
        self._known = False

    def respond(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LoginError("a message that is not UTF-8") from None
        said = self._make_challenge(text) if self._credential is None else self._check_proof(text)
        return said.encode()

    def _make_challenge(self, text: str) -> str:
        first = FIRST.fullmatch(text)
        if first is None or len(first["nonce"]) > NONCE_SIZE_MAX or len(first["name"]) > NAME_SIZE_MAX:
            raise LoginError("malformed first message")
        self._name = unescape(first["name"])
        if first["identity"] and unescape(first["identity"]) != self._name:
            raise LoginError("the requested identity is not the user's")
        extensions = dict(part.partition("=")[::2] for part in (first["more"] or "").split(","))
        self.by_token = extensions.get("tokenauth", "").lower() == "true"
        self._credential = self._look_up(self._name)
        self._first, self._header = first["bare"], first["header"]
        self._nonce = first["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._challenge

    def _look_up(self, name: str) -> Credential:
        text, self._owner = self._users(name).get(self._mechanism), name
        if self.by_token:
            found = self._tokens(name, self._mechanism)
            text = None if found is None else found.kept
            if found is not None:
                self._owner, self.expires_s = found.owner, found.expires_s
        try:
            known = None if text is None else decode(text)
        except ValueError:
            known = None
        self._known = known is not None
        if known is not None:
            return known
        made = self._decoys.make(self._mechanism, name)
        return made._replace(salt=made.stored_key[:SALT_SIZE], iterations=ITERATIONS_MIN) if self.by_token else made

    def _check_proof(self, text: str) -> str:
        assert self._credential is not None
        final = FINAL.fullmatch(text)
        if final is None:
            raise LoginError("malformed final message")
        try:
            header, proof = (base64.b64decode(final[part], validate=True) for part in ("header", "proof"))
        except binascii.Error:
            raise LoginError("malformed final message") from None
        if header != self._header.encode() or not hmac.compare_digest(final["nonce"].encode(), self._nonce.encode()):
            raise LoginError("the final message belongs to another exchange")
        message = f"{self._first},{self._challenge},{final['unproved']}".encode()
        signature = hmac.digest(self._credential.stored_key, message, self._hash)
        size = len(signature)
        key = bytes(left ^ right for left, right in zip(proof.ljust(size, b"\0")[:size], signature, strict=True))
        same = hmac.compare_digest(hashlib.new(self._hash, key).digest(), self._credential.stored_key)
        if not same or not self._known or len(proof) != size:
            raise LoginError("wrong name or password")
        if self.by_token:
            found = self._tokens(self._name, self._mechanism)
            if found is None:
                raise LoginError("the delegation token has expired")
            self.expires_s = found.expires_s
        self.user = self._owner
        return "v=" + base64.b64encode(hmac.digest(self._credential.server_key, message, self._hash)).decode()


def unescape(name: str) -> str:
    """RFC 5802: a comma is =2C and an equals sign =3D; other escapes are invalid."""
    if re.search(r"=(?!2C|3D)", name):
        raise LoginError("the name has an invalid escape")
    return name.replace("=2C", ",").replace("=3D", "=")
