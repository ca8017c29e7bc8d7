"""Kinds of hostile clients. Each function is one attempt, which siege.py repeats.

An attempt ends when it is done or refused. AssertionError: the attacker got something that it should not get.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import struct
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from compat.raw import (
    FETCH,
    METADATA,
    PRODUCE,
    Closed,
    Raw,
    Reader,
    array,
    batch,
    list_offset,
    produce,
    produce_body,
    string,
)
from fuzz.hostile import bombs
from fuzz.test_codec_fuzz import flipped, spliced, stuffed
from wire.samples import instance

from ottla.wire.apis import BY_KEY
from ottla.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    Assault = Callable[["Target", Random], None]

# How an attacker may be turned away; struct.error is an answer that is shorter than it expects.
GONE: Final = (Closed, ConnectionError, TimeoutError, OSError, struct.error)
PATIENCE_S: Final = 2.0
HANDSHAKE, AUTHENTICATE = 17, 36
FILLED: Final = "filled"  # a topic with megabytes to read
CODECS: Final = (bombs.GZIP, bombs.LZ4, bombs.ZSTD)
ASSAULTS: Final[dict[str, Assault]] = {}


class Target(NamedTuple):
    ports: Mapping[str, int]
    topic: str
    user: str
    password: str

    def dial(self, listener: str = "PLAINTEXT") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=PATIENCE_S)

    def raw(self, listener: str = "PLAINTEXT") -> Raw:
        return Raw(self.ports[listener], timeout_s=PATIENCE_S, client_id="attacker")


def assault(name: str) -> Callable[[Assault], Assault]:
    def register(perform: Assault) -> Assault:
        ASSAULTS[name] = perform
        return perform

    return register


@assault("random bytes")
def random_bytes(target: Target, random: Random) -> None:
    with target.dial(random.choice(list(target.ports))) as sock:
        sock.sendall(random.randbytes(random.choice((1, 5, 100, 20_000))))
        sock.settimeout(0.05)
        sock.recv(1000)


@assault("requests of every API, cut, flipped and stuffed")
def broken_requests(target: Target, random: Random) -> None:
    key = random.choice(list(BY_KEY))
    api = BY_KEY[key]
    version = random.randint(*api.versions)
    good = encode(instance(api.request, version, random), version)
    body = random.choice((flipped, stuffed, spliced))(good, random)
    head = struct.pack(">hhih", key, version, 1, 4) + b"fuzz" + (b"\0" if version >= api.flexible else b"")
    with target.raw() as raw:
        raw.socket.settimeout(0.05)
        raw.send_frame(head + body)
        raw.receive()


@assault("hostile lengths and counts")
def lengths(target: Target, random: Random) -> None:
    with target.dial(random.choice(("PLAINTEXT", "SASL_PLAINTEXT"))) as sock:
        size = random.choice((-1, 0, 1, 0x7FFFFFFF, -0x80000000, 104_857_601, 104_857_600))
        sock.sendall(struct.pack(">i", size) + struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0x7FFFFFFF))
        sock.settimeout(0.05)
        sock.recv(1000)


@assault("half-open connections")
def half_open(target: Target, random: Random) -> None:
    """An incomplete request. The connection is kept for a while, then closed."""
    socks = [target.dial() for _ in range(20)]
    for sock in socks:
        sock.sendall(struct.pack(">ihh", 1000, 3, 1)[: random.randint(1, 8)])
    time.sleep(1.0)
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        sock.close()


@cache
def hello() -> bytes:
    """The first message of a TLS client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@assault("slow handshakes")
def slow_handshake(target: Target, random: Random) -> None:
    """Byte by byte, and never to the end."""
    socks = [target.dial("SSL") for _ in range(20)]
    said = hello()
    for place in range(0, len(said), 40):
        for sock in socks:
            sock.sendall(said[place : place + random.randint(1, 3)])
        time.sleep(0.1)
    for sock in socks:
        sock.close()


@assault("handshakes that stop half way")
def half_handshake(target: Target, random: Random) -> None:
    """The broker signs, and the client does not answer."""
    socks = [target.dial("SSL") for _ in range(5)]
    for sock in socks:
        sock.sendall(hello())
    for sock in socks:
        sock.recv(100)
        sock.close()


@cache
def bomb(codec: int) -> bytes:
    return bombs.bomb(codec, 500_000)


def prepare() -> None:
    """Create in advance what takes long to create."""
    hello()
    malformed()
    for codec in CODECS:
        bomb(codec)


@assault("zip bombs")
def zip_bomb(target: Target, random: Random) -> None:
    with target.raw() as raw:
        raw.send(PRODUCE, 7, produce_body(target.topic, bomb(random.choice(CODECS))))
        raw.receive()
    time.sleep(1.0)


