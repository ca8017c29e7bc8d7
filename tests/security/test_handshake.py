"""Handshakes with clients that send their bytes one by one, or something that is no TLS."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from contextlib import suppress
from functools import partial
from itertools import count, repeat
from random import Random
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from waiting import until, wait_until

from ottla.net.newcomers import Newcomers
from ottla.security import handshake
from ottla.security.handshake import Handshakes
from ottla.security.stream import Stream
from ottla.testing.certificates import Certificate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(Certificate("server").write(tmp_path / "server.pem"))
    return made


class Client:
    """TLS in memory, whose bytes are handed over in pieces."""

    def __init__(self, sock: socket.socket, sizes: Iterable[int]) -> None:
        self._sizes = iter(sizes)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket, self._in, self._out = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)

    async def shake_hands(self, request: bytes = b"") -> None:
        """To the end, and say this together with the last of it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send()
                self._in.write(await loop.sock_recv(self._socket, 65536))
                continue
            if request:
                self._tls.write(request)
            await self._send()
            return

    async def _send(self) -> None:
        said = self._out.read()
        while said:
            size = next(self._sizes)
            await asyncio.get_running_loop().sock_sendall(self._socket, said[:size])
            said = said[size:]
            for _ in range(3):  # so that the other side sees it alone
                await asyncio.sleep(0)


async def answer(
    context: ssl.SSLContext, talk: Callable[[socket.socket], Awaitable[None]], expected: bytes = b""
) -> Stream | str:
    """How a handshake ends, for a client that talks like this; what it says afterwards must be this."""
    ours, theirs = socket.socketpair()
    handshakes = Handshakes()
    ended: asyncio.Future[Stream | str] = asyncio.get_running_loop().create_future()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        handshakes.begin(ours, context, Newcomers().serve, ended.set_result, ended.set_result)
        await talk(theirs)
        async with asyncio.timeout(30):
            result = await ended
            said, buffer = b"", memoryview(bytearray(1000))
            while isinstance(result, Stream) and len(said) < len(expected):
                with suppress(BlockingIOError):
                    said += bytes(buffer[: result.receive(ours, buffer)])
                await asyncio.sleep(0)
        handshakes.close()
    assert said == expected
    return result


