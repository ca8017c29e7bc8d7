"""One connection to brokers that answer, answer nonsense, trickle, or do not answer."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.client import channel
from ottla.client.channel import ANSWER_SIZE_MAX
from ottla.client.connection import Connection
from ottla.client.failure import Failed, Unreachable
from ottla.embed import BrokerProcess, BrokerThread
from ottla.wire import codec, frame
from ottla.wire.messages.metadata import (
    ApiVersion,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)

TIMEOUT_S = 10.0


@contextmanager
def stranger(*answers: bytes) -> Iterator[tuple[str, int]]:
    """A server that gives one answer to each request, whatever was asked, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(ConnectionError):  # whoever has heard enough hangs up
                for answer in answers:
                    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[:2]
        thread.join(TIMEOUT_S)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions(*apis: tuple[int, int, int], correlation: int = 1) -> bytes:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in apis]
    body = codec.encode(ApiVersionsResponse(error_code=0, api_keys=keys), 0)
    return framed(frame.response_header(18, 0, correlation) + body)


def refuse(address: tuple[str, int]) -> str:
    with pytest.raises(Failed) as caught:
        Connection(address, TIMEOUT_S)
    return str(caught.value)


def test_the_newest_version_that_both_know_is_taken() -> None:
    with stranger(versions((3, 1, 5), (10, 90, 99))) as address:
        connection = Connection(address, TIMEOUT_S)
        assert connection.version(3) == 5
        for key in (10, 61):  # spoken in versions that we do not know, and not spoken at all
            with pytest.raises(Failed, match="no version of"):
                connection.version(key)
        connection.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a length of 1213486160 bytes"),
        (struct.pack(">i", -1), "a length of -1 bytes"),
        (struct.pack(">i", ANSWER_SIZE_MAX + 1), "a length of"),
        (framed(b"\0\0\0\1"), "something other than ApiVersionsResponse"),
        (framed(b"\0\0\0\7\0\0\0\0\0\0"), "an answer to request 7 instead of 1"),
        (framed(b"\0\0\0\1\0\0\0\0\0\0\0"), "1 bytes are left"),
        (framed(b"\0\0\0\1\0\x23\0\0\0\0"), "UNSUPPORTED_VERSION"),
        (b"\0\0\0\x20short", "went away"),
        (b"", "went away"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(answer: bytes, said: str) -> None:
    with stranger(answer) as address:
        assert said in refuse(address)


def test_silence_has_an_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(Failed, match="does not answer"):
        Connection(deaf.getsockname()[:2], 0.2)


def test_nobody_there_is_one_sentence() -> None:
    assert "no connection to the broker at 127.0.0.1:1" in refuse(("127.0.0.1", 1))


def described(count: int, correlation: int) -> bytes:
    """A Metadata answer, version 5, with so many brokers of long names."""
    brokers = [MetadataResponseBroker(node_id=index, host="h" * 1000, port=index) for index in range(count)]
    body = codec.encode(MetadataResponse(brokers=brokers, topics=[]), 5)
    return framed(frame.response_header(3, 5, correlation) + body)


def test_answers_come_in_the_order_of_the_requests() -> None:
    with stranger(versions((3, 1, 5)), described(1, 2), described(2, 3), described(3, 4)) as address:
        connection = Connection(address, TIMEOUT_S)
        sent = [connection.send(MetadataRequest(topics=[])) for _ in range(3)]
        assert sent == [2, 3, 4]
        assert not connection.idle
        assert connection.ready(TIMEOUT_S)
        assert [len(connection.receive(MetadataResponse).brokers) for _ in range(3)] == [1, 2, 3]
        assert connection.idle
        connection.close()


def test_an_answer_out_of_order_ends_the_connection() -> None:
    with stranger(versions((3, 1, 5)), described(1, 3)) as address:
        connection = Connection(address, TIMEOUT_S)
        connection.send(MetadataRequest(topics=[]))
        with pytest.raises(Failed, match="an answer to request 3 instead of 2"):
            connection.receive(MetadataResponse)
        assert not connection.alive
        with pytest.raises(Unreachable, match="went away"):
            connection.send(MetadataRequest(topics=[]))


def test_a_large_answer_grows_its_buffer_as_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PIECE", 1000)
    with stranger(versions((3, 1, 5)), described(50, 2)) as address:
        connection = Connection(address, TIMEOUT_S)
        found = connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert [broker.port for broker in found.brokers] == list(range(50))
        connection.close()


def test_who_comes_late_for_an_answer_gets_it() -> None:
    """Between asking and taking, callers decode: that may take longer than a broker may."""
    with stranger(versions((3, 1, 5)), described(1, 2)) as address:
        connection = Connection(address, 0.3)
        connection.send(MetadataRequest(topics=[]))
        assert connection.ready(TIMEOUT_S)
        asked = time.monotonic()
        while time.monotonic() < asked + 0.5:
            assert connection.ready(TIMEOUT_S)
        assert len(connection.receive(MetadataResponse).brokers) == 1
        connection.close()


def test_an_answer_that_trickles_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, all of them together do not."""
    monkeypatch.setattr(channel, "RATE_MIN", 1 << 30)
    answer = described(1, 2)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(1000)
                connection.sendall(versions((3, 1, 5)))
                connection.recv(1000)
                connection.sendall(answer[:5])
                for byte in answer[5:]:
                    if stop.wait(0.05):
                        break
                    connection.sendall(bytes([byte]))

        stop = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        connection = Connection(listening.getsockname()[:2], 0.4)
        with pytest.raises(Unreachable, match="does not answer"):
            connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        stop.set()
        thread.join(TIMEOUT_S)


def test_a_connection_is_used_again(ottla_broker: BrokerProcess | BrokerThread) -> None:
    host, _, port = ottla_broker.bootstrap.rpartition(":")
    connection = Connection((host, int(port)), TIMEOUT_S)
    for _ in range(3):
        assert connection.ask(MetadataRequest(topics=[]), MetadataResponse).topics == []
    assert connection.features()["transaction.version"] == 2
    connection.close()
