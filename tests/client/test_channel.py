"""Frames over a pair of sockets: parts of every size out, frames cut in every place in."""

import itertools
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ottla.client import channel as module
from ottla.client.channel import AHEAD, PARTS_MAX, Channel
from ottla.wire.codec import DecodeError

TIMEOUT_S = 10.0


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(TIMEOUT_S)
        channel = Channel(ours, TIMEOUT_S)
        yield channel, theirs
        channel.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def received(theirs: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += theirs.recv(1 << 16)
    return bytes(data)


@pytest.mark.parametrize(
    "sizes",
    [
        [5],
        [10, 0, 20],
        [100, 50_000, 3],
        [1 << 20, 0, 5 << 20, 7],
        [100] * (3 * PARTS_MAX + 1),
        [20_000] * 700,
    ],
)
def test_parts_become_one_frame(ends: tuple[Channel, socket.socket], sizes: list[int]) -> None:
    """Many are larger than the buffers of a socket, which takes them piece by piece."""
    channel, theirs = ends
    random.seed(len(sizes))
    parts = [random.randbytes(size) for size in sizes]
    sending = threading.Thread(
        target=channel.send, args=([memoryview(part) if index % 2 else part for index, part in enumerate(parts)],)
    )
    sending.start()
    assert received(theirs, sum(sizes) + 4) == framed(b"".join(parts))
    sending.join(TIMEOUT_S)


@pytest.mark.parametrize("seed", range(20))
def test_frames_cut_anywhere_come_out_whole(
    ends: tuple[Channel, socket.socket], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, theirs = ends
    monkeypatch.setattr(module, "PIECE", 100_000)
    choose = random.Random(seed)
    bodies = [
        choose.randbytes(choose.choice([4, 5, 60, 1000, AHEAD - 5, AHEAD - 4, AHEAD, 300_000])) for _ in range(40)
    ]
    stream = b"".join(map(framed, bodies))
    cuts = sorted(choose.sample(range(len(stream)), 100))

    def send() -> None:
        for start, stop in itertools.pairwise([0, *cuts, len(stream)]):
            theirs.sendall(stream[start:stop])

    sending = threading.Thread(target=send)
    sending.start()
    kept = [channel.receive() for _ in bodies]  # each in a buffer of its own
    assert [bytes(one) for one in kept] == bodies
    sending.join(TIMEOUT_S)
    assert not channel.ready()


def test_what_was_read_ahead_is_ready(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    assert not channel.ready()
    theirs.sendall(framed(b"one!") + framed(b"two!"))
    assert channel.ready(TIMEOUT_S)
    assert channel.receive() == b"one!"
    assert channel.ready(), "though nothing is left in the socket"
    assert channel.receive() == b"two!"
    theirs.close()
    assert channel.ready(TIMEOUT_S), "the end is something to hear of"
    with pytest.raises(ConnectionError):
        channel.receive()


@pytest.mark.parametrize("size", [-1, 0, 3, module.ANSWER_SIZE_MAX + 1, 0x48545450])
def test_a_length_that_is_none(ends: tuple[Channel, socket.socket], size: int) -> None:
    channel, theirs = ends
    theirs.sendall(struct.pack(">i", size) + b"more")
    with pytest.raises(DecodeError, match=f"a length of {size} bytes"):
        channel.receive()


def test_a_length_that_trickles_is_none() -> None:
    """Each byte comes in time, all four of them together do not."""
    ours, theirs = socket.socketpair()
    channel, stop = Channel(ours, 0.2), threading.Event()

    def trickle() -> None:
        for byte in framed(b"body"):
            theirs.sendall(bytes([byte]))
            if stop.wait(0.15):
                break

    with theirs:
        sending = threading.Thread(target=trickle)
        sending.start()
        with pytest.raises(TimeoutError):
            channel.receive()
        stop.set()
        sending.join(TIMEOUT_S)
    channel.close()


@pytest.mark.parametrize("cut", [0, 2, 4, 7])
def test_an_end_in_the_middle(ends: tuple[Channel, socket.socket], cut: int) -> None:
    channel, theirs = ends
    theirs.sendall(framed(b"whole") + framed(b"torn")[:cut])
    theirs.close()
    assert channel.receive() == b"whole"
    with pytest.raises(ConnectionError):
        channel.receive()