@assault("wrong checksums")
def checksum(target: Target, random: Random) -> None:
    good = bytearray(batch([b"forged"] * 10))
    place = random.randrange(17, len(good))  # the checksum itself, and all that it covers
    good[place] ^= 1 << random.randrange(8)
    with target.raw() as raw:
        refuse(raw, target, bytes(good), "a batch with a wrong checksum")


@assault("batches that are too large or miscounted")
def miscounted(target: Target, random: Random) -> None:
    hostile = {**malformed(), "a batch of 2 MB": batch([bytes(2 << 20)])}
    name = random.choice(list(hostile))
    with target.raw() as raw:
        refuse(raw, target, hostile[name], name)


@cache
def malformed() -> dict[str, bytes]:
    return bombs.malformed()


def refuse(raw: Raw, target: Target, data: bytes, what: str) -> None:
    error = produce(raw, target.topic, data).error
    assert error, f"{what} was accepted"


@assault("forged replica ids")
def forged_replica(target: Target, random: Random) -> None:
    """A fetch with the id of a broker, from far beyond the end, with sizes of its own."""
    place = struct.pack(">iqi", 0, random.choice((0, 1 << 40)), 1 << 30)
    head = struct.pack(">iiiib", random.choice((0, 1, 2, 1000)), 0, 1, 1 << 30, 0)
    with target.raw() as raw:
        raw.send(FETCH, 4, head + array([string(target.topic) + array([place])]))
        raw.receive()
        assert list_offset(raw, target.topic, -1) < 1 << 40, "a client has moved the end of a log"


@assault("readers that do not read")
def unread(target: Target, random: Random) -> None:
    """Consumers that ask for megabytes and take nothing; floods of requests are in attacks_of_connections.py."""
    head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
    body = head + array([string(FILLED) + array([struct.pack(">iqi", 0, 0, 1 << 20)])])
    raws = [target.raw() for _ in range(3)]
    for raw in raws:
        for _ in range(20):
            raw.send(FETCH, 4, body)
    time.sleep(1.0)
    for raw in raws:
        raw.close()


@assault("replayed logins by SCRAM")
def replay(target: Target, random: Random) -> None:
    """A login that succeeds, and its messages once more on a new connection and on the same one."""
    nonce = f"{random.randrange(1 << 60):x}"
    with target.raw("SASL_PLAINTEXT") as raw:
        final, code = log_in(raw, target.user, target.password, nonce)
        assert code == 0, f"the right password was refused with {code}"
        raw.send(AUTHENTICATE, 1, struct.pack(">i", len(final)) + final)
        answer = Reader(raw.receive())
        answer.int32()
        assert answer.int16() != 0, "the same proof was accepted twice on a connection"
    with target.raw("SASL_PLAINTEXT") as raw:
        hand_shake(raw)
        _, code = authenticate(raw, first(target.user, nonce))
        assert code == 0
        _, code = authenticate(raw, final)
        assert code != 0, "a replayed proof was accepted"


@assault("guessed passwords")
def guess(target: Target, random: Random) -> None:
    with target.raw("SASL_PLAINTEXT") as raw:
        _, code = log_in(raw, random.choice((target.user, "nobody")), "guessed", "abc")
        assert code != 0, "a guessed password was accepted"


@assault("requests before the login")
def unproved(target: Target, random: Random) -> None:
    with target.raw("SASL_PLAINTEXT") as raw:
        raw.send(METADATA, 1, struct.pack(">i", -1))
        raw.receive()
        raise AssertionError("a request before the login was answered")


def first(user: str, nonce: str) -> bytes:
    return f"n,,n={user},r={nonce}".encode()


def hand_shake(raw: Raw) -> None:
    answer = raw.call(HANDSHAKE, 1, string("SCRAM-SHA-256"))
    assert answer.int16() == 0


def authenticate(raw: Raw, token: bytes) -> tuple[bytes, int]:
    answer = raw.call(AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    code = answer.int16()
    answer.string()
    return answer.blob() or b"", code


def log_in(raw: Raw, user: str, password: str, nonce: str) -> tuple[bytes, int]:
    """The last message of a client, and the code of the answer to it."""
    hand_shake(raw)
    challenge, code = authenticate(raw, first(user, nonce))
    assert code == 0, f"a first message was refused with {code}"
    said = challenge.decode()
    parts = dict(part.split("=", 1) for part in said.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c=biws,r={parts['r']}"
    message = f"n={user},r={nonce},{said},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(left ^ right for left, right in zip(key, signature, strict=True))).decode()
    final = f"{bare},p={proof}".encode()
    return final, authenticate(raw, final)[1]
