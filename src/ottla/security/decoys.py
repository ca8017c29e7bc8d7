"""Challenges for SCRAM users that do not exist: they look like those of users that do.

Iterations and salts depend on the tool that made a user: 4,096 or 8,192 iterations, and salts of 26 letters and digits
or of 32 bytes. A decoy has the form of some user's, and each form is as frequent among decoys as among users. The same
name always gets the same one, unless the users change.
"""

from __future__ import annotations

import hmac
from collections import Counter
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.credential import Credential, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Stored = Mapping[str, Mapping[str, str]]  # by user and mechanism

LOOKED_AT_MAX: Final = 500  # users: enough to know the forms, and few enough to hold nobody up
SIGNS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class Form(NamedTuple):
    iterations: int
    salt_size: int
    is_text: bool  # whether the salt is letters and digits, as Kafka's tools make it


OURS: Final = Form(8192, 32, is_text=False)  # of `ottla users`


class Decoys:
    """Those of one listener. `secret` belongs to it."""

    def __init__(self, secret: bytes, everybody: Callable[[], Stored]) -> None:
        self._secret = secret
        self._everybody = everybody
        self._seen: Stored | None = None
        self._forms: dict[str, Counter[Form]] = {}

    def make(self, mechanism: str, name: str) -> Credential:
        drawn = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha512")
        form = self._choose(mechanism, int.from_bytes(drawn[-8:]) / 2**64)
        salt = hmac.digest(self._secret, b"salt" + drawn, "sha512")[: form.salt_size]
        if form.is_text:
            salt = bytes(SIGNS[byte % len(SIGNS)] for byte in salt)
        return Credential(salt, drawn, drawn, form.iterations)

    def _choose(self, mechanism: str, share: float) -> Form:
        """The form below which this share of all users is."""
        everybody = self._everybody()
        if everybody is not self._seen:
            self._seen, self._forms = everybody, {}
        forms = self._forms.get(mechanism)
        if forms is None:
            forms = self._forms[mechanism] = count_forms(everybody, mechanism)
        known = sorted(forms.items())
        ends = accumulate(count for _, count in known)
        return next((form for (form, _), end in zip(known, ends, strict=True) if share * forms.total() < end), OURS)


def count_forms(everybody: Stored, mechanism: str) -> Counter[Form]:
    forms: Counter[Form] = Counter()
    for name in islice(everybody, LOOKED_AT_MAX):
        text = everybody[name].get(mechanism)
        try:
            found = None if text is None else decode(text)
        except ValueError:
            found = None
        if found is not None:
            is_text = all(byte in SIGNS for byte in found.salt)
            forms[Form(found.iterations, len(found.salt), is_text)] += 1
    return forms
