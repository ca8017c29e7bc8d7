"""Ports for servers: free, all different, and none that an outgoing connection could take meanwhile."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ottla.testing.ports import FIRST, LAST, Ports, free_ports

if TYPE_CHECKING:
    from pathlib import Path


def test_they_are_free_and_different() -> None:
    ports = free_ports(50) + free_ports(50)
    assert len(set(ports)) == 100
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_outgoing_connections_have_others(tmp_path: Path) -> None:
    file = tmp_path / "range"
    file.write_text("20000\t60999\n")
    assert all(FIRST <= port < 20000 for port in Ports(file).take(50))
    assert all(FIRST <= port <= LAST for port in Ports(tmp_path / "none").take(50))


def test_one_that_is_taken_is_left_out(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "none")
    (first,) = ports.take(1)
    with socket.create_server(("127.0.0.1", first + 1)):
        assert first + 1 not in ports.take(3)


def test_without_room_below_the_system_chooses(tmp_path: Path) -> None:
    file = tmp_path / "range"
    file.write_text("1024 65535")
    assert len(set(Ports(file).take(5))) == 5
