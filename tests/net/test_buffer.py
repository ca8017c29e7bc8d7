"""The send buffer of a connection follows how much its client takes at once."""

from __future__ import annotations

import errno
import socket as sockets
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.net import buffer
from ottla.net.buffer import (
    FOR_CROWDS,
    FOR_LARGE_WINDOWS,
    FOR_SMALL_WINDOWS,
    LOOKS_BEFORE_SMALL,
    LOOKS_MAX,
    SendBuffer,
)
from ottla.net.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from socket import socket

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the window of the peer")
REGION_SIZE = 1 << 20
LARGE, SMALL = 200_000, 65_536  # receive buffers of clients
SIZE_SET = 100 * 1024  # smaller than in use, as other systems may allow no more


class Told:
    """A socket whose kernel says this of the connection."""

    def __init__(self, round_trip_us: int, *windows: int) -> None:
        self._round_trip_us = round_trip_us
        self._windows = list(windows)
        self.sizes: list[int] = []
        self.looks = 0

    def getsockopt(self, _: int, __: int, size: int) -> bytes:
        self.looks += 1
        window = self._windows.pop(0) if len(self._windows) > 1 else self._windows[0]
        return buffer._INFO.pack(self._round_trip_us, window)[:size]

    def setsockopt(self, level: int, option: int, size: int) -> None:
        assert (level, option) == (sockets.SOL_SOCKET, sockets.SO_SNDBUF)
        self.sizes.append(size)


def sizes_after(told: Told, times: int = LOOKS_MAX + 10, *, crowded: bool = False) -> tuple[list[int], int]:
    """The sizes that are set when the socket is full so many times, and how often it looks."""
    fitted = SendBuffer()
    for _ in range(times):
        fitted.fit(cast("Any", told), crowded=crowded)
    return told.sizes, told.looks


@LINUX
def test_a_large_window_needs_a_small_buffer() -> None:
    assert sizes_after(Told(50, 1 << 20)) == ([FOR_LARGE_WINDOWS], 1)
    assert sizes_after(Told(50, 0, 60_000, 100_000, 3 << 20)) == ([FOR_LARGE_WINDOWS], 4), "it grows as it reads"


@LINUX
def test_a_window_that_stays_small_needs_a_large_buffer() -> None:
    assert sizes_after(Told(50, 65_536)) == ([FOR_SMALL_WINDOWS], LOOKS_MAX)
    assert sizes_after(Told(50, 65_536), LOOKS_BEFORE_SMALL - 1)[0] == []
    late = Told(50, *[65_536] * 20, 1 << 20)
    assert sizes_after(late) == ([FOR_SMALL_WINDOWS, FOR_LARGE_WINDOWS], 21), "even then it may grow"


@LINUX
def test_several_at_once_get_less_each() -> None:
    assert sizes_after(Told(50, 1 << 20), crowded=True) == ([FOR_CROWDS], 1)
    told, fitted = Told(50, 1 << 20), SendBuffer()
    for crowded in (False, True, True, False, False):
        fitted.fit(cast("Any", told), crowded=crowded)
    assert told.sizes == [FOR_LARGE_WINDOWS, FOR_CROWDS, FOR_LARGE_WINDOWS]
    assert sizes_after(Told(50, 65_536), crowded=True)[0] == [FOR_SMALL_WINDOWS], "a small window is not its fault"


@LINUX
def test_a_client_far_away_keeps_its_buffer() -> None:
    assert sizes_after(Told(5000, 65_536)) == ([], LOOKS_MAX)
    assert sizes_after(Told(5000, 1 << 20)) == ([], LOOKS_MAX)


@LINUX
def test_a_kernel_that_does_not_tell_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(50, 1 << 20)
    looks: list[str] = []

    def tell_little(*_: int) -> bytes:
        looks.append("little")
        return bytes(104)

    def refuse(*_: int) -> bytes:
        looks.append("nothing")
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    for answer in (tell_little, refuse):
        monkeypatch.setattr(told, "getsockopt", answer)
        assert sizes_after(told)[0] == []
    assert looks == ["little", "nothing"]


@pytest.fixture(params=[LARGE, SMALL], ids=["large", "small"])
def connected(request: pytest.FixtureRequest) -> Iterator[tuple[socket, socket, int]]:
    """A server's socket and its client's, and the client's receive buffer."""
    with sockets.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client:
        client.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, request.param)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            accepted.setblocking(False)
            accepted.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SIZE_SET)
            yield accepted, client, request.param


class Region:
    def __init__(self, fd: int) -> None:
        self.fd, self.position, self.size = fd, 0, REGION_SIZE

    def read(self) -> bytes:
        raise AssertionError("large regions are not read")


@LINUX
@pytest.mark.parametrize("fits", [True, False])
def test_real_sockets(
    tmp_path: Path, connected: tuple[socket, socket, int], monkeypatch: pytest.MonkeyPatch, *, fits: bool
) -> None:
    accepted, client, size = connected
    monkeypatch.setattr(buffer, "NEAR_US", 10**7)  # this machine may be busy
    monkeypatch.setattr(buffer, "LARGE_WINDOW", 100_000)
    monkeypatch.setattr(buffer, "FOR_LARGE_WINDOWS", 50 * 1024)
    monkeypatch.setattr(buffer, "FOR_SMALL_WINDOWS", 150 * 1024)
    before = accepted.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF)
    path, outbox = tmp_path / "log", Outbox(fits_buffer=fits)
    path.write_bytes(bytes(REGION_SIZE))
    with path.open("rb") as file:
        for _ in range(40):
            outbox.add([Region(file.fileno())])
            left = REGION_SIZE
            while left:
                if not outbox.send(accepted):
                    outbox.fit_buffer(accepted, crowded=False)
                left -= len(client.recv(1 << 16))
    after = accepted.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF)
    if not fits:
        assert after == before
    elif size == SMALL:
        assert after > before
    else:
        assert after < before


def test_a_system_without_this_information_sends_as_well(
    tmp_path: Path, connected: tuple[socket, socket, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as macOS."""
    monkeypatch.setattr(buffer, "_TCP_INFO", None)
    accepted, client, _ = connected
    path, outbox = tmp_path / "log", Outbox(fits_buffer=True)
    path.write_bytes(bytes(REGION_SIZE))
    with path.open("rb") as file:
        outbox.add([Region(file.fileno())])
        left = REGION_SIZE
        while left:
            if not outbox.send(accepted):
                outbox.fit_buffer(accepted, crowded=False)
            left -= len(client.recv(1 << 16))
    assert not outbox
