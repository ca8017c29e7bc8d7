"""Users that are created before the first client connects: `ottla serve --add-scram`, in the syntax of `kafka-storage`.

    SCRAM-SHA-512=[name=ann,password-file=/run/secrets/ann]
    SCRAM-SHA-256=[name=ann,salt=bXlzYWx0,iterations=8192,password="a, b"]
    SCRAM-SHA-256=[name=ann,salt=bXlzYWx0,saltedpassword=…]

salt, iterations   default: random, and 4096
password-file      only in Ottla: its first line is the password; - is standard input
saltedpassword     the password as hashed with the salt, base 64

Only the stored form of a password leaves this module, and no message contains a part of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.option import ConfigError
from ottla.security.credential import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, credential, encode

if TYPE_CHECKING:
    from collections.abc import Callable

OPTION: Final = "--add-scram"
FORM: Final = "MECHANISM=[name=...,password-file=...]"
WHOLE: Final = re.compile(r"(?P<mechanism>[A-Za-z0-9-]+)=\[(?P<pairs>.*)\]", re.DOTALL)
PAIR: Final = re.compile(r'\s*(?P<name>[a-z-]+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|$)')
NAMES: Final = {"name", "salt", "iterations", "password", "password-file", "saltedpassword"}
SALT_SIZE: Final = 26
PASSWORDS: Final = ("password", "password-file", "saltedpassword")


class FirstUser(NamedTuple):
    name: str
    mechanism: str
    kept: str  # the stored form of the credential

    def __repr__(self) -> str:
        return f"FirstUser({self.name!r}, {self.mechanism!r})"


def parse_first_user(text: str, read: Callable[[str], str], random_bytes: Callable[[int], bytes]) -> FirstUser:
    """`read` returns the first line of a file. ConfigError says what is wrong, without values other than names."""
    whole = WHOLE.fullmatch(text.strip())
    mechanism = whole["mechanism"].upper() if whole else ""
    if whole is None or mechanism not in HASHES:
        raise ConfigError(f"{OPTION}: expected {FORM}, where MECHANISM is {' or '.join(HASHES)}")
    pairs = split(whole["pairs"])
    if not pairs.get("name"):
        raise ConfigError(f"{OPTION}: name is missing")
    where = f"{OPTION} for {pairs['name']}"
    given = [name for name in PASSWORDS if name in pairs]
    if len(given) != 1:
        raise ConfigError(f"{where}: expected one of {', '.join(PASSWORDS)}")
    iterations = count_iterations(pairs.get("iterations", str(ITERATIONS_MIN)), where)
    salt = decode(pairs["salt"], f"{where}: salt") if "salt" in pairs else random_bytes(SALT_SIZE)
    if "saltedpassword" in pairs:
        if "salt" not in pairs:
            raise ConfigError(f"{where}: saltedpassword needs its salt")
        salted = decode(pairs["saltedpassword"], f"{where}: saltedpassword")
    else:
        password = pairs["password"] if "password" in pairs else read_file(pairs["password-file"], read, where)
        if not password:
            raise ConfigError(f"{where}: the password is empty")
        salted = pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return FirstUser(pairs["name"], mechanism, encode(credential(mechanism, salt, salted, iterations)))


def split(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = PAIR.match(text, position)
        if pair is None:
            raise ConfigError(f'{OPTION}: expected name=value, ...; put a value with a comma in "..."')
        if pair["name"] not in NAMES:
            raise ConfigError(f"{OPTION}: {pair['name']} is not one of {', '.join(sorted(NAMES))}")
        if pair["name"] in pairs:
            raise ConfigError(f"{OPTION}: {pair['name']} is given twice")
        pairs[pair["name"]] = pair["plain"] if pair["quoted"] is None else pair["quoted"]
        position = pair.end()
    return pairs


def count_iterations(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and ITERATIONS_MIN <= int(text[:9]) <= ITERATIONS_MAX):
        raise ConfigError(f"{where}: iterations: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def decode(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where}: expected base 64") from None


def read_file(path: str, read: Callable[[str], str], where: str) -> str:
    try:
        return read(path).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigError(f"{where}: {path}: {reason}") from None
