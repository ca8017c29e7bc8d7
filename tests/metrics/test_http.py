"""The little HTTP server: what it answers, and what it takes from nobody."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from waiting import wait_until

from ottla.metrics import http
from ottla.metrics.http import BadRequest, is_allowed, parse

if TYPE_CHECKING:
    from ottla.embed import BrokerThread


def dial(broker: BrokerThread) -> socket.socket:
    address = urlsplit(broker.metrics)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=60)


def ask(broker: BrokerThread, head: str) -> bytes:
    """Everything that comes after this until the server closes, or one answer when it does not."""
    with dial(broker) as sock:
        sock.sendall(head.encode())
        return whole(sock)


def whole(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")).split(b":")[1])
    while len(body) < size:
        piece = sock.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("GET /metrics?x=1 HTTP/1.0\r\nHost: 127.0.0.1:9404\r\n\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: [::1]:9404\r\n\r\n", 200),
        ("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("BREW /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        ("GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        ("nonsense\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: ä\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        ("GET /" + "x" * 9000, 431),
    ],
)
def test_answers(broker: BrokerThread, head: str, expected: int) -> None:
    assert status(ask(broker, head)) == expected


def test_head_has_no_body(broker: BrokerThread) -> None:
    with dial(broker) as sock:
        sock.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        data = b""
        while piece := sock.recv(65536):
            data += piece
    assert b"Content-Length: 16" in data
    assert data.endswith(b"\r\n\r\n")


def test_a_connection_is_used_again_and_requests_may_come_together(broker: BrokerThread) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with dial(broker) as sock:
        for _ in range(3):
            sock.sendall(one)
            assert status(whole(sock)) == 200
        sock.sendall(one * 5)
        data = b""
        while data.count(b"HTTP/1.1 200 OK") < 5:
            piece = sock.recv(65536)
            assert piece
            data += piece


def test_a_head_that_never_ends_is_cut(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S_MAX", 0.2)
    with dial(broker) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert is_cut(sock)
    with dial(broker) as sock:
        assert is_cut(sock), "so is one that says nothing"


def test_an_answer_that_nobody_takes_is_cut(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SEND_S_MAX", 0.2)
    with dial(broker) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(500):  # together more than the buffers of both sides hold
            try:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except OSError:
                break
        wait_until(lambda: was_reset(sock))


def test_many_connections_do_not_keep_a_scraper_out(broker: BrokerThread) -> None:
    idle = [dial(broker) for _ in range(3 * http.CONNECTIONS_MAX)]
    try:
        assert status(ask(broker, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
        cut = wait_until(lambda: sum(was_reset(sock) for sock in idle) >= 2 * http.CONNECTIONS_MAX)
        assert cut
    finally:
        for sock in idle:
            sock.close()


def is_cut(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def was_reset(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.send(b"x") < 0
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_names_that_may_be_asked_for() -> None:
    names = frozenset({"broker-1"})
    assert all(
        is_allowed(host, names) for host in ("127.0.0.1", "10.0.0.7:9404", "[::1]", "LOCALHOST:1", "Broker-1:9404")
    )
    assert not any(is_allowed(host, names) for host in ("evil.example", "127.0.0.1.evil.example", "", "broker-2"))
    assert is_allowed("evil.example", frozenset({"*"}))


@pytest.mark.parametrize("head", [b"\xff", b"GET  / HTTP/1.1", b"GET / HTTP/1.1\r\n: x", b"GET / HTTP/1.1\r\na : x"])
def test_what_is_no_request_is_refused(head: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(head)