def test_a_client_that_sends_byte_by_byte_costs_no_more_turns_of_the_thread(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[bool] = []
    shake_hands = Stream.shake_hands

    def shake(stream: Stream) -> bool:
        turns.append(shake_hands(stream))
        return turns[-1]

    monkeypatch.setattr(Stream, "shake_hands", shake)
    result = asyncio.run(answer(context, lambda sock: Client(sock, repeat(1)).shake_hands()))
    assert isinstance(result, Stream)
    assert turns[-1]
    assert len(turns) <= 5, "one for each record, not for each byte"


@pytest.mark.parametrize("seed", range(20))
def test_records_may_be_cut_anywhere(context: ssl.SSLContext, seed: int) -> None:
    random = Random(seed)
    sizes = (random.choice((1, 3, 5, 6, 20, 100, 1000)) for _ in count())
    request = random.randbytes(300)
    result = asyncio.run(answer(context, lambda sock: Client(sock, sizes).shake_hands(request), request))
    assert isinstance(result, Stream)


@pytest.mark.parametrize(
    "said",
    [
        b"\0",  # the first byte of a request of Kafka's protocol
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff",  # a record that is larger than any
        b"\x17\x03\x03\x00\x01\x00",  # data before the handshake
    ],
)
def test_what_is_no_tls_is_refused_at_once(context: ssl.SSLContext, said: bytes) -> None:
    async def talk(sock: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, said)
        if said == b"\0":
            await asyncio.get_running_loop().sock_sendall(sock, bytes(10))

    assert isinstance(asyncio.run(answer(context, talk)), str)


def test_many_that_never_finish_end_a_few_at_a_time(context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.05)

    async def scene() -> None:
        pairs = [socket.socketpair() for _ in range(3 * handshake.EXPIRED_MAX)]
        handshakes, ended = Handshakes(), list[str]()
        for ours, _ in pairs:
            ours.setblocking(False)
            handshakes.begin(ours, context, Newcomers().serve, pytest.fail, ended.append)  # type: ignore[arg-type]
        seen = set[int]()

        def count() -> bool:
            seen.add(len(ended))
            return len(ended) == len(pairs)

        await until(count, "the end of all of them")
        assert set(ended) == {"it did not finish within 0.05 s"}
        assert len(seen) >= 3, "not all at once"
        assert not len(handshakes)
        handshakes.close()
        for pair in pairs:
            for one in pair:
                one.close()

    asyncio.run(scene())


def test_one_too_many_ends_the_oldest(context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKES_MAX", 2)

    async def scene() -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        handshakes, ended = Handshakes(), list[int]()
        for at, (ours, _) in enumerate(pairs):
            ours.setblocking(False)
            handshakes.begin(ours, context, Newcomers().serve, pytest.fail, partial(note, ended, at))  # type: ignore[arg-type]
        assert ended == [0]
        handshakes.close()
        assert ended == [0, 1, 2]
        for pair in pairs:
            for one in pair:
                one.close()

    def note(ended: list[int], at: int, reason: str) -> None:
        ended.append(at)

    asyncio.run(scene())


async def disconnect(sock: socket.socket) -> None:
    sock.close()


async def stop_half_way(sock: socket.socket) -> None:
    hello, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        trusting.wrap_bio(incoming, hello).do_handshake()
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, hello.read())
    await loop.sock_recv(sock, 1)
    sock.close()


async def talk_nonsense(sock: socket.socket) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("talk", [disconnect, stop_half_way, talk_nonsense])
def test_a_failed_handshake_is_freed_without_the_garbage_collector(
    context: ssl.SSLContext, talk: Callable[[socket.socket], Awaitable[None]]
) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            assert isinstance(asyncio.run(answer(context, talk)), str)
        # The thread lets go of the last one a moment later.
        wait_until(lambda: not any(isinstance(one, Stream | handshake.Handshake) for one in gc.get_objects()), "free")
    finally:
        gc.enable()


class Lent:
    """A socket with these bytes to receive, during whose reading something else happens."""

    def __init__(self, cipher: bytes, meanwhile: Callable[[], None]) -> None:
        self._cipher = cipher
        self._meanwhile = meanwhile

    def recv_into(self, buffer: memoryview) -> int:
        size = len(self._cipher)
        buffer[:size] = self._cipher
        self._meanwhile()
        return size


def connected(context: ssl.SSLContext) -> tuple[Stream, Callable[[bytes], bytes]]:
    """A stream after its handshake, and how its client encrypts."""
    stream, incoming, outgoing = Stream(context), ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    client = trusting.wrap_bio(incoming, outgoing)
    finished = False
    while not finished:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        stream.feed(outgoing.read())
        finished = stream.shake_hands()
        incoming.write(stream.take_cipher())

    def encrypt(said: bytes) -> bytes:
        client.write(said)
        return outgoing.read()

    return stream, encrypt


def test_brokers_in_threads_of_one_process_read_into_buffers_of_their_own(context: ssl.SSLContext) -> None:
    one, other = connected(context), connected(context)
    heard: list[bytes] = []

    def hear(pair: tuple[Stream, Callable[[bytes], bytes]], said: bytes, meanwhile: Callable[[], None]) -> None:
        buffer = memoryview(bytearray(100))
        size = pair[0].receive(Lent(pair[1](said), meanwhile), buffer)  # type: ignore[arg-type]
        heard.append(bytes(buffer[:size]))

    def interrupt() -> None:
        thread = Thread(target=hear, args=(other, b"of the other", lambda: None))
        thread.start()
        thread.join()

    hear(one, b"of this one", interrupt)
    assert heard == [b"of the other", b"of this one"]
