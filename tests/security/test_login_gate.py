"""Before a login: what is served, how much, for how long. And handshakes that never end."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from security.conftest import RENEWED_MS
from waiting import wait_until

from ottla.errors import ErrorCode
from ottla.net import login_gate
from ottla.security import handshake
from ottla.wire.messages.auth import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest

if TYPE_CHECKING:
    from security.conftest import Place

TOKEN = b"\0alice\0wonder land"
EVERYTHING = MetadataRequest(topics=None)


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def connect(place: Place) -> Wired:
    return Wired(port(place.address("SASL_PLAINTEXT")))


def log_in(wired: Wired, token: bytes = TOKEN, version: int = 2) -> Any:
    assert wired.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return wired.ask(SaslAuthenticateRequest(auth_bytes=token), version)


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(60)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_only_the_calls_of_a_login_are_served_before_it(place: Place) -> None:
    with connect(place) as wired:
        assert wired.ask(ApiVersionsRequest(), 0).error_code == 0
        with pytest.raises(ConnectionError):
            wired.ask(EVERYTHING, 1)
    with connect(place) as wired, pytest.raises(ConnectionError):
        wired.ask(SaslAuthenticateRequest(auth_bytes=TOKEN), 1)
    with connect(place) as wired:
        assert log_in(wired).error_code == 0
        assert wired.ask(EVERYTHING, 1).brokers


def test_a_request_in_the_middle_of_a_login_ends_it(place: Place) -> None:
    with connect(place) as wired:
        assert wired.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        assert wired.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 1).error_code == 0
        with pytest.raises(ConnectionError):
            wired.ask(EVERYTHING, 1)


def test_requests_that_are_sent_along_with_a_login_are_served_after_it(place: Place) -> None:
    with connect(place) as wired:
        wired.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        wired.send(SaslAuthenticateRequest(auth_bytes=TOKEN), 1)
        wired.send(EVERYTHING, 1)
        assert [wired.receive().error_code for _ in range(2)] == [0, 0]
        assert wired.receive().brokers


def test_requests_behind_a_login_that_fails_are_not_served(place: Place) -> None:
    with connect(place) as wired:
        wired.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        wired.send(SaslAuthenticateRequest(auth_bytes=TOKEN + b"x"), 1)
        wired.send(EVERYTHING, 1)
        wired.receive()
        refused = wired.receive()
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message == "Authentication failed: Invalid username or password"
        with pytest.raises(ConnectionError):
            wired.receive()


def test_a_login_is_over_once(place: Place) -> None:
    with connect(place) as wired:
        log_in(wired)
        again = wired.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wired.ask(SaslAuthenticateRequest(auth_bytes=TOKEN), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wired.ask(EVERYTHING, 1).brokers


def test_tokens_without_a_header(place: Place) -> None:
    """As clients before 1.0 send them, after version 0 of the handshake."""
    with connect(place) as wired:
        assert wired.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        wired._socket.sendall(struct.pack(">i", len(TOKEN)) + TOKEN)
        assert wired._take(4) == bytes(4)
        assert wired.ask(EVERYTHING, 1).brokers
    with connect(place) as wired:
        assert wired.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
        wired._socket.sendall(struct.pack(">i", len(TOKEN) + 1) + TOKEN + b"x")
        assert is_closed(wired._socket)


def test_a_mechanism_that_is_not_there_is_answered_with_those_that_are(place: Place) -> None:
    with connect(place) as wired:
        answer = wired.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert is_closed(wired._socket)


@pytest.mark.parametrize("announced", [524_289, 1 << 30, -1])
def test_a_large_frame_is_refused_before_it_comes(place: Place, announced: int) -> None:
    with connect(place) as wired:
        wired._socket.sendall(struct.pack(">i", announced) + struct.pack(">hh", 36, 1))
        assert is_closed(wired._socket)


def test_after_a_login_frames_may_be_large(place: Place) -> None:
    with connect(place) as wired:
        log_in(wired)
        body = b"".join((struct.pack(">hhih", 3, 1, 7, -1), struct.pack(">i", 3000), (b"\0\xf9" + b"a" * 249) * 3000))
        wired._socket.sendall(struct.pack(">i", len(body)) + body)
        assert struct.unpack(">i", wired._take(4))[0] > 0


def test_who_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    monkeypatch.setattr(login_gate, "LOGIN_S", 0.2)
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.2)
    for listener in ("SASL_PLAINTEXT", "SASL_SSL", "SSL"):
        with socket.create_connection(("127.0.0.1", port(place.address(listener)))) as silent:
            assert is_closed(silent)


def test_nothing_is_kept_of_those_who_are_in_or_gone(place: Place) -> None:
    root = place.broker._broker._root
    assert root is not None
    (listener,) = (one for one in root._listeners if one.name == "SASL_PLAINTEXT")
    assert listener._entrance is not None
    door = listener._entrance.gate
    assert door is not None
    with connect(place) as wired, connect(place):
        wait_until(lambda: len(door._timers) >= 2)
        log_in(wired)
    wait_until(lambda: not door._timers)


def test_a_closed_connection_does_not_wait_for_the_garbage_collector(place: Place) -> None:
    root = place.broker._broker._root
    assert root is not None
    (listener,) = (one for one in root._listeners if one.name == "SASL_PLAINTEXT")
    gc.collect()
    gc.disable()
    try:
        with connect(place) as wired, connect(place):
            wait_until(lambda: len(listener.connections) >= 2)
            log_in(wired)
            kept = [weakref.ref(one.login) for one in list(listener.connections)]
        wait_until(lambda: not any(one() for one in kept))
    finally:
        gc.enable()


def test_a_crowd_of_unfinished_handshakes_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKES_MAX", 20)
    address = ("127.0.0.1", port(place.address("SSL")))
    crowd = [socket.create_connection(address) for _ in range(60)]
    try:
        context = ssl.create_default_context(cafile=str(place.ca))
        with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as secured:
            secured.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            assert secured.recv(4)
        root = place.broker._broker._root
        assert root is not None
        assert root._doors is not None
        assert len(root._doors.handshakes) <= 20
        assert is_closed(crowd[0])
    finally:
        for sock in crowd:
            sock.close()


@pytest.mark.parametrize("said", [b"\x16\x03\x01" + bytes(200), b"GET / HTTP/1.1\r\n\r\n", bytes(40), b"\xff" * 9000])
def test_what_is_no_tls_is_closed(place: Place, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port(place.address("SSL")))) as sock:
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(60)
        try:
            while sock.recv(4096):  # an alert first
                continue
        except ConnectionError:
            pass


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_of_tls_are_not_spoken(place: Place, version: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with socket.create_connection(("127.0.0.1", port(place.address("SSL")))) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock)


def test_a_principal_comes_with_the_connection(place: Place) -> None:
    """Whoever handles a request can ask whose it is."""
    root = place.broker._broker._root
    assert root is not None
    listeners = {listener.name: listener for listener in root._listeners}

    def principals(name: str) -> set[str]:
        return {str(connection.principal) for connection in list(listeners[name].connections)}

    with connect(place) as wired:
        wait_until(lambda: "User:ANONYMOUS" in principals("SASL_PLAINTEXT"))
        log_in(wired)
        assert "User:alice" in principals("SASL_PLAINTEXT")
    context = ssl.create_default_context(cafile=str(place.ca))
    context.load_cert_chain(place.client)
    address = ("127.0.0.1", port(place.address("MUTUAL")))
    with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as secured:
        secured.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        assert secured.recv(4)
        assert principals("MUTUAL") == {"User:ALICE"}


def test_a_login_that_ends_must_be_renewed(place: Place) -> None:
    root = place.broker._broker._root
    assert root is not None
    (listener,) = (one for one in root._listeners if one.name == "RENEWED")
    with Wired(port(place.address("RENEWED"))) as wired:
        assert log_in(wired).session_lifetime_ms == RENEWED_MS
        login = next(reversed(listener.connections)).login
        assert login is not None
        early = wired.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
        login._proved_at -= 2
        assert log_in(wired).session_lifetime_ms == RENEWED_MS
        assert wired.ask(EVERYTHING, 1).brokers
        login._expires_at = 0.0
        with pytest.raises(ConnectionError):
            wired.ask(EVERYTHING, 1)
