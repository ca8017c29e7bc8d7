"""Sending over TLS: in order, in pieces, however much the socket takes, and never for long at once."""

from __future__ import annotations

import random
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla.net.encrypted import PIECE_SIZE, TURN_SIZE, EncryptedOutbox
from ottla.security.stream import Stream
from ottla.testing.certificates import Certificate

if TYPE_CHECKING:
    from pathlib import Path


class Region:
    """A region of a file."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd, self.position, self.size = fd, position, size

    def read(self) -> bytes:
        raise AssertionError("regions are read in pieces")


class Sink:
    """A socket that takes a limited number of bytes at once; None: all."""

    def __init__(self, takes: list[int | None]) -> None:
        self.taken = bytearray()
        self._takes = takes

    def send(self, data: memoryview) -> int:
        size = self._takes.pop(0) if self._takes else None
        if size == 0:
            raise BlockingIOError
        part = data if size is None else data[:size]
        self.taken += part
        return len(part)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Stream, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A stream after its handshake, and the client at the other end."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(Certificate("broker").write(tmp_path / "a.pem"))
    server.num_tickets = 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream, down, up = Stream(server), ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up)
    finished = False
    while not finished:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        stream.feed(up.read())
        finished = stream.shake_hands()
        down.write(stream.take_cipher())
    return stream, client, down, up


def plain(client: ssl.SSLObject, down: ssl.MemoryBIO, cipher: bytes) -> bytes:
    down.write(cipher)
    data = bytearray()
    while True:
        try:
            data += client.read(1 << 16)
        except ssl.SSLWantReadError:
            return bytes(data)


def test_bytes_and_regions_leave_in_order_whatever_the_socket_takes(pair: Any, tmp_path: Path) -> None:
    stream, client, down, _ = pair
    chance = random.Random(7)
    content = chance.randbytes(700_000)
    path = tmp_path / "log"
    path.write_bytes(content)
    with path.open("rb") as file:
        outbox = EncryptedOutbox(stream)
        region = Region(file.fileno(), 1000, 600_000)
        parts = [b"head", memoryview(b"more"), region, b"tail" * 50_000, Region(file.fileno(), 5, 10), b"end"]
        expected = b"headmore" + content[1000:601_000] + b"tail" * 50_000 + content[5:15] + b"end"
        outbox.add(parts)
        assert outbox.size == len(expected)
        sink, rounds = Sink([chance.choice([0, 1, 5, 1000, 100_000, None]) for _ in range(60)]), 0
        while not outbox.send(sink):  # type: ignore[arg-type]
            rounds += 1
            assert outbox
        assert rounds > 5
        assert (len(outbox), outbox.size) == (0, 0)
    assert plain(client, down, bytes(sink.taken)) == expected


def test_a_socket_that_takes_everything_does_not_get_everything_at_once(pair: Any) -> None:
    stream, _, _, _ = pair
    outbox = EncryptedOutbox(stream)
    outbox.add([bytes(10 * TURN_SIZE)])
    sink = Sink([])
    assert not outbox.send(sink)  # type: ignore[arg-type]
    assert TURN_SIZE <= len(sink.taken) <= TURN_SIZE + 2 * PIECE_SIZE
    for _ in range(8):
        assert not outbox.send(sink)  # type: ignore[arg-type]
    assert outbox.send(sink) or outbox.send(sink)  # type: ignore[arg-type]


def test_a_file_that_is_shorter_than_its_region_ends_the_connection(pair: Any, tmp_path: Path) -> None:
    stream, _, _, _ = pair
    path = tmp_path / "log"
    path.write_bytes(b"short")
    with path.open("rb") as file:
        outbox = EncryptedOutbox(stream)
        outbox.add([Region(file.fileno(), 0, 100)])
        with pytest.raises(OSError, match="shorter than the region"):
            outbox.send(Sink([]))  # type: ignore[arg-type]


def test_what_was_received_and_not_asked_for_is_known(pair: Any) -> None:
    stream, client, _, up = pair
    cipher = bytearray()

    class Source:
        def recv_into(self, buffer: memoryview) -> int:
            if not cipher:
                raise BlockingIOError
            size = len(cipher)
            buffer[:size] = cipher
            cipher.clear()
            return size

    client.write(b"x" * 250)
    cipher += up.read()
    buffer = memoryview(bytearray(100))
    assert [stream.receive(Source(), buffer), stream.more] == [100, True]
    assert [stream.receive(Source(), buffer), stream.more] == [100, True]
    assert [stream.receive(Source(), buffer), stream.more] == [50, False]
    with pytest.raises(BlockingIOError):
        stream.receive(Source(), buffer)
    client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    cipher += up.read()
    assert stream.receive(Source(), buffer) == 4
    assert stream.more, "the end is still to be found"
    assert stream.receive(Source(), buffer) == 0
