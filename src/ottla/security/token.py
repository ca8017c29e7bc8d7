"""A delegation token: a temporary name and password for SCRAM, to be passed on.

Its password is the keyed hash (HMAC-SHA-512) of its id, in base 64. It is not stored: every broker has the key.

/delegation_token/tokens/<id>
    {"owner":"User%3Aann","tokenRequester":"User%3Aann","renewers":["User%3Abob"],"issueTimestamp":…,
     "expiryTimestamp":…,"maxTimestamp":…,"tokenId":…,"version":3}
/delegation_token/token_changes/token_change_<number>
    the id of a token that has changed, or is gone

Versions 1 and 2 have no requester: it is the owner. Principals are URL-encoded.
"""

from __future__ import annotations

import hmac
import json
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.security.principal import Principal

ROOT: Final = "/delegation_token"
TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = "/delegation_token/token_changes/token_change_"
VERSION: Final = 3


class Token(NamedTuple):
    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int  # the latest possible expiry, whatever renewals

    @property
    def path(self) -> str:
        return f"{TOKENS}/{self.id}"

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether this principal may renew and expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether this principal may see it."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def is_over(self, now_ms: int) -> bool:
        return self.ends_ms < now_ms or self.expires_ms < now_ms


def sign(key: bytes, token_id: str) -> bytes:
    """The password of a token, before base 64 encoding."""
    return hmac.digest(key, token_id.encode(), "sha512")


def encode(token: Token) -> bytes:
    fields = {
        "owner": write(token.owner),
        "tokenRequester": write(token.requester),
        "renewers": [write(one) for one in token.renewers],
        "issueTimestamp": token.issued_ms,
        "expiryTimestamp": token.expires_ms,
        "maxTimestamp": token.ends_ms,
        "tokenId": token.id,
        "version": VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> Token:
    """ValueError, KeyError or TypeError if the data is malformed."""
    fields: dict[str, Any] = json.loads(data)
    owner = read(fields["owner"])
    requester = read(fields["tokenRequester"]) if "tokenRequester" in fields else owner
    issued, expires, ends = (int(fields[name]) for name in ("issueTimestamp", "expiryTimestamp", "maxTimestamp"))
    return Token(str(fields["tokenId"]), owner, requester, tuple(map(read, fields["renewers"])), issued, expires, ends)


def write(principal: Principal) -> str:
    return quote(str(principal), safe="")


def read(text: str) -> Principal:
    kind, colon, name = unquote(text).partition(":")
    if not colon:
        raise ValueError("a principal is Kind:name")
    return Principal(kind, name)
