"""Proxies between processes: what passes, what waits while a link is cut, and what comes through afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from waiting import wait_until

from ottla.testing.links import Links, owner

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET_S = 0.2  # how long to look that nothing comes


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says everything again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=repeat, args=(connection,), daemon=True).start()


def repeat(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1000):
            connection.sendall(data)


@contextmanager
def dialled(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        yield connection


def is_quiet(connection: socket.socket) -> bool:
    connection.settimeout(QUIET_S)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(60)


def test_bytes_and_the_end_pass(echo: int) -> None:
    with Links(dict) as links, dialled(links.open("b", echo, source="a")) as connection:
        connection.sendall(b"hello")
        assert connection.recv(9) == b"hello"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(9) == b""


@pytest.mark.parametrize("pair", [("a", "b"), ("b", "a")])
def test_a_cut_in_one_direction_holds_what_goes_there(echo: int, pair: tuple[str, str]) -> None:
    with Links(dict) as links, dialled(links.open("b", echo, source="a")) as connection:
        connection.sendall(b"x")
        assert connection.recv(9) == b"x"
        links.cut([pair])
        connection.sendall(b"y")
        assert is_quiet(connection)
        links.cut([("c", "d")])
        assert is_quiet(connection), "cuts add up"
        links.heal()
        assert connection.recv(9) == b"y"


def test_who_dials_over_a_cut_link_is_not_told(echo: int) -> None:
    with Links(dict) as links:
        port = links.open("b", echo, source="a")
        links.cut([("a", "b")])
        with dialled(port) as connection:
            connection.sendall(b"y")
            assert is_quiet(connection)
            links.heal()
            assert connection.recv(9) == b"y"


def test_nobody_behind_the_proxy_is_a_closed_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with Links(dict) as links, dialled(links.open("b", unused.getsockname()[1])) as connection:
            assert connection.recv(9) == b""


DIALLER = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"x")
print(connection.recv(9).decode(), flush=True)
sys.stdin.read()
"""


def test_a_link_knows_who_dials(echo: int) -> None:
    processes = {"me": os.getpid()}
    with Links(lambda: processes) as links:
        port = links.open("b", echo)
        links.cut([("other", "b")])
        with dialled(port) as connection:
            connection.sendall(b"x")
            assert connection.recv(9) == b"x"
            assert owner(connection.getsockname()[1], processes) == "me"
        with subprocess.Popen(
            [sys.executable, "-c", DIALLER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as dialler:
            processes["other"] = dialler.pid
            assert dialler.stdout is not None
            wait_until(lambda: ("other", "b") in links._healed, "it is held up")
            links.heal()
            assert dialler.stdout.readline() == "x\n"
            dialler.communicate()


def test_nobody_owns_an_unused_port() -> None:
    assert owner(1, {"me": os.getpid(), "gone": 2**22}) is None
